"""An environment for NeMo-RL with rewards of a reward loop. Run this before NeMo-RL's entry point, such as run_grpo.py:

    import rewardloop.nemo_rl
    rewardloop.nemo_rl.register()  # env_name: rewardloop, and env.rewardloop: {profile: ""}

Behaviour of NeMo-RL 7ea279a that this module relies on: step(message_log_batch, metadata) of a Ray actor returns an
EnvironmentReturn with tensors on the CPU; metadata is extra_env_info of each sample. NeMo-RL defines no value for a
sample without a reward, so such a sample raises SampleFailedError.
"""

from __future__ import annotations

from typing import Any

import ray
from nemo_rl.environments.interfaces import EnvironmentInterface, EnvironmentReturn

from ._trainers import client, groups, required, sample, torch
from .result import Result

NAME, CLASS = "rewardloop", f"{__name__}.RewardLoopEnvironment"


def results(message_log_batch: list[Any], metadata: list[Any], profile: str = "") -> list[Result]:
    """Returns the server's results, including those of conversations without a score."""
    logs = [[{"role": turn["role"], "content": turn["content"]} for turn in log] for log in message_log_batch]
    prompts = [log[: max((n for n, t in enumerate(log) if t["role"] == "assistant"), default=len(log))] for log in logs]
    each = zip(prompts, logs, metadata, groups(0, prompts), strict=True)
    return client("nemo-rl").score(sample(p, log, m, reward=profile, **g) for p, log, m, g in each)


class Environment(EnvironmentInterface):
    """An environment with one turn: the reward ends the episode."""

    def __init__(self, cfg: Any) -> None:
        self.profile = str((cfg or {}).get("profile") or "")

    def step(self, message_log_batch: list[Any], metadata: list[Any], *_: Any) -> Any:
        n = len(message_log_batch)
        rewards = torch().tensor([required(r) for r in results(message_log_batch, metadata, self.profile)])
        told = [{"role": "environment", "content": ""} for _ in range(n)]
        return EnvironmentReturn(told, metadata, [None] * n, rewards, torch().ones(n), None)

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        return batch, {"reward": float(batch["total_reward"].float().mean())} if "total_reward" in batch else {}


RewardLoopEnvironment = ray.remote(Environment)


def register() -> None:
    """Adds the environment to NeMo-RL's tables, with the Python interpreter of the trainer."""
    from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY
    from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES
    from nemo_rl.environments.utils import register_env

    ACTOR_ENVIRONMENT_REGISTRY[CLASS] = PY_EXECUTABLES.SYSTEM
    register_env(NAME, CLASS)
