"""Agent loop managers that send finished rollouts to a reward loop.

``++actor_rollout_ref.rollout.agent.agent_loop_manager_class`` selects such a manager. The manager gives the agent loop
workers its own handles instead of verl's reward loop workers.

Behaviour that this module relies on:
``AgentLoopManager(config, llm_client, teacher_client, reward_loop_worker_handles)``
(verl/experimental/agent_loop/agent_loop.py) passes the handles to Ray actors, whose ``_compute_score`` does
``await random.choice(handles).compute_score.remote(data)``. ``generate_sequences(prompts)`` splits the batch over
``rollout.agent.num_workers`` workers, and every column of ``non_tensor_batch`` reaches the row that is scored.
``agent_loop_workers_class`` contains the class of the workers (verl-omni sets it to its own class,
verl_omni/trainer/diffusion/ray_diffusion_trainer.py and agent_loop/diffusion_agent_loop_tq.py).
``CompositeAgentLoopWorker`` requires exactly two handles.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import itertools
import logging
from collections import Counter, OrderedDict
from collections.abc import Coroutine
from typing import Any

import numpy as np
from verl.utils.ray_utils import auto_await  # type: ignore[import-not-found]

from ..errors import InputError, RewardloopError
from . import masked, named, rows, steps
from .outcome import ERROR, VALID, ExtraInfo, RewardFailedError, too_many
from .session import session
from .settings import SECTION, Settings, estimator, get, group_sizes

_LOG = logging.getLogger("rewardloop")

#: What the columns of a composite rollout's second score begin with.
LLM = "llm/"

#: Steps whose samples are counted: training and validation of this one and the last.
_STEPS_KEPT = 8


class Handle:
    """Replaces a reward loop worker. Contains plain values only: each process that gets it opens its own connection."""

    def __init__(self, settings: Settings, sizes: tuple[int, int], tokenizer_path: str, picture: Settings | None = None) -> None:
        self.settings = settings
        self.sizes = sizes
        self.tokenizer_path = tokenizer_path
        #: Of the handle for a composite rollout's text: the settings with which its picture is scored.
        self.picture = picture

    @property
    def compute_score(self) -> Method:
        """The method that is called as ``handle.compute_score.remote(data)``."""
        return Method(self)

    async def score(self, data: Any) -> dict[str, Any]:
        """Returns the reward of one trajectory, with its columns."""
        item = data[-1:][0]
        decode = None
        if rows.is_tokens(item.batch["responses"]):
            tokenizer = await asyncio.to_thread(load_tokenizer, self.tokenizer_path)
            decode = functools.partial(tokenizer.decode, skip_special_tokens=True)
        sample = rows.to_sample(item, self.settings, decode=decode, sizes=self.sizes)
        if self.picture is not None:
            sample.response = rows.written(item)
        value, info = await session(self.settings).score(sample, rows.of_step(item))
        if self.picture is not None:  # verl-omni puts both scores' columns into one dictionary, that of the picture
            info = ExtraInfo({LLM + name: info[name] for name in info.keys()})  # noqa: SIM118 - it has more of them
            session(self.picture).columns.learn(info)
        return {"reward_score": value, "reward_extra_info": info}


def composite_handles(settings: Settings, sizes: tuple[int, int], tokenizer_path: str) -> list[Handle]:
    """Returns the handles for CompositeAgentLoopWorker: one for the picture's score, and one for the text's score."""
    return [Handle(settings, sizes, tokenizer_path), Handle(settings.of_llm(), sizes, tokenizer_path, settings)]


class Method:
    """An object that has the interface of a Ray actor's method."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def remote(self, data: Any) -> asyncio.Task[dict[str, Any]]:
        """Starts scoring and returns an awaitable."""
        scoring: Coroutine[Any, Any, dict[str, Any]] = self._handle.score(data)
        return asyncio.get_running_loop().create_task(scoring)


@functools.lru_cache(maxsize=4)
def load_tokenizer(path: str) -> Any:
    """Returns the tokenizer, loaded as verl's RewardLoopWorker loads it."""
    local = importlib.import_module("verl.utils.fs").copy_to_local(path)
    return importlib.import_module("verl.utils").hf_tokenizer(local, trust_remote_code=True)


