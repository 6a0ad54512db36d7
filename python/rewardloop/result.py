"""What came of a sample. A failed sample has no score; it never has the score 0."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .errors import RewardloopError
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
class ComponentError:
    """One failure on the way; a sample that was scored may have some, too.

    Args:
        cls: The code of docs/wire.md, such as bad_input, timeout or over_credit.
        message: What was wrong.
        component: The reward function it belongs to; "": the sample as a whole.
        attempts: How often that function was tried.
        blame: Whose failure it is: sample, reward, dependency (a service that the reward asks), worker or nobody (time
            that passed in a queue); "": a refusal made on this side.
        permanent: Whether the same will happen to every sample until somebody mends it.
    """

    cls: str
    message: str
    component: str = ""
    attempts: int = 0
    blame: str = ""
    permanent: bool = False

    def __str__(self) -> str:
        return f"{self.component + ': ' if self.component else ''}{self.cls}: {self.message}"


@dataclass(frozen=True)
class Fallback:
    """What stands in for the score of a failed sample, because somebody asked for it.

    Args:
        policy: group_mean, zero or value.
        value: A finite number; None: there is none, such as the mean of a group without a scored member.
    """

    policy: str
    value: float | None


@dataclass(frozen=True)
class GroupStats:
    """Statistics of a prompt group, in results that come once it is complete.

    Args:
        uid: The group.
        size: Its members.
        scored: Members with a score.
        failed: Members without one.
        mean: Of the scored members' rewards; None without any.
        std: Their standard deviation, the population's; None without any.
        zero_std: Two or more members were scored and all got the same reward: the group carries no signal.
        missing: Members that never came.
    """

    uid: str
    size: int
    scored: int
    failed: int
    mean: float | None
    std: float | None
    zero_std: bool
    missing: int


@dataclass(frozen=True)
class Result:
    """The one final answer to a sample.

    Args:
        id: The sample's.
        outcome: How the sample ended.
        reward_score: A finite number if the outcome is SCORED, else None: a failed sample has no score, and never 0.
        reward_extra_info: Scalars for the trainer's batch, such as reward/ocr and rewardloop/valid; None for a number
            that is absent.
        details: Whatever else the scorers said; not for the trainer's batch.
        errors: Every failure on the way; also a sample that was scored may have some.
        fallback: What stands in for the score, where the profile or the connection asked for it; None: nothing.
        timing_ms: Milliseconds by stage: queue, claim, score, total, component/<key>; decode, batch_wait and infer where
            there were any.
        worker: Who scored it; "": nobody did.
        attempts: How often the sample was given to a worker.
        seq: Counts the results of a connection's session from 1; 0: answered without being numbered.
        group: Statistics of the prompt group, in results that come once it is complete; None before.
        step_scores: Process rewards: a finite number for each step of the response, in their order, whose sum is
            reward_score; empty: there are none.
        config: A digest of the reward's configuration that the sample was scored with, its weights among it; "": no
            worker has answered for it.
    """

    id: str
    outcome: Outcome
    reward_score: float | None
    reward_extra_info: Mapping[str, Scalar] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    errors: tuple[ComponentError, ...] = ()
    fallback: Fallback | None = None
    timing_ms: Mapping[str, float] = field(default_factory=dict)
    worker: str = ""
    attempts: int = 0
    seq: int = 0
    group: GroupStats | None = None
    step_scores: tuple[float, ...] = ()
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

    def as_row(self) -> dict[str, Scalar]:
        """The result as one flat row: ``pandas.DataFrame(r.as_row() for r in results)``.

        Always there: id, outcome, reward_score, fallback (the number that stands in for a missing score, or None),
        why (as why() has it), worker, attempts and config. Then reward_extra_info by its own names, such as
        reward/ocr; one that has the name of a column above stands as reward_extra_info/<name>. Then
        timing_ms/<stage>, and group/uid, group/mean and so on of a complete group. details, step_scores and the
        errors one by one are left out.
        """
        row: dict[str, Scalar] = {
            "id": self.id,
            "outcome": str(self.outcome),
            "reward_score": self.reward_score,
            "fallback": None if self.fallback is None else self.fallback.value,
            "why": self.why(),
            "worker": self.worker,
            "attempts": self.attempts,
            "config": self.config,
        }
        row.update({f"reward_extra_info/{k}" if k in row else k: v for k, v in self.reward_extra_info.items()})
        row.update({f"timing_ms/{k}": v for k, v in self.timing_ms.items()})
        if self.group is not None:
            row.update({f"group/{k}": v for k, v in asdict(self.group).items()})
        return row


class SampleFailedError(RewardloopError):
    """A score was asked for of a sample that has none. ``result`` says why."""

    def __init__(self, result: Result) -> None:
        super().__init__(f"sample {result.id!r} has no score: {result.why()}")
        self.result = result


def refused(sample_id: str, outcome: Outcome, cls: str, message: str) -> Result:
    """A result that is made here and not by the server."""
    return Result(sample_id, outcome, None, {"rewardloop/valid": False}, errors=(ComponentError(cls, message),))


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
            ComponentError(
                str(e["class"]),
                str(e["message"]),
                str(e.get("component", "")),
                int(e.get("attempts", 0)),
                str(e.get("blame", "")),
                bool(e.get("permanent", False)),
            )
            for e in m.get("errors") or ()
        ),
        fallback=_fallback(m.get("fallback")),
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


def _fallback(m: Any) -> Fallback | None:
    if m is None:
        return None
    return Fallback(str(m["policy"]), None if m["value"] is None else finite(m["value"]))


def _group(m: Any) -> GroupStats | None:
    if m is None:
        return None
    mean, std = (None if m[k] is None else finite(m[k]) for k in ("mean", "std"))
    return GroupStats(
        str(m["uid"]), int(m["size"]), int(m["scored"]), int(m["failed"]), mean, std, bool(m["zero_std"]), int(m["missing"])
    )
