"""From a result to what a trainer takes: a finite float, and the same columns for every sample."""

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
    """A sample has no score and nothing may stand in for it, or too many have none."""


class ExtraInfo(dict[str, Scalar]):
    """reward_extra_info. verl takes the columns of the first sample of a batch and looks them up in all, and batches of
    several processes must have the same ones in the same order (``_postprocess`` of verl/experimental/agent_loop,
    ``DataProto.concat``). So the keys are sorted, and those of other samples of the process are among them, even if they
    came later than this one: a sample that expired before anybody scored it brings none. What it lacks reads as NaN, or as an
    empty text."""

    #: Those of the process; None: they are not known, as after a journey to another process.
    columns: Columns | None = None

    def keys(self) -> Any:
        """The names of all columns."""
        return dict.fromkeys(sorted({*self, *self._absent()})).keys()

    def __missing__(self, key: str) -> Scalar:
        return self._absent().get(key, math.nan)

    def _absent(self) -> dict[str, Scalar]:
        return {} if self.columns is None else self.columns.absent()

    def __reduce__(self) -> tuple[Any, ...]:
        return ExtraInfo, (dict(self),)


class Columns:
    """The columns seen so far, with what stands for an absent value. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._absent: dict[str, Scalar] = {}  # guarded by _lock

    def learn(self, info: Mapping[str, Any]) -> None:
        """Takes the names of the columns of a sample."""
        with self._lock:
            for name, value in info.items():
                if isinstance(value, str):
                    self._absent[name] = ""
                else:
                    self._absent.setdefault(name, math.nan)

    def absent(self) -> dict[str, Scalar]:
        """What stands for an absent value, by column."""
        with self._lock:
            return dict(self._absent)

    def fill(self, info: Any, reason: str | None) -> ExtraInfo:
        """info with every known column, rewardloop/valid, and rewardloop/error: why there is no score, else empty."""
        self.learn(info)
        made = ExtraInfo(self.absent())
        made.columns = self
        made.update({k: v for k, v in info.items() if v is not None})
        made[VALID] = float(reason is None)
        made[ERROR] = (reason or "")[:_MAX_REASON]
        return made


class Failures:
    """Counts failed samples, and raises when they are too many. Any thread may call."""

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction
        self._lock = threading.Lock()
        self._window: deque[bool] = deque(maxlen=WINDOW)  # guarded by _lock
        self._steps: OrderedDict[tuple[str, int], int] = OrderedDict()  # guarded by _lock; failed by step
        self._reasons: deque[str] = deque(maxlen=_REASONS_KEPT)  # guarded by _lock

    def count(self, reason: str | None, step: tuple[str, int] | None = None, rows: int = 0) -> None:
        """Takes how a sample ended: None for a score. rows: the samples of the whole step, where that is known;
        other processes have some of them, so that only what is certainly too much raises here."""
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
    """What is said when too many samples have no score."""
    return f"{failed} of {where} failed, more than max_failed_fraction {fraction:g}: {reasons}"


def why(result: Result) -> str:
    """Outcome and reasons in one line: each reason once, without its traceback."""
    reasons = dict.fromkeys(str(e).partition("\n")[0] for e in result.errors)
    return f"{result.outcome} ({'; '.join(reasons)})" if reasons else str(result.outcome)


def reward_of(result: Result, settings: Settings, grouped: bool) -> float:
    """The finite float of a sample: its score, else what on_failed names."""
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
