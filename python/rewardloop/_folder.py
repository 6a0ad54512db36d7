"""A private folder for the files of one worker, which is removed after the worker and its actor have ended.

A killed process cannot clean up, so a later process does. A folder belongs to the process that holds the lock on the
file ``lock`` in the folder, and the worker inherits the lock from its launcher. The next Folder on this machine
removes every folder whose lock nobody holds. A launcher that restarts under the same key detects the worker of its
predecessor by the lock, waits for that worker to exit, and kills it if it does not.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from .errors import RewardloopError

#: What a worker whose launcher is gone has to exit in; it promises 5 s.
_PATIENCE = 8.0
#: What the kernel has to end one in that was killed.
_KILLED = 8.0
_POLL = 0.1


class Folder:
    """A folder in the temporary folder of this machine, under the launcher's own key. Only one thread may use it."""

    def __init__(self, key: str, root: Path | None = None) -> None:
        root = root or Path(tempfile.gettempdir()) / f"rewardloop-workers-{os.getuid()}"
        root.mkdir(mode=0o700, exist_ok=True)
        seen = root.lstat()
        if seen.st_uid != os.getuid() or root.is_symlink() or seen.st_mode & 0o077:
            raise RewardloopError(f"{root} is not this user's private folder (mode 0700): remove it, or set TMPDIR on this node")
        self.path = root / key
        #: The locked file, for the worker to inherit.
        self.lock = self._open()
        _sweep(root, self.path)

    def write(self, files: Mapping[str, bytes]) -> None:
        """Writes files under their relative names, readable only by this user."""
        for name, data in files.items():
            path = self.path / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = path.with_name(path.name + ".new")
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
                out.write(data)
            new.replace(path)

    def close(self) -> None:
        """Removes the folder with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)

    def _open(self) -> int:
        end = time.monotonic() + _PATIENCE
        killed = False
        while True:
            self.path.mkdir(mode=0o700, exist_ok=True)
            if (lock := _lock(self.path)) is not None:
                return lock
            if time.monotonic() > end:
                holders = _holders(self.path / "lock")
                if killed or not holders:
                    raise RewardloopError(f"{self.path} is in use by {holders or 'a process that this user cannot see'}: end that process")
                for pid in holders:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
                end, killed = time.monotonic() + _KILLED, True
            time.sleep(_POLL)


def _lock(folder: Path) -> int | None:
    """Locks a folder, or returns None if somebody has it or it is just going away."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The one who had it before may have removed it.
        if os.path.samestat(os.fstat(lock), os.stat(folder / "lock")):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None


def _sweep(root: Path, mine: Path) -> None:
    """Removes the folders that nobody holds."""
    for folder in root.iterdir():
        if folder == mine or (lock := _lock(folder)) is None:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _holders(lock: Path) -> list[int]:
    """The other processes that have a file open, as far as /proc tells."""
    wanted = lock.stat()
    found = []
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.parts[2])
            if pid != os.getpid() and pid not in found and os.path.samestat(entry.stat(), wanted):
                found.append(pid)
    return found
