"""Converts a result to the trainer's values: a finite float, and the same columns for every sample."""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import RewardloopError
from ..result import Result, Scalar
from .settings import Settings

_LOG = logging.getLogger("rewardloop")

#: Samples that max_failed_fraction looks at where the step is not known.
WINDOW = 512
_STEPS_KEPT = 8
_REASONS_KEPT = 5
_MAX_REASON = 300
#: Columns that every sample has: 1.0 for a score, and the reason where there is none.
VALID, ERROR = "rewardloop/valid", "rewardloop/error"
#: What stands in rm_scores, a finite number for every sample: what a filter of groups may look at. Other columns are
#: NaN where a sample failed, and a group with a NaN has no standard deviation that such a filter could call 0.
SCORE = "rewardloop/score"
#: With stop_ids: the sample's scores by step as JSON, [] where it has its reward alone, empty where something
#: stands in for its score.
STEPS = "rewardloop/step_scores"
#: The largest number a trainer's tensor holds.
MAX_FLOAT32 = float(np.finfo(np.float32).max)


class RewardFailedError(RewardloopError, RuntimeError):
    """A sample has no score and no fallback is allowed, or too many samples have no score."""


class ExtraInfo(dict[str, Scalar]):
    """reward_extra_info of a sample, with the columns of all samples of the process.

    verl takes the columns of the first sample of a batch and reads them from all samples. Batches of several processes
    must have the same columns in the same order (``_postprocess`` of verl/experimental/agent_loop,
    ``DataProto.concat``). The keys are therefore sorted and include the columns of other samples of the process, even
    of later ones: a sample that expired before it was scored has no columns of its own. An absent value reads as NaN,
    or as an empty text.
    """

    #: Those of the process; None: they are not known, as after a journey to another process.
    columns: Columns | None = None

    def keys(self) -> Any:
        """Returns the names of all columns, sorted."""
        return dict.fromkeys(sorted({*self, *self._absent()})).keys()

    def __missing__(self, key: str) -> Scalar:
        return self._absent().get(key, math.nan)

    def _absent(self) -> dict[str, Scalar]:
        return {} if self.columns is None else self.columns.absent()

    def __reduce__(self) -> tuple[Any, ...]:
        return ExtraInfo, (dict(self),)


class Columns:
    """The columns seen so far, with the replacement of an absent value. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._absent: dict[str, Scalar] = {}  # guarded by _lock

    def learn(self, info: Mapping[str, Any]) -> None:
        """Adds the names of a sample's columns."""
        with self._lock:
            for name, value in info.items():
                if isinstance(value, str):
                    self._absent[name] = ""
                else:
                    self._absent.setdefault(name, math.nan)

    def absent(self) -> dict[str, Scalar]:
        """Returns the replacement of an absent value for each column: empty for text, else NaN."""
        with self._lock:
            return dict(self._absent)

    def fill(self, info: Any, reason: str | None) -> ExtraInfo:
        """Returns info with every known column, rewardloop/valid, and rewardloop/error.

        reason is the reason why there is no score; None, and an empty rewardloop/error, if there is one.
        """
        self.learn(info)
        made = ExtraInfo(self.absent())
        made.columns = self
        made.update({k: v for k, v in info.items() if v is not None})
        made[VALID] = float(reason is None)
        made[ERROR] = (reason or "")[:_MAX_REASON]
        return made


class Failures:
    """Counts failed samples, and raises RewardFailedError if there are too many. Any thread may call."""

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction
        self._lock = threading.Lock()
        self._window: deque[bool] = deque(maxlen=WINDOW)  # guarded by _lock
        self._steps: OrderedDict[tuple[str, int], int] = OrderedDict()  # guarded by _lock; failed by step
        self._reasons: deque[str] = deque(maxlen=_REASONS_KEPT)  # guarded by _lock

    def count(self, reason: str | None, step: tuple[str, int] | None = None, rows: int = 0) -> None:
        """Counts a sample; reason None: it has a score.

        rows is the number of samples of the whole step, if known. Other processes count some of these samples, so this
        method raises only if the failed samples of this process alone exceed the limit.
        """
        with self._lock:
            self._window.append(reason is not None)
            if reason is None:
                return
            self._reasons.append(reason)
            if step is not None and rows > 0:
                failed = self._steps[step] = self._steps.pop(step, 0) + 1
                while len(self._steps) > _STEPS_KEPT:
                    self._steps.popitem(last=False)
                of, where = rows, f"the {rows} samples of {step[0]} step {step[1]}"
            else:
                failed, of = sum(self._window), WINDOW
                where = f"the last {len(self._window)} samples of this process (bounds: {WINDOW})"
            reasons = "; ".join(dict.fromkeys(self._reasons))
        if failed > self._fraction * of:
            raise RewardFailedError(too_many(failed, where, self._fraction, reasons))


def too_many(failed: int, where: str, fraction: float, reasons: str) -> str:
    """Returns the error message for too many samples without a score."""
    return f"{failed} of {where} failed, more than max_failed_fraction {fraction:g}: {reasons}"


def why(result: Result) -> str:
    """Returns the outcome and the reasons in one line: each reason once, without its traceback."""
    reasons = dict.fromkeys(str(e).partition("\n")[0] for e in result.errors)
    return f"{result.outcome} ({'; '.join(reasons)})" if reasons else str(result.outcome)


def reward_of(result: Result, settings: Settings, grouped: bool) -> float:
    """Returns the finite float of a sample: its score, else the value that on_failed sets."""
    value = result.reward_score
    if value is None:
        value = _stand_in(result, settings, grouped)
        _LOG.warning("sample %s: %s; %g stands in for its score (%s)", result.id, why(result), value, settings.on_failed)
    if not abs(value) <= MAX_FLOAT32:
        raise RewardFailedError(f"sample {result.id}: the reward {value!r} is not a finite float32")
    return float(value)


def _stand_in(result: Result, settings: Settings, grouped: bool) -> float:
    fallback = settings.fallback()
    if fallback is not None:
        return fallback
    if settings.on_failed == "raise":
        raise RewardFailedError(f"sample {result.id}: {why(result)}")
    if result.fallback is not None and result.fallback.value is not None:
        return result.fallback.value
    if not grouped and settings.on_failed != "mask":
        raise RewardFailedError(
            f"sample {result.id}: {why(result)}; the sample has no group whose mean could replace its score: "
            "set on_failed=raise or on_failed=value:<x>"
        )
    return 0.0  # no member has a score: one constant for all of them carries no signal
