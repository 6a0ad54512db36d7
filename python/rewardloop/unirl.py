"""A reward of the loop as a backend of UniRL's RewardService, without HTTP:

    reward:
      _target_: unirl.reward.service.RewardService
      backend:
        _target_: rewardloop.unirl.Scorer
        base_device: cpu
        config: {_target_: rewardloop.unirl.ScorerSpec, profile: pictures, input_kind: image}

Facts relied on (UniRL 1a7b501, unirl 0.2.0): compute_rewards(request) gives rewards, component_rewards, successes and errors;
images are PIL, videos tensors (C, T, H, W) in [0, 1]. A sample without a score has successes False, errors with the reason,
and NaN: RewardService stops the step and names it.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from unirl.reward.base import BaseRewardComponentSpec, RewardBackend
from unirl.types.reward import RewardResponse

from . import media as media_of
from ._trainers import client, groups, number, sample, torch


@dataclass
class ScorerSpec(BaseRewardComponentSpec):
    """profile: a reward of the server's configuration, "": its default; input_kind: image, video or text."""

    profile: str = ""
    input_kind: str = "image"


class Scorer(RewardBackend):
    def __init__(self, *, config: ScorerSpec, base_device: str = "cpu") -> None:
        super().__init__(model_name=config.profile or "rewardloop")
        self.profile, self.input_kind = config.profile, config.input_kind

    def compute_rewards(self, request: Any) -> Any:
        start, n, prompts = time.monotonic(), request.batch_size, list(request.prompts)
        media = [media_of.image(p) for p in request.images or ()] or [_film(v) for v in request.videos or ()] or [()] * n
        each = zip(prompts, request.texts or [""] * n, request.metadata or [None] * n, media, groups(0, prompts), strict=True)
        samples = [sample(p, t, m, media=x, reward=self.profile, **g) for p, t, m, x, g in each]
        results = client("unirl").score(samples)
        values = [number(r) for r in results]
        return RewardResponse(
            rewards=[math.nan if v is None else v for v in values],
            successes=[v is not None for v in values],
            errors=[r.why() if v is None else None for v, r in zip(values, results, strict=True)],
            compute_time=time.monotonic() - start,
        )

    def is_available(self) -> bool:
        return client("unirl").connected


def _film(video: Any) -> media_of.Media:
    return media_of.video((video.detach().cpu() * 255).round().clamp(0, 255).to(torch().uint8), layout="CTHW")
