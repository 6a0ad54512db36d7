"""The core of the clients: connections, credit, session resumption, and one outcome for each sample.

Life cycle of a Core: start() dials and sends the hello. admit() accepts an encoded sample, which is kept until its
result arrives. Each connection has a sender, which writes waiting samples as far as the server's credit allows, and a
reader, which receives results. After a connection is lost, the client dials again with growing pauses, resumes the
session, and sends the samples without a result again, also if the server no longer has the session because it was
restarted. The done of each sample is called exactly once. close() fails the samples without a result.

A server that is being stopped announces that it is draining. The client sends nothing more to it, waits for the results
of the samples that the server has, and then connects to the next server. A sample that was refused because of the
draining is sent to the next server too.

With several URLs the first lane decides which gateway the client uses, and the other lanes follow. When that gateway is
unreachable, silent or draining, the client dials the next one and sends it the samples without a result as new samples:
the sessions and epochs of one gateway do not exist at another. A gateway that served and whose connection ends is
dialled first.

A Core belongs to one event loop; no other thread may touch it. The owner of a sample is the queue while the sample
waits, then the link on which it was sent, then nobody: the sample is no longer in ``calls``.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
import random
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from websockets.exceptions import ConnectionClosed

from . import messages
from .config import Config
from .dial import CLOSE_TIMEOUT, dial
from .errors import (
    ClosedError,
    ConnectError,
    ForkedError,
    InFlightError,
    InputError,
    LostError,
    PhaseError,
    QueueFullError,
    RewardloopError,
    TakenOverError,
)
from .fetches import Answered, Steps
from .frame import DEFAULT_MESSAGE_BYTES, MAX_HEADER_BYTES, WHOLE_BYTES, Frame, encode
from .jsontext import parse
from .link import LATE_RESULTS, Call, Done, Lane, Link
from .messages import Message
from .result import Outcome, Result, from_wire, refused
from .sample import Sample
from .steps import Question

_LOG = logging.getLogger("rewardloop")

#: Messages above this go over the lanes for large ones.
LARGE_BYTES = 1 << 20
#: Results between two confirmations; a tick each second confirms the rest.
CONFIRM_EVERY = 64
#: What a server may take beyond a sample's deadline before the client calls it expired itself.
DEADLINE_GRACE = 5.0
_TICK = 1.0
#: Seconds that one of several gateways may take for its welcome, when it is dialled for the first time in a row.
_FIRST_TRY = 2.0
#: Seconds for which a sample waits until a draining server has answered what it has, where there is another gateway:
#: with the tick and the dial less than 5.
_PATIENCE = 2.0
_MAX_PROBLEMS = 16
_CANCEL_BYTES = 48 << 10
#: Messages written in a row before the reader gets a turn.
_BURST = 16


def check_fork(made_in: int) -> None:
    """Raises ForkedError if this process is not the process in which the client was created."""
    if os.getpid() != made_in:
        raise ForkedError(
            f"this client was made in process {made_in}, this is {os.getpid()}: a fork does not copy the "
            "client's threads and connection; create another client after the fork"
        )


def _pause(n: int) -> float:
    """Seconds to wait before dial n + 1: 50 ms doubling to 2 s, with jitter."""
    return min(0.05 * 2.0 ** min(n, 6), 2.0) * (0.5 + random.random())  # noqa: S311 - jitter


class _Phase:
    """A phase that was told, until it is answered."""

    def __init__(self, req: int, name: str, done: Callable[[str | RewardloopError], None]) -> None:
        self.req = req
        self.name = name
        self._done: Callable[[str | RewardloopError], None] | None = done

    def settle(self, outcome: str | RewardloopError) -> None:
        """Tells once what was not done, or why that is not known."""
        done, self._done = self._done, None
        if done is not None:
            done(outcome)


class Core:
    """The state machine of Loop and Client."""

    def __init__(
        self,
        cfg: Config,
        on_result: Callable[[Result], None],
        on_end: Callable[[RewardloopError], None],
    ) -> None:
        self._cfg = cfg
        self._on_result = on_result  # once for each sample that has a result, before its done
        self._on_end = on_end  # once, when there will be no more results
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._context: ssl.SSLContext | None = None
        self._home = ""  # the URL of the gateway that the first lane has come to last
        self._at = 0  # the place among the URLs of the one that is dialled first
        self._lanes = [Lane(i) for i in range(cfg.lanes)]
        self._numbers = itertools.count()
        self._small: deque[Call] = deque()
        self._large: deque[Call] = deque()
        self._closing = False
        self._message_bytes = DEFAULT_MESSAGE_BYTES
        self._header_bytes = MAX_HEADER_BYTES
        #: Samples without a result, by id.
        self.calls: dict[str, Call] = {}
        #: The run's, of the latest welcome.
        self.epoch = cfg.epoch
        #: Names of the server's reward profiles.
        self.profiles: tuple[str, ...] = ()
        #: The server's latest complaints that named no sample.
        self.problems: deque[str] = deque(maxlen=_MAX_PROBLEMS)
        self._steps = Steps(self.problems)
        self._phases = itertools.count(1)
        self._phase: _Phase | None = None  # the latest that was told
        #: Whether the server takes nothing new.
        self.draining = False
        #: Why everything failed.
        self.err: RewardloopError | None = None

    # --- what Loop and Client call -------------------------------------------------------------

    async def start(self) -> None:
        """Connects; raises ConnectError within connect_timeout."""
        self._context = self._cfg.context()
        lane = self._lanes[0]
        self._begin(lane, await self._first(lane))

    def encode(self, sample: Sample) -> Frame:
        """Encodes a sample within the limits of the latest server. Any thread may call this method."""
        return encode(sample, message_bytes=self._message_bytes, header_bytes=self._header_bytes)

    def check_fork(self) -> None:
        """Raises ForkedError if this process is not the one that created the Core. Any thread may call this method."""
        check_fork(self._pid)

    def check(self) -> None:
        """Raises the error that ended the client, if there is one."""
        self.check_fork()
        if self.err is not None:
            raise self.err
        if self._closing:
            raise ClosedError("the client is closed")

    @property
    def connected(self) -> bool:
        """Whether the first lane has a live connection."""
        return self._lanes[0].link is not None

    @property
    def _linked(self) -> bool:
        """Whether any lane's server takes samples: it may hear of what is sent now."""
        return any(lane.link is not None and not lane.link.draining for lane in self._lanes)

    def _link_for(self, split: str, step: int) -> Link | None:
        """The first lane's connection. A draining server is told nothing of a step that it has not heard of:
        the next one has all of it."""
        link = self._lanes[0].link
        if link is not None and link.draining and not self._steps.heard((split, step)):
            return None
        return link

    @property
    def full(self) -> bool:
        """Whether max_pending samples have no result."""
        return len(self.calls) >= self._cfg.max_pending

    def admit(self, sample: Sample, frame: Frame, done: Done) -> None:
        """Accepts an encoded sample. done is called once, with the result or with the error in its place."""
        self.check()
        if sample.id in self.calls:
            raise InFlightError("the sample is in flight already", field="id", sample_id=sample.id)
        if self.full:
            raise QueueFullError(f"{len(self.calls)} samples are without a result (max_pending): await room() before the next")
        call = Call(next(self._numbers), sample.id, frame, (sample.split or "train", int(sample.step)), done)
        self.calls[sample.id] = call
        self._steps.touch(call.step, self._linked)
        if sample.deadline is not None:
            call.timer = self._loop.call_later(float(sample.deadline), self._overdue, call, float(sample.deadline))
        queue = self._queue_of(call)
        queue.append(call)
        if queue is self._large:
            for lane in self._lanes[1:]:
                if lane.task is None:
                    self._begin(lane, None)
        self._stir()

    def declare(
        self,
        step: int,
        expected: int,
        split: str,
        total: bool,
        ids: Iterable[str] | None = None,
        deadline: float | None = None,
        on_deadline: str | None = None,
    ) -> None:
        """Declares how many samples a step will have."""
        self.check()
        self._steps.declare(self._link_for(split, step), self._linked, (split, step), expected, total, ids, deadline, on_deadline)

    def end_of_step(self, step: int, split: str) -> None:
        """Declares that this client sends no more samples of a step."""
        self.check()
        self._steps.end(self._link_for(split, step), self._linked, (split, step))

    def ask(self, question: Question, wait: float, done: Answered) -> int:
        """Requests a chunk of a step's rewards. done is called once. Returns the request number, for drop()."""
        self.check()
        return self._steps.ask(self._link_for(question.split, question.step), self._linked, question, wait, done)

    def begin_phase(self, name: str, done: Callable[[str | RewardloopError], None]) -> None:
        """Declares the phase that has begun, now and over every new connection.

        done is called once, with an error or with a text: what the server could not do, or empty if it did everything.
        """
        self.check()
        if name not in ("rollout", "reward"):
            raise InputError(f"{name!r}, want rollout or reward", field="phase")
        if self._phase is not None:
            self._phase.settle(PhaseError(f"phase {self._phase.name}: a later call of phase() replaced this phase"))
        self._phase = _Phase(next(self._phases), name, done)
        link = self._lanes[0].link
        if link is not None:
            link.say(messages.phase(self._phase.req, name))

    def drop(self, req: int) -> None:
        """Discards a request whose answer nobody waits for any more."""
        self._steps.drop(req)

    def take_back(self, ids: Iterable[str]) -> None:
        """Takes samples back: the client cancels those that were never sent, the server cancels the others."""
        by_link: dict[Link, list[str]] = {}
        for sample_id in ids:
            call = self.calls.get(sample_id)
            if call is None or call.taken_back:
                continue
            call.taken_back = True
            if not call.sent:
                self._resolve(refused(call.id, Outcome.CANCELLED, "cancelled", "taken back before it was sent"))
            elif call.link is not None:
                by_link.setdefault(call.link, []).append(sample_id)
            # Else its link was lost: it is sent again, and then taken back.
        for link, taken in by_link.items():
            some: list[str] = []
            room = _CANCEL_BYTES
            for sample_id in taken:
                if (cost := 6 * len(sample_id.encode()) + 3) > room and some:
                    link.say(messages.cancel(some))
                    some, room = [], _CANCEL_BYTES
                some.append(sample_id)
                room -= cost
            link.say(messages.cancel(some))

    async def close(self) -> None:
        """Closes the connections, within a few seconds. Samples without a result fail with ClosedError."""
        if os.getpid() != self._pid:
            return  # the parent's connection is the parent's
        self._closing = True
        tasks = [lane.task for lane in self._lanes if lane.task is not None]
        farewells = [asyncio.ensure_future(self._farewell(lane)) for lane in self._lanes if lane.link is not None]
        if farewells:
            await asyncio.wait(farewells, timeout=2 * CLOSE_TIMEOUT)
        for task in (*farewells, *tasks):
            task.cancel()
        await asyncio.gather(*farewells, *tasks, return_exceptions=True)
        self._fail(ClosedError("the client is closed"))

    # --- connections ---------------------------------------------------------------------------

    def _begin(self, lane: Lane, link: Link | None) -> None:
        lane.link = link
        lane.tries = 0
        lane.task = asyncio.create_task(self._run(lane, link), name=f"rewardloop lane {lane.number}")

    async def _farewell(self, lane: Lane) -> None:
        link = lane.link
        if link is not None:
            self._confirm(link)
            while link.texts:
                await link.ws.send(link.texts.popleft())
            await link.ws.close()

    def _fail(self, err: RewardloopError) -> None:
        """Resolves everything that has no result. The first reason stays."""
        first = self.err is None
        self.err = self.err or err
        calls, self.calls = self.calls, {}
        self._small.clear()
        self._large.clear()
        for call in calls.values():
            self._settle(call, type(err)(f"sample {call.id!r}: {err}"))
        self._steps.fail(err)
        if self._phase is not None:
            self._phase.settle(err)
        if first:
            self._on_end(self.err)

    async def _first(self, lane: Lane) -> Link:
        """The first connection. Where nobody takes the client it fails at once; once a server has said that it is being
        stopped, its successor is waited for."""
        end = self._loop.time() + self._cfg.connect_timeout
        said: ConnectError | None = None
        for n in itertools.count():
            try:
                return await self._reach(lane, n, end)
            except ConnectError as err:
                said = err if err.stopping else said
                if said is None:
                    raise
                wait = _pause(n)
                if self._loop.time() + wait >= end:
                    none = f"{said.reason}, and no other server accepted the connection within {self._cfg.connect_timeout:g} s"
                    raise ConnectError(said.url, none, said.hint) from err
                await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def _reach(self, lane: Lane, n: int, end: float = math.inf) -> Link:
        """Dials the gateways, each once, until one welcomes the client; a lane that is not the first goes where that is."""
        urls, within = self._cfg.urls, self._cfg.connect_timeout
        if len(urls) > 1:
            within = min(within, _FIRST_TRY * 2 ** min(n, 6))
        errors: list[ConnectError] = []
        for url in (self._home,) if lane.number else urls[self._at :] + urls[: self._at]:
            left = min(within, end - self._loop.time())
            if errors and left <= 0:
                break
            try:
                return await self._connect(lane, url, left)
            except ConnectError as err:
                errors.append(err)
        if len(errors) == 1:
            raise errors[0]
        none = ConnectError(errors[0].url, errors[0].reason, "; ".join([errors[0].hint, *map(str, errors[1:])]))
        none.stopping = any(e.stopping for e in errors)
        raise none from errors[-1]

    async def _connect(self, lane: Lane, url: str, within: float) -> Link:
        resume, epoch = None, 0
        if lane.session and lane.url == url:
            resume = {"session": lane.session, "confirmed": lane.seq}
        elif lane.number or not self._home:  # other lanes join the first one's epoch
            epoch = self.epoch
        hello = messages.hello(
            self._cfg.run,
            client=self._cfg.client,
            lane=lane.number,
            reward=self._cfg.profile,
            epoch=epoch,
            on_sample_failure=self._cfg.on_sample_failure,
            resume=resume,
        )
        ws, welcome = await dial(self._cfg, url, within, self._context, hello)
        if lane.number == 0:
            self._home, self._at = url, self._cfg.urls.index(url)
        elif url != self._home:
            ws.transport.abort()
            raise ConnectError(url, "the client has changed to another gateway")
        if not welcome.resumed:
            lane.seq = lane.unconfirmed = 0
        lane.session, lane.url = welcome.session, url
        self.epoch, self.profiles = welcome.epoch, welcome.profiles
        self._message_bytes, self._header_bytes = welcome.message_bytes, welcome.header_bytes
        self.draining = False
        link = Link(lane, ws, welcome)
        if lane.number == 0:
            self._steps.greet(link, welcome.resumed)
            for other in self._lanes[1:]:  # one that drains answers what it has
                if other.link is not None and other.url != url and not other.link.draining:
                    other.link.ws.transport.abort()
        return link

    async def _run(self, lane: Lane, link: Link | None) -> None:
        """Keeps a lane connected until the client is closed or its connection cannot be had again."""
        try:
            while not self._closing:
                if link is None:
                    link = await self._redial(lane)
                    if self._closing:  # asyncio.wait_for of Python 3.10 and 3.11 loses a cancellation that comes with a result
                        link.ws.transport.abort()
                        return
                await self._serve(link)
                if link.useful or not link.draining:
                    lane.tries = 0
                if lane.number == 0 and not link.stays:
                    self._at = (self._at + 1) % len(self._cfg.urls)
                link = None
        except asyncio.CancelledError:
            if lane.number == 0 and not self._closing:  # the event loop is being shut down
                self._fail(ClosedError("the event loop ended"))
            raise
        except Exception as err:
            lost = err if isinstance(err, LostError) else LostError(f"{self._cfg.url}: {err}")
            if lane.number == 0 or isinstance(err, TakenOverError):
                self._fail(lost)
                self._hang_up()
            else:  # the first lane takes its samples over
                _LOG.warning("lane %d is given up: %s", lane.number, lost)
                lane.task = None
                self._stir()

    def _hang_up(self) -> None:
        me = asyncio.current_task()
        for lane in self._lanes:
            if lane.task is not None and lane.task is not me:
                lane.task.cancel()

    async def _redial(self, lane: Lane) -> Link:
        """Connects again, with growing pauses, for as long as reconnect_for. A server that is draining still
        when it is dialled again does not end that time."""
        if lane.tries == 0:
            lane.give_up = self._loop.time() + self._cfg.reconnect_for
        elif self._loop.time() >= lane.give_up:
            raise LostError(f"the server is draining, and no other server accepted the connection within {self._cfg.reconnect_for:g} s")
        while True:
            if lane.tries:
                await asyncio.sleep(_pause(lane.tries - 1))
            lane.tries += 1
            try:
                return await self._reach(lane, lane.tries - 1)
            except (ConnectError, InputError) as err:
                if self._closing:  # asyncio.wait_for of Python 3.10 and 3.11 loses a cancellation that comes with an error
                    raise asyncio.CancelledError from err
                if self._loop.time() >= lane.give_up:
                    raise LostError(f"connection lost, and not restored within {self._cfg.reconnect_for:g} s: {err}") from err
                _LOG.info("lane %d: %s", lane.number, err)

    async def _serve(self, link: Link) -> None:
        """Runs a link until it ends; TakenOverError if somebody else has its place."""
        lane = link.lane
        lane.link = link
        if lane.number == 0 and self._phase is not None:  # a server that was started anew knows of none
            link.say(messages.phase(self._phase.req, self._phase.name))
        self._stir()
        link.ticker = self._loop.call_later(_TICK, self._tick, link)
        sender = asyncio.create_task(self._send(link))
        reader = asyncio.create_task(self._read(link))
        try:
            await asyncio.wait((sender, reader), return_when=asyncio.FIRST_COMPLETED)
        finally:
            lane.link = None
            if link.ticker is not None:
                link.ticker.cancel()
            link.ws.transport.abort()
            sender.cancel()
            reader.cancel()
            ended = await asyncio.gather(sender, reader, return_exceptions=True)
            self._requeue(link)
        for err in ended:
            if isinstance(err, ConnectionClosed):
                if err.rcvd is not None and err.rcvd.code == 1008 and "another connection" in err.rcvd.reason:
                    raise TakenOverError(
                        f"{self._cfg.url}: another connection of run {self._cfg.run!r} replaced client "
                        f"{self._cfg.client!r}; give every process another client="
                    )
            elif err is not None and not isinstance(err, asyncio.CancelledError | OSError):
                raise err

    def _requeue(self, link: Link) -> None:
        """Queues what a lost link leaves unanswered, before everything that was never sent."""
        if link.lane.number == 0:
            self._steps.unlink()
        again = sorted(link.open.values(), key=lambda c: c.number)
        link.open.clear()
        for call in reversed(again):
            call.link = None
            self._queue_of(call).appendleft(call)
        self._stir()

    def _tick(self, link: Link) -> None:
        """Each second: confirms, and closes a connection that is silent."""
        if link.lane.link is not link:
            return
        now = self._loop.time()
        late = now - link.ticked > 3 * _TICK  # the event loop was blocked: what came meanwhile is read first
        link.ticked = now
        if now - link.ws.heard > self._cfg.silence and not late:
            link.silent = True
            link.ws.transport.abort()
            return
        link.over = False  # what would end the waiting may have come before the refusal
        self._confirm(link)
        link.wake.set()
        link.ticker = self._loop.call_later(_TICK, self._tick, link)

    # --- sending -------------------------------------------------------------------------------

    def _queue_of(self, call: Call) -> deque[Call]:
        return self._large if len(self._lanes) > 1 and call.frame.size > LARGE_BYTES else self._small

    def _stir(self) -> None:
        for lane in self._lanes:
            if lane.link is not None:
                lane.link.wake.set()

    async def _send(self, link: Link) -> None:
        """Writes texts, and samples while there is credit, until the link ends or is left."""
        for n in itertools.count(1):
            if link.texts:
                await link.ws.send(link.texts.popleft())
                continue
            call = self._next(link)
            if call is None and self._idle(link):
                self._confirm(link)
                while link.texts:
                    await link.ws.send(link.texts.popleft())
                await link.ws.close()  # bounded by CLOSE_TIMEOUT
                return
            if call is None and link.texts:
                continue  # what it waits for is told first
            if call is None:
                link.wake.clear()
                await link.wake.wait()
                continue
            frame = call.frame
            await link.ws.send(bytes(frame) if frame.size <= WHOLE_BYTES else frame.fragments())
            if call.taken_back and not call.resolved:
                link.say(messages.cancel([call.id]))
            if n % _BURST == 0:
                await asyncio.sleep(0)

    def _next(self, link: Link) -> Call | None:
        """Takes the first waiting sample that the credit allows: within both totals, or when the
        link has nothing in flight."""
        queue = self._pick(link)
        if queue is None or link.draining:
            return None
        call = queue[0]
        size = call.frame.size
        within = link.sent_samples < link.credit_samples and link.sent_bytes + size <= link.credit_bytes
        if link.over or not within:
            link.want(queue)
        if link.over or (not within and link.open):
            return None
        queue.popleft()
        link.sent_samples += 1
        link.sent_bytes += size
        link.open[call.id] = call
        call.link, call.sent = link, True
        return call

    def _idle(self, link: Link) -> bool:
        """Whether nothing keeps the client at a draining server: what it has of ours it has answered, or a sample has
        waited long enough that another gateway can take. Questions can be answered only there, but not if a sample
        waits."""
        if not link.draining:
            return False
        now, waits = self._loop.time(), self._pick(link) is not None
        late = waits and len(self._cfg.urls) > 1 and now - link.drained > _PATIENCE
        if link.open and not late:
            return False
        if link.resumed and now - link.since < LATE_RESULTS:
            return False  # looked at again at the next tick
        return link.lane.number > 0 or not self._steps.asking or waits

    def _pick(self, link: Link) -> deque[Call] | None:
        """The queue whose first is this link's next: lane 0 takes large ones only while no other lane lives."""
        for queue in (self._small, self._large):
            while queue and queue[0].resolved:
                queue.popleft()
        if link.lane.number:
            return self._large or None
        if not self._large or any(lane.link is not None and not lane.link.draining for lane in self._lanes[1:]):
            return self._small or None
        if self._small and self._small[0].number < self._large[0].number:
            return self._small
        return self._large

    def _queue_of_lane(self, link: Link) -> deque[Call]:
        return self._large if link.lane.number else self._small

    def _overdue(self, call: Call, deadline: float) -> None:
        """The deadline of a sample has passed: the server answers for what it has, the client for the rest."""
        call.timer = None
        if call.resolved:
            return
        if call.link is not None and deadline > 0:
            call.timer = self._loop.call_later(DEADLINE_GRACE, self._overdue, call, 0.0)
            return
        where = "no answer" if call.sent else "it waited for credit or for a connection"
        if call.link is not None:
            call.link.say(messages.cancel([call.id]))
        self._resolve(refused(call.id, Outcome.EXPIRED, "expired", f"the sample's deadline passed at the client: {where}"))

    # --- receiving -----------------------------------------------------------------------------

    async def _read(self, link: Link) -> None:
        while True:
            message = await link.ws.recv()
            if isinstance(message, str):
                if not message.startswith('{"type":"ack"'):  # a sample is kept until its result, acknowledged or not
                    self._hear(link, message)
            else:
                self.problems.append("the server sent a binary message, want text messages only")

    def _hear(self, link: Link, message: str) -> None:
        m: Any = None
        try:
            m = parse(message)
            if hear := _HEARD.get(m["type"]):
                hear(self, link, m)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as err:
            self._garbled(link, m, err)

    def _garbled(self, link: Link, m: Any, err: Exception) -> None:
        """A message that breaks the protocol: it must not leave a sample without an answer."""
        reason = f"the server sent a message that breaks the protocol: {type(err).__name__}: {err}"
        self.problems.append(reason)
        self._steps.garbled(m, reason)
        sample_id = m.get("id") if isinstance(m, dict) else None
        if isinstance(sample_id, str) and sample_id in self.calls:
            self._resolve(refused(sample_id, Outcome.FAILED, "malformed", reason), link)

    def _credit(self, link: Link, m: Message) -> None:
        link.credit_samples = max(link.credit_samples, int(m["samples"]))
        link.credit_bytes = max(link.credit_bytes, int(m["bytes"]))
        link.over = False
        link.wanted = 0
        link.wake.set()

    def _rewards(self, link: Link, m: Message) -> None:
        self._steps.answer(m)
        link.wake.set()  # it may have been the last thing that kept the client at a draining server

    def _phased(self, link: Link, m: Message) -> None:
        if self._phase is not None and self._phase.req == int(m["req"]):
            self._phase.settle(str(m.get("why", "")))

    def _answer(self, link: Link, r: Result) -> None:
        """Takes a result. A refusal for want of credit, or because the server is draining, is none: the
        sample is sent again."""
        why = r.errors[0].cls if r.outcome is Outcome.REJECTED and r.errors else ""
        if why == "draining":
            self._drain(link)
            self._note(link, r.seq)
            self._again(link, r.id)  # else it waits, or is on its way elsewhere
        elif why == "over_credit" and self._again(link, r.id):
            # A server that resumes a session counts what it still has in flight of it, and the client cannot
            # know all of that: the sample waits for the next credit or result.
            link.over = True
            link.wanted = 0
            link.want(self._queue_of_lane(link))
            self._note(link, r.seq)
        else:
            self._resolve(r, link)

    def _again(self, link: Link, sample_id: str) -> bool:
        """Queues a sample once more that the server did not take; False if it is not there."""
        call = link.open.pop(sample_id, None)
        if call is None or call.resolved:
            return False
        link.sent_samples -= 1  # it was not booked
        link.sent_bytes -= call.frame.size
        call.link = None
        self._queue_of(call).appendleft(call)
        return True

    def _drain(self, link: Link) -> None:
        self.draining = True
        link.drain()
        self._stir()  # another lane may take over what waits for this one

    def _note(self, link: Link, seq: int) -> None:
        """Counts a numbered result, to be confirmed."""
        lane = link.lane
        if seq > lane.seq:
            lane.seq = seq
            lane.unconfirmed += 1
            if lane.unconfirmed >= CONFIRM_EVERY:
                self._confirm(link)

    def _resolve(self, r: Result, link: Link | None = None) -> None:
        """Hands a result to its sample, once."""
        if link is not None:
            link.over = False
            self._note(link, r.seq)
            link.wake.set()
        call = self.calls.pop(r.id, None)
        if call is None:
            return  # answered before: a repeat after a lost connection
        if link is not None:
            link.useful = True
        self._steps.count(call.step)
        self._on_result(r)
        self._settle(call, r)

    def _settle(self, call: Call, outcome: Result | RewardloopError) -> None:
        call.resolved = True
        if call.timer is not None:
            call.timer.cancel()
        if call.link is not None:
            call.link.open.pop(call.id, None)
            call.link = None
        call.done(outcome)

    def _confirm(self, link: Link) -> None:
        """Lets the server forget the results that came."""
        lane = link.lane
        if lane.unconfirmed and lane.link is link:
            lane.unconfirmed = 0
            link.say(messages.confirm(lane.seq))

    def _complaint(self, link: Link, m: Message) -> None:
        code, message = str(m["code"]), str(m["message"])
        if m.get("id"):
            self._answer(link, refused(str(m["id"]), Outcome.REJECTED, code, message))
        elif not self._steps.refuse(m):
            self.problems.append(f"{code}: {message}")
            _LOG.warning("the server complains: %s: %s", code, message)


#: What is done with the messages of a server, but for the welcome, which dial() takes. An ack is passed over: a sample is
#: kept until its result, acknowledged or not.
_HEARD: dict[str, Callable[[Core, Link, Message], None]] = {
    "result": lambda core, link, m: core._answer(link, from_wire(m)),
    "credit": Core._credit,
    "reclaim": lambda core, link, m: link.yield_credit(core._queue_of_lane(link)),
    "rewards": Core._rewards,
    "phased": Core._phased,
    "error": Core._complaint,
    "draining": lambda core, link, m: core._drain(link),
}
