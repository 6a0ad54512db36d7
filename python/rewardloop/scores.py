"""The trainer's tensors: rm_scores, the mask of the valid scores, the positions of step scores, and advantages."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Collection, Hashable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .result import Result, SampleFailedError

#: What stands where a sample has no score: a number; "nan"; "fallback" (the loop's, where the profile
#: or the connection asked for one, else NaN); or "raise".
OnFailed = float | Literal["nan", "fallback", "raise"]


class RmScores(NamedTuple):
    """rm_scores and its mask: NumPy arrays, or torch tensors if requested."""

    #: float32 [B, 1], or [B, L] in the token-level form.
    rm_scores: Any
    #: bool [B, 1]: whether row i is the score of its sample, and not what stands in for one.
    rm_valid: Any


def step_mask(
    token_ids: Any,
    stop_ids: int | Collection[int],
    *,
    mode: Literal["process", "outcome"] = "process",
    attention_mask: Any = None,
) -> Any:
    """Returns the positions of the scores in responses: bool [B, L], a torch tensor if token_ids is one, else NumPy.

    token_ids is [B, L]. attention_mask is [B, L], or [B, P + L] with the prompts before the responses; it is set where
    there is no padding (None: no padding). The positions are those of RL-Factory (get_step_mask of
    verl/workers/reward_manager/parallel.py, d0abc1db):

    - ``outcome``, as in validation: the last token.
    - ``process`` with an odd number of stop tokens: the first, third, fifth … stop token. The first stop token ends a
      turn of the model, the next one ends the answer of its tool, and the last one ends the last turn.
    - ``process`` with an even number of stop tokens, or none: the same positions, and the last token, because the last
      turn was cut short.

    Unlike in RL-Factory, stop tokens in the padding do not count. Raises InputError for a row without a token.
    """
    if mode not in ("process", "outcome"):
        raise InputError(f"{mode!r}, want process or outcome", field="mode")
    ids = _array(token_ids)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise InputError(f"{ids.dtype} of shape {ids.shape}, want integers [B, L]", field="token_ids")
    valid = np.ones(ids.shape, np.bool_)
    if attention_mask is not None:
        given = _bool_mask(attention_mask, len(ids), "attention_mask")
        if given.shape[1] < ids.shape[1]:
            raise InputError(f"shape {given.shape} for token_ids of {ids.shape}", field="attention_mask")
        valid = given[:, given.shape[1] - ids.shape[1] :]
    empty = np.flatnonzero(~valid.any(axis=1))
    if empty.size:
        raise InputError(f"row {empty[0]} has no token, and no place for a score", field="token_ids")
    last = ids.shape[1] - 1 - np.argmax(valid[:, ::-1], axis=1)
    mask = np.zeros(ids.shape, np.bool_)
    cut_short = np.arange(len(ids))
    if mode == "process":
        stops = valid & np.isin(ids, [stop_ids] if isinstance(stop_ids, int | np.integer) else list(stop_ids))
        counted = np.cumsum(stops, axis=1)
        mask = stops & (counted % 2 == 1)
        cut_short = np.flatnonzero(stops.sum(axis=1) % 2 == 0)
    mask[cut_short, last[cut_short]] = True
    torch = sys.modules.get("torch")
    return torch.from_numpy(mask) if torch is not None and isinstance(token_ids, torch.Tensor) else mask


def rm_scores(
    results: Sequence[Result],
    *,
    response_mask: Any = None,
    step_mask: Any = None,
    step_scores: Sequence[Sequence[float] | None] | None = None,
    tool_use_scores: Any = None,
    on_failed: OnFailed = "fallback",
    backend: Literal["numpy", "torch"] | None = None,
) -> RmScores:
    """Returns the score tensor of a batch and its mask. Row i is results[i]: pass the results in the batch's order.

    The shape and the positions of the scores depend on the mask:

    - Without a mask the shape is [B, 1].
    - With ``response_mask`` [B, L], whose set positions are the tokens of the response, the shape is [B, L]. The score
      is at the last set position of its row; all other positions are 0.
    - With ``step_mask`` [B, L] (see step_mask()) the shape is [B, L]. Row i has its step scores at its set positions,
      in order. If the number of scores differs from the number of positions, InputError contains the id of the sample.
      A row without step scores has its reward at the last set position. A row whose sample failed has the value of
      on_failed at the last set position.

    The step scores of row i are ``step_scores[i]`` if that is given and not None, else the step scores of the result.
    The scores of ``tool_use_scores[i]``, which the rollout already has, come before them; NaN marks a turn without a
    score (compute_score of RL-Factory's envs/base.py, d0abc1db). In a row without step scores the tool-use scores begin
    at the first position. Without its tool-use scores, the values of a row sum to its reward.

    on_failed is the value of a row without a score: a number; "nan"; "fallback" for the fallback of the result, else
    NaN; or "raise" for SampleFailedError. backend None: torch if a mask is a torch tensor, else NumPy.
    """
    values, valid = _column(results, on_failed)
    mask = step_mask if step_mask is not None else response_mask
    if step_mask is not None and response_mask is not None:
        raise InputError("give response_mask or step_mask, not both", field="step_mask")
    for name, given in (("step_scores", step_scores), ("tool_use_scores", tool_use_scores)):
        if given is not None and step_mask is None:
            raise InputError("a step_mask is needed, with the positions of the scores", field=name)
        if given is not None and len(given) != len(results):
            raise InputError(f"{len(given)} rows for {len(results)} results", field=name)
    if mask is None:
        scores = values[:, np.newaxis]
    else:
        places = _bool_mask(mask, len(results))
        steps = None if step_mask is None else _steps(results, step_scores, tool_use_scores, places.sum(axis=1))
        scores = _tokens(results, values, valid, places, steps)
    torch = sys.modules.get("torch")
    if backend is None:
        backend = "torch" if torch is not None and isinstance(mask, torch.Tensor) else "numpy"
    if backend == "numpy":
        return RmScores(scores, valid[:, np.newaxis])
    if backend != "torch":
        raise InputError(f"{backend!r}, want numpy or torch", field="backend")
    t = importlib.import_module("torch")
    return RmScores(t.from_numpy(scores), t.from_numpy(valid[:, np.newaxis]))


def advantages(
    scores: Any,
    valid: Any,
    groups: Sequence[Hashable],
    *,
    failed: Literal["impute", "mask"] = "impute",
    ddof: int = 0,
    epsilon: float = 1e-4,
) -> npt.NDArray[np.float64]:
    """Returns group-relative advantages [B]: (score - mean of the group) / (standard deviation of the group + epsilon).

    scores and valid are [B] or [B, 1], as returned by rm_scores; groups contains the prompt group of each row. valid
    None: every row has a score. A row without a score has advantage 0. failed sets how the value of such a row counts:

    - ``impute``: as part of the mean and the standard deviation. If k of n rows are scored and the others have the mean
      of the k scores, the standard deviation is smaller than that of the k scores, and the advantages of the k rows are
      larger: by sqrt((n - 1) / (k - 1)) with ddof 1, 1.46 for 8 of 16, and by sqrt(n / k) with ddof 0.
    - ``mask``: not at all, as if the group had no such row.

    All advantages of a group with fewer than two counted rows are 0. ddof is 0 in flow_grpo (numpy.std in
    flow_grpo/stat_tracking.py, ac4c86e) and 1 in verl-omni (torch.std in trainer/diffusion/diffusion_algos.py,
    a1139ba).
    """
    values = _array(scores).astype(np.float64).reshape(-1)
    known = np.ones(len(values), np.bool_) if valid is None else _array(valid).reshape(-1) != 0
    if len(known) != len(values) or len(groups) != len(values):
        raise InputError(
            f"{len(values)} scores, {len(known)} marks and {len(groups)} groups, want as many of each", field="scores"
        )
    if failed not in ("impute", "mask"):
        raise InputError(f"{failed!r}, want impute or mask", field="failed")
    counts = known if failed == "mask" else np.ones_like(known)
    unknown = np.flatnonzero(counts & ~np.isfinite(values))
    if unknown.size:
        raise InputError(f"{values[unknown[0]]} in row {unknown[0]}; mask the row, or give a value for it", field="scores")
    rows: dict[Hashable, list[int]] = {}
    for i, name in enumerate(groups):
        if counts[i]:
            rows.setdefault(name, []).append(i)
    out = np.zeros(len(values))
    for members in rows.values():
        if len(members) > 1:
            group = values[members]
            out[members] = (group - group.mean()) / (group.std(ddof=ddof) + epsilon)
    out[~known] = 0
    return out


def _column(results: Sequence[Result], on_failed: OnFailed) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    if isinstance(on_failed, bool) or (on_failed not in ("nan", "fallback", "raise") and not _finite(on_failed)):
        raise InputError(f"{on_failed!r}, want nan, fallback, raise or a finite number", field="on_failed")
    values = np.empty(len(results), np.float32)
    valid = np.zeros(len(results), np.bool_)
    for i, r in enumerate(results):
        if not isinstance(r, Result):
            raise InputError(f"want a Result, not {type(r).__name__}", field=f"results[{i}]")
        if r.reward_score is not None:
            values[i], valid[i] = _single(r.reward_score, i), True
        elif on_failed == "raise":
            raise SampleFailedError(r)
        elif on_failed == "nan":
            values[i] = math.nan
        elif on_failed == "fallback":
            stands = None if r.fallback is None else r.fallback.value
            values[i] = math.nan if stands is None else _single(stands, i)
        else:
            values[i] = _single(float(on_failed), i)
    return values, valid


def _steps(
    results: Sequence[Result], step_scores: Sequence[Sequence[float] | None] | None, tool_use_scores: Any, places: Any
) -> list[list[float]]:
    """The scores of each row that has a score, one for each of its places."""
    rows: list[list[float]] = []
    for i, r in enumerate(results):
        given = np.empty(0) if tool_use_scores is None else _array(tool_use_scores[i]).astype(np.float64).reshape(-1)
        before = [float(v) for v in given if not math.isnan(v)]
        own = None if step_scores is None else step_scores[i]
        if own is None:
            own = r.step_scores
            if not own and r.reward_score is not None:
                own = [*[0.0] * (int(places[i]) - 1 - len(before)), r.reward_score]
        rows.append([*before, *own])
    return rows


def _tokens(
    results: Sequence[Result],
    values: npt.NDArray[np.float32],
    valid: npt.NDArray[np.bool_],
    mask: npt.NDArray[np.bool_],
    steps: list[list[float]] | None,
) -> npt.NDArray[np.float32]:
    out = np.zeros(mask.shape, np.float32)
    for i, result in enumerate(results):
        places = np.flatnonzero(mask[i])
        if places.size == 0:
            raise InputError(f"row {i} (sample {result.id!r}) has no set position for a score", field="mask")
        if steps is None or not valid[i]:
            out[i, places[-1]] = values[i]
            continue
        if len(steps[i]) != places.size:
            raise InputError(
                f"sample {result.id!r} has {len(steps[i])} scores for the {places.size} set positions of step_mask",
                field=f"step_scores[{i}]",
            )
        out[i, places] = [_single(s, i) for s in steps[i]]
    return out


def _array(value: Any) -> npt.NDArray[Any]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    array: npt.NDArray[Any] = np.asarray(value)
    return array


def _bool_mask(mask: Any, rows: int, field: str = "mask") -> npt.NDArray[np.bool_]:
    array = _array(mask)
    if array.ndim != 2 or array.shape[0] != rows:
        raise InputError(f"shape {array.shape}, want [{rows}, L]: a row for each result", field=field)
    return np.asarray(array != 0, np.bool_)


def _finite(value: object) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)


def _single(value: float, row: int) -> float:
    """value, refused where it is not finite as a float32."""
    if not _finite(value) or abs(value) > float(np.finfo(np.float32).max):
        raise InputError(f"{value!r} is not a finite float32", field=f"results[{row}]")
    return float(value)
