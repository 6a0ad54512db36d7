"""The client of a trainer's own event loop: what submit() returns is awaited."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable
from types import TracebackType
from typing import Any, Literal

from .config import Config, takes
from .core import Core
from .errors import ClosedError, PhaseError, RewardloopError, UnreadError
from .result import Result
from .sample import Sample
from .steps import PAUSE, OnDeadline, Order, Question, Rewards, checked, early, waits

#: Results kept for a reader of results().
MAX_UNREAD = 4096


class Pending(asyncio.Future[Result]):
    """The result of one sample, once there is one; await it.

    cancel() also takes the sample back at the server, and so does a wait_for() that runs out; put
    asyncio.shield() around it to end only the waiting.
    """

    def __init__(self, sample_id: str, owner: Loop) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.id = sample_id
        self._owner = owner

    def cancel(self, msg: Any | None = None) -> bool:
        """Gives the result up and takes the sample back."""
        did = super().cancel(msg)
        if did:
            self._owner._core.take_back([self.id])
        return did

    def _settle(self, outcome: Result | RewardloopError) -> None:
        if self.done():
            return  # cancelled
        if isinstance(outcome, Result):
            self.set_result(outcome)
        else:
            self.set_exception(outcome)
            self.exception()  # who reads results() instead need not see it again in the log


class Loop:
    """A connection to a reward loop. Made by connect(); not for use from other threads."""

    def __init__(self, cfg: Config) -> None:
        self._loop = asyncio.get_running_loop()
        self._core = Core(cfg, self._take, self._end)
        self._unread: deque[Result] = deque()
        self._dropped = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    def submit(self, sample: Sample) -> Pending:
        """Takes a sample and returns at once; await what it returns for the result.

        Raises InputError for a sample that no server would take, before anything is sent, and
        QueueFullError with max_pending samples unanswered: await room() before submitting many.
        """
        self._check()
        self._core.check()
        frame = self._core.encode(sample)
        pending = Pending(sample.id, self)
        self._core.admit(sample, frame, pending._settle)
        return pending

    async def room(self) -> None:
        """Returns when another sample may be submitted."""
        self._check()
        while self._core.full and self._core.err is None:
            self._room.clear()
            await self._room.wait()

    async def score(self, samples: Iterable[Sample]) -> list[Result]:
        """Submits all and returns their results in the same order. Cancelled, it takes them back."""
        waiting: list[Pending] = []
        try:
            for sample in samples:
                await self.room()
                waiting.append(self.submit(sample))
            return [await p for p in waiting]
        except BaseException:
            for p in waiting:
                p.cancel()
            raise

    def results(self, n: int | None = None) -> AsyncIterator[Result]:
        """Yields results as they come, in the order of coming, each once: n of them, or until close().

        What came before the call is yielded too, up to the latest 4096; UnreadError says when there
        were more. Raises LostError once the connection is lost for good.
        """
        self._check()
        return self._read_results(n)

    def step(
        self,
        step: int,
        expected: int,
        *,
        split: str = "train",
        total: bool = False,
        ids: Iterable[str] | None = None,
        deadline: float | None = None,
        on_deadline: OnDeadline | None = None,
    ) -> None:
        """Declares how many samples of a step this client will send, so that the loop knows the last one.

        The counts of a run's clients add up; ``total`` says that this one counts them all. ``ids``, in order
        of the batch, lets the loop name a sample that never came; those of several calls add up. The step ends
        after ``deadline`` seconds from now, whatever is missing (None: the server's loop.step_timeout), and
        ``on_deadline`` says what its rewards are then (None: the server's): ``mask``: a row for every sample,
        rm_valid False where there is no score; ``fail``: StepFailedError; ``proceed_with_shortfall``: only the
        rows that have a score, or one in its place.
        """
        self._check()
        self._core.declare(step, expected, split, total, ids, deadline, on_deadline)

    def end_of_step(self, step: int, *, split: str = "train") -> None:
        """Says that this client sends no more samples of the step."""
        self._check()
        self._core.end_of_step(step, split)

    async def phase(self, name: Literal["rollout", "reward"], *, timeout: float | None = 300.0) -> None:
        """Says which phase of its training the run has begun, to a server with ``pool.colocated``.

        ``reward``: this process has given the memory of its cards back; samples are scored from now on, those that
        were sent before among them. ``rollout``: nothing is scored until ``reward``; when this returns, the server's
        engines and models have given their memory back. Any other server answers at once. It is said again over
        every new connection.

        Raises PhaseError if something still holds memory or other runs are in rollout, and TimeoutError after
        ``timeout`` seconds (None: never).
        """
        self._check()
        told: asyncio.Future[str] = self._loop.create_future()

        def done(outcome: str | RewardloopError) -> None:
            if not told.done():  # else it was cancelled
                if isinstance(outcome, str):
                    told.set_result(outcome)
                else:
                    told.set_exception(outcome)

        self._core.begin_phase(name, done)
        try:
            why = await asyncio.wait_for(told, timeout)
        except asyncio.TimeoutError as err:
            raise TimeoutError(f"phase {name}: no answer for {timeout:g} s") from err
        if why:
            raise PhaseError(f"phase {name}: {why}")

    async def rewards(
        self,
        step: int,
        groups: int = 0,
        *,
        chunk: int = 0,
        order: Order = "completion",
        split: str = "train",
        wait: float | None = 30.0,
    ) -> Rewards:
        """Waits for one chunk of a step's rewards: ``groups`` complete prompt groups that no chunk before has.

        ``groups`` 0: all that are left, once the step is over. ``order``: whichever are complete first, or those
        with the lowest rows, in this order. Chunks count from 0; one that was handed out has the same rows again.
        After ``wait`` seconds the answer has ``ready`` False; None waits for the chunk, or the end of the step,
        which its deadline bounds. A lost connection is waited out.

        Raises StepFailedError, naming who is missing; StepLostError where the server was started anew;
        FetchRefusedError where it has forgotten the rows or the chunk is too far ahead.
        """
        self._check()
        question = Question(step, split, chunk, groups, order)
        for piece in waits(wait):
            asked = time.monotonic()
            answer = await self._ask(question, piece)
            if answer.ready or answer.done or answer.state == "failed":
                break
            if early(asked, piece):
                await asyncio.sleep(PAUSE)
        return checked(answer)

    async def chunks(
        self, step: int, groups: int = 0, *, chunk: int = 0, order: Order = "completion", split: str = "train"
    ) -> AsyncIterator[Rewards]:
        """Yields the chunks of a step, from ``chunk`` on until the last, each as soon as it is complete.

        The last one of a step that ended short may have no rows. Raises what rewards() does.
        """
        for number in itertools.count(chunk):
            answer = await self.rewards(step, groups, chunk=number, order=order, split=split, wait=None)
            yield answer
            if answer.done:
                return

    async def _ask(self, question: Question, wait: float) -> Rewards:
        answered: asyncio.Future[Rewards] = self._loop.create_future()

        def done(outcome: Rewards | RewardloopError) -> None:
            if answered.done():
                return  # cancelled
            if isinstance(outcome, Rewards):
                answered.set_result(outcome)
            else:
                answered.set_exception(outcome)

        req = self._core.ask(question, wait, done)
        try:
            return await answered
        finally:
            self._core.drop(req)

    def cancel(self, *ids: str) -> None:
        """Takes samples back. Each still gets its one result: cancelled, or what it had become by then."""
        self._check()
        self._core.check()
        self._core.take_back(ids)

    async def close(self) -> None:
        """Ends the connection. What has no result fails with ClosedError. Bounded by some seconds."""
        await self._core.close()

    @property
    def epoch(self) -> int:
        """The run's epoch: another client of the run names it to join."""
        return self._core.epoch

    @property
    def profiles(self) -> tuple[str, ...]:
        """Names of the reward profiles the server has."""
        return self._core.profiles

    @property
    def pending(self) -> int:
        """Samples without a result."""
        return len(self._core.calls)

    @property
    def draining(self) -> bool:
        """Whether the server finishes what it has and takes nothing new."""
        return self._core.draining

    @property
    def connected(self) -> bool:
        """Whether there is a live connection now; a lost one is being dialled again."""
        return self._core.connected

    @property
    def problems(self) -> tuple[str, ...]:
        """The server's latest complaints that named no sample."""
        return tuple(self._core.problems)

    def _check(self) -> None:
        self._core.check_fork()
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("this connection belongs to another event loop; threads use rewardloop.Client")

    def _take(self, r: Result) -> None:
        if len(self._unread) >= MAX_UNREAD:
            self._unread.popleft()
            self._dropped += 1
        self._unread.append(r)
        self._news.set()
        self._room.set()

    def _end(self, err: RewardloopError) -> None:
        self._news.set()
        self._room.set()

    async def _read_results(self, n: int | None) -> AsyncIterator[Result]:
        for _ in itertools.count() if n is None else range(n):
            while True:
                if self._dropped:
                    dropped, self._dropped = self._dropped, 0
                    raise UnreadError(dropped, MAX_UNREAD)
                if self._unread:
                    yield self._unread.popleft()
                    break
                if self._core.err is not None:
                    if isinstance(self._core.err, ClosedError):
                        return
                    raise self._core.err
                self._news.clear()
                await self._news.wait()


class connect:  # noqa: N801 - used like a function, as open() is
    """``async with connect(url, run=...) as loop:``, or ``loop = await connect(url, run=...)``.

    Fails within connect_timeout (10 s) with a hint. The settings are those of Config.
    """

    @takes(Config)
    def __init__(self, cfg: Config) -> None:
        self._cfg = cfg
        self._made: Loop | None = None

    def __await__(self) -> Generator[Any, None, Loop]:
        return self._open().__await__()

    async def _open(self) -> Loop:
        loop = Loop(self._cfg)
        await loop._core.start()
        return loop

    async def __aenter__(self) -> Loop:
        self._made = await self
        return self._made

    async def __aexit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        if self._made is not None:
            await self._made.close()
