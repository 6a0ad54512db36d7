"""A reward function for AReaL with rewards of a reward loop: ``reward_fn="rewardloop.areal.reward_fn"`` of a workflow,
or, better, ``workflow="rewardloop.areal.RLVRWorkflow"``, which is AReaL's workflow without its process pool.

Behaviour of AReaL 1.0.4 that this module relies on: AsyncRewardWrapper calls f(prompt, completions, prompt_ids,
completion_ids, **data) in a process pool, a few calls at a time. A call may take 15 s, including the wait for a
process, and is made up to four times; **after the fourth TimeoutError AReaL uses a reward of 0**. Any other exception
rejects the trajectory. reward_fn therefore returns in less time and never raises TimeoutError. Samples that wait for a
process of the pool may still get 0. The workflows of this module avoid the pool: they wait in their event loop.
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
    """Returns the reward of a completion.

    Raises SampleFailedError without a reward, and RewardloopError without an answer within DEADLINE + 2 seconds.
    """
    asked = _sample(prompt, completions, data, deadline=DEADLINE)
    try:
        return required(client("areal").submit(asked).result(DEADLINE + 2))
    except concurrent.futures.TimeoutError:
        raise RewardloopError(f"no answer from the reward loop for {DEADLINE + 2:g} s; the sample has no reward, not a reward of 0") from None


async def async_reward_fn(
    prompt: Any, completions: str, prompt_ids: Any = None, completion_ids: Any = None, **data: Any
) -> float:
    """The same as reward_fn, but without a process pool, and without a time limit other than the server's."""
    return required((await scored([_sample(prompt, completions, data)], "areal"))[0])


def _sample(prompt: Any, completions: str, data: dict[str, Any], **fields: Any) -> Sample:
    return sample(data.pop("messages", None) or prompt, completions, data, **fields)


def __getattr__(name: str) -> Any:
    """Makes RLVRWorkflow and VisionRLVRWorkflow from AReaL's at first access: the pool then imports no AReaL."""
    module = {"RLVRWorkflow": "areal.workflow.rlvr", "VisionRLVRWorkflow": "areal.workflow.vision_rlvr"}.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def init(self: Any, *args: Any, **settings: Any) -> None:
        theirs.__init__(self, *args, **{"reward_fn": reward_fn} | settings)
        self.async_reward_fn = async_reward_fn

    theirs = getattr(importlib.import_module(module), name)
    return globals().setdefault(name, type(name, (theirs,), {"__init__": init, "__module__": __name__}))
