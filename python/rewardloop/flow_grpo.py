"""Reward functions for flow_grpo's ``multi_score`` that ask a reward loop.

Facts relied on (flow_grpo/rewards.py): ``score_functions[name](device)`` makes a function, which is called with
(images, prompts, metadata) and returns (scores, {}); images are a float tensor NCHW in [0, 1] (NFCHW for
videos), or uint8 arrays NHWC. In flow_grpo/rewards.py, where the table is::

    from rewardloop.flow_grpo import ocr_score_remote, scorer_remote
    score_functions["ocr"] = ocr_score_remote
    score_functions["pretty"] = scorer_remote("pretty")   # a profile of the reward loop

REWARDLOOP_URL names the loop, or several gateways with commas between, REWARDLOOP_TOKEN_FILE the token's
file, REWARDLOOP_RUN the run.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import media as media_of
from .blocking import Client
from .errors import InputError
from .media import Media
from .result import SampleFailedError
from .sample import Sample

__all__ = ["ScoreFn", "ocr_score_remote", "pictures", "scorer_remote"]

#: (images, prompts, metadata) → (scores, extra).
ScoreFn = Callable[..., tuple[list[float], dict[str, Any]]]

_LOCK = threading.Lock()
_CLIENTS: dict[int, Client] = {}  # guarded by _LOCK; by pid


def _client() -> Client:
    with _LOCK:
        client = _CLIENTS.get(os.getpid())
        if client is None:
            url = os.environ.get("REWARDLOOP_URL", "")
            if not url:
                raise InputError("is not set; it names the reward loop, ws://host:port", field="REWARDLOOP_URL")
            token_file = os.environ.get("REWARDLOOP_TOKEN_FILE") or None
            client = Client(url, run=os.environ.get("REWARDLOOP_RUN", "flow_grpo"), token_file=token_file)
            _CLIENTS[os.getpid()] = client
        return client


def scorer_remote(name: str = "") -> Callable[[Any], ScoreFn]:
    """What makes the function of a reward profile of that name; empty: the loop's default profile."""

    def make(device: Any = None) -> ScoreFn:
        def score(images: Any, prompts: Sequence[str], metadata: Any = None) -> tuple[list[float], dict[str, Any]]:
            """The scores in the order of the images; SampleFailedError for the first that has none."""
            media = pictures(images)
            if len(media) != len(prompts):
                raise InputError(f"{len(prompts)} for {len(media)} images", field="prompts")
            samples = [
                Sample(prompt=str(p), media=m, reward=name, extra_info=_metadata(metadata, i))
                for i, (m, p) in enumerate(zip(media, prompts, strict=True))
            ]
            results = _client().score(samples)
            for result in results:
                if not result.scored:
                    raise SampleFailedError(result)
            return [r.score() for r in results], {}

        return score

    return make


def ocr_score_remote(device: Any = None) -> ScoreFn:
    """The profile ocr (REWARDLOOP_OCR_PROFILE names another; empty: the default one)."""
    return scorer_remote(os.environ.get("REWARDLOOP_OCR_PROFILE", "ocr"))(device)


def pictures(images: Any) -> list[Media]:
    """The media of a batch: tensors in [0, 1] are rounded to 8 bits, as flow_grpo does."""
    if hasattr(images, "detach"):
        pixels = images.detach()
        if str(pixels.dtype) != "torch.uint8":
            pixels = (pixels * 255).round().clamp(0, 255).to(_uint8())
        return [_one(p, "CHW", "TCHW") for p in pixels.cpu()]
    return [_one(np.asarray(p), "HWC", "THWC") for p in images]


def _one(pixels: Any, picture: str, film: str) -> Media:
    return media_of.image(pixels, layout=picture) if pixels.ndim == 3 else media_of.video(pixels, layout=film)


def _uint8() -> Any:
    return importlib.import_module("torch").uint8


def _metadata(metadata: Any, i: int) -> dict[str, Any] | None:
    row = metadata[i] if isinstance(metadata, Sequence) and i < len(metadata) else None
    return row if isinstance(row, dict) else None
