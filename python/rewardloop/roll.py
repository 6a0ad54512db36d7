"""A reward worker for ROLL with rewards of a reward loop.

Set ``worker_cls: rewardloop.roll.RewardLoopWorker`` under ``rewards:``.

Behaviour of ROLL 8eb27cc that this module relies on: compute_rewards(DataProto) gets responses, and prompt,
ground_truth and tag of each row; it returns token_level_rewards, response_level_rewards and scores. ROLL's own workers
return float16, this worker returns float32. ROLL defines no value for a response without a reward, so such a response
raises SampleFailedError, which ends the step.
"""

from __future__ import annotations

from typing import Any

from roll.distributed.executor.worker import Worker
from roll.distributed.scheduler.decorator import Dispatch, register
from roll.distributed.scheduler.protocol import DataProto
from roll.models.model_providers import default_tokenizer_provider

from ._trainers import client, required, rows, sample, torch
from .result import Result

#: Columns that say nothing of the answer.
_OWN = ("rollout_id", "input_ids", "labels", "messages", "uuid")


def results(prompts: list[Any], responses: list[str], columns: dict[str, Any], step: int = 0) -> list[Result]:
    """Returns the server's results, including those of responses without a score. Column tag becomes data_source."""
    each = zip(prompts, responses, rows(columns, len(responses)), strict=True)
    return client("roll").score(sample(p, r, row, data_source=str(row.pop("tag", "")), step=step) for p, r, row in each)


class RewardLoopWorker(Worker):
    def __init__(self, worker_config: Any) -> None:
        super().__init__(worker_config=worker_config)
        self.rank_info.dp_rank, self.rank_info.dp_size = self.rank_info.rank, self.rank_info.world_size
        self.tokenizer = default_tokenizer_provider(model_args=self.worker_config.model_args)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def initialize(self, pipeline_config: Any) -> None:
        """Does nothing: the worker loads no model."""

    @register(dispatch_mode=Dispatch.DP_MP_COMPUTE, clear_cache=False)
    def compute_rewards(self, data: Any) -> Any:
        tokens = data.batch["responses"]
        columns = {name: c for name, c in data.non_tensor_batch.items() if name not in _OWN}
        prompts = [str(p) for p in columns.pop("prompt", [""] * len(tokens))]
        responses = self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        answered = results(prompts, responses, columns, int(data.meta_info.get("global_step") or 0))
        scores, again = (torch().tensor([required(r) for r in answered], dtype=torch().float32) for _ in range(2))
        zeros = torch().zeros_like(tokens, dtype=torch().float32)
        return DataProto.from_dict(tensors={"token_level_rewards": zeros, "response_level_rewards": scores, "scores": again})
