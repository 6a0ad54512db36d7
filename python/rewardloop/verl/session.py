"""The connection of a process, opened at the first sample.

The client runs in its own thread: it serves every event loop of the process, and keeps the connection open while
tensor work blocks an event loop.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from typing import Any

from ..blocking import Client
from ..errors import ClosedError, LostError, QueueFullError
from ..result import Result
from ..sample import Sample
from . import named
from .outcome import SCORE, STEPS, Columns, ExtraInfo, Failures, reward_of, why
from .settings import Settings

#: Seconds between two looks whether another sample may be submitted.
_FULL_PAUSE = 0.02

_LOCK = threading.Lock()
_SESSIONS: dict[tuple[int, Settings], Session] = {}  # guarded by _LOCK; those of a parent process have its pid


def session(settings: Settings) -> Session:
    """Returns the session of this process for these settings."""
    key = (os.getpid(), settings)
    with _LOCK:
        if key not in _SESSIONS:
            _SESSIONS[key] = Session(settings)
        return _SESSIONS[key]


class Session:
    """A client, the columns of its results, and the count of its failures."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.columns = Columns()
        self.failures = Failures(settings.max_failed_fraction)
        self._lock = threading.Lock()
        self._client: Client | None = None  # guarded by _lock

    def client(self, broken: Client | None = None) -> Client:
        """Returns the connected client; replaces it by a new client if it is ``broken``. Blocks while connecting."""
        with self._lock:
            if self._client is not None and self._client is broken:
                self._client.close()
                self._client = None
            if self._client is None:
                self._client = Client(**self.settings.connection())
            return self._client

    def close(self) -> None:
        """Closes the connection; the next sample opens another one."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def result(self, sample: Sample) -> Result:
        """Submits a sample and awaits its result. Cancellation takes the sample back."""
        client = self._client
        if client is None:
            client = await asyncio.to_thread(self.client)
        for again in (True, False):
            try:
                return await asyncio.wrap_future(await self._submit(client, sample))
            except (LostError, ClosedError):
                if not again:
                    raise
                client = await asyncio.to_thread(self.client, client)
        raise AssertionError("unreachable")

    @staticmethod
    async def _submit(client: Client, sample: Sample) -> Any:
        while True:
            try:
                return client.submit(sample, timeout=0)
            except QueueFullError:
                await asyncio.sleep(_FULL_PAUSE)

    async def score(self, sample: Sample, rows: int = 0) -> tuple[float, ExtraInfo]:
        """Returns the reward of a sample and its columns; raises RewardFailedError if no fallback is allowed."""
        return self.judge(sample, await self.result(sample), rows)

    def judge(self, sample: Sample, result: Result, rows: int = 0) -> tuple[float, ExtraInfo]:
        """Returns the values of a result for a trainer: the reward and the columns."""
        grouped = bool(sample.uid) and sample.group_size > 1
        found = named.of(result, self.settings, grouped)
        reason = found.reason if result.scored else why(result)
        self.failures.count(reason, (sample.split, sample.step), rows)
        value = reward_of(result, self.settings, grouped)
        info = self.columns.fill(result.reward_extra_info, reason)
        info.update(found.values)
        info[SCORE] = value
        if self.settings.stop_ids:
            info[STEPS] = json.dumps(result.step_scores) if result.scored else ""
        return value, info
