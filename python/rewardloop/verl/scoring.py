"""A custom reward function for verl and verl-omni with rewards of a reward loop.

Behaviour that this module relies on: ``get_custom_reward_fn`` (verl/trainer/ppo/reward.py) loads
``path: pkg://rewardloop.verl``, ``name: compute_score``, detects a coroutine function, and merges ``reward_kwargs``
into each call. ``MultiVisualRewardManager`` (verl_omni/reward_loop/reward_manager/multi.py) passes the extra keys of
its entry by keyword. Both call the function with data_source, solution_str or solution_image, ground_truth and
extra_info, and without uid and step.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..errors import InputError
from ..sample import Sample
from . import rows
from .session import session
from .settings import Settings

_FIELDS = {f.name for f in dataclasses.fields(Settings)}


async def compute_score(
    data_source: str = "",
    solution_str: str = "",
    solution_image: Any = None,
    ground_truth: Any = None,
    extra_info: dict[str, Any] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Scores one sample; returns ``score`` and the columns of the reward profile.

    url and the other fields of Settings are keyword arguments (``reward_kwargs``); others, such as
    reward_router_address, are ignored. on_failed is raise (default) or value:<x>, because without a group there is no
    mean.
    """
    chosen = Settings.read({k: v for k, v in settings.items() if k in _FIELDS or k == "token"}, on_failed="raise")
    if chosen.on_failed in ("group_mean", "mask"):
        raise InputError(
            f"{chosen.on_failed}: a reward function is called without the group; use raise, value:<x> or an agent loop manager",
            field="on_failed",
        )
    chosen.need_no_group_columns("a reward function")
    chosen.need_no_steps("a reward function")
    chosen.need_no_phase("a reward function")
    chosen.need_no_llm("a reward function")
    extra = dict(extra_info or {})
    attached, names = rows.attachments(extra, chosen.send_tensors)
    if solution_image is not None:
        attached.insert(0, rows.visual(solution_image))
    truth = rows.plain(ground_truth)
    sample = Sample(
        data_source=str(data_source),
        response=solution_str or "",
        prompt=str(extra.get("prompt") or rows.last_user_turn(extra.get("raw_prompt"))),
        media=tuple(attached),
        ground_truth=truth,
        extra_info=rows.json_leaves(extra, set(names)) | ({"rewardloop_tensors": names} if names else {}),
        reward=chosen.profile,
        deadline=chosen.deadline,
    )
    value, info = await session(chosen).score(sample)
    return {**info, "score": value}
