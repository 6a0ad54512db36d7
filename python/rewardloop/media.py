"""Pictures, videos, latents and audio. Their layout is always explicit and never guessed.

Large data is not copied: a C-contiguous array or a tensor on the CPU is sent from its own memory, and must therefore
not change until the sample has its result. ``copy=True`` copies the data immediately instead. Data that is not
contiguous, not little-endian or not on the CPU is copied once.

A file is read when image(), video(), frames(), audio() or Sample() gets its path, not when the sample is submitted. A
wrong path therefore raises InputError there, with the path; submit() returns immediately, and the file may be deleted
before submit(). Reading a file from the page cache takes less than a millisecond. In an event loop that must not wait
for a slow disk, use ``await asyncio.to_thread(rewardloop.image, path)``.
"""

from __future__ import annotations

import io
import math
import os
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .errors import InputError

#: Bytes of one element of every dtype that media may have.
DTYPE_BYTES = {"U8": 1, "I16": 2, "F16": 2, "BF16": 2, "F32": 4}

_NUMPY = {"uint8": "U8", "int16": "I16", "float16": "F16", "bfloat16": "BF16", "float32": "F32"}
_LAYOUTS = {"image": ("HWC", "CHW"), "video": ("THWC", "TCHW", "CTHW"), "audio": ("T", "CT", "TC")}
_DTYPES = {
    "image": ("U8",),
    "video": ("U8",),
    "latent": ("F16", "BF16", "F32"),
    "audio": ("I16", "F16", "BF16", "F32"),
}
_CAST = {
    "image": "pixels are integers from 0 to 255: (x * 255).round().clip(0, 255) as uint8",
    "video": "pixels are integers from 0 to 255: (x * 255).round().clip(0, 255) as uint8",
    "latent": "cast it to float16, bfloat16 or float32",
    "audio": "cast it to int16, float16, bfloat16 or float32",
}
#: The kind of media of each encoding but raw.
_KINDS = {
    "jpeg": "image", "png": "image", "webp": "image", "frames": "video", "mp4": "video", "webm": "video", "gif": "video",
    "wav": "audio", "flac": "audio",
}
#: The path of a file.
Path: TypeAlias = "str | os.PathLike[str]"

#: Bytes of the largest file that is read: no server takes a larger sample (loop.max_bytes).
MAX_FILE = 1 << 30

# What people give by mistake, by its first bytes.
_CONTAINERS = (
    (4, b"ftypavif", "an AVIF picture"),
    (4, b"ftypheic", "a HEIC picture"),
    (4, b"ftypmif1", "a HEIC picture"),
    (4, b"ftyp", "an MP4 video: rewardloop.video takes it"),
    (0, b"\x1a\x45\xdf\xa3", "a WebM video: rewardloop.video takes it"),
    (0, b"GIF8", "a GIF: rewardloop.video takes it"),
    (0, b"fLaC", "a FLAC sound: rewardloop.audio takes it"),
    (8, b"WAVE", "a WAV sound: rewardloop.audio takes it"),
    (0, b"BM", "a BMP picture"),
    (0, b"II*\x00", "a TIFF picture"),
    (0, b"MM\x00*", "a TIFF picture"),
    (0, b"\x93NUMPY", "a NumPy array: numpy.load reads it"),
    (0, b"version https://git-lfs", "a Git LFS pointer: git lfs pull fetches the file"),
)
_MAX_RANK = 8
_MAX_SAMPLE_RATE = 1 << 24


@dataclass(frozen=True, eq=False)
class Media:
    """One medium of a sample. Make it with image(), video(), frames(), latent() or audio()."""

    #: image, video, latent or audio.
    kind: str
    #: raw, jpeg, png, webp, frames, mp4, webm, gif, wav or flac.
    encoding: str
    #: The axes of a raw tensor, slowest first; empty for what is encoded.
    layout: str
    #: U8, I16, F16, BF16 or F32.
    dtype: str
    #: The tensor's axes; of frames and files the number of bytes is the only one.
    shape: tuple[int, ...]
    #: The bytes: one piece, or one for each frame.
    parts: tuple[memoryview, ...]
    fps: float | None = None
    sample_rate: int | None = None

    def __post_init__(self) -> None:
        if self.fps is not None:
            object.__setattr__(self, "fps", _number(self.fps, "fps"))
        check(self)

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return sum(p.nbytes for p in self.parts)


