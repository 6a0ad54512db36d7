"""Starts a reward loop from Python, for notebooks and tests."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import sysconfig
import threading
from collections import deque
from types import TracebackType
from typing import IO

from .errors import RewardloopError

#: Lines of the server's log that are kept for error messages.
_LOG_LINES = 200


class Server:
    """A child process `rewardloop serve`.

    The process ends with close(), with a with block, or with the interpreter, even if the interpreter is killed.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        #: For connect() and Client().
        self.url = ""
        self._pid = os.getpid()
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._known = threading.Event()  # the address is, or the log has ended
        assert process.stderr is not None  # noqa: S101 - it was asked for
        self._reader = threading.Thread(target=self._read, args=(process.stderr,), name="rewardloop serve log", daemon=True)
        self._reader.start()
        atexit.register(self.close)

    def _read(self, log: IO[str]) -> None:
        for line in log:
            self._log.append(line.rstrip("\n")[:4096])
            if not self.url and '"serving"' in line:
                try:
                    self.url = f"ws://{json.loads(line)['address']}"
                except (ValueError, KeyError):
                    continue
                self._known.set()
        self._known.set()

    @property
    def log(self) -> tuple[str, ...]:
        """The latest lines of the server's log."""
        return tuple(self._log)

    def close(self, timeout: float = 10.0) -> None:
        """Stops the server, which has at most timeout seconds to finish the samples in flight."""
        atexit.unregister(self.close)
        if os.getpid() != self._pid:
            return
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """Kills the server immediately, as a crash would end it."""
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self._reader.join(1.0)
        if self.process.stderr is not None and not self._reader.is_alive():
            self.process.stderr.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def find_binary() -> str:
    """Returns the path of the program rewardloop.

    The path is that of REWARDLOOP_BIN if the variable is set, else of the program installed with this package, else of
    the first program rewardloop on PATH. Raises RewardloopError if there is none.
    """
    named = os.environ.get("REWARDLOOP_BIN", "")
    if named:
        found = shutil.which(named)
        if found is None:
            raise RewardloopError(f"REWARDLOOP_BIN names {named!r}, which is not a program")
        return found
    installed = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))]
    found = shutil.which("rewardloop", path=os.pathsep.join(installed)) or shutil.which("rewardloop")
    if found is None:
        raise RewardloopError(
            "no program rewardloop in the folder of this Python or on PATH: on Linux on x86-64 or ARM install the wheel that "
            "contains the program (pip install rewardloop); on other systems build the program with `make build` and set "
            "REWARDLOOP_BIN to bin/rewardloop"
        )
    return found


def launch(
    *overrides: str,
    config: str | os.PathLike[str] | None = None,
    listen: str = "127.0.0.1:0",
    token_file: str | os.PathLike[str] | None = None,
    binary: str | os.PathLike[str] | None = None,
    timeout: float = 60.0,
) -> Server:
    """Starts `rewardloop serve` and returns when the server accepts samples.

    Raises RewardloopError if the server exits or does not accept samples within timeout seconds. overrides are
    command-line overrides, such as "reward.custom_reward_function.path=builtin://ocr". With server.tls_cert, replace ws
    by wss in the url of the server.

    If this interpreter is killed, the server finishes what is in flight and ends, as after close(). The server waits
    for the end of a pipe, and children of os.fork() hold this pipe open too.
    """
    args = [os.fspath(binary or find_binary()), "serve", "--listen", listen, "--log-format", "json", "--until-stdin-closes"]
    if config is not None:
        args += ["-c", os.fspath(config)]
    if token_file is not None:
        args += ["--token-file", os.fspath(token_file)]
    process = subprocess.Popen(  # noqa: S603 - the user's own binary
        [*args, *overrides],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    server = Server(process)
    if server._known.wait(timeout) and server.url:
        return server
    server.kill()
    last = "\n".join(server.log[-20:])
    raise RewardloopError(f"`rewardloop serve` did not start (within {timeout:g} s, exit status {process.returncode}):\n{last}")
