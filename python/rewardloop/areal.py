"""A reward of the loop for AReaL: ``reward_fn="rewardloop.areal.reward_fn"`` of a workflow, or, better,
``workflow="rewardloop.areal.RLVRWorkflow"``, which is AReaL's without its process pool.

Facts relied on (AReaL 1.0.4): AsyncRewardWrapper calls f(prompt, completions, prompt_ids, completion_ids, **data) in a process
pool, a few at a time, for at most 15 s with the wait for a process, up to four times, and **takes a reward of 0 for the fourth
TimeoutError**; any other exception rejects the trajectory. So the function here is done before that, and never raises
TimeoutError; but samples that wait for a process of the pool may still become 0: the workflow here asks from its event loop.
"""

from __future__ import annotations

import concurrent.futures
import importlib
from typing import Any

from ._trainers import client, required, sample, scored
from .errors import RewardloopError
from .sample import Sample

#: Seconds for a sample in the process pool, of which AReaL gives 15.
DEADLINE = 10.0


def reward_fn(prompt: Any, completions: str, prompt_ids: Any = None, completion_ids: Any = None, **data: Any) -> float:
    """The reward of a completion; SampleFailedError, or RewardloopError after DEADLINE seconds."""
    asked = _sample(prompt, completions, data, deadline=DEADLINE)
    try:
        return required(client("areal").submit(asked).result(DEADLINE + 2))
    except concurrent.futures.TimeoutError:
        raise RewardloopError(f"no answer from the reward loop for {DEADLINE + 2:g} s; the sample has no reward, not a reward of 0") from None


async def async_reward_fn(
    prompt: Any, completions: str, prompt_ids: Any = None, completion_ids: Any = None, **data: Any
) -> float:
    """The same without a pool and without a bound but the server's."""
    return required((await scored([_sample(prompt, completions, data)], "areal"))[0])


def _sample(prompt: Any, completions: str, data: dict[str, Any], **fields: Any) -> Sample:
    return sample(data.pop("messages", None) or prompt, completions, data, **fields)


def __getattr__(name: str) -> Any:
    """RLVRWorkflow and VisionRLVRWorkflow: AReaL's, made when they are asked for, so that the pool imports no AReaL."""
    module = {"RLVRWorkflow": "areal.workflow.rlvr", "VisionRLVRWorkflow": "areal.workflow.vision_rlvr"}.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def init(self: Any, *args: Any, **settings: Any) -> None:
        theirs.__init__(self, *args, **{"reward_fn": reward_fn} | settings)
        self.async_reward_fn = async_reward_fn

    theirs = getattr(importlib.import_module(module), name)
    return globals().setdefault(name, type(name, (theirs,), {"__init__": init, "__module__": __name__}))
