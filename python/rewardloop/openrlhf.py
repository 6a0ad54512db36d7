"""A reward of the loop for OpenRLHF. A file that --reward.remote_url names (0.8: --remote_rm_url) holds:

    from rewardloop.openrlhf import reward_func

Facts relied on (OpenRLHF 0.11.2): reward_func(queries, prompts, labels) is called in threads with lists of one, a query being
the prompt and the response; it gives tensors, ``{"rewards", "scores", "extra_logs"}``. An exception is logged and leaves that
sample's reward None; the step that takes such a sample then fails, as there is no reward model to ask.
"""

from __future__ import annotations

from typing import Any

from ._trainers import client, means, required, sample, torch
from .result import Result


def results(queries: list[str], prompts: list[str], labels: list[Any]) -> list[Result]:
    """What the server has answered, also for samples without a score."""
    each = zip(queries, prompts, labels, strict=True)
    return client("openrlhf").score(sample(p, q.removeprefix(p), ground_truth=label) for q, p, label in each)


def reward_func(queries: list[str], prompts: list[str], labels: list[Any], **_: Any) -> dict[str, Any]:
    """The rewards of a batch; SampleFailedError for the first that has none."""
    answered = results(queries, prompts, labels)
    rewards = torch().tensor([required(r) for r in answered], dtype=torch().float32)
    return {"rewards": rewards, "scores": rewards, "extra_logs": means(answered)}