def image(data: Any, *, layout: str = "", encoding: str = "", copy: bool = False) -> Media:
    """Returns a picture as Media.

    data is one of:

    - the path of a JPEG, PNG or WebP file, which is read now and sent unchanged;
    - the bytes of such a file; the format is detected from the first bytes, or given as ``encoding`` jpeg, png or webp;
    - a PIL image, which is sent raw with layout HWC;
    - a uint8 array or tensor with ``layout`` HWC or CHW and C = 1, 3 or 4.

    Raises InputError for any other data: no file, a folder, another format, more than 1 GiB.
    """
    if isinstance(data, str | os.PathLike):
        data, copy = read_file(data, "image"), False
    if isinstance(data, bytes | bytearray | memoryview):
        return _file(data, layout, encoding, copy)
    if encoding not in ("", "raw"):
        raise InputError(f"{encoding!r} is for the bytes of a file, not for {_name(data)}", field="encoding")
    if _is_pil(data):
        return _from_pil(data, layout)
    return _tensor("image", data, layout, copy)


def video(data: Any, *, layout: str = "", fps: float | None = None, copy: bool = False) -> Media:
    """Returns a video as Media.

    data is one of:

    - the path or the bytes of an MP4, WebM or GIF file, which is sent unchanged and decoded by the server;
    - a uint8 array or tensor with layout THWC, TCHW or CTHW and C = 1, 3 or 4;
    - a list of the frames' files, as for frames().
    """
    if isinstance(data, str | os.PathLike | bytes | bytearray | memoryview):
        encoding, view = _whole("video", data, layout, copy)
        return Media("video", encoding, "", "U8", (view.nbytes,), (view,), fps=fps)
    if isinstance(data, list | tuple):
        if layout:
            raise InputError(f"{layout!r} of a list of files; only raw media has a layout", field="layout")
        return frames(data, fps=fps, copy=copy)
    return _tensor("video", data, layout, copy, fps=fps)


def frames(files: Sequence[bytes | bytearray | memoryview | Path], *, fps: float | None = None, copy: bool = False) -> Media:
    """Returns a video from one JPEG, PNG or WebP file for each frame, in order.

    files are the bytes of the files, or their paths, which are read now.
    """
    if isinstance(files, bytes | bytearray | memoryview | str) or not isinstance(files, Sequence):
        raise InputError(f"want a list of files, one for each frame, not {_name(files)}", field="frames")
    parts, left = [], MAX_FILE
    for i, file in enumerate(files):
        field = f"frames[{i}]"
        if isinstance(file, str | os.PathLike):
            view = memoryview(read_file(file, field, left))
            left -= view.nbytes
        else:
            view = _bytes_view(file, field, copy)
        if _sniff(view) == "":
            raise InputError(f"is not a JPEG, PNG or WebP file{_container(view)}", field=field)
        parts.append(view)
    return Media("video", "frames", "", "U8", (sum(p.nbytes for p in parts),), tuple(parts), fps=fps)


def latent(data: Any, *, layout: str, copy: bool = False) -> Media:
    """Returns a latent as Media.

    data is a float16, bfloat16 or float32 array or tensor; layout has a different letter A-Z for each axis, such as
    CHW.
    """
    return _tensor("latent", data, layout, copy)


def audio(data: Any, *, layout: str = "", sample_rate: int | None = None, copy: bool = False) -> Media:
    """Returns audio as Media.

    data is one of:

    - the path or the bytes of a WAV or FLAC file, which is sent unchanged and decoded by the server;
    - an int16, float16, bfloat16 or float32 array or tensor with its sample_rate and with layout T, CT or TC, where T
      counts sample frames.
    """
    if isinstance(data, str | os.PathLike | bytes | bytearray | memoryview):
        if sample_rate is not None:
            raise InputError("leave the argument out: a WAV or FLAC file contains its sample rate", field="sample_rate")
        encoding, view = _whole("audio", data, layout, copy)
        return Media("audio", encoding, "", "U8", (view.nbytes,), (view,))
    return _tensor("audio", data, layout, copy, sample_rate=sample_rate)


