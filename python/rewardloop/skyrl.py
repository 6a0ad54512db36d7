"""An environment for SkyRL with rewards of a reward loop: one response, its reward, the end.

In the entry point, at the beginning of SkyRL's Ray task:

    import rewardloop.skyrl
    rewardloop.skyrl.register()  # environment.env_class=rewardloop

Behaviour of skyrl-gym 0.4 that this module relies on: step(action) runs in a thread pool and returns observations,
reward, done and metadata. extras contains the columns of the data set; reward_spec.ground_truth is the reference
answer. The generator asserts that there is a reward, so a sample without a reward raises SampleFailedError.
"""

from __future__ import annotations

from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from ._trainers import client, required, sample

#: Columns that say nothing of the answer.
_OWN = ("reward_spec", "max_turns", "uid", "env_class", "data_source", "prompt")


class RewardLoopEnv(BaseTextEnv):
    """The environment. profile of env_config is a reward of the server's configuration; "" or missing: the default."""

    def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.extras = dict(extras or {})
        self.profile = str((env_config or {}).get("profile") or "") if hasattr(env_config or {}, "get") else ""
        self.asked: Any = []

    def init(self, prompt: Any) -> tuple[Any, dict[str, Any]]:
        self.asked = prompt
        return prompt, {}

    def step(self, action: str) -> Any:
        row = {name: value for name, value in self.extras.items() if name not in _OWN}
        asked = sample(
            self.asked,
            action,
            row,
            ground_truth=(self.extras.get("reward_spec") or {}).get("ground_truth"),
            data_source=str(self.extras.get("data_source") or ""),
            reward=self.profile,
        )
        result = client("skyrl").submit(asked).result()
        columns = {name: value for name, value in result.reward_extra_info.items() if isinstance(value, int | float)}
        return BaseTextEnvStepOutput(observations=[], reward=required(result), done=True, metadata=columns)


def register() -> None:
    """Registers the environment in SkyRL as env_class rewardloop."""
    from skyrl_gym.envs import register as theirs

    theirs(id="rewardloop", entry_point="rewardloop.skyrl:RewardLoopEnv")
