"""The rewards of a whole step, which a trainer fetches chunk by chunk, as columns."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import messages
from .errors import InputError, RewardloopError
from .jsontext import finite
from .messages import Message
from .result import Outcome

#: In which order groups are handed out.
Order = Literal["completion", "index"]
#: What a step's rewards are when its deadline comes before its last sample.
OnDeadline = Literal["mask", "fail", "proceed_with_shortfall"]

ORDERS = ("completion", "index")
POLICIES = ("mask", "fail", "proceed_with_shortfall")
_STATES = ("open", "complete", "short", "failed")
#: The longest wait of one question, in seconds; a longer one is asked again.
MAX_WAIT = 60.0
_MAX_COUNT = (1 << 31) - 1
_MAX_DEADLINE = 7 * 24 * 3600.0
#: The pause before a server that did not wait as it was asked to is asked again.
PAUSE = 0.1


@dataclass(frozen=True)
class Missing:
    """A sample without a result.

    Args:
        id: Id of the sample; "": unknown.
        index: Row of the sample; None: unknown.
        uid: Prompt group of the sample; "": unknown, or no group.
        stage: Latest stage: "not arrived", queued, published, running, waiting_for_group, waiting_for_group_mean or
            expired.
        age_ms: Milliseconds since the arrival of the sample; 0: it has not arrived.
        worker: Name of the last worker that had the sample; "": none.
        members: Number of members of a group that have not arrived, if their ids are unknown.
    """

    id: str
    index: int | None
    uid: str
    stage: str
    age_ms: float = 0.0
    worker: str = ""
    members: int = 0

    def __str__(self) -> str:
        if self.id:
            name = repr(self.id)
        elif self.index is not None:
            name = f"row {self.index}"
        elif self.uid:
            name = f"{max(self.members, 1)} of group {self.uid!r}"
        else:
            name = "a sample"
        return f"{name} ({self.stage})"


@dataclass(frozen=True)
class Rewards:
    """One chunk of a step's rewards; row i of every column is one sample.

    Rows are ordered by index. Rows without an index come last, ordered by id.

    Args:
        split: "train" or "val".
        step: The trainer's global step.
        state: open; complete: every expected sample has its result; short or failed: the deadline of the step came
            first.
        chunk: Number of the chunk, from 0.
        ready: False: the groups were not complete within the wait. There are no rows, and the same chunk can be fetched
            again.
        done: Whether this is the last chunk.
        groups: Number of prompt groups in this chunk; a sample without a group counts as one.
        expected: Number of samples that were declared for the whole step; 0: no declaration.
        arrived: Number of samples of the whole step that arrived.
        scored: Number of samples of the whole step with a score.
        failed: Number of samples of the whole step that ended without a score.
        pending: Number of samples of the whole step that arrived and have no result.
        missing: Number of samples of the whole step that were expected and have not arrived.
        ids: Sample id of each row.
        indices: Row of each sample in the trainer's batch; None: no row.
        uids: Prompt group of each row; "": no group.
        rm_scores: Reward of each row; of a sample without a score, the value that its policy sets, or None.
        rm_valid: Whether rm_scores of the row is the sample's own reward.
        outcomes: How each sample ended.
        step_scores: Process rewards of each row; empty: the reward has none.
        components: The numeric columns of reward_extra_info by name; None where a row has no number.
        without: The first 256 samples without a result, once the step has ended or while ready is False.
    """

    split: str
    step: int
    state: str
    chunk: int
    ready: bool
    done: bool
    groups: int

    expected: int
    arrived: int
    scored: int
    failed: int
    pending: int
    missing: int

    ids: tuple[str, ...] = ()
    indices: tuple[int | None, ...] = ()
    uids: tuple[str, ...] = ()
    rm_scores: tuple[float | None, ...] = ()
    rm_valid: tuple[bool, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    step_scores: tuple[tuple[float, ...], ...] = ()
    components: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    without: tuple[Missing, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def rm_scores_array(self) -> npt.NDArray[np.float32]:
        """Returns rm_scores as float32 [B, 1], with NaN where there is neither a score nor a fallback value."""
        for i, v in enumerate(self.rm_scores):
            if v is not None and not abs(v) <= float(np.finfo(np.float32).max):
                raise InputError(f"{v!r} is not a finite float32", field=f"rm_scores[{i}]", sample_id=self.ids[i])
        values = [math.nan if v is None else v for v in self.rm_scores]
        return np.array(values, np.float32).reshape(-1, 1)

    def valid_array(self) -> npt.NDArray[np.bool_]:
        """Returns rm_valid as bool [B, 1]: whether row i is the score of its sample, and not a fallback value."""
        return np.array(self.rm_valid, np.bool_).reshape(-1, 1)


class StepFailedError(RewardloopError):
    """A step with on_deadline="fail" missed its deadline. ``rewards`` is the server's answer."""

    def __init__(self, rewards: Rewards) -> None:
        self.rewards = rewards
        #: The first 256 samples without a result.
        self.missing: tuple[Missing, ...] = rewards.without
        known = sum(max(m.members, 1) for m in self.missing)
        total = max(rewards.missing + rewards.pending, known)
        least = "at least " if len(self.missing) >= _MAX_WITHOUT else ""
        named = self.missing[:_MAX_NAMED]
        names = (": " + ", ".join(map(str, named))) if named else ""
        more = total - sum(max(m.members, 1) for m in named)
        super().__init__(
            f"step {rewards.step} ({rewards.split}) failed at its deadline: {least}{total} of "
            f"{max(rewards.expected, rewards.arrived)} samples have no result{names}"
            + (f" and {more} more" if named and more > 0 else "")
        )