#: The files of each kind, and how they begin.
_FILES = {"video": ("mp4", "webm", "gif"), "audio": ("wav", "flac")}
_STILLS = (b"avif", b"avis", b"heic", b"heix", b"mif1", b"msf1")


def _sniff_file(view: memoryview) -> str:
    head = bytes(view[:12])
    if head[4:8] == b"ftyp" and head[8:12] not in _STILLS:
        return "mp4"
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return "webm"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if head.startswith(b"fLaC"):
        return "flac"
    return "wav" if head[:4] == b"RIFF" and head[8:12] == b"WAVE" else ""


def _whole(kind: str, data: Any, layout: str, copy: bool) -> tuple[str, memoryview]:
    """A file of a video or a sound, and its encoding."""
    if layout:
        raise InputError(f"{layout!r} of a file; only raw media has a layout", field="layout")
    path = isinstance(data, str | os.PathLike)
    view = memoryview(_read(data, kind, MAX_FILE)) if path else _bytes_view(data, kind, copy)
    found = _sniff_file(view)
    if found not in _FILES[kind]:
        want = "an MP4, WebM or GIF" if kind == "video" else "a WAV or FLAC"
        raise InputError(f"{repr(os.fspath(data)) if path else 'the data'} is not {want} file", field=kind)
    return found, view


def media_of(given: Any) -> Any:
    """Returns the media of a sample with paths and PIL images converted to Media, and all else unchanged."""
    if isinstance(given, str | os.PathLike) or _is_pil(given):
        return image(given)
    if isinstance(given, list | tuple):
        return tuple(media_of(m) if not isinstance(m, list | tuple) else m for m in given)
    return given


def check(m: Media) -> None:
    """Raises InputError, with the name of the invalid part, for a medium that a server would refuse."""
    if m.kind not in _DTYPES:
        raise InputError(f"{m.kind!r}, want image, video, latent or audio", field="kind")
    if m.fps is not None and (m.kind != "video" or not 1e-3 <= m.fps <= 1e6):
        raise InputError(f"{m.fps!r} of a {m.kind}; a video has one, from 0.001 to 1000000", field="fps")
    if m.sample_rate is not None and (
        m.kind != "audio" or type(m.sample_rate) is not int or not 1 <= m.sample_rate <= _MAX_SAMPLE_RATE
    ):
        raise InputError(f"{m.sample_rate!r}; audio has an integer one, from 1 to {_MAX_SAMPLE_RATE}", field="sample_rate")
    if m.kind == "audio" and m.encoding == "raw" and m.sample_rate is None:
        raise InputError("missing; audio needs one", field="sample_rate")
    if not m.parts or any(p.nbytes == 0 for p in m.parts):
        raise InputError("no data" if not m.parts else "a part is empty", field=m.kind)
    if m.encoding == "raw":
        _check_raw(m)
    elif m.encoding not in _KINDS:
        raise InputError(f"{m.encoding!r}, want one of raw, {', '.join(_KINDS)}", field="encoding")
    elif m.layout:
        raise InputError(f"{m.layout!r} with encoding {m.encoding!r}; only raw media has a layout", field="layout")
    elif m.kind != _KINDS[m.encoding]:
        raise InputError(f"{m.encoding!r} does not fit a {m.kind}", field="encoding")


