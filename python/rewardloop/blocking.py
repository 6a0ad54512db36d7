"""The client for code without an event loop: the methods of Loop, run by a thread of the client.

Life cycle of a Client: the constructor starts a daemon thread with an event loop and connects, or raises an error
within connect_timeout. The calling thread encodes a sample and passes it to the client's thread. The futures are
futures of concurrent.futures. Any thread may call. close(), the end of a with block, or the end of the interpreter
stops the thread. A child process does not have the thread after a fork: calls there raise ForkedError.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import itertools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Literal, TypeVar

from .config import Config, takes
from .core import Core, check_fork
from .errors import ClosedError, ForkedError, PhaseError, QueueFullError, RewardloopError, UnreadError
from .fetches import ANSWER_GRACE
from .loop import MAX_UNREAD
from .result import Result
from .sample import Sample
from .steps import PAUSE, OnDeadline, Order, Question, Rewards, checked, early, waits

_T = TypeVar("_T")

#: Seconds that the end of the interpreter waits for each client.
_EXIT_TIMEOUT = 3.0
#: Seconds that a call to the thread may take beyond its own deadline.
_CALL_TIMEOUT = 30.0


class BlockingPending(concurrent.futures.Future[Result]):
    """The future of one sample's result: result(timeout) waits for the result, cancel() takes the sample back."""

    def __init__(self, sample_id: str, owner: Client) -> None:
        super().__init__()
        self.id = sample_id
        self._owner = owner

    def result(self, timeout: float | None = None) -> Result:
        """Waits for the result and returns it.

        Raises the error that the sample got instead of a result, for example ClosedError, and
        concurrent.futures.TimeoutError after timeout seconds (None: no timeout).
        """
        self._owner._check_fork()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits like result(). Returns the error that the sample got instead of a result; None: it has a result."""
        self._owner._check_fork()
        return super().exception(timeout)

    def cancel(self) -> bool:
        """Cancels the future and takes the sample back. Returns False if the future is already done."""
        self._owner._check_fork()
        did = super().cancel()
        if did:
            self.set_running_or_notify_cancel()
            self._owner._post(lambda core: core.take_back([self.id]))
        return did


class Client:
    """A connection to a reward loop that any thread may use. The parameters are the fields of Config."""

    @takes(Config)
    def __init__(self, cfg: Config) -> None:
        self._cfg = cfg
        self._pid = os.getpid()
        self._unread: deque[Result] = deque()  # guarded by _news
        self._dropped = 0  # guarded by _news
        self._ended: RewardloopError | None = None  # guarded by _news
        self._news = threading.Condition()
        self._room = threading.BoundedSemaphore(self._cfg.max_pending)
        self._aio = asyncio.new_event_loop()
        self._core: Core | None = None  # set before __init__ returns
        self._thread = threading.Thread(target=self._main, name="rewardloop", daemon=True)
        self._thread.start()
        try:
            self._core = self._wait(self._open(), self._cfg.connect_timeout)
        except BaseException:
            self._stop_thread()
            raise
        _CLIENTS.add(self)

    def _main(self) -> None:
        try:
            self._aio.run_forever()
        finally:
            self._aio.close()

    async def _open(self) -> Core:
        core = Core(self._cfg, self._take, self._end)
        await core.start()
        return core

    # --- what a trainer calls ------------------------------------------------------------------

    def submit(self, sample: Sample, *, timeout: float | None = None) -> BlockingPending:
        """Submits a sample and returns the future of its result.

        Blocks while max_pending samples have no result, at most timeout seconds (None: no timeout), then raises
        QueueFullError. Raises InputError for a sample that no server accepts, before anything is sent.
        """
        frame = self._check().encode(sample)
        if not self._room.acquire(timeout=timeout):
            self._check()
            raise QueueFullError(f"{self._cfg.max_pending} samples are without a result (max_pending) after {timeout} s")
        pending = BlockingPending(sample.id, self)

        def done(outcome: Result | RewardloopError) -> None:
            self._room.release()
            _settle(pending, outcome)

        def admit(core: Core) -> None:
            try:
                core.admit(sample, frame, done)
            except RewardloopError as err:
                done(err)

        try:
            self._post(admit)
        except BaseException:
            self._room.release()
            raise
        return pending

    def score(self, samples: Iterable[Sample], *, timeout: float | None = None) -> list[Result]:
        """Submits all samples and returns their results in the same order.

        Raises TimeoutError after timeout seconds (None: no timeout). After an error, the samples without a result are
        taken back.
        """
        end = None if timeout is None else time.monotonic() + timeout
        waiting: list[BlockingPending] = []
        try:
            for sample in samples:
                waiting.append(self.submit(sample, timeout=_left(end)))
            return [p.result(_left(end)) for p in waiting]
        except BaseException as err:
            if not isinstance(err, ForkedError):
                for p in waiting:
                    p.cancel()
            if isinstance(err, concurrent.futures.TimeoutError | QueueFullError):
                raise TimeoutError(f"no results for all samples within {timeout} s") from err
            raise

    def results(self, n: int | None = None, *, timeout: float | None = None) -> Iterator[Result]:
        """Yields each result once, in order of arrival: n results, or all results until close().

        Results that arrived before the call are included, up to the latest 4096; if older ones were dropped, raises
        UnreadError. Raises TimeoutError if the next result takes longer than timeout seconds (None: no timeout), and
        LostError once the connection is lost for good.
        """
        count = 0
        while n is None or count < n:
            self._check_fork()
            result = self._next(timeout)
            if result is None:
                return
            yield result
            count += 1

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
        """Declares how many samples of a step this client will send; see Loop.step."""
        self._call(lambda core: core.declare(step, expected, split, total, ids, deadline, on_deadline))

    def end_of_step(self, step: int, *, split: str = "train") -> None:
        """Declares that this client sends no more samples of the step; see Loop.end_of_step."""
        self._call(lambda core: core.end_of_step(step, split))

    def phase(self, name: Literal["rollout", "reward"], *, timeout: float | None = 300.0) -> None:
        """Declares which phase of its training the run has begun; see Loop.phase."""
        told: concurrent.futures.Future[str] = concurrent.futures.Future()

        def done(outcome: str | RewardloopError) -> None:
            if isinstance(outcome, str):
                told.set_result(outcome)
            else:
                told.set_exception(outcome)

        self._call(lambda core: core.begin_phase(name, done))
        try:
            why = told.result(timeout)
        except concurrent.futures.TimeoutError as err:
            raise TimeoutError(f"phase {name}: no answer for {timeout:g} s") from err
        if why:
            raise PhaseError(f"phase {name}: {why}")

    def rewards(
        self,
        step: int,
        groups: int = 0,
        *,
        chunk: int = 0,
        order: Order = "completion",
        split: str = "train",
        wait: float | None = 30.0,
    ) -> Rewards:
        """Waits for one chunk of a step's rewards and returns it; see Loop.rewards."""
        question = Question(step, split, chunk, groups, order)
        for piece in waits(wait):
            asked = time.monotonic()
            answer = self._ask(question, piece)
            if answer.ready or answer.done or answer.state == "failed":
                break
            if early(asked, piece):
                time.sleep(PAUSE)
        return checked(answer)

    def chunks(
        self, step: int, groups: int = 0, *, chunk: int = 0, order: Order = "completion", split: str = "train"
    ) -> Iterator[Rewards]:
        """Yields the chunks of a step's rewards, each as soon as it is complete; see Loop.chunks."""
        for number in itertools.count(chunk):
            answer = self.rewards(step, groups, chunk=number, order=order, split=split, wait=None)
            yield answer
            if answer.done:
                return

    def _ask(self, question: Question, wait: float) -> Rewards:
        answered: concurrent.futures.Future[Rewards] = concurrent.futures.Future()
        asked: list[int] = []  # touched by the client's thread alone

        def done(outcome: Rewards | RewardloopError) -> None:
            if isinstance(outcome, Rewards):
                answered.set_result(outcome)
            else:
                answered.set_exception(outcome)

        def ask(core: Core) -> None:
            try:
                asked.append(core.ask(question, wait, done))
            except RewardloopError as err:
                done(err)

        def drop(core: Core) -> None:
            for req in asked:
                core.drop(req)

        self._post(ask)
        try:
            # The core answers in any case: the connection comes back, or is lost for good.
            return answered.result(wait + ANSWER_GRACE + self._cfg.reconnect_for + _CALL_TIMEOUT)
        except BaseException:
            if not answered.done() and self._ended is None:
                self._post(drop)
            raise

    def cancel(self, *ids: str) -> None:
        """Takes samples back; each sample still gets exactly one result. See Loop.cancel."""
        self._call(lambda core: core.take_back(ids))

    @property
    def epoch(self) -> int:
        """The epoch of the run. Another client of the run joins it with Config.epoch."""
        return self._check().epoch

    @property
    def profiles(self) -> tuple[str, ...]:
        """Names of the reward profiles of the server."""
        return self._check().profiles

    @property
    def pending(self) -> int:
        """Number of samples without a result."""
        return len(self._check().calls)

    @property
    def connected(self) -> bool:
        """Whether there is a live connection now; the client reconnects after a connection is lost."""
        return self._check().connected

    @property
    def draining(self) -> bool:
        """Whether the server is draining: it finishes its samples and accepts no new ones."""
        return self._check().draining

    @property
    def problems(self) -> tuple[str, ...]:
        """The latest error messages of the server that belong to no sample."""
        return tuple(self._check().problems)

    def close(self) -> None:
        """Closes the connection. Samples without a result fail with ClosedError. Further calls have no effect."""
        if os.getpid() != self._pid or not self._thread.is_alive():
            return
        _CLIENTS.discard(self)
        try:
            if self._core is not None:
                self._wait(self._core.close(), 0.0)
        finally:
            self._end(ClosedError("the client is closed"))
            self._stop_thread()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # --- between the threads -------------------------------------------------------------------

    def _check_fork(self) -> None:
        check_fork(self._pid)

    def _check(self) -> Core:
        self._check_fork()
        if self._core is None or self._ended is not None or not self._thread.is_alive():
            raise self._ended or ClosedError("the client is closed")
        return self._core

    def _post(self, what: Callable[[Core], None]) -> None:
        """Has something done by the thread, without waiting."""
        core = self._check()
        try:
            self._aio.call_soon_threadsafe(what, core)
        except RuntimeError:  # closed in between
            raise ClosedError("the client is closed") from None

    def _call(self, what: Callable[[Core], None]) -> None:
        core = self._check()

        async def run() -> None:
            what(core)

        self._wait(run(), 0.0)

    def _wait(self, what: Coroutine[Any, Any, _T], seconds: float) -> _T:
        """Runs a coroutine in the thread and waits for it."""
        if threading.current_thread() is self._thread:
            what.close()
            raise RuntimeError("called from a callback in the client's own thread, which cannot wait for itself")
        future = asyncio.run_coroutine_threadsafe(what, self._aio)
        try:
            return future.result(seconds + _CALL_TIMEOUT)
        except BaseException:
            future.cancel()
            raise

    def _take(self, result: Result) -> None:
        with self._news:
            if len(self._unread) >= MAX_UNREAD:
                self._unread.popleft()
                self._dropped += 1
            self._unread.append(result)
            self._news.notify()

    def _end(self, err: RewardloopError) -> None:
        with self._news:
            self._ended = self._ended or err
            self._news.notify_all()

    def _next(self, timeout: float | None) -> Result | None:
        with self._news:
            if not self._news.wait_for(lambda: self._unread or self._dropped or self._ended, timeout):
                raise TimeoutError(f"no result within {timeout} s")
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                raise UnreadError(dropped, MAX_UNREAD)
            if self._unread:
                return self._unread.popleft()
            if self._ended is None or isinstance(self._ended, ClosedError):
                return None
            raise self._ended

    def _stop_thread(self) -> None:
        self._aio.call_soon_threadsafe(self._aio.stop)
        self._thread.join(_EXIT_TIMEOUT)


def _settle(pending: BlockingPending, outcome: Result | RewardloopError) -> None:
    try:
        if isinstance(outcome, Result):
            pending.set_result(outcome)
        else:
            pending.set_exception(outcome)
    except concurrent.futures.InvalidStateError:
        pass  # cancelled


#: ``with connect_sync(url, run=...) as client:``
connect_sync = Client


def _left(end: float | None) -> float | None:
    return None if end is None else max(end - time.monotonic(), 0.0)


#: Clients that are open, for the end of the interpreter.
_CLIENTS: weakref.WeakSet[Client] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for client in list(_CLIENTS):
        client.close()