#: How many missing samples an error names, and how many a server names at most.
_MAX_NAMED = 8
_MAX_WITHOUT = 256


@dataclass(frozen=True)
class Question:
    """A fetch of one chunk of one step, with checked arguments."""

    step: int
    split: str
    chunk: int
    groups: int
    order: str

    def __post_init__(self) -> None:
        check_step(self.step, self.split)
        for name in ("chunk", "groups"):
            check_count(getattr(self, name), name)
        if self.order not in ORDERS:
            raise InputError(f"{self.order!r}, want {' or '.join(ORDERS)}", field="order")

    def message(self, req: int, wait: float) -> Message:
        """Returns the message of type fetch. wait is in seconds."""
        order = "" if self.order == "completion" else self.order
        return messages.fetch(
            req, self.split, self.step, self.chunk, groups=self.groups, order=order, wait_ms=math.ceil(wait * 1000)
        )

    def __str__(self) -> str:
        return f"rewards of step {self.step} ({self.split}), chunk {self.chunk}"


def check_step(step: int, split: str) -> None:
    """Raises InputError unless step and split identify a step."""
    if not isinstance(step, int) or isinstance(step, bool) or not -(1 << 63) <= step < 1 << 63:
        raise InputError(f"{step!r}, want an integer", field="step")
    if split not in ("train", "val"):
        raise InputError(f"{split!r}, want train or val", field="split")


