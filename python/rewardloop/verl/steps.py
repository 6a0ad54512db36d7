"""Step scores at the token positions of verl's rows.

Behaviour of verl 0.9.0 that this module relies on: ``AgentLoopWorker._postprocess``
(verl/experimental/agent_loop/agent_loop.py) writes ``rm_scores`` [B, L] with the reward at the last token of each row,
beside ``responses`` [B, L] and ``attention_mask`` [B, P + L], and puts every key of reward_extra_info into
``non_tensor_batch``.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..scores import step_mask
from .outcome import MAX_FLOAT32, STEPS, RewardFailedError


def places(ids: Any, stop_ids: tuple[int, ...]) -> list[int]:
    """Returns the positions of the scores in one response without padding; an empty list for an empty response."""
    if not len(ids):
        return []
    found = step_mask(ids[None], stop_ids, mode="process")[0]
    return [int(i) for i in np.flatnonzero(np.asarray(found))]


def standing(text: str, value: float, at: list[int], name: str) -> tuple[list[int], list[float]]:
    """Returns the positions and the scores of a row.

    text is the row's column STEPS, value is verl's score of the row, and at contains the positions of the row. Without
    step scores, value is at the last position. In both cases the scores sum to the score of the row.
    """
    found = json.loads(text) if text else []
    return (at, fitting(found, at, name)) if found else (at[-1:], [value])


def spread(output: Any, stop_ids: tuple[int, ...]) -> None:
    """Moves the rewards of a training batch to the positions of their steps."""
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
    """Returns the scores; raises RewardFailedError unless there is one finite float32 for each position."""
    if len(scores) != len(at):
        raise RewardFailedError(
            f"{name} has {len(scores)} scores for the {len(at)} positions of stop_ids; "
            "the reward function must score as many steps, or leave stop_ids out"
        )
    if not all(abs(s) <= MAX_FLOAT32 for s in scores):
        raise RewardFailedError(f"{name}: the step scores {scores} are not finite float32s")
    return scores
