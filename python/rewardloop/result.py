"""What came of a sample. A failed sample has no score; it never has the score 0."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import SampleFailedError
from .jsontext import finite

#: A value of reward_extra_info.
Scalar = float | int | bool | str | None


class Outcome(str, enum.Enum):
    """How a sample ended."""

    SCORED = "scored"
    FAILED = "failed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    LOST = "lost"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class TermError:
    """One failure on the way; a sample that was scored may have some, too."""

    #: The code of docs/wire.md, such as bad_input, timeout or over_credit.
    cls: str
    message: str
    #: The reward function it belongs to; empty: the sample as a whole.
    term: str = ""
    attempts: int = 0
    #: Whose failure it is: sample, reward, dependency (a service that the reward asks),
    #: worker or nobody (time that passed in a queue). Empty: a refusal made on this side.
    blame: str = ""
    #: The same will happen to every sample, until somebody mends it.
    permanent: bool = False

    def __str__(self) -> str:
        return f"{self.term + ': ' if self.term else ''}{self.cls}: {self.message}"


@dataclass(frozen=True)
class Substitute:
    """What stands in for the score of a failed sample, because somebody asked for it."""

    #: group_mean, zero or value.
    policy: str
    #: None: there is none, such as the mean of a group without a scored member.
    value: float | None


@dataclass(frozen=True)
class GroupStats:
    """Statistics of a prompt group, in results that come once it is complete."""

    uid: str
    size: int
    scored: int
    failed: int
    #: Of the scored members' rewards; None without any. std is the population's.
    mean: float | None
    std: float | None
    #: Two or more members were scored and all got the same: no signal.
    zero_std: bool
    #: Members that never came.
    missing: int


@dataclass(frozen=True)
class Result:
    """The one final answer to a sample."""

    id: str
    outcome: Outcome
    #: A finite number if the outcome is SCORED, else None.
    reward_score: float | None
    #: Scalars for the trainer's batch; None for a number that is absent.
    reward_extra_info: Mapping[str, Scalar] = field(default_factory=dict)
    #: Whatever else the scorers said; not for the trainer's batch.
    details: Mapping[str, Any] = field(default_factory=dict)
    errors: tuple[TermError, ...] = ()
    substitute: Substitute | None = None
    #: Milliseconds by stage: queue, claim, score, total, term/<key>; decode, batch_wait and infer where there were any.
    timing_ms: Mapping[str, float] = field(default_factory=dict)
    worker: str = ""
    attempts: int = 0
    #: Counts the results of a connection's session from 1; 0: answered without being numbered.
    seq: int = 0
    group: GroupStats | None = None
    #: Process rewards: a finite number for each step of the response, in their order; empty: there are none.
    step_scores: tuple[float, ...] = ()
    #: A digest of the reward's configuration that the sample was scored with, its weights among it.
    config: str = ""

    @property
    def scored(self) -> bool:
        """Whether there is a score."""
        return self.reward_score is not None

    def score(self) -> float:
        """The score; SampleFailedError if there is none."""
        if self.reward_score is None:
            raise SampleFailedError(self)
        return self.reward_score

    def why(self) -> str:
        """Outcome and reasons in one line."""
        reasons = "; ".join(str(e) for e in self.errors)
        return f"{self.outcome} ({reasons})" if reasons else str(self.outcome)


def refused(sample_id: str, outcome: Outcome, cls: str, message: str) -> Result:
    """A result that is made here and not by the server."""
    return Result(sample_id, outcome, None, {"rewardloop/valid": False}, errors=(TermError(cls, message),))


def from_wire(m: Mapping[str, Any]) -> Result:
    """Reads a message of type result; KeyError, TypeError or ValueError if it is none."""
    outcome = Outcome(m["outcome"])
    score = m["reward_score"]
    if (score is not None) != (outcome is Outcome.SCORED):
        raise ValueError(f"reward_score {score!r} with outcome {outcome}")
    return Result(
        id=m["id"],
        outcome=outcome,
        reward_score=None if score is None else finite(score),
        reward_extra_info=_mapping(m, "reward_extra_info"),
        details=_mapping(m, "details"),
        errors=tuple(
            TermError(
                str(e["class"]),
                str(e["message"]),
                str(e.get("term", "")),
                int(e.get("attempts", 0)),
                str(e.get("blame", "")),
                bool(e.get("permanent", False)),
            )
            for e in m.get("errors") or ()
        ),
        substitute=_substitute(m.get("substitute")),
        timing_ms=_mapping(m, "timing_ms"),
        worker=str(m.get("worker", "")),
        attempts=int(m["attempts"]),
        seq=int(m["seq"]),
        group=_group(m.get("group")),
        step_scores=_steps(m.get("step_scores", []), outcome),
        config=str(m.get("config", "")),
    )


def _mapping(m: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = m.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"{name} is a {type(value).__name__}")
    return value


def _steps(value: Any, outcome: Outcome) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise TypeError(f"step_scores is a {type(value).__name__}")
    if value and outcome is not Outcome.SCORED:
        raise ValueError(f"step_scores with outcome {outcome}")
    return tuple(finite(v) for v in value)


def _substitute(m: Any) -> Substitute | None:
    if m is None:
        return None
    return Substitute(str(m["policy"]), None if m["value"] is None else finite(m["value"]))


def _group(m: Any) -> GroupStats | None:
    if m is None:
        return None
    mean, std = (None if m[k] is None else finite(m[k]) for k in ("mean", "std"))
    return GroupStats(
        str(m["uid"]), int(m["size"]), int(m["scored"]), int(m["failed"]), mean, std, bool(m["zero_std"]), int(m["missing"])
    )
