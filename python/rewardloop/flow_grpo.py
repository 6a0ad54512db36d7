"""Reward functions for flow_grpo's ``multi_score`` that ask a reward loop.

Facts relied on (flow_grpo/rewards.py): ``score_functions[name](device)`` makes a function, which is called with
(images, prompts, metadata) and returns (scores, {}); images are a float tensor NCHW in [0, 1] (NFCHW for
videos), or uint8 arrays NHWC. In flow_grpo/rewards.py, where the table is::

    from rewardloop.flow_grpo import ocr_score_remote, scorer_remote
    score_functions["ocr"] = ocr_score_remote
    score_functions["pretty"] = scorer_remote("pretty")   # a profile of the reward loop

The variables REWARDLOOP_… are those of _trainers.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ._trainers import client, pictures, required
from .errors import InputError
from .sample import Sample

__all__ = ["ScoreFn", "ocr_score_remote", "pictures", "scorer_remote"]

#: (images, prompts, metadata) → (scores, extra).
ScoreFn = Callable[..., tuple[list[float], dict[str, Any]]]


def scorer_remote(name: str = "") -> Callable[[Any], ScoreFn]:
    """What makes the function of a reward profile of that name; empty: the loop's default profile."""

    def make(device: Any = None) -> ScoreFn:
        def score(images: Any, prompts: Sequence[str], metadata: Any = None) -> tuple[list[float], dict[str, Any]]:
            """The scores in the order of the images; SampleFailedError for the first that has none."""
            media = pictures(images)
            if len(media) != len(prompts):
                raise InputError(f"{len(prompts)} prompts for {len(media)} images, want one for each", field="prompts")
            samples = [
                Sample(prompt=str(p), media=m, reward=name, extra_info=_metadata(metadata, i))
                for i, (m, p) in enumerate(zip(media, prompts, strict=True))
            ]
            return [required(r) for r in client("flow_grpo").score(samples)], {}

        return score

    return make


def ocr_score_remote(device: Any = None) -> ScoreFn:
    """The profile ocr (REWARDLOOP_OCR_PROFILE names another; empty: the default one)."""
    return scorer_remote(os.environ.get("REWARDLOOP_OCR_PROFILE", "ocr"))(device)


def _metadata(metadata: Any, i: int) -> dict[str, Any] | None:
    row = metadata[i] if isinstance(metadata, Sequence) and i < len(metadata) else None
    return row if isinstance(row, dict) else None