class Streaming:
    """Mixin for an agent loop manager: adds the handles and columns of this module, and declares the steps."""

    #: module and name of the workers' class, where it is not the manager's own.
    workers: tuple[str, str] | None = None

    def __init__(
        self, config: Any, llm_client: Any, teacher_client: Any = None, reward_loop_worker_handles: Any = None, **more: Any
    ) -> None:
        self.rewardloop = Settings.from_config(config)
        if self.workers is not None or isinstance(self, StreamingTQ):
            self.rewardloop.need_no_steps(type(self).__name__)
        if isinstance(self, StreamingTQ):
            self.rewardloop.need_no_columns(type(self).__name__)
        self.rewardloop.need_no_phase(type(self).__name__)
        self._masks(config)
        self.group_sizes = group_sizes(config)
        model = get(config, "actor_rollout_ref.model")
        path = str(get(model, "tokenizer_path") or get(model, "path") or "")
        self.composite = self.workers is not None and self.workers[1] == "CompositeAgentLoopWorker"
        if self.composite:
            handles = composite_handles(self.rewardloop, self.group_sizes, path)
        else:
            self.rewardloop.need_no_llm(type(self).__name__)
            handles = [Handle(self.rewardloop, self.group_sizes, path)]
        super().__init__(config, llm_client, teacher_client, handles, **more)  # type: ignore[call-arg]
        if self.workers is not None:
            self.agent_loop_workers_class = workers_class(*self.workers)
        self._steps: OrderedDict[tuple[str, int], int] = OrderedDict()  # samples announced of the last steps

    @auto_await  # type: ignore[untyped-decorator]
    async def generate_sequences(self, prompts: Any) -> Any:
        """Adds the columns, declares the step, generates, and raises RewardFailedError if too many samples failed."""
        await asyncio.to_thread(self.announce, prompts)
        output = await super().generate_sequences(prompts)  # type: ignore[misc]
        self.check(output, prompts.non_tensor_batch)
        uids = prompts.non_tensor_batch.get("uid", range(len(prompts)))
        named.fill(output.non_tensor_batch, self.rewardloop.gdpo_reward_keys, uids)
        if self.rewardloop.on_failed == "mask" and not prompts.meta_info.get("validate", False):
            self.mask(output, prompts.non_tensor_batch)
        if self.rewardloop.stop_ids and not prompts.meta_info.get("validate", False):
            steps.spread(output, self.rewardloop.stop_ids)
        return output

    def _masks(self, config: Any) -> None:
        """Registers the estimators of masked.py, and refuses on_failed=mask with another one."""
        masked.register()
        if self.rewardloop.on_failed != "mask":
            return
        if isinstance(self, StreamingTQ):
            self.rewardloop.need_no_mask(type(self).__name__)
        chosen = estimator(config)
        if chosen not in (masked.TEXT, masked.VISUAL, masked.COLUMNS):
            raise InputError(
                f"mask needs algorithm.adv_estimator={masked.TEXT} or {masked.COLUMNS} for text or {masked.VISUAL} for pictures, "
                f"not {chosen}",
                field=f"{SECTION}.on_failed",
            )
        if chosen == masked.COLUMNS:
            masked.replace_gdpo()

    def mask(self, output: Any, columns: Any) -> None:
        """Passes the failed rows to the estimators of masked.py."""
        valid = output.non_tensor_batch.get(VALID)
        if valid is None:
            return
        failed = np.asarray(valid, np.float64) != 1
        if "response_mask" in output.batch.keys():  # noqa: SIM118 - a TensorDict has no in
            kept = output.batch["response_mask"].clone()
            kept[np.flatnonzero(failed)] = 0
            output.batch["response_mask"] = kept
        else:
            masked.remember(columns["uid"], valid, output.batch["rm_scores"].cpu().numpy())

    def check(self, output: Any, columns: Any) -> None:
        """Raises RewardFailedError if more than max_failed_fraction of a step failed, over all processes."""
        for score in ("", LLM):
            valid, reasons = output.non_tensor_batch.get(score + VALID), output.non_tensor_batch.get(score + ERROR)
            if valid is None or reasons is None:
                continue
            failed = np.asarray(valid, np.float64) != 1
            if failed.sum() > self.rewardloop.max_failed_fraction * len(failed):
                where = f"the {len(failed)} samples of {columns['rewardloop_split'][0]} step {columns['rewardloop_step'][0]}"
                said = "; ".join(dict.fromkeys(score + str(r) for r in reasons[failed][:8]))
                raise RewardFailedError(too_many(int(failed.sum()), where, self.rewardloop.max_failed_fraction, said))

    def announce(self, prompts: Any) -> None:
        """Adds rewardloop_step, _index, _split, _group_size and _rows, and declares the step."""
        step = max(int(prompts.meta_info.get("global_steps", 0)), 0)
        split = "val" if prompts.meta_info.get("validate", False) else "train"
        columns, n = prompts.non_tensor_batch, len(prompts)
        before, total = self.grow(split, step, n)
        columns["rewardloop_step"] = np.full(n, step, np.int64)
        columns["rewardloop_index"] = np.arange(before, total, dtype=np.int64)
        columns["rewardloop_split"] = np.array([split] * n, dtype=object)
        columns["rewardloop_rows"] = np.full(n, total, np.int64)
        if "uid" in columns:
            # As they are in this batch: groups may be unequal, and validation repeats rows to fill it.
            counts = Counter(columns["uid"].tolist())
            columns["rewardloop_group_size"] = np.array([counts[u] for u in columns["uid"].tolist()], np.int64)
        self.declare(step, total, split)

    def grow(self, split: str, step: int, n: int) -> tuple[int, int]:
        """Returns the number of samples of a step before and including this batch.

        Validation and DAPO's filter split a step into several batches.
        """
        before = self._steps.pop((split, step), 0)
        self._steps[split, step] = before + n
        while len(self._steps) > _STEPS_KEPT:
            self._steps.popitem(last=False)
        return before, before + n

    def declare(self, step: int, expected: int, split: str) -> None:
        """Declares how many samples of the step will come. Without it the loop works, but waits longer for batches."""
        for settings in [self.rewardloop, self.rewardloop.of_llm()] if self.composite else [self.rewardloop]:
            try:
                session(settings).client().step(step, expected, split=split, total=True)
            except RewardloopError as err:
                _LOG.warning("%s step %d: could not be declared: %s", split, step, err)


