"""Reward functions for TRL's GRPOTrainer and its other trainers with reward_funcs, with rewards of a reward loop.

    from rewardloop.trl import AsyncReward, Reward
    GRPOTrainer(model, reward_funcs=[Reward(), AsyncReward("pictures")], args=..., train_dataset=...)

Behaviour of TRL 1.16 that this module relies on: f(prompts, completions, completion_ids, **columns, trainer_state,
log_extra, log_metric) returns a number or None for each completion; coroutines are awaited on one event loop. None
becomes NaN and is part of no sum and no mean; if every function returns None, the advantage is 0. TRL logs the step in
progress as global_step + 1.
"""

from __future__ import annotations

from typing import Any

from ._trainers import client, groups, means, number, rows, sample, scored
from .result import Result
from .sample import Sample


class _Reward:
    def __init__(self, profile: str = "") -> None:
        #: The reward of the server's configuration; "": its default. TRL logs rewards/<__name__>/mean.
        self.profile = profile
        self.__name__ = profile or "rewardloop"

    def _samples(self, prompts: list[Any], completions: list[Any], columns: dict[str, Any]) -> list[Sample]:
        step = getattr(columns.get("trainer_state"), "global_step", -1) + 1
        columns = {name: c for name, c in columns.items() if name != "environments"}
        each = zip(prompts, completions, rows(columns, len(prompts)), groups(step, prompts), strict=True)
        return [sample(p, c, row, reward=self.profile, **group) for p, c, row, group in each]

    def _answer(self, results: list[Result], columns: dict[str, Any]) -> list[float | None]:
        if log_metric := columns.get("log_metric"):
            for name, mean in means(results).items():
                log_metric(name if name.startswith("rewardloop/") else f"rewardloop/{name}", mean)
        if (log_extra := columns.get("log_extra")) and not all(r.scored for r in results):
            log_extra("rewardloop/why", ["" if r.scored else r.why() for r in results])
        return [number(r) for r in results]


class Reward(_Reward):
    """Waits for the rewards of a batch, and returns None for a sample without a reward."""

    def __call__(
        self, prompts: list[Any], completions: list[Any], completion_ids: Any = None, **columns: Any
    ) -> list[float | None]:
        return self._answer(client("trl").score(self._samples(prompts, completions, columns)), columns)


class AsyncReward(_Reward):
    """The same as Reward, but awaited together with other asynchronous functions."""

    async def __call__(
        self, prompts: list[Any], completions: list[Any], completion_ids: Any = None, **columns: Any
    ) -> list[float | None]:
        return self._answer(await scored(self._samples(prompts, completions, columns), "trl"), columns)
