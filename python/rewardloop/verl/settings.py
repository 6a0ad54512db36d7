"""The settings of a plug-in: plain values, which can be sent to every worker process."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..errors import InputError

#: Where the configuration names the URL: reward.rewardloop.url.
SECTION = "reward.rewardloop"
#: Where the trainer names the columns of which verl's estimator gdpo makes advantages.
GDPO_KEYS = "algorithm.gdpo_reward_keys"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings under ``reward.rewardloop``. Hashable and picklable; contains no secret."""

    #: ws://host:port of the reward loop, or of several gateways, as a list or with commas between; else the
    #: environment's REWARDLOOP_URL.
    url: str | Sequence[str] = ""
    #: The training run; all processes of a trainer share it.
    run: str = "verl"
    #: File with the bearer token; else REWARDLOOP_TOKEN_FILE, else REWARDLOOP_TOKEN. Trainers print their
    #: configuration, so the token itself has no setting.
    token_file: str = ""
    #: The reward profile; empty: the server's default.
    profile: str = ""
    #: Of CompositeAgentLoopManager: the reward profile of the text that the language model wrote (llm_rm_scores); empty: profile.
    llm_profile: str = ""
    #: What stands for a failed sample: group_mean (advantage 0), mask (the same, and the others of the group are
    #: compared as if it had never been: see masked.py), raise, or value:<x>.
    on_failed: str = "group_mean"
    #: More failed samples than this fraction of a step raise; where the step is not known, of the process's last 512.
    max_failed_fraction: float = 0.05
    #: Rollout tensors that are sent besides the response, by name; verl-omni merges all of them into extra_info.
    send_tensors: tuple[str, ...] = ()
    #: Ids of the tokens that end a turn. With them the step scores of training rows stand where step_mask says,
    #: and a row that has not as many raises. For AgentLoopManager and AsyncRewardAgent, with text.
    stop_ids: tuple[int, ...] = ()
    #: Columns that are a finite number in every row, as verl's estimator gdpo needs them (named.py). Left out: those of
    #: algorithm.gdpo_reward_keys, where algorithm.adv_estimator is gdpo.
    gdpo_reward_keys: tuple[str, ...] = ()
    #: The server shares the trainer's cards (pool.colocated): get() of AsyncRewardAgent begins the reward phase, and
    #: ends it with the last row of the last batch. Whoever calls get() has given the memory of the cards back.
    colocated: bool = False
    #: Seconds for a sample, from its arrival at the server.
    deadline: float = 900.0
    #: Seconds for a connection to be made.
    connect_timeout: float = 10.0

    def __post_init__(self) -> None:
        if not self.url:
            object.__setattr__(self, "url", os.environ.get("REWARDLOOP_URL", ""))
        if not self.url:
            raise InputError(f"missing; set +{SECTION}.url=ws://host:port, or set REWARDLOOP_URL", field=f"{SECTION}.url")
        if not isinstance(self.url, str):  # a list of the trainer's configuration
            object.__setattr__(self, "url", ",".join(map(str, self.url)))
        object.__setattr__(self, "send_tensors", tuple(str(n) for n in self.send_tensors))
        ids: Any = self.stop_ids
        object.__setattr__(self, "stop_ids", tuple(int(i) for i in ([ids] if isinstance(ids, int) else ids)))
        keys: Any = self.gdpo_reward_keys
        object.__setattr__(self, "gdpo_reward_keys", tuple(str(k) for k in ([keys] if isinstance(keys, str) else keys)))
        self.fallback()
        if not isinstance(self.max_failed_fraction, int | float) or not 0 <= self.max_failed_fraction <= 1:
            raise InputError(f"{self.max_failed_fraction!r}, want 0 to 1", field=f"{SECTION}.max_failed_fraction")

    def fallback(self) -> float | None:
        """Returns the value of value:<x>; None for the other policies."""
        if self.on_failed in ("group_mean", "mask", "raise"):
            return None
        try:
            value = float(self.on_failed.removeprefix("value:")) if self.on_failed.startswith("value:") else math.nan
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"{self.on_failed!r}, want group_mean, mask, raise or value:<x>", field=f"{SECTION}.on_failed")
        return value

    def need_no_steps(self, who: str) -> None:
        """Raises InputError for stop_ids, where verl itself writes one number for each row."""
        if self.stop_ids:
            raise InputError(
                f"{who} returns one score for each row; process rewards need AgentLoopManager or AsyncRewardAgent",
                field=f"{SECTION}.stop_ids",
            )

    def need_no_mask(self, who: str) -> None:
        """Raises InputError for on_failed=mask, where the trainer's advantages cannot get the failed rows."""
        if self.on_failed == "mask":
            raise InputError(
                f"{who} cannot mask a failed sample; AgentLoopManager, DiffusionAgentLoopManager and AsyncRewardAgent can",
                field=f"{SECTION}.on_failed",
            )

    def need_no_group_columns(self, who: str) -> None:
        """Raises InputError for gdpo_reward_keys, where no group is known whose mean could replace an absent number."""
        if self.gdpo_reward_keys and self.on_failed in ("group_mean", "mask"):
            raise InputError(
                f"{self.on_failed}: {who} has no groups, whose mean would replace an absent {self.gdpo_reward_keys[0]}; "
                "set raise or value:<x>, or use AgentLoopManager or AsyncRewardAgent",
                field=f"{SECTION}.on_failed",
            )

    def need_no_columns(self, who: str) -> None:
        """Raises InputError for gdpo_reward_keys with TransferQueue: the trainer passes no columns to its estimator."""
        if self.gdpo_reward_keys:
            raise InputError(
                f"with {who} verl's trainer passes no columns to its estimator gdpo; "
                "set trainer.use_v1=False and use AgentLoopManager",
                field=GDPO_KEYS,
            )

    def need_no_llm(self, who: str) -> None:
        """Raises InputError for llm_profile, where a rollout has one score."""
        if self.llm_profile:
            why = f"{who} has one score for each rollout; CompositeAgentLoopManager has two"
            raise InputError(why, field=f"{SECTION}.llm_profile")

    def of_llm(self) -> Settings:
        """Returns the settings of the second score of composite rollouts.

        Its samples are a separate run: the same number of samples, in groups with the same uids, and scores on another
        scale.
        """
        profile, run = self.llm_profile or self.profile, f"{self.run}/llm"
        return replace(self, profile=profile, llm_profile="", run=run, send_tensors=(), gdpo_reward_keys=())

    def need_no_phase(self, who: str) -> None:
        """Raises InputError for colocated, where verl requests rewards while its rollout holds the GPU memory."""
        if self.colocated:
            raise InputError(
                f"{who} scores while the rollout uses the memory of the cards; use AsyncRewardAgent, which scores after the "
                "rollout, or call phase() of rewardloop.Client in the trainer",
                field=f"{SECTION}.colocated",
            )

    def connection(self) -> dict[str, Any]:
        """Returns the arguments of rewardloop.Client."""
        made: dict[str, Any] = {"url": self.url, "run": self.run, "connect_timeout": float(self.connect_timeout)}
        token_file = self.token_file or os.environ.get("REWARDLOOP_TOKEN_FILE", "")
        if token_file:
            made["token_file"] = token_file
        elif os.environ.get("REWARDLOOP_TOKEN"):
            made["token"] = os.environ["REWARDLOOP_TOKEN"]
        if self.profile:
            made["profile"] = self.profile
        if self.on_failed in ("group_mean", "mask"):
            made["on_sample_failure"] = "group_mean"
        return made

    @classmethod
    def read(cls, values: Mapping[str, Any], **defaults: Any) -> Settings:
        """Returns settings from a mapping; raises InputError for unknown names and for a token."""
        known = {f.name for f in fields(cls)}
        if "token" in values:
            raise InputError("trainers print their configuration; use token_file or REWARDLOOP_TOKEN", field=f"{SECTION}.token")
        unknown = sorted(set(map(str, values)) - known)
        if unknown:
            raise InputError(f"unknown: {', '.join(unknown)}, want one of {', '.join(sorted(known))}", field=SECTION)
        return cls(**{**defaults, **{str(k): v for k, v in values.items() if v is not None}})

    @classmethod
    def from_config(cls, config: Any) -> Settings:
        """Returns settings from a trainer's configuration (an omegaconf DictConfig, or nested mappings)."""
        section = dict(get(config, SECTION) or {})
        run = "/".join(str(p) for p in (get(config, "trainer.project_name"), get(config, "trainer.experiment_name")) if p)
        if get(config, "reward.reward_model.enable"):
            raise InputError(
                "the reward loop scores every sample, so the trainer must not start a reward model of its own; "
                "set reward.reward_model.enable=False",
                field="reward.reward_model.enable",
            )
        defaults: dict[str, Any] = {"run": run} if run else {}
        if estimator(config) == "gdpo":
            defaults["gdpo_reward_keys"] = tuple(get(config, GDPO_KEYS) or ())
        return cls.read(section, **defaults)


def estimator(config: Any) -> str:
    """Returns the name of algorithm.adv_estimator, which may be a member of an enumeration."""
    chosen = get(config, "algorithm.adv_estimator")
    return str(getattr(chosen, "value", chosen))


def group_sizes(config: Any) -> tuple[int, int]:
    """Returns the sizes of a training and of a validation group: rollout.n and rollout.val_kwargs.n."""
    n, val = get(config, "actor_rollout_ref.rollout.n"), get(config, "actor_rollout_ref.rollout.val_kwargs.n")
    return int(n or 1), int(val or 1)


def get(config: Any, path: str) -> Any:
    """Returns the value at a dotted path; None if there is none."""
    for name in path.split("."):
        if config is None:
            return None
        config = config.get(name) if hasattr(config, "get") else getattr(config, name, None)
    return config
