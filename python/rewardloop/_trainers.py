"""Code that the adapters for trainers share: one connection per process, samples from rows, numbers from results.

REWARDLOOP_URL is the URL of the reward loop, or the URLs of several gateways, separated by commas.
REWARDLOOP_TOKEN_FILE is the path of the token file; without it, REWARDLOOP_TOKEN is the token. REWARDLOOP_RUN is the
name of the run, REWARDLOOP_PROFILE the reward profile of samples without a profile of their own, and
REWARDLOOP_ON_SAMPLE_FAILURE the policy for a missing score (none, group_mean, zero, value:<x>).

A sample without a score becomes the value that its trainer defines for this case. If the trainer defines none, the
adapter raises SampleFailedError. A missing score becomes a number only on request (on_sample_failure of the profile,
or REWARDLOOP_ON_SAMPLE_FAILURE).
"""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import media as media_of
from .blocking import Client
from .errors import InputError, RewardloopError
from .media import Media
from .result import Result, SampleFailedError
from .sample import Sample, fresh_id

#: Columns of trainers that are the reference answer, the first that is there.
_TRUTHS = ("ground_truth", "solution", "answer", "label")
#: Columns of trainers that are pictures.
_PICTURES = ("images", "image")

_LOCK = threading.Lock()
_CLIENTS: dict[tuple[int, str], Client] = {}  # guarded by _LOCK; by process, and policy


def _after_fork() -> None:
    """The child connects for itself: it has neither the thread of a client nor, maybe, a lock that is free."""
    global _LOCK
    _LOCK = threading.Lock()
    _CLIENTS.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def client(run: str, on_sample_failure: str = "") -> Client:
    """Returns the connection of this process, and opens it at the first call. It belongs to no event loop."""
    policy = os.environ.get("REWARDLOOP_ON_SAMPLE_FAILURE") or on_sample_failure
    with _LOCK:
        made = _CLIENTS.get((os.getpid(), policy))
        if made is None or _over(made):
            url = os.environ.get("REWARDLOOP_URL", "")
            if not url:
                raise InputError("is not set; set it to the address of the server, ws://host:port", field="REWARDLOOP_URL")
            token_file = os.environ.get("REWARDLOOP_TOKEN_FILE") or None
            made = Client(
                url,
                run=os.environ.get("REWARDLOOP_RUN") or run,
                token_file=token_file,
                token=None if token_file else os.environ.get("REWARDLOOP_TOKEN") or None,
                profile=os.environ.get("REWARDLOOP_PROFILE", ""),
                on_sample_failure=policy,
            )
            _CLIENTS[os.getpid(), policy] = made
        return made


def _over(made: Client) -> bool:
    """Whether a client was closed, or has given its server up."""
    try:
        return made.pending < 0
    except RewardloopError:
        return True


async def scored(samples: Iterable[Sample], run: str, on_sample_failure: str = "") -> list[Result]:
    """Returns the results in the order of the samples. Each call may run in a different event loop."""
    connection = await asyncio.to_thread(client, run, on_sample_failure)
    return await asyncio.gather(*(asyncio.wrap_future(connection.submit(s)) for s in samples))


def number(result: Result) -> float | None:
    """Returns the score, else the fallback value if one was requested, else None."""
    if result.reward_score is None and result.fallback is not None:
        return result.fallback.value
    return result.reward_score


def required(result: Result) -> float:
    """Returns number(result); raises SampleFailedError if that is None, for trainers that need a number."""
    if (value := number(result)) is None:
        raise SampleFailedError(result)
    return value


def sample(prompt: Any, response: Any, row: Mapping[str, Any] | None = None, **fields: Any) -> Sample:
    """Returns a sample from texts or conversations and from the columns of a row.

    The columns are the reference answer, pictures, and others, which become extra_info. Columns that are None are left
    out. A conversation is also part of extra_info: as prompt, or as the column messages of the row.
    """
    extra = {name: value for name, value in (row or {}).items() if value is not None}
    truths = [extra.pop(name) for name in _TRUTHS if name in extra]
    pictures = [extra.pop(name) for name in _PICTURES if name in extra]
    if not isinstance(prompt, str):
        extra["prompt"] = prompt
    if pictures and "media" not in fields:
        several = pictures[0] if isinstance(pictures[0], Sequence) and not isinstance(pictures[0], str | bytes) else [pictures[0]]
        fields["media"] = [_picture(p) for p in several]
    return Sample(
        prompt=text(prompt, "user"),
        response=text(response, "assistant"),
        ground_truth=fields.pop("ground_truth", truths[0] if truths else None),
        extra_info=extra or None,
        **fields,
    )


def _picture(picture: Any) -> Media:
    """A picture of a data set: PIL, a path, a file's bytes, or the struct of bytes and path of Hugging Face's datasets."""
    return media_of.image((picture.get("bytes") or picture["path"]) if isinstance(picture, Mapping) else picture)


def groups(step: int, prompts: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns, for each prompt, the fields of a sample that put equal prompts of one call into one prompt group."""
    call, sizes = fresh_id()[:8], Counter(map(repr, prompts))
    names = {prompt: f"{step}/{call}/{i}" for i, prompt in enumerate(sizes)}
    return [{"step": step, "uid": names[p], "group_size": sizes[p]} for p in map(repr, prompts)]


def means(results: Sequence[Result]) -> dict[str, float]:
    """Returns the mean of each column of reward_extra_info over the results in which the column is a number."""
    columns: dict[str, list[float]] = {}
    for name, value in (item for r in results for item in r.reward_extra_info.items()):
        if isinstance(value, int | float):
            columns.setdefault(name, []).append(float(value))
    return {name: sum(values) / len(values) for name, values in columns.items()}


def text(turns: Any, role: str) -> str:
    """Returns a text unchanged, or the text of the last turn of a role in a conversation; "" if there is none."""
    if turns is None or isinstance(turns, str):
        return turns or ""
    said = [turn.get("content") for turn in turns if turn.get("role") == role]
    content = said[-1] if said else ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or "") for part in content or () if part.get("type") == "text")


def rows(columns: Mapping[str, Any], n: int) -> list[dict[str, Any]]:
    """Returns the columns of a batch as n rows, without the trainer's own values, which are not lists of n values."""
    kept = {name: list(c) for name, c in columns.items() if isinstance(c, list | tuple | np.ndarray) and len(c) == n}
    return [{name: plain(column[i]) for name, column in kept.items()} for i in range(n)]


def plain(value: Any) -> Any:
    """Returns a scalar of NumPy or of a tensor as a Python number, and any other value unchanged."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value


def pictures(images: Any) -> list[Media]:
    """Returns the media of a batch.

    images is a tensor NCHW (videos: NFCHW) in [0, 1], which is rounded to 8 bits; arrays NHWC; or PIL images.
    """
    if hasattr(images, "detach"):
        pixels = images.detach()
        if str(pixels.dtype) != "torch.uint8":
            pixels = (pixels * 255).round().clamp(0, 255).to(torch().uint8)
        return [_one(p, "CHW", "TCHW") for p in pixels.cpu()]
    return [media_of.image(p) if hasattr(p, "tobitmap") else _one(np.asarray(p), "HWC", "THWC") for p in images]


def _one(pixels: Any, picture: str, film: str) -> Media:
    return media_of.image(pixels, layout=picture) if pixels.ndim == 3 else media_of.video(pixels, layout=film)


def torch() -> Any:
    """Returns the module torch, which the trainer has installed."""
    return importlib.import_module("torch")
