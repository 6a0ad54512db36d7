"""The client for asyncio: submit() returns a future to await."""

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
    """The future of one sample's result; await it.

    cancel() also takes the sample back at the server, and so does a wait_for() whose timeout expires. Use
    asyncio.shield() to end only the waiting.
    """

    def __init__(self, sample_id: str, owner: Loop) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.id = sample_id
        self._owner = owner

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancels the future and takes the sample back. Returns False if the future is already done."""
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
    """A connection to a reward loop, made by connect(). Belongs to one event loop; other threads must not use it."""

    def __init__(self, cfg: Config) -> None:
        self._loop = asyncio.get_running_loop()
        self._core = Core(cfg, self._take, self._end)
        self._unread: deque[Result] = deque()
        self._dropped = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    def submit(self, sample: Sample) -> Pending:
        """Submits a sample and returns immediately; await the returned future for the result.

        Raises InputError for a sample that no server accepts, before anything is sent, and QueueFullError if
        max_pending samples have no result: await room() before submitting many samples.
        """
        self._check()
        self._core.check()
        frame = self._core.encode(sample)
        pending = Pending(sample.id, self)
        self._core.admit(sample, frame, pending._settle)
        return pending

    async def room(self) -> None:
        """Returns when another sample can be submitted."""
        self._check()
        while self._core.full and self._core.err is None:
            self._room.clear()
            await self._room.wait()

    async def score(self, samples: Iterable[Sample]) -> list[Result]:
        """Submits all samples and returns their results in the same order. Cancellation takes the samples back."""
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
        """Yields each result once, in order of arrival: n results, or all results until close().

        Results that arrived before the call are included, up to the latest 4096; if older ones were dropped, raises
        UnreadError. Raises LostError once the connection is lost for good.
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
        """Declares how many samples of a step this client will send, so that the server can detect the last one.

        The counts of the clients of a run are added up; with ``total`` this client's count is the total of all clients.
        ``ids``, in the order of the batch, let the server name the samples that never arrived; the ids of several calls
        are combined. The step ends after ``deadline`` seconds from now, even if samples are missing (None: the server's
        loop.step_timeout). ``on_deadline`` sets the rewards of such a step (None: the server's setting):

        - ``mask``: a row for every sample, with rm_valid False where there is no score;
        - ``fail``: StepFailedError;
        - ``proceed_with_shortfall``: only the rows with a score or a fallback value.
        """
        self._check()
        self._core.declare(step, expected, split, total, ids, deadline, on_deadline)

    def end_of_step(self, step: int, *, split: str = "train") -> None:
        """Declares that this client sends no more samples of the step."""
        self._check()
        self._core.end_of_step(step, split)

    async def phase(self, name: Literal["rollout", "reward"], *, timeout: float | None = 300.0) -> None:
        """Declares which phase of its training the run has begun, for a server with ``pool.colocated``.

        ``reward``: this process has released its GPU memory. The server scores samples from now on, including samples
        that were sent before. ``rollout``: the server scores nothing until ``reward``. When this call returns, the
        engines and models of the server have released their memory. A server without pool.colocated answers
        immediately. The client repeats the declaration over every new connection.

        Raises PhaseError if something still holds memory or other runs are in rollout, and TimeoutError after
        ``timeout`` seconds (None: no timeout).
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
        """Waits for one chunk of a step's rewards: ``groups`` complete prompt groups that are in no earlier chunk.

        ``groups`` 0: all remaining groups, once the step is over. ``order``: "completion" returns the groups that are
        complete first; "index" returns the groups with the lowest rows, in this order. Chunks count from 0. A chunk
        that was fetched before has the same rows again. If the chunk is not complete after ``wait`` seconds, the answer
        has ``ready`` False. With ``wait`` None the call waits for the chunk or for the end of the step, which the
        deadline of the step limits. The call also waits while a lost connection is restored.

        Raises StepFailedError, which lists the missing samples; StepLostError if the server was restarted;
        FetchRefusedError if the server no longer has the rows or the chunk is too far ahead.
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
        """Yields the chunks of a step's rewards, from number ``chunk`` to the last, each as soon as it is complete.

        The last chunk of a step that ended short may have no rows. Raises the errors of rewards().
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
        """Takes samples back. Each sample still gets exactly one result: cancelled, or an outcome that came earlier."""
        self._check()
        self._core.check()
        self._core.take_back(ids)

    async def close(self) -> None:
        """Closes the connection, within a few seconds. Samples without a result fail with ClosedError."""
        await self._core.close()

    @property
    def epoch(self) -> int:
        """The epoch of the run. Another client of the run joins it with Config.epoch."""
        return self._core.epoch

    @property
    def profiles(self) -> tuple[str, ...]:
        """Names of the reward profiles of the server."""
        return self._core.profiles

    @property
    def pending(self) -> int:
        """Number of samples without a result."""
        return len(self._core.calls)

    @property
    def draining(self) -> bool:
        """Whether the server is draining: it finishes its samples and accepts no new ones."""
        return self._core.draining

    @property
    def connected(self) -> bool:
        """Whether there is a live connection now; the client reconnects after a connection is lost."""
        return self._core.connected

    @property
    def problems(self) -> tuple[str, ...]:
        """The latest error messages of the server that belong to no sample."""
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
    """Connects: ``async with connect(url, run=...) as loop:``, or ``loop = await connect(url, run=...)``.

    Raises ConnectError with a hint within connect_timeout (10 s). The parameters are the fields of Config.
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