def _check_raw(m: Media) -> None:
    known = _LAYOUTS.get(m.kind)
    if known is not None and m.layout not in known:
        raise InputError(f"{m.layout!r} of a raw {m.kind}; say which of {', '.join(known)} it is", field="layout")
    if known is None and not (m.layout and all("A" <= c <= "Z" for c in m.layout) and len(set(m.layout)) == len(m.layout)):
        raise InputError(f"{m.layout!r}; want another letter A to Z for each axis, such as CHW", field="layout")
    if len(m.shape) != len(m.layout) or len(m.shape) > _MAX_RANK:
        raise InputError(f"{m.layout!r} names {len(m.layout)} axes (at most {_MAX_RANK}), the data has {m.shape}", field="layout")
    if m.dtype not in _DTYPES[m.kind]:
        raise InputError(f"{m.dtype} of a raw {m.kind}, want {' or '.join(_DTYPES[m.kind])}", field="dtype")
    if m.kind in ("image", "video") and (c := m.shape[m.layout.index("C")]) not in (1, 3, 4):
        raise InputError(f"{c} channels in {m.layout} {m.shape}, want 1, 3 or 4; is the layout right?", field="layout")
    want = math.prod(m.shape) * DTYPE_BYTES[m.dtype]
    if len(m.parts) != 1 or m.nbytes != want:
        raise InputError(f"{m.dtype} {m.shape} has {want} bytes, the data has {m.nbytes}", field="shape")


def _file(data: bytes | bytearray | memoryview, layout: str, encoding: str, copy: bool) -> Media:
    view = _bytes_view(data, "image", copy)
    if encoding not in ("", "jpeg", "png", "webp"):
        raise InputError(f"{encoding!r}; the bytes of a file are jpeg, png or webp", field="encoding")
    found = _sniff(view)
    if not found and not encoding:
        raise InputError(f"not a JPEG, PNG or WebP file{_container(view)}", field="image")
    encoding = encoding or found
    if found != encoding:
        raise InputError(f"{encoding!r}, but the bytes are {found or 'not jpeg, png or webp'}", field="encoding")
    return Media("image", encoding, layout, "U8", (view.nbytes,), (view,))


def read_file(path: Path, field: str, most: int = MAX_FILE) -> bytes:
    """Returns the bytes of a picture file; raises InputError if it is not one, or has more than ``most`` bytes."""
    data = _read(path, field, most)
    if not _sniff(memoryview(data)):
        name = os.fspath(path)
        raise InputError(f"{name!r} is not a JPEG, PNG or WebP file{_container(memoryview(data))}", field=field)
    return data


def _read(path: Path, field: str, most: int) -> bytes:
    name = os.fspath(path)
    try:
        # Without O_NONBLOCK a named pipe would be waited for.
        with open(name, "rb", opener=lambda p, flags: os.open(p, flags | getattr(os, "O_NONBLOCK", 0))) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise InputError(f"{name!r} is not a file", field=field)
            if about.st_size > most:
                raise InputError(f"{name!r} has {about.st_size} bytes, and no sample more than {MAX_FILE}", field=field)
            data = file.read(most + 1)
    except IsADirectoryError:
        raise InputError(
            f"{name!r} is a folder; to send its files as a video: rewardloop.frames(sorted(pathlib.Path({name!r}).iterdir()))",
            field=field,
        ) from None
    except (OSError, ValueError) as err:  # ValueError: a null byte
        raise InputError(f"{name!r} cannot be read: {err}", field=field) from None
    if not data:
        raise InputError(f"{name!r} is empty", field=field)
    return data


def _container(view: memoryview) -> str:
    """What bytes are that are no picture, and what to do, to stand behind a message."""
    head = bytes(view[:32])
    for at, magic, what in _CONTAINERS:
        if head[at:].startswith(magic):
            return f" but {what}" if ":" in what else f" but {what}: save it as one of these"
    return ""


def _sniff(view: memoryview) -> str:
    head = bytes(view[:12])
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    return "webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else ""


def _bytes_view(data: object, field: str, copy: bool) -> memoryview:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InputError(f"want the bytes of a file, not {_name(data)}", field=field)
    if len(data) == 0:
        raise InputError("the file is empty", field=field)
    if isinstance(data, memoryview) and not data.c_contiguous:
        return memoryview(data.tobytes())
    return memoryview(bytes(data)) if copy else memoryview(data).cast("B").toreadonly()


