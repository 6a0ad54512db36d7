"""Reward managers for verl and verl-omni.

Behaviour of verl 0.9.0 that this module relies on: ``RewardManagerBase``
(verl/experimental/reward_loop/reward_manager/base.py) has ``__init__(config, tokenizer, compute_score)``,
``async run_single(data) -> {"reward_score", "reward_extra_info"}`` and the classmethod
``assemble_rm_scores(data, scores)``. ``load_reward_manager`` (verl/trainer/ppo/reward.py) makes it with the keyword
arguments reward_router_address and reward_model_tokenizer.
"""

from __future__ import annotations

import functools
from typing import Any

import torch  # type: ignore[import-not-found]
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase  # type: ignore[import-not-found]

from . import rows
from .session import session
from .settings import Settings, group_sizes


class RewardloopRewardManager(RewardManagerBase):  # type: ignore[misc]
    """Scores text rollouts: ``rm_scores`` is [B, L] with the score at the last valid token."""

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        settings = Settings.from_config(config)
        settings.need_no_steps(type(self).__name__)
        settings.need_no_mask(type(self).__name__)
        settings.need_no_group_columns(type(self).__name__)
        settings.need_no_phase(type(self).__name__)
        settings.need_no_llm(type(self).__name__)
        super().__init__(config, tokenizer, compute_score)
        self.session = session(settings)
        self.sizes = group_sizes(config)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Returns the reward of one trajectory; the last one of several sequences counts, as in verl."""
        item = data[-1:][0]
        decode = functools.partial(self.tokenizer.decode, skip_special_tokens=True)
        sample = rows.to_sample(item, self.session.settings, decode=decode, sizes=self.sizes)
        value, info = await self.session.score(sample, rows.of_step(item))
        return {"reward_score": value, "reward_extra_info": info}


class RewardloopVisualRewardManager(RewardloopRewardManager):
    """Scores pictures, videos and latents: ``rm_scores`` is [B, 1]."""

    @classmethod
    def assemble_rm_scores(cls, data: Any, scores: list[float]) -> torch.Tensor:
        """Returns the scores as float32 [B, 1], one for each row."""
        return torch.tensor(scores, dtype=torch.float32).unsqueeze(-1)
