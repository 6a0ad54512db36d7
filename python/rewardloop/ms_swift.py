"""Reward functions for ms-swift with rewards of a reward loop. A file for --external_plugins contains:

    import rewardloop.ms_swift
    rewardloop.ms_swift.register()  # or register("text", "pictures"): rewards of the server's configuration

and ``--reward_funcs rewardloop`` (or text, pictures) selects them.

Behaviour of ms-swift 4.6 that this module relies on: orms[name](args=...) returns a function that is called with
(completions, **columns, trainer_state) and returns a number or None for each completion. Functions of an AsyncORM are
awaited in an asyncio.run of each step, so the connection belongs to none of these event loops. **None becomes NaN, and
the sum over the functions counts NaN as 0**. This module therefore requests the mean of the prompt group in place of a
missing score (on_sample_failure: group_mean), which makes the advantage of the sample 0. None remains if no member of a
group has a score; all members then count as equal.
"""

from __future__ import annotations

import importlib
from typing import Any

from ._trainers import groups, number, rows, sample, scored, text

#: Columns that say nothing of the answer.
_OWN = ("response_token_ids", "rollout_infos", "request_id", "completion")


class Reward:
    profile = ""

    async def __call__(self, completions: list[Any], **columns: Any) -> list[float | None]:
        step = getattr(columns.pop("trainer_state", None), "global_step", -1) + 1
        each = rows({name: c for name, c in columns.items() if name not in _OWN}, len(completions))
        ids = [row.pop("prompt_id", None) or row.get("messages") for row in each]
        samples = []
        for completion, row, group in zip(completions, each, groups(step, ids), strict=True):
            asked = text(row.get("messages") or [], "user")
            samples.append(sample(asked, completion, row, reward=self.profile, **group))
        return [number(r) for r in await scored(samples, "ms-swift", on_sample_failure="group_mean")]


def register(*profiles: str) -> None:
    """Adds rewards of the server's configuration to ms-swift's table under their names.

    Without arguments, adds the default reward under the name rewardloop.
    """
    rewards = importlib.import_module("swift.rewards")
    for profile in profiles or ("",):
        name = profile or "rewardloop"
        rewards.orms[name] = type(name, (Reward, rewards.AsyncORM), {"profile": profile})
