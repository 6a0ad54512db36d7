"""The trainer's tensors: rm_scores with the scores, and a mask that says which of them are real."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .errors import InputError, SampleFailedError
from .result import Result

#: What stands where a sample has no score: a number; "nan"; "substitute" (the loop's, where the profile
#: or the connection asked for one, else NaN); or "raise".
OnFailed = float | Literal["nan", "substitute", "raise"]


class RmScores(NamedTuple):
    """rm_scores and its mask: NumPy arrays, or torch tensors where asked for."""

    #: float32 [B, 1], or [B, L] in the token-level form.
    rm_scores: Any
    #: bool [B, 1]: whether row i is the score of its sample, and not what stands in for one.
    rm_valid: Any


def rm_scores(
    results: Sequence[Result],
    *,
    response_mask: Any = None,
    step_mask: Any = None,
    step_scores: Sequence[Sequence[float] | None] | None = None,
    on_failed: OnFailed = "substitute",
    backend: Literal["numpy", "torch"] | None = None,
) -> RmScores:
    """Builds the tensor of a batch; row i is results[i], so give them in the order of the batch.

    Without a mask: [B, 1]. With ``response_mask`` [B, L], whose set positions are the tokens of the
    response: [B, L], 0 but for the score at each row's last set position. With ``step_mask`` [B, L] and
    ``step_scores``: row i carries its step scores at its set positions, in order; a row whose sample
    failed carries what stands in for it at the last one.

    backend None: torch if a mask is a torch tensor, else NumPy.
    """
    values, valid = _column(results, on_failed)
    mask = step_mask if step_mask is not None else response_mask
    if step_mask is not None and response_mask is not None:
        raise InputError("give response_mask or step_mask, not both", field="step_mask")
    if (step_mask is None) != (step_scores is None):
        raise InputError("step_mask and step_scores belong together", field="step_mask")
    if mask is None:
        scores = values[:, np.newaxis]
    else:
        scores = _tokens(results, values, valid, _bool_mask(mask, len(results)), step_scores)
    torch = sys.modules.get("torch")
    if backend is None:
        backend = "torch" if torch is not None and isinstance(mask, torch.Tensor) else "numpy"
    if backend == "numpy":
        return RmScores(scores, valid[:, np.newaxis])
    if backend != "torch":
        raise InputError(f"{backend!r}, want numpy or torch", field="backend")
    t = importlib.import_module("torch")
    return RmScores(t.from_numpy(scores), t.from_numpy(valid[:, np.newaxis]))


def _column(results: Sequence[Result], on_failed: OnFailed) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    if isinstance(on_failed, bool) or (on_failed not in ("nan", "substitute", "raise") and not _finite(on_failed)):
        raise InputError(f"{on_failed!r}, want nan, substitute, raise or a finite number", field="on_failed")
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
        elif on_failed == "substitute":
            stands = None if r.substitute is None else r.substitute.value
            values[i] = math.nan if stands is None else _single(stands, i)
        else:
            values[i] = _single(float(on_failed), i)
    return values, valid


def _tokens(
    results: Sequence[Result],
    values: npt.NDArray[np.float32],
    valid: npt.NDArray[np.bool_],
    mask: npt.NDArray[np.bool_],
    step_scores: Sequence[Sequence[float] | None] | None,
) -> npt.NDArray[np.float32]:
    if step_scores is not None and len(step_scores) != len(results):
        raise InputError(f"{len(step_scores)} rows for {len(results)} results", field="step_scores")
    out = np.zeros(mask.shape, np.float32)
    for i, result in enumerate(results):
        places = np.flatnonzero(mask[i])
        if places.size == 0:
            raise InputError(f"row {i} (sample {result.id!r}) has no set position for a score", field="mask")
        if step_scores is None or not valid[i]:
            out[i, places[-1]] = values[i]
            continue
        steps = step_scores[i]
        if steps is None or len(steps) != places.size:
            have = "no" if steps is None else len(steps)
            raise InputError(f"{have} scores for {places.size} set positions of step_mask", field=f"step_scores[{i}]")
        out[i, places] = [_single(s, i) for s in steps]
    return out


def _bool_mask(mask: Any, rows: int) -> npt.NDArray[np.bool_]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(mask, torch.Tensor):
        mask = mask.detach().cpu().numpy()
    array: npt.NDArray[Any] = np.asarray(mask)
    if array.ndim != 2 or array.shape[0] != rows:
        raise InputError(f"shape {array.shape}, want [{rows}, L]: a row for each result", field="mask")
    return np.asarray(array != 0, np.bool_)


def _finite(value: object) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)


def _single(value: float, row: int) -> float:
    """value, refused where it is not finite as a float32."""
    if not _finite(value) or abs(value) > float(np.finfo(np.float32).max):
        raise InputError(f"{value!r} is no finite float32", field=f"results[{row}]")
    return float(value)
