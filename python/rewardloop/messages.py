"""The messages of a client, one function for each message, and the welcome of the server.

wire/messages.json describes every message and field; tests compare this module with it. Optional fields are left out
if they are empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: A control message: one JSON object.
Message = dict[str, Any]


def hello(
    run: str,
    *,
    client: str = "",
    lane: int = 0,
    reward: str = "",
    epoch: int = 0,
    on_sample_failure: str = "",
    resume: Mapping[str, Any] | None = None,
) -> Message:
    """Opens a session. resume contains the session and the highest seq up to which the client has every result."""
    return _message(
        "hello",
        {"run": run},
        client=client,
        lane=lane,
        reward=reward,
        epoch=epoch,
        on_sample_failure=on_sample_failure,
        resume=resume,
    )


def step(
    split: str,
    step: int,
    expected: int,
    *,
    total: bool = False,
    ids: Sequence[str] = (),
    deadline_ms: int = 0,
    on_deadline: str = "",
) -> Message:
    """Declares a step."""
    declared = {"split": split, "step": step, "expected": expected}
    return _message("step", declared, total=total, ids=ids, deadline_ms=deadline_ms, on_deadline=on_deadline)


def end_of_step(split: str, step: int) -> Message:
    """Declares that this client sends no more samples of a step."""
    return _message("end_of_step", {"split": split, "step": step})


def phase(req: int, name: str) -> Message:
    """Declares which phase of its training the run has begun: rollout or reward."""
    return _message("phase", {"req": req, "name": name})


def cancel(ids: Sequence[str]) -> Message:
    """Takes samples back."""
    return _message("cancel", {"ids": ids})


def confirm(seq: int) -> Message:
    """Confirms every result up to seq."""
    return _message("confirm", {"seq": seq})


def want(samples: int, bytes: int) -> Message:
    """Reports how many samples and bytes are ready beyond the credit."""
    return _message("want", {"samples": samples, "bytes": bytes})


def yield_(samples: int, bytes: int) -> Message:
    """Returns credit to the server. samples and bytes are totals since the welcome."""
    return _message("yield", {"samples": samples, "bytes": bytes})


def fetch(req: int, split: str, step: int, chunk: int, *, groups: int = 0, order: str = "", wait_ms: int = 0) -> Message:
    """Requests a chunk of a step's rewards."""
    asked = {"req": req, "split": split, "step": step, "chunk": chunk}
    return _message("fetch", asked, groups=groups, order=order, wait_ms=wait_ms)


def _message(kind: str, given: Message, **may_be_empty: Any) -> Message:
    return {"type": kind, **given, **{name: value for name, value in may_be_empty.items() if value}}


@dataclass(frozen=True)
class Welcome:
    """The gateway's answer to a hello, with only the fields that the client uses."""

    session: str
    epoch: int
    resumed: bool
    credit_samples: int
    credit_bytes: int
    message_bytes: int
    header_bytes: int
    profiles: tuple[str, ...]

    @staticmethod
    def from_wire(m: Mapping[str, Any]) -> Welcome:
        """Reads a message of type welcome; raises KeyError, TypeError, ValueError or OverflowError if it is invalid."""
        if not isinstance(m["session"], str) or not isinstance(m["resumed"], bool):
            raise TypeError(f"session {m['session']!r}, resumed {m['resumed']!r}")
        return Welcome(
            session=m["session"],
            epoch=int(m["epoch"]),
            resumed=m["resumed"],
            credit_samples=int(m["credit"]["samples"]),
            credit_bytes=int(m["credit"]["bytes"]),
            message_bytes=int(m["limits"]["message_bytes"]),
            header_bytes=int(m["limits"]["header_bytes"]),
            profiles=tuple(str(r["name"]) for r in m.get("rewards") or ()),
        )
