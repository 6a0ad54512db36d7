"""The steps of the core: declarations and fetches of rewards, which are repeated after a lost connection.

Life cycle of a declaration: it is sent over the first lane, in several messages if it has many ids. It is sent again
over each new connection, because the earlier message may not have arrived. It is dropped with the step's last result
or with the end of the step. Life cycle of a fetch: it is numbered, sent, and answered once. After a lost connection it
is sent again over the next one, with the same chunk. A server without the session has no record of the steps that were
announced to its predecessor: these steps are lost until they are declared again.

Everything in this module belongs to the Core and its event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from . import messages
from .errors import FetchRefusedError, InputError, NoAnswerError, QueueFullError, RewardloopError, StepLostError
from .jsontext import check_text, text
from .link import Link
from .messages import Message
from .steps import POLICIES, Question, Rewards, check_count, check_deadline, check_step, from_wire

#: Takes the one answer to a question, or why there is none.
Answered = Callable[[Rewards | RewardloopError], None]
#: A step of the run: split and number.
Key = tuple[str, int]

#: Steps that are remembered, and those among them that are declared again. A trainer has two or three at a time.
_MAX_STEPS = 256
_MAX_DECLARED = 64
#: Questions without an answer.
_MAX_ASKS = 64
#: The most that a message with ids may have: half of what the wire allows a client.
_DECLARE_BYTES = 32 << 10
_MAX_ID_BYTES = 512
#: Seconds that an answer may take beyond the wait that was asked for: a large step is some megabytes.
ANSWER_GRACE = 30.0


class _Note:
    """A step that was declared, submitted to or asked about."""

    __slots__ = ("answered", "declared", "ended", "ids", "lost", "said", "until")

    def __init__(self) -> None:
        self.declared: Message | None = None  # the message without ids and deadline
        self.ids: dict[str, None] = {}  # in order of the batch
        self.until: float | None = None  # its deadline on the clock of time.monotonic
        self.answered = 0  # its samples' results
        self.ended = False  # end_of_step is to be said over the next connection
        self.said = False  # a server has heard of it
        self.lost = False  # that server is gone

    def forget(self) -> None:
        """Drops the declaration."""
        self.declared, self.ids, self.until = None, {}, None


class _Ask:
    """A question without an answer."""

    __slots__ = ("done", "question", "req", "timer", "wait")

    def __init__(self, req: int, question: Question, wait: float, done: Answered) -> None:
        self.req = req
        self.question = question
        self.wait = wait
        self.done = done
        self.timer: asyncio.TimerHandle | None = None  # from its sending on

    def still(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Steps:
    """The steps and fetches of a Core."""

    def __init__(self, problems: deque[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._problems = problems  # the Core's
        self._notes: dict[Key, _Note] = {}  # in order of their making
        self._asks: dict[int, _Ask] = {}
        self._req = 0

    def touch(self, key: Key, connected: bool) -> _Note:
        """Returns the record of a step, and creates it if there is none; beyond a limit, drops the oldest record."""
        note = self._notes.get(key)
        if note is None:
            if len(self._notes) >= _MAX_STEPS:
                del self._notes[next(iter(self._notes))]
            note = self._notes[key] = _Note()
        note.said = note.said or connected
        return note

    # --- declarations --------------------------------------------------------------------------

    def declare(
        self,
        link: Link | None,
        connected: bool,
        key: Key,
        expected: int,
        total: bool,
        ids: Iterable[str] | None,
        deadline: float | None,
        on_deadline: str | None,
    ) -> None:
        """Declares how many samples a step will have, now or over the next connection."""
        check_step(key[1], key[0])
        check_count(expected, "expected")
        check_deadline(deadline)
        if on_deadline is not None and on_deadline not in POLICIES:
            raise InputError(f"{on_deadline!r}, want {', '.join(POLICIES)}", field="on_deadline")
        named = _names(ids, expected)
        note = self.touch(key, connected)
        if note.lost:
            note = self._notes[key] = _Note()
            note.said = connected
        note.declared = messages.step(*key, expected, total=total, on_deadline=on_deadline or "")
        note.ended = False
        note.until = None if deadline is None else time.monotonic() + deadline
        note.ids.update(named)
        open_notes = [n for n in self._notes.values() if n.declared is not None]
        for old in open_notes[:-_MAX_DECLARED]:
            old.forget()
        if link is not None:  # otherwise the next welcome has it declared
            _say(link, note, named)

    def end(self, link: Link | None, connected: bool, key: Key) -> None:
        """Declares that this client sends no more samples of a step."""
        check_step(key[1], key[0])
        note = self.touch(key, connected)
        note.forget()
        note.ended = link is None
        if link is not None:
            link.say(messages.end_of_step(*key))

    def count(self, key: Key) -> None:
        """Counts a result. After the last result of a step its declaration is dropped."""
        note = self._notes.get(key)
        if note is not None:
            note.answered += 1
            if note.declared is not None and note.answered >= note.declared["expected"]:
                note.forget()

    def greet(self, link: Link, resumed: bool) -> None:
        """Sends the declarations and the unanswered fetches over a new connection.

        A server without the session did not receive the samples that already have a result, so the declaration that it
        gets does not count them.
        """
        for key, note in self._notes.items():
            if not resumed and note.said:
                note.lost = True
                if note.declared is not None:
                    rest = {**note.declared, "expected": max(note.declared["expected"] - note.answered, 0)}
                    note.forget()
                    note.declared = rest
                note.answered = 0
            note.said = True
            if note.declared is not None and (note.until is None or note.until > time.monotonic()):
                _say(link, note, note.ids)
            if note.ended:
                note.ended = False
                link.say(messages.end_of_step(*key))
        for ask in list(self._asks.values()):
            if self._lost(ask.question):
                self._settle(ask, StepLostError(ask.question.step, ask.question.split))
            else:
                self._put(link, ask)

    def heard(self, key: Key) -> bool:
        """Whether a server has received anything of the step."""
        note = self._notes.get(key)
        return note is not None and note.said

    # --- questions -----------------------------------------------------------------------------

    @property
    def asking(self) -> bool:
        """Whether a fetch that was sent over the live connection has no answer."""
        return any(ask.timer is not None for ask in self._asks.values())

    def ask(self, link: Link | None, connected: bool, question: Question, wait: float, done: Answered) -> int:
        """Sends a fetch. done is called once. Returns the number of the fetch, for drop()."""
        if self._lost(question):
            raise StepLostError(question.step, question.split)
        if len(self._asks) >= _MAX_ASKS:
            raise QueueFullError(f"{question}: {_MAX_ASKS} questions have no answer yet, the limit")
        self.touch((question.split, question.step), connected)
        self._req += 1
        ask = self._asks[self._req] = _Ask(self._req, question, wait, done)
        if link is not None:
            self._put(link, ask)
        return ask.req

    def drop(self, req: int) -> None:
        """Discards a fetch whose answer nobody waits for any more."""
        ask = self._asks.pop(req, None)
        if ask is not None:
            ask.still()

    def answer(self, m: Message) -> None:
        """Handles a message of type rewards. Raises the errors of from_wire, and ValueError if it answers no fetch."""
        req = m["req"]
        ask = self._asks.get(req) if type(req) is int else None
        if ask is None:
            if type(req) is not int or not 0 < req <= self._req:
                raise ValueError(f"rewards for question {req!r}, which was not asked")
            return  # nobody waits for it any more
        r = from_wire(m)
        q = ask.question
        if (r.split, r.step, r.chunk) != (q.split, q.step, q.chunk):
            raise ValueError(f"question {req} was answered with chunk {r.chunk} of step {r.step} ({r.split})")
        note = self._notes.get((r.split, r.step))
        if note is not None and r.state != "open":
            note.forget()
        self._settle(ask, r)

    def refuse(self, m: Message) -> bool:
        """Handles a message of type error; returns False if the error belongs to no fetch."""
        req = m.get("req")
        if not req:
            return False
        ask = self._asks.get(req) if type(req) is int else None
        if ask is not None:
            self._settle(ask, FetchRefusedError(str(ask.question), str(m["code"]), str(m["message"])))
        return True

    def garbled(self, m: Any, reason: str) -> None:
        """Fails the fetch of a message that breaks the protocol, so that the fetch does not wait without an answer."""
        req = m.get("req") if isinstance(m, dict) else None
        ask = self._asks.get(req) if type(req) is int else None
        if ask is not None:
            self._settle(ask, FetchRefusedError(str(ask.question), "malformed", reason))

    def unlink(self) -> None:
        """Stops the timeouts of the fetches between the end of a connection and the next connection."""
        for ask in self._asks.values():
            ask.still()

    def fail(self, err: RewardloopError) -> None:
        """Fails every fetch."""
        for ask in list(self._asks.values()):
            self._settle(ask, type(err)(f"{ask.question}: {err}"))

    def _lost(self, question: Question) -> bool:
        note = self._notes.get((question.split, question.step))
        return note is not None and note.lost

    def _put(self, link: Link, ask: _Ask) -> None:
        ask.still()
        link.say(ask.question.message(ask.req, ask.wait))
        ask.timer = self._loop.call_later(ask.wait + ANSWER_GRACE, self._unanswered, ask)

    def _unanswered(self, ask: _Ask) -> None:
        said = f"; the server's latest error: {self._problems[-1]}" if self._problems else ""
        self._settle(ask, NoAnswerError(f"{ask.question}: no answer within {ask.wait + ANSWER_GRACE:.3g} s{said}"))

    def _settle(self, ask: _Ask, outcome: Rewards | RewardloopError) -> None:
        if self._asks.pop(ask.req, None) is not None:
            ask.still()
            ask.done(outcome)


def _names(ids: Iterable[str] | None, expected: int) -> dict[str, None]:
    """The ids, checked."""
    if ids is None:
        return {}
    if isinstance(ids, str):
        raise InputError("want a list of ids, not a string", field="ids")
    named: dict[str, None] = {}
    for i, sample_id in enumerate(ids):
        where = f"ids[{i}]"
        if not isinstance(sample_id, str) or not 1 <= len(check_text(sample_id, where).encode()) <= _MAX_ID_BYTES:
            raise InputError(f"want a string of 1 to {_MAX_ID_BYTES} bytes", field=where)
        named[sample_id] = None
    if len(named) > expected:
        raise InputError(f"{len(named)} ids for {expected} expected samples", field="ids")
    return named


def _say(link: Link, note: _Note, ids: Iterable[str]) -> None:
    """Declares a step. Each message repeats what is no id: the server takes the latest."""
    declared = dict(note.declared or {})
    if note.until is not None:
        declared["deadline_ms"] = max(1, round((note.until - time.monotonic()) * 1000))
    some: list[str] = []
    room = _DECLARE_BYTES - 256  # what stands around the ids
    for sample_id in ids:
        cost = len(text(sample_id).encode()) + 1
        if cost > room and some:
            link.say({**declared, "ids": some})
            some, room = [], _DECLARE_BYTES - 256
        some.append(sample_id)
        room -= cost
    link.say({**declared, "ids": some} if some else declared)
