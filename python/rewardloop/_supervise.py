"""Keeps one `rewardloop worker` running: the work of the actors of rewardloop.ray, without Ray.

Life cycle of a Supervisor: start() starts the thread that owns the process. The thread starts the worker, reads its
ready line, waits for its end, and restarts it after a pause that grows from 0.5 s to 30 s, until stop().
started() waits for the first ready line, or raises why there is none. The worker's stdin is a pipe to which nothing is
written. When the process of the Supervisor ends, for whatever reason, the pipe closes and the worker exits. The worker
leads its own process group, which is killed with the worker, so that no child of the worker outlives it.

Three threads serve each process: one reads stdout, one reads stderr, one waits for the end of the process. These
threads only report. The owner thread alone starts, ends and discards a process.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Literal

from .errors import RewardloopError

State = Literal["starting", "ready", "restarting", "stopped"]

#: Lines of a worker's stderr that are kept, and bytes of each.
STDERR_LINES = 200
LINE_BYTES = 4096
#: Of those the lines that an error message quotes.
QUOTED_LINES = 20
#: The pause before a worker that has ended is started again: at first, and at most. A worker that was ready
#: for longer than the longest pause begins anew with the shortest.
PAUSES = (0.5, 30.0)
#: For the answer to a question for /readyz.
_READYZ_TIMEOUT = 2.0
#: For what a process has still to say at its end, and for the end of one whose first line is not understood. No more
#: than something else holds its output open, or it does not end, so that a busy machine may take its time.
_REST_TIMEOUT = 5.0
_READY_LINE_BYTES = 64 << 10

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Launch:
    """The process to start: a program with arguments, its environment, its folder, and the descriptors it inherits."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None
    pass_fds: Sequence[int] = ()


@dataclass(frozen=True)
class Status:
    """The state of a worker at one moment."""

    state: State
    #: Of the process that runs, else None.
    pid: int | None
    #: How often it was started again.
    restarts: int
    #: Why the latest process ended, or could not start; empty if none did.
    last_error: str
    #: Whether the worker itself says at /readyz that it serves.
    ready: bool


@dataclass
class _Process:
    """One process. Everything in it belongs to the owner, except for what the readers add to."""

    popen: subprocess.Popen[bytes]
    #: ("line", the first line of stdout), ("exit", ""), and ("stop", "") from stop().
    events: queue.SimpleQueue[tuple[str, str]] = field(default_factory=queue.SimpleQueue)
    exited: threading.Event = field(default_factory=threading.Event)
    #: Once the first line of stdout is among the events, or there will be none.
    spoken: threading.Event = field(default_factory=threading.Event)
    readers: list[threading.Thread] = field(default_factory=list)


