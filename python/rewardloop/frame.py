"""The binary frame of a sample: one safetensors blob in canonical form.

The Go package ``wire`` encodes the same sample to the same bytes. docs/wire.md contains the rules.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import InputError, TooLargeError
from .jsontext import check_text, clean, text
from .media import DTYPE_BYTES, Media
from .sample import Sample
from .traceparent import EXAMPLE, current, valid

MAX_HEADER_BYTES = 1 << 20
MAX_NAME_BYTES = 512
MAX_DEADLINE = 7 * 24 * 3600.0
MAX_MEDIA = 64
MAX_TENSORS = 4096
#: Largest message where the server has not said what it takes.
DEFAULT_MESSAGE_BYTES = 128 << 20
#: Pieces of a large message: pings, and other connections of the same thread, get in between.
FRAGMENT_BYTES = 256 << 10
#: Up to here a message is joined and goes out as one piece: a copy is cheaper than a system call.
WHOLE_BYTES = 64 << 10

_INT31 = (1 << 31) - 1
_INT64 = (1 << 63) - 1
_NAMES = ("id", "run", "uid", "reward")
_TEXTS = ("data_source", "prompt", "response")


@dataclass(frozen=True)
class Frame:
    """An encoded sample. parts share memory with the sample's media."""

    #: The length and the JSON header, padded to 8 bytes.
    head: bytes
    #: The tensors in the order of their offsets.
    parts: tuple[memoryview, ...]
    #: Bytes of the whole message.
    size: int

    def __bytes__(self) -> bytes:
        """Returns a copy of the message in one piece."""
        return b"".join((self.head, *self.parts))

    def fragments(self) -> Iterator[bytes | memoryview]:
        """Yields the message in pieces: the header with small tensors, and large tensors without a copy.

        A piece of a large tensor has at most FRAGMENT_BYTES.
        """
        small: list[bytes | memoryview] = [self.head]
        held = len(self.head)
        for part in self.parts:
            if held + part.nbytes <= WHOLE_BYTES:
                small.append(part)
                held += part.nbytes
                continue
            if small:
                yield b"".join(small)
                small, held = [], 0
            for at in range(0, part.nbytes, FRAGMENT_BYTES):
                yield part[at : at + FRAGMENT_BYTES]
        if small:
            yield b"".join(small)


def encode(sample: Sample, *, message_bytes: int = DEFAULT_MESSAGE_BYTES, header_bytes: int = MAX_HEADER_BYTES) -> Frame:
    """Returns the frame of a sample. Raises InputError with the name of the field that is invalid or too large."""
    if not isinstance(sample, Sample):
        raise InputError(f"want a rewardloop.Sample, not {type(sample).__name__}")
    try:
        return _encode(sample, message_bytes, min(header_bytes, MAX_HEADER_BYTES))
    except InputError as err:
        if err.sample_id or not isinstance(sample.id, str):
            raise
        raise type(err)(err.message, field=err.field, sample_id=sample.id[:MAX_NAME_BYTES]) from err.__cause__


def _encode(sample: Sample, message_bytes: int, header_bytes: int) -> Frame:
    _check_fields(sample)
    media = _media_of(sample)
    entries, tensors = _entries(media)
    inner = text(_fields(sample, entries))
    # Wide types first: behind a header of whole 8 bytes every tensor is aligned. The sort is stable.
    tensors.sort(key=lambda t: -DTYPE_BYTES[t[1]])
    header: dict[str, Any] = {"__metadata__": {"sample": inner}}
    at = 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + data.nbytes]}
        at += data.nbytes
    body = text(header).encode()
    body += b" " * (-len(body) % 8)
    if len(body) > header_bytes:
        raise TooLargeError(f"the texts make a header of {len(body)} bytes, the limit is {header_bytes}")
    size = 8 + len(body) + at
    if size > message_bytes:
        raise TooLargeError(
            f"the message has {size} bytes, the server accepts {message_bytes}: raise loop.message_bytes in the configuration "
            "of the server"
        )
    return Frame(struct.pack("<Q", len(body)) + body, tuple(t[3] for t in tensors), size)


