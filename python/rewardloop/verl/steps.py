"""Step scores among the tokens of verl's rows.

Facts relied on (verl 0.9.0): ``AgentLoopWorker._postprocess`` (verl/experimental/agent_loop/agent_loop.py) writes
``rm_scores`` [B, L] with the reward at each row's last token, beside ``responses`` [B, L] and ``attention_mask``
[B, P + L], and puts every key of reward_extra_info into ``non_tensor_batch``.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..scores import step_mask
from .outcome import MAX_FLOAT32, STEPS, RewardFailedError


def places(ids: Any, stop_ids: tuple[int, ...]) -> list[int]:
    """Where the scores of one response without padding stand; nowhere in an empty one."""
    if not len(ids):
        return []
    found = step_mask(ids[None], stop_ids, mode="process")[0]
    return [int(i) for i in np.flatnonzero(np.asarray(found))]


def standing(text: str, value: float, at: list[int], name: str) -> tuple[list[int], list[float]]:
    """At which of a row's places which scores stand: text is its column STEPS, value what verl has as its score.

    Without step scores it is value at the last place. Either way they sum to the row's score.
    """
    found = json.loads(text) if text else []
    return (at, fitting(found, at, name)) if found else (at[-1:], [value])


def spread(output: Any, stop_ids: tuple[int, ...]) -> None:
    """Moves the rewards of a training batch to their steps."""
    column, scores = output.non_tensor_batch.get(STEPS), output.batch["rm_scores"].clone()
    if column is None:
        return
    responses = output.batch["responses"]
    lengths = output.batch["attention_mask"][:, -responses.shape[-1] :].sum(-1).tolist()
    for row, text in enumerate(column.tolist()):
        at = places(responses[row, : int(lengths[row])], stop_ids)
        if at:
            where, found = standing(text, float(scores[row].sum()), at, f"row {row}")
            scores[row] = 0
            scores[row, where] = scores.new_tensor(found)
    output.batch["rm_scores"] = scores


def fitting(scores: list[float], at: list[int], name: str) -> list[float]:
    """The scores, of which there must be one for each place, finite as a float32."""
    if len(scores) != len(at):
        raise RewardFailedError(
            f"{name} has {len(scores)} scores for the {len(at)} positions of stop_ids; "
            "the reward function must score as many steps, or leave stop_ids out"
        )
    if not all(abs(s) <= MAX_FLOAT32 for s in scores):
        raise RewardFailedError(f"{name}: the step scores {scores} are not finite float32s")
    return scores