def _tensor(kind: str, data: Any, layout: str, copy: bool, fps: float | None = None, sample_rate: int | None = None) -> Media:
    if not isinstance(layout, str) or not layout:
        known = ", ".join(_LAYOUTS.get(kind, ("CHW", "CTHW")))
        raise InputError(f"missing; say which of {known} the axes are", field="layout")
    dtype, array = _array(kind, data, copy)
    sample_rate = int(sample_rate) if isinstance(sample_rate, np.integer) else sample_rate
    if array.size == 0:
        raise InputError(f"an axis of {array.shape} is empty", field=kind)
    view = array.reshape(-1).view(np.uint8).data.toreadonly()
    return Media(kind, "raw", layout, dtype, tuple(array.shape), (view,), fps=fps, sample_rate=sample_rate)


def _array(kind: str, data: Any, copy: bool) -> tuple[str, npt.NDArray[Any]]:
    """Returns dtype and the data as a C-contiguous little-endian array, after one copy at most."""
    if _is_torch(data):
        return _from_torch(kind, data, copy)
    if not isinstance(data, np.ndarray):
        raise InputError(f"want a NumPy array or a torch tensor, not {_name(data)}", field=kind)
    dtype = _NUMPY.get(data.dtype.name)
    if dtype not in _DTYPES[kind]:
        raise InputError(f"{data.dtype} of a raw {kind}; {_CAST[kind]}", field="dtype")
    if data.dtype.byteorder == ">" or (data.dtype.byteorder == "=" and sys.byteorder == "big"):
        return dtype, data.astype(data.dtype.newbyteorder("<"), order="C")
    return dtype, np.array(data, order="C") if copy else np.ascontiguousarray(data)


def _from_torch(kind: str, tensor: Any, copy: bool) -> tuple[str, npt.NDArray[Any]]:
    torch = sys.modules["torch"]
    name = str(tensor.dtype).removeprefix("torch.")
    dtype = _NUMPY.get(name)
    if dtype not in _DTYPES[kind]:
        raise InputError(f"{tensor.dtype} of a raw {kind}; {_CAST[kind]}", field="dtype")
    # to() brings it to the CPU and into order in one go, or returns the tensor itself.
    host = tensor.detach().to("cpu", memory_format=torch.contiguous_format, copy=copy)
    if not host.is_contiguous():
        host = host.contiguous()
    if name == "bfloat16":  # NumPy has none: the same two bytes under another name
        host = host.view(torch.int16)
    array: npt.NDArray[Any] = host.numpy()
    return dtype, array


def _from_pil(picture: Any, layout: str) -> Media:
    if layout not in ("", "HWC"):
        raise InputError(f"{layout!r}, but the axes of a PIL image are HWC", field="layout")
    if picture.mode not in ("RGB", "RGBA", "L"):
        raise InputError(f"PIL mode {picture.mode!r}; convert the picture to RGB, RGBA or L first", field="image")
    array = np.asarray(picture)
    return _tensor("image", array[:, :, np.newaxis] if array.ndim == 2 else array, "HWC", False)


def encode(picture: Any, encoding: str = "jpeg", **options: Any) -> Media:
    """Returns a PIL image as a compressed file, to save bandwidth.

    encoding is jpeg, png or webp. options are options of PIL's save(), such as quality=95.
    """
    if not _is_pil(picture):
        raise InputError(f"want a PIL image, not {_name(picture)}", field="image")
    if encoding not in ("jpeg", "png", "webp"):
        raise InputError(f"{encoding!r}, want jpeg, png or webp", field="encoding")
    out = io.BytesIO()
    picture.save(out, format=encoding.upper(), **options)
    return image(out.getbuffer(), encoding=encoding)


def _number(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InputError(f"want a number, not {_name(value)}", field=field)
    return float(value)


def _is_torch(data: object) -> bool:
    torch = sys.modules.get("torch")  # who has a tensor has imported it
    return torch is not None and isinstance(data, torch.Tensor)


def _is_pil(data: object) -> bool:
    pil = sys.modules.get("PIL.Image")
    return pil is not None and isinstance(data, pil.Image)


def _name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