def _check_fields(s: Sample) -> None:
    for name in _NAMES:
        _check_string(getattr(s, name), name, MAX_NAME_BYTES)
    for name in _TEXTS:
        _check_string(getattr(s, name), name, MAX_HEADER_BYTES)
    if not s.id:
        raise InputError("empty; every sample needs one", field="id")
    if s.split not in ("", "train", "val"):
        raise InputError(f"{s.split!r}, want train or val", field="split")
    _check_int(s.step, "step", -_INT64 - 1, _INT64)
    _check_int(s.group_size, "group_size", 0, _INT31)
    if s.index is not None:
        _check_int(s.index, "index", 0, _INT31)
    if s.deadline is not None:
        number = isinstance(s.deadline, int | float | np.number) and not isinstance(s.deadline, bool)
        if not number or not 0 < s.deadline <= MAX_DEADLINE:
            raise InputError(f"{s.deadline!r}, want seconds above 0 and up to {MAX_DEADLINE:.0f}", field="deadline")
    _check_string(s.traceparent, "traceparent", MAX_NAME_BYTES)
    if s.traceparent and not valid(s.traceparent):
        raise InputError(f"{s.traceparent!r}, want a W3C traceparent such as {EXAMPLE}", field="traceparent")


def _check_string(value: object, name: str, most: int) -> None:
    if not isinstance(value, str):
        raise InputError(f"want a string, not {type(value).__name__}", field=name)
    check_text(value, name)
    if len(value) * 4 > most and (n := len(value.encode())) > most:
        raise TooLargeError(f"{n} bytes, want at most {most}", field=name)


def _check_int(value: object, name: str, low: int, high: int) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise InputError(f"want an integer, not {type(value).__name__}", field=name)
    if not low <= value <= high:
        raise InputError(f"{value}, want {low} to {high}", field=name)


def _media_of(s: Sample) -> Sequence[Media]:
    media = (s.media,) if isinstance(s.media, Media) else s.media
    if not isinstance(media, list | tuple):
        raise InputError(f"want what image(), video(), latent() or audio() return, not {type(media).__name__}", field="media")
    for i, m in enumerate(media):
        if not isinstance(m, Media):
            raise InputError(
                f"want what image(), video(), latent() or audio() return, not {type(m).__name__}", field=f"media[{i}]"
            )
    if len(media) > MAX_MEDIA:
        raise TooLargeError(f"{len(media)} entries, at most {MAX_MEDIA}", field="media")
    return media


def _entries(media: Sequence[Media]) -> tuple[list[dict[str, Any]], list[tuple[str, str, Sequence[int], memoryview]]]:
    entries = []
    tensors: list[tuple[str, str, Sequence[int], memoryview]] = []
    for i, m in enumerate(media):
        entry: dict[str, Any] = {}
        if m.encoding == "frames":
            names = [f"media{i}.{j}" for j in range(len(m.parts))]
            tensors += [(name, "U8", (part.nbytes,), part) for name, part in zip(names, m.parts, strict=True)]
            entry["tensors"] = names
        else:
            tensors.append((f"media{i}", m.dtype, m.shape, m.parts[0]))
            entry["tensor"] = f"media{i}"
        entry["kind"] = m.kind
        if m.layout:
            entry["layout"] = m.layout
        entry["encoding"] = m.encoding
        if m.fps is not None:
            entry["fps"] = int(m.fps) if m.fps.is_integer() else m.fps
        if m.sample_rate is not None:
            entry["sample_rate"] = m.sample_rate
        entries.append(entry)
    if len(tensors) > MAX_TENSORS:
        raise TooLargeError(f"{len(tensors)} tensors, at most {MAX_TENSORS}", field="media")
    return entries, tensors


def _fields(s: Sample, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """The sample's fields in the order of docs/wire.md; what is empty or 0 is left out."""
    out: dict[str, Any] = {"id": s.id}
    if s.run:
        out["run"] = s.run
    if s.step:
        out["step"] = int(s.step)
    if s.split:
        out["split"] = s.split
    if s.index is not None:
        out["index"] = int(s.index)
    if s.uid:
        out["uid"] = s.uid
    if s.group_size:
        out["group_size"] = int(s.group_size)
    if s.reward:
        out["reward"] = s.reward
    if s.data_source:
        out["data_source"] = s.data_source
    if s.prompt:
        out["prompt"] = s.prompt
    if s.response:
        out["response"] = s.response
    if s.ground_truth is not None:
        out["ground_truth"] = clean(s.ground_truth, "ground_truth")
    if s.extra_info is not None:
        if not hasattr(s.extra_info, "items"):
            raise InputError(f"want a mapping, not {type(s.extra_info).__name__}", field="extra_info")
        out["extra_info"] = clean(s.extra_info, "extra_info")
    if entries:
        out["media"] = entries
    if ms := s.deadline_ms():
        out["deadline_ms"] = ms
    if parent := s.traceparent or current():
        out["traceparent"] = parent
    return out
