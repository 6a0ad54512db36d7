"""The result of a sample. A failed sample has no score; it never has the score 0."""

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
    """The way in which a sample ended."""

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
    """One failure during the scoring of a sample. A scored sample may have failures too.

    Args:
        cls: Error code of docs/wire.md, such as bad_input, timeout or over_credit.
        message: Description of the failure.
        component: Key of the component that failed; "": the sample as a whole.
        attempts: Number of attempts of the component.
        blame: Origin of the failure: sample, reward, dependency (a service that the reward calls), worker or nobody
            (time that passed in a queue); "": the client itself refused the sample.
        permanent: Whether every sample fails in the same way until the cause is removed.
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
    """The value in the place of a failed sample's score, if the profile or the client requests one.

    Args:
        policy: group_mean, zero or value.
        value: A finite number; None: there is no value, for example the mean of a group without a scored member.
    """

    policy: str
    value: float | None


@dataclass(frozen=True)
class GroupStats:
    """Statistics of a prompt group, in results that arrive after the group is complete.

    Args:
        uid: Id of the group.
        size: Number of members.
        scored: Number of members with a score.
        failed: Number of members without a score.
        mean: Mean reward of the scored members; None if there are none.
        std: Population standard deviation of the rewards of the scored members; None if there are none.
        zero_std: Whether two or more members were scored and all have the same reward: the group carries no signal.
        missing: Number of members that never arrived.
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
    """The one final result of a sample.

    Args:
        id: Id of the sample.
        outcome: How the sample ended.
        reward_score: A finite number if the outcome is SCORED, else None: a failed sample has no score, and never 0.
        reward_extra_info: Scalars for the trainer's batch, such as reward/ocr and rewardloop/valid; None for a number
            that is absent.
        details: All other output of the scorers, which is not for the trainer's batch.
        errors: All failures during the scoring; a scored sample may have some too.
        fallback: The value in the place of the score, if the profile or the connection requests one; None: no fallback.
        timing_ms: Milliseconds by stage: queue, claim, score, total, component/<key>; decode, batch_wait and infer if
            the sample passed these stages.
        worker: Name of the worker that scored the sample; "": none.
        attempts: Number of times that the sample was given to a worker.
        seq: Number of the result within the session of the connection, from 1; 0: a result without a number.
        group: Statistics of the prompt group, in results that arrive after the group is complete; None: not complete.
        step_scores: Process rewards: a finite number for each step of the response, in order, whose sum is
            reward_score; empty: there are none.
        config: Digest of the configuration and weights of the reward that scored the sample; "": no worker has returned
            a result for the sample.
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
        """Whether the sample has a score."""
        return self.reward_score is not None

    def score(self) -> float:
        """Returns the score; raises SampleFailedError if there is none."""
        if self.reward_score is None:
            raise SampleFailedError(self)
        return self.reward_score

    def why(self) -> str:
        """Returns the outcome and the reasons in one line."""
        reasons = "; ".join(str(e) for e in self.errors)
        return f"{self.outcome} ({reasons})" if reasons else str(self.outcome)

    def as_row(self) -> dict[str, Scalar]:
        """Returns the result as one flat row: ``pandas.DataFrame(r.as_row() for r in results)``.

        Columns that always exist: id, outcome, reward_score, fallback (the value in the place of a missing score, or
        None), why (the text of why()), worker, attempts and config. The values of reward_extra_info follow under their
        own names, such as reward/ocr; a value with the name of a column above becomes reward_extra_info/<name>. Then
        follow timing_ms/<stage>, and group/uid, group/mean and so on if the group is complete. details, step_scores and
        the separate errors are left out.
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
    """The score of a sample without a score was requested. ``result`` contains the reason."""

    def __init__(self, result: Result) -> None:
        super().__init__(f"sample {result.id!r} has no score: {result.why()}")
        self.result = result


def refused(sample_id: str, outcome: Outcome, cls: str, message: str) -> Result:
    """Returns a result that the client makes itself, without the server."""
    return Result(sample_id, outcome, None, {"rewardloop/valid": False}, errors=(ComponentError(cls, message),))


def from_wire(m: Mapping[str, Any]) -> Result:
    """Reads a message of type result; raises KeyError, TypeError or ValueError if it is invalid."""
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