class StreamingTQ(Streaming):
    """The same as Streaming, for managers whose batch is a TensorDict of prompts, each rolled out n times."""

    def generate_sequences(self, prompts: Any) -> Any:
        """Adds the columns, declares the step, and starts the generation, whose rows go to TransferQueue."""
        self.announce(prompts)
        return super(Streaming, self).generate_sequences(prompts)  # type: ignore[misc]

    def announce(self, prompts: Any) -> None:
        """Adds rewardloop_step, _index, _split, _group_size and _rows to the prompts, and declares the step."""
        torch = importlib.import_module("torch")
        tu = importlib.import_module("verl.utils.tensordict_utils")
        step = max(int(unwrapped(prompts, "global_steps", 0)), 0)
        split = "val" if unwrapped(prompts, "validate", False) else "train"
        sizes = self.rollouts(prompts, self.group_sizes[split == "val"])
        before, total = self.grow(split, step, sum(sizes))
        tu.assign_non_tensor_data(prompts, "rewardloop_step", step)
        tu.assign_non_tensor_data(prompts, "rewardloop_split", split)
        tu.assign_non_tensor_data(prompts, "rewardloop_rows", total)
        prompts["rewardloop_group_size"] = torch.tensor(sizes)
        # A rollout's index is that of its prompt's first, plus its session_id.
        prompts["rewardloop_index"] = torch.tensor(list(itertools.accumulate(sizes[:-1], initial=before)))
        self.declare(step, total, split)

    def rollouts(self, prompts: Any, n: int) -> list[int]:
        """Returns the number of rollouts of each prompt; with verl's own worker, __rollout_n__ of a row can set it."""
        if self.workers is None and "__rollout_n__" in prompts:
            column = unwrapped(prompts, "__rollout_n__", n)
            if isinstance(column, int):
                return [column] * len(prompts)
            return [int(c) for c in (column.tolist() if hasattr(column, "tolist") else column)]
        return [n] * len(prompts)


def unwrapped(batch: Any, name: str, default: Any) -> Any:
    """Returns a value of a TensorDict without its NonTensorData."""
    value = batch[name] if name in batch else default
    return getattr(value, "data", value)


def workers_class(module: str, name: str) -> Any:
    """Returns a class of agent loop workers as a Ray actor class."""
    ray = importlib.import_module("ray")
    cls = getattr(importlib.import_module(module), name)
    return cls if isinstance(cls, ray.actor.ActorClass) else ray.remote(cls)


#: name → module and name of the base, the mixin, and the workers' class.
_CLASSES: dict[str, tuple[str, str, type[Streaming], tuple[str, str] | None]] = {
    "AgentLoopManager": ("verl.experimental.agent_loop", "AgentLoopManager", Streaming, None),
    "AgentLoopManagerTQ": ("verl.trainer.ppo.v1", "AgentLoopManagerTQ", StreamingTQ, None),
    "DiffusionAgentLoopManager": (
        "verl.experimental.agent_loop", "AgentLoopManager", Streaming, ("verl_omni.agent_loop", "DiffusionAgentLoopWorker"),
    ),
    "CompositeAgentLoopManager": (
        "verl.experimental.agent_loop", "AgentLoopManager", Streaming, ("verl_omni.agent_loop", "CompositeAgentLoopWorker"),
    ),
    "DiffusionAgentLoopManagerTQ": (
        "verl.trainer.ppo.v1", "AgentLoopManagerTQ", StreamingTQ, ("verl_omni.agent_loop", "DiffusionAgentLoopWorkerTQ"),
    ),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, base, mixin, workers = _CLASSES[name]
    made = type(
        name,
        (mixin, getattr(importlib.import_module(module), base)),
        {"__module__": __name__, "__doc__": f"{base} of {module} with rewards from a reward loop.", "workers": workers},
    )
    globals()[name] = made
    return made
