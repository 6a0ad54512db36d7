"""Reward functions for flow_grpo's ``multi_score`` with rewards of a reward loop.

Behaviour of flow_grpo/rewards.py that this module relies on: ``score_functions[name](device)`` returns a function,
which is called with (images, prompts, metadata) and returns (scores, {}). Images are a float tensor NCHW in [0, 1]
(videos: NFCHW), or uint8 arrays NHWC. Add the functions to the table in flow_grpo/rewards.py::

    from rewardloop.flow_grpo import ocr_score_remote, scorer_remote
    score_functions["ocr"] = ocr_score_remote
    score_functions["pretty"] = scorer_remote("pretty")   # a profile of the reward loop

_trainers.py describes the environment variables REWARDLOOP_….
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
    """Returns a function that returns the reward function of a profile for a device; empty: the default profile."""

    def make(device: Any = None) -> ScoreFn:
        def score(images: Any, prompts: Sequence[str], metadata: Any = None) -> tuple[list[float], dict[str, Any]]:
            """Returns the scores in the order of the images; raises SampleFailedError for the first without a score."""
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
    """Returns the reward function of profile ocr, or of the profile REWARDLOOP_OCR_PROFILE (empty: the default one)."""
    return scorer_remote(os.environ.get("REWARDLOOP_OCR_PROFILE", "ocr"))(device)


def _metadata(metadata: Any, i: int) -> dict[str, Any] | None:
    row = metadata[i] if isinstance(metadata, Sequence) and i < len(metadata) else None
    return row if isinstance(row, dict) else None