def check_count(value: int, name: str) -> None:
    """Raises InputError unless value is a count that the wire accepts: an integer from 0 to 2**31 - 1."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_COUNT:
        raise InputError(f"{value!r}, want an integer from 0 to {_MAX_COUNT}", field=name)


def check_deadline(deadline: float | None) -> None:
    """Raises InputError unless deadline is None or seconds, more than 0 and at most 604800."""
    if deadline is None:
        return
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0 < deadline <= _MAX_DEADLINE:
        raise InputError(f"{deadline!r}, want seconds, more than 0 and at most {_MAX_DEADLINE:g}", field="deadline")


def check_wait(wait: float | None) -> None:
    """Raises InputError unless wait is None or a finite number of seconds, 0 or more."""
    if wait is None:
        return
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait < math.inf:
        raise InputError(f"{wait!r}, want seconds, or None to wait for the end of the step", field="wait")


def waits(wait: float | None) -> Iterator[float]:
    """Yields the waits of successive fetches, in seconds, until wait seconds have passed; None: without end."""
    check_wait(wait)
    if wait is None:
        while True:
            yield MAX_WAIT
    end = time.monotonic() + wait
    while True:
        left = max(end - time.monotonic(), 0.0)
        yield min(left, MAX_WAIT)
        if time.monotonic() >= end:
            return


def early(asked: float, wait: float) -> bool:
    """Whether a server has answered a fetch, sent at the time asked, before half of its wait had passed."""
    return time.monotonic() - asked < wait / 2


def checked(r: Rewards) -> Rewards:
    """Returns r; raises StepFailedError if its step has failed."""
    if r.state == "failed":
        raise StepFailedError(r)
    return r


def from_wire(m: Mapping[str, Any]) -> Rewards:
    """Reads a message of type rewards; raises KeyError, TypeError or ValueError if it is invalid."""
    if m["state"] not in _STATES or m["split"] not in ("train", "val"):
        raise ValueError(f"state {m['state']!r} of split {m['split']!r}")
    ids = tuple(_text(v) for v in _list(m, "ids"))
    n = len(ids)
    return Rewards(
        split=m["split"],
        step=_integer(m["step"]),
        state=m["state"],
        chunk=_integer(m["chunk"]),
        ready=_boolean(m["ready"]),
        done=_boolean(m["done"]),
        groups=_integer(m["groups"]),
        expected=_integer(m["expected"]),
        arrived=_integer(m["arrived"]),
        scored=_integer(m["scored"]),
        failed=_integer(m["failed"]),
        pending=_integer(m["pending"]),
        missing=_integer(m["missing"]),
        ids=ids,
        indices=tuple(None if v is None else _integer(v) for v in _column(m, "indices", n)),
        uids=tuple(_text(v) for v in _column(m, "uids", n)),
        rm_scores=tuple(_number(v) for v in _column(m, "rm_scores", n)),
        rm_valid=tuple(_boolean(v) for v in _column(m, "rm_valid", n)),
        outcomes=tuple(Outcome(v) for v in _column(m, "outcomes", n)),
        step_scores=_step_scores(m, n),
        components={k: tuple(_number(v) for v in _fit(k, column, n)) for k, column in _mapping(m, "components").items()},
        without=tuple(_missing(v) for v in _list(m, "without")),
    )


def _step_scores(m: Mapping[str, Any], rows: int) -> tuple[tuple[float, ...], ...]:
    if not _list(m, "step_scores"):
        return ()
    for row in (column := _column(m, "step_scores", rows)):
        if not isinstance(row, list):
            raise TypeError(f"a row of step_scores is a {type(row).__name__}")
    return tuple(tuple(finite(v) for v in row) for row in column)


def _missing(m: Mapping[str, Any]) -> Missing:
    index = m.get("index")
    return Missing(
        id=_text(m.get("id", "")),
        index=None if index is None else _integer(index),
        uid=_text(m.get("uid", "")),
        stage=_text(m["stage"]),
        age_ms=finite(m.get("age_ms", 0.0)),
        worker=_text(m.get("worker", "")),
        members=_integer(m.get("members", 0)),
    )


def _list(m: Mapping[str, Any], name: str) -> list[Any]:
    value = m.get(name, [])
    if not isinstance(value, list):
        raise TypeError(f"{name} is a {type(value).__name__}")
    return value


def _column(m: Mapping[str, Any], name: str, rows: int) -> list[Any]:
    return _fit(name, _list(m, name), rows)


def _fit(name: str, column: Any, rows: int) -> list[Any]:
    if not isinstance(column, list) or len(column) != rows:
        raise ValueError(f"column {name!r} is not one value for each of the {rows} ids")
    return column


def _mapping(m: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = m.get(name, {})
    if not isinstance(value, dict):
        raise TypeError(f"{name} is a {type(value).__name__}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value


def _number(value: Any) -> float | None:
    return None if value is None else finite(value)