class Supervisor:
    """Owns one worker process. Calls launch before each start; an exception from launch counts as a failed start.

    log receives each line of the worker's stderr, and the messages of the Supervisor. A Supervisor can be started only
    once: it does not run again after stop().
    """

    def __init__(
        self,
        name: str,
        launch: Callable[[], Launch],
        *,
        start_timeout: float = 120.0,
        grace: float = 10.0,
        log: Callable[[str], None] = lambda line: None,
        pauses: tuple[float, float] = PAUSES,
    ) -> None:
        self._name = name
        self._launch = launch
        self._start_timeout = start_timeout
        self._grace = grace
        self._log = log
        self._pauses = pauses
        self._stopping = threading.Event()
        self._owner = threading.Thread(target=self._own, name=f"supervisor of {name}", daemon=True)
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        # Guards what follows; notified of each change.
        self._changed = threading.Condition()
        self._process: _Process | None = None
        self._state: State = "starting"
        self._restarts = 0
        self._last_error = ""
        self._listen = ""
        self._first: bool | None = None  # whether the first start went well

    # --- for everybody -------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the owner thread, once; started() reports the outcome."""
        self._owner.start()

    def started(self, timeout: float | None = None) -> None:
        """Returns once the worker has been ready.

        Raises RewardloopError if the first start fails, or does not end within timeout seconds (None: no timeout).
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._first is not None, timeout):
                raise RewardloopError(f"{self._name}: not ready within {timeout:g} s and still starting")
            if not self._first:
                raise RewardloopError(f"{self._name}: {self._last_error}")

    def status(self) -> Status:
        """Returns the state of the worker, including its answer at /readyz (timeout 2 s)."""
        with self._changed:
            state, process, listen = self._state, self._process, self._listen
            restarts, last_error = self._restarts, self._last_error
        pid = process.popen.pid if process is not None else None
        return Status(state, pid, restarts, last_error, state == "ready" and _readyz(listen))

    def stderr(self) -> list[str]:
        """Returns the latest lines of the worker's stderr, including lines from before a restart."""
        return list(self._stderr)

    def stop(self) -> None:
        """Sends SIGTERM, waits at most grace seconds for the worker to finish, then kills it. Returns after its end."""
        self._stopping.set()
        with self._changed:
            if self._process is not None:
                self._process.events.put(("stop", ""))
        if self._owner.ident is not None:
            self._owner.join()
        with self._changed:
            self._set(state="stopped")

    # --- the owner's thread --------------------------------------------------------------------

    def _own(self) -> None:
        pause = self._pauses[0]
        while not self._stopping.is_set():
            served, why = self._one()
            if self._stopping.is_set():
                break
            if served > self._pauses[1]:
                pause = self._pauses[0]
            self._say(f"{why}; starting it again in {pause:g} s")
            with self._changed:
                self._set(state="restarting", error=why, first=False)
            if self._stopping.wait(pause):
                break
            pause = min(2 * pause, self._pauses[1])
            with self._changed:
                self._restarts += 1
        with self._changed:
            self._set(
                state="stopped", error=None if self._first else self._last_error or "stopped before it was ready", first=False
            )

    def _one(self) -> tuple[float, str]:
        """Runs one process to its end. Returns for how many seconds it was ready, and why it ended."""
        try:
            process = self._spawn()
        except Exception as err:  # whatever it is: nobody else would hear of it
            return 0.0, f"it could not be started: {err}"
        since = None
        try:
            why = self._wait_ready(process)
            if not why:
                since = time.monotonic()
                self._await_event(process)
        finally:
            self._end(process)
        served = time.monotonic() - since if since is not None else 0.0
        code = process.popen.returncode
        if not why:
            why = f"it exited {_status(code)} after {served:.1f} s"
        elif why == "exit":
            why = f"it exited {_status(code)} before it was ready"
        elif code > 0:
            why += f" It exited {_status(code)}."
        if quoted := "\n".join(list(self._stderr)[-QUOTED_LINES:]):
            why += f"; the last lines of its stderr:\n{quoted}\n"
        return served, why

    def _spawn(self) -> _Process:
        launch = self._launch()
        popen = subprocess.Popen(  # noqa: S603 - the user's own binary
            list(launch.argv), env=dict(launch.env), cwd=launch.cwd, pass_fds=tuple(launch.pass_fds),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        process = _Process(popen)
        try:
            for work in (self._read_stdout, self._read_stderr, self._await_exit):
                thread = threading.Thread(target=work, args=(process,), name=f"{work.__name__} of {self._name}", daemon=True)
                thread.start()
                process.readers.append(thread)
        except RuntimeError:  # there are too many threads
            popen.kill()
            popen.wait()
            raise
        with self._changed:
            self._process = process
        if self._stopping.is_set():  # stop() may have come before there was a process to tell
            process.events.put(("stop", ""))
        return process

    def _wait_ready(self, process: _Process) -> str:
        """Returns "" once it is ready, "exit" if it has ended, else what is wrong with it."""
        try:
            kind, line = process.events.get(timeout=self._start_timeout)
        except queue.Empty:
            return f"it printed no ready line within {self._start_timeout:g} s"
        if kind != "line":
            return kind
        if (listen := _ready_line(line)) is None:
            self._await_event(process, _REST_TIMEOUT)  # a command that is not understood ends by itself, and its code says more
            return f"its first line on stdout is {line[:200]!r}, which is not a ready line: is this `rewardloop worker`?"
        with self._changed:
            self._listen = listen
            self._set(state="ready", first=True)
        return ""

    def _await_event(self, process: _Process, timeout: float | None = None) -> str:
        """Returns "exit" or "stop", or "" if there was none in time."""
        try:
            return process.events.get(timeout=timeout)[0]
        except queue.Empty:
            return ""

    def _end(self, process: _Process) -> None:
        """Sees to it that the process and its group are gone: with patience if this is a stop."""
        if self._stopping.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.popen.pid, signal.SIGTERM)  # Popen.terminate() might take its exit status away from _await_exit
            if not process.exited.wait(self._grace):
                self._say(f"it did not end within {self._grace:g} s of SIGTERM and is killed")
        # Its number is the group's until wait() has been called, so no stranger is hit.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.popen.pid, signal.SIGKILL)
        process.popen.wait()
        with self._changed:
            self._process = None
            self._listen = ""
        end = time.monotonic() + _REST_TIMEOUT
        for reader in process.readers:
            reader.join(max(0.0, end - time.monotonic()))
        if not any(reader.is_alive() for reader in process.readers):
            for pipe in (process.popen.stdout, process.popen.stderr):
                assert pipe is not None
                pipe.close()
        assert process.popen.stdin is not None
        process.popen.stdin.close()

    def _set(self, *, state: State, error: str | None = None, first: bool | None = None) -> None:
        """Changes what everybody sees, with the lock held. What first says holds once."""
        self._state = state
        if error is not None:
            self._last_error = error
        if self._first is None:
            self._first = first
        self._changed.notify_all()

    # --- a process's threads -------------------------------------------------------------------

    def _read_stdout(self, process: _Process) -> None:
        pipe = _pipe(process.popen.stdout)
        if line := pipe.readline(_READY_LINE_BYTES):
            process.events.put(("line", line.decode(errors="replace").strip()))
        process.spoken.set()
        while pipe.read1(_READY_LINE_BYTES):
            pass  # nothing more is promised, and a full pipe would stop the worker

    def _read_stderr(self, process: _Process) -> None:
        pipe = _pipe(process.popen.stderr)
        while line := pipe.readline(LINE_BYTES):
            text = line.decode(errors="replace").rstrip("\r\n")
            self._stderr.append(text)
            self._say(text)

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # where the log is gone the worker is not to suffer for it
            self._log(line)

    def _await_exit(self, process: _Process) -> None:
        # WNOWAIT leaves the process to the owner, who has to kill its group first.
        with contextlib.suppress(ChildProcessError):  # somebody else in this process has waited for it
            os.waitid(os.P_PID, process.popen.pid, os.WEXITED | os.WNOWAIT)
        process.exited.set()
        # What it said before its end says why; a child that has inherited its stdout may hold that open for ever.
        process.spoken.wait(_REST_TIMEOUT)
        process.events.put(("exit", ""))


def _pipe(pipe: IO[bytes] | None) -> Any:
    assert pipe is not None  # noqa: S101 - it was asked for
    return pipe


def _ready_line(line: str) -> str | None:
    """Returns where the worker listens, "" for nowhere; None if the line is not the ready line."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    if not isinstance(said, dict) or said.get("event") != "ready" or not isinstance(said.get("listen", ""), str):
        return None
    return str(said.get("listen", ""))


def _readyz(listen: str) -> bool:
    """Whether the worker says that it serves; one that listens nowhere is believed its ready line."""
    if not listen:
        return True
    try:
        with _DIRECT.open(f"http://{listen}/readyz", timeout=_READYZ_TIMEOUT) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def _status(code: int) -> str:
    """An exit status in words."""
    if code >= 0:
        return f"with code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
