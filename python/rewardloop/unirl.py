"""A backend for UniRL's RewardService with rewards of a reward loop, without HTTP:

    reward:
      _target_: unirl.reward.service.RewardService
      backend:
        _target_: rewardloop.unirl.Scorer
        base_device: cpu
        config: {_target_: rewardloop.unirl.ScorerSpec, profile: pictures, input_kind: image}

Behaviour of unirl 0.2.0 that this module relies on: compute_rewards(request) returns rewards, successes and errors;
images are PIL, videos (C, T, H, W) in [0, 1]. A sample without a score has successes False, the reason in errors, and
reward NaN; RewardService then stops the step and reports the sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from unirl.reward.base import BaseRewardComponentSpec, RewardBackend
from unirl.types.reward import RewardResponse

from . import media as media_of
from ._trainers import client, groups, number, pictures, sample, torch


@dataclass
class ScorerSpec(BaseRewardComponentSpec):
    profile: str = ""  # a reward of the server's configuration; "": its default
    input_kind: str = "image"  # or video, text
    prompt_source: str = "generation"  # or original


class Scorer(RewardBackend):
    def __init__(self, *, config: ScorerSpec, base_device: str = "cpu") -> None:
        super().__init__(model_name=config.profile or "rewardloop", prompt_source=config.prompt_source)
        self.profile, self.input_kind = config.profile, config.input_kind

    def compute_rewards(self, request: Any) -> Any:
        n, prompts = request.batch_size, self.prompts(request)
        media = [[media_of.image(p)] for p in request.images or ()] or [[_film(v)] for v in request.videos or ()] or [[]] * n
        if source := request.conditioning.get("image"):  # an edit's source comes after the edit
            media = [[*m, *pictures(p.pixels[None])] for m, p in zip(media, source.to_list(), strict=True)]
        grouped = groups(0, request.group_ids or prompts)
        each = zip(prompts, request.texts or [""] * n, request.metadata or [None] * n, media, grouped, strict=True)
        results = client("unirl").score(sample(p, t, m, media=x, reward=self.profile, **g) for p, t, m, x, g in each)
        values = [number(r) for r in results]
        return RewardResponse(
            rewards=[math.nan if v is None else v for v in values],
            successes=[v is not None for v in values],
            errors=[r.why() if v is None else None for v, r in zip(values, results, strict=True)],
        )

    def is_available(self) -> bool:
        return client("unirl").connected


def _film(video: Any) -> media_of.Media:
    return media_of.video((video.cpu() * 255).round().clamp(0, 255).to(torch().uint8), layout="CTHW")
