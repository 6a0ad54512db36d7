"""Reward models for Flow-Factory with rewards of a reward loop, without HTTP.

Set ``reward_model: rewardloop.flow_factory.PointwiseReward`` or ``rewardloop.flow_factory.GroupwiseReward`` for a
reward. The ``name`` of the reward is the name of the server's reward, unless ``profile`` beside it sets another name.

Behaviour of Flow-Factory a0b2bc5 that this module relies on: a model is created with (config, accelerator) and called
with the lists prompt, image (PIL), video (lists of PIL), condition_images and condition_videos; a group-wise model is
called with the samples of one prompt. Flow-Factory drops no NaN, so a sample without a score raises SampleFailedError,
as in Flow-Factory's own client.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flow_factory.rewards.abc import GroupwiseRewardModel, PointwiseRewardModel, RewardModelOutput

from . import media as media_of
from ._trainers import client, groups, means, required, sample, torch


def _film(frames: Any) -> media_of.Media:
    return media_of.video(np.stack([np.asarray(f.convert("RGB")) for f in frames]), layout="THWC")


class _Asks:
    config: Any

    def __call__(
        self, prompt: list[str], image: Any = None, video: Any = None, condition_images: Any = None, condition_videos: Any = None
    ) -> Any:
        """The pictures of a sample first, then what it was conditioned on, as their order is with Flow-Factory's client."""
        profile = (getattr(self.config, "extra_kwargs", None) or {}).get("profile", self.config.name)
        media = [
            [media_of.image(i) for i in (*((image[n],) if image else ()), *(condition_images[n] if condition_images else ()))]
            + [_film(v) for v in (*((video[n],) if video else ()), *(condition_videos[n] if condition_videos else ()))]
            for n in range(len(prompt))
        ]
        samples = [sample(p, "", media=m, reward=profile, **g) for p, m, g in zip(prompt, media, groups(0, prompt), strict=True)]
        results = client("flow-factory").score(samples)
        rewards = torch().tensor([required(r) for r in results], dtype=torch().float32)
        return RewardModelOutput(rewards=rewards, extra_info=means(results))


class PointwiseReward(_Asks, PointwiseRewardModel):
    """Scores each sample separately."""


class GroupwiseReward(_Asks, GroupwiseRewardModel):
    """Scores the samples of a prompt together, for a reward that compares them."""
