"""A reward function for OpenRLHF with rewards of a reward loop. The file of --reward.remote_url contains:

    from rewardloop.openrlhf import reward_func

In OpenRLHF 0.8 the option is --remote_rm_url.

Behaviour of OpenRLHF 0.11.2 that this module relies on: reward_func(queries, prompts, labels) is called in threads with
lists of one element; a query is the prompt and the response. It returns tensors, ``{"rewards", "scores",
"extra_logs"}``. An exception is logged and leaves the reward of its sample None. The step that uses such a sample then
fails, because there is no reward model for it.
"""

from __future__ import annotations

from typing import Any

from ._trainers import client, means, required, sample, torch
from .result import Result


def results(queries: list[str], prompts: list[str], labels: list[Any]) -> list[Result]:
    """Returns the server's results, including those of samples without a score."""
    each = zip(queries, prompts, labels, strict=True)
    return client("openrlhf").score(sample(p, q.removeprefix(p), ground_truth=label) for q, p, label in each)


def reward_func(queries: list[str], prompts: list[str], labels: list[Any], **_: Any) -> dict[str, Any]:
    """Returns the rewards of a batch; raises SampleFailedError for the first sample without a reward."""
    answered = results(queries, prompts, labels)
    rewards = torch().tensor([required(r) for r in answered], dtype=torch().float32)
    return {"rewards": rewards, "scores": rewards, "extra_logs": means(answered)}
