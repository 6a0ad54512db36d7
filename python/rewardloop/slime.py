"""Rewards of a reward loop for slime: ``--custom-rm-path rewardloop.slime.reward``, and ``--group-rm`` for groups.

Behaviour of slime 624b824 that this module relies on: ``await f(args, sample)`` returns a number, or with
``--reward-key`` a dict with this key. With ``--group-rm`` it is called with all samples of a prompt and returns a list.
slime drops the surplus of a longer list and does not detect a shorter one. slime defines no value for a sample without
a reward: an exception ends the rollout. If the server's profile imputes (on_sample_failure: group_mean), the sample
gets the imputed reward, and remove_sample, which excludes the sample from the loss. slime passes no step; this module
uses the sample's index divided by the number of samples of a rollout.
"""

from __future__ import annotations

from typing import Any

from ._trainers import required, sample, scored, text
from .errors import InputError
from .result import Result
from .sample import Sample, fresh_id


async def reward(args: Any, sample: Any) -> Any:
    """Returns the reward of a sample, or the rewards of a list of samples, in order."""
    members = sample if isinstance(sample, list) else [sample]
    if any(isinstance(m, list) for m in members):
        raise InputError("a generation of several samples has no single reward: give each its own", field="samples")
    size = getattr(args, "n_samples_per_prompt", 0) or 0
    if isinstance(sample, list) and size and len(members) != size:
        raise InputError(f"a group of {len(members)}, and n_samples_per_prompt is {size}", field="samples")
    call = f"/{fresh_id()[:8]}" if isinstance(sample, list) else ""
    results = await scored([_sample(args, m, size, call) for m in members], "slime")
    rewards = [_reward(args, m, r) for m, r in zip(members, results, strict=True)]
    return rewards if isinstance(sample, list) else rewards[0]


def _sample(args: Any, theirs: Any, size: int, call: str) -> Sample:
    a_step = size * (getattr(args, "rollout_batch_size", 0) or 0)
    group = getattr(theirs, "group_index", None)
    return sample(
        theirs.prompt,
        text(theirs.response, "assistant"),
        theirs.metadata if isinstance(theirs.metadata, dict) else {},
        ground_truth=theirs.label,
        media=((getattr(theirs, "multimodal_inputs", None) or {}).get("images")) or (),
        step=theirs.index // a_step if a_step and theirs.index is not None else 0,
        uid="" if group is None else f"{group}{call}",
        group_size=0 if group is None else size,
    )


def _reward(args: Any, theirs: Any, result: Result) -> Any:
    value = required(result)
    if not result.scored:
        theirs.remove_sample = True
    key = getattr(args, "reward_key", None)
    return value if not key else {**result.reward_extra_info, key: value}
