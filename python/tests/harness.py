"""What the tests share: waits with an end, a real server, a TCP proxy that can cut, brake and stall, and pictures.

No test takes the order of two threads or processes for granted, or looks at the time: it waits for what must come,
for PATIENCE at most. service.py has a reward that comes when the test says so, gateway.py a server that says what the
test wants.
"""

from __future__ import annotations

import asyncio
import os
import time
import unittest
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import rewardloop
from rewardloop import Sample

REPOSITORY = Path(__file__).resolve().parents[2]

#: The reward of the tests: quick, deterministic, needs nothing but the binary.
JPEG = "reward.custom_reward_function.path=builtin://jpeg_compressibility"

#: No wait of a test is longer.
PATIENCE = 60.0

_POLL = 0.005

T = TypeVar("T")


def until(what: Callable[[], bool], why: str) -> None:
    """Waits until something holds."""
    end = time.monotonic() + PATIENCE
    while not what():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE:g} s: {why}")
        time.sleep(_POLL)


async def eventually(what: Callable[[], bool], why: str) -> None:
    """Waits until something holds, and lets the event loop run meanwhile."""
    end = time.monotonic() + PATIENCE
    while not what():
        if time.monotonic() > end:
            raise AssertionError(f"not within {PATIENCE:g} s: {why}")
        await asyncio.sleep(_POLL)


def alive(pid: int) -> bool:
    """Whether there is such a process, and not just its exit status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Case(unittest.IsolatedAsyncioTestCase):
    """A test with an event loop, after which no task of the client may be left."""

    async def asyncSetUp(self) -> None:
        asyncio.get_running_loop().set_debug(False)  # it would log every call that takes 100 ms
        self.addAsyncCleanup(self.check_tasks)

    async def check_tasks(self) -> None:
        left = [t for t in asyncio.all_tasks() if t is not asyncio.current_task() and "rewardloop" in t.get_name()]
        self.assertEqual(left, [])

    async def soon(self, awaitable: Awaitable[T]) -> T:
        """What is awaited, within PATIENCE."""
        return await asyncio.wait_for(awaitable, PATIENCE)


def binary() -> str:
    """The binary that REWARDLOOP_BIN names."""
    if not (named := os.environ.get("REWARDLOOP_BIN")):
        raise unittest.SkipTest("SKIPPED: REWARDLOOP_BIN names no binary: nothing was tried against a real server")
    return named


def serve(*overrides: str, **options: Any) -> rewardloop.Server:
    """Starts the binary that REWARDLOOP_BIN names."""
    return rewardloop.launch(JPEG, *overrides, binary=binary(), **options)


def noise(side: int, seed: int = 0) -> rewardloop.Media:
    """A picture of side x side random pixels: no two seeds have the same score."""
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return rewardloop.image(pixels, layout="HWC")


def pictures(n: int, side: int = 16, **fields: Any) -> list[Sample]:
    """n samples with small pictures, ids s0, s1 …"""
    return [Sample(id=f"s{i}", media=noise(side, i), **fields) for i in range(n)]


class Proxy:
    """Forwards connections to a port that may change; cut() ends them all, as a network would."""

    def __init__(self) -> None:
        self.upstream = ""
        self.accepted = 0
        self.sent = 0  # bytes towards the server
        self.stalled = False  # accepts, and forwards nothing
        self.frozen = False  # swallows what comes, until somebody connects again
        self.after: tuple[int, asyncio.Event] | None = None  # an event to set at so many bytes
        self.brake = asyncio.Event()  # until it is set, connections but the first pass on their first 64 KiB alone
        self.brake.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def passed(self, more: int) -> asyncio.Event:
        """An event that is set when so many more bytes have gone to the server."""
        event = asyncio.Event()
        self.after = (self.sent + more, event)
        return event

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        number = self.accepted
        self.frozen = False
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self.stalled:
                await reader.read(-1)
                return
            host, port = self.upstream.removeprefix("ws://").split(":")
            up_reader, up_writer = await asyncio.open_connection(host, int(port))
            self._writers.add(up_writer)
            await asyncio.gather(self._pump(reader, up_writer, number), self._pump(up_reader, writer))
        except OSError:
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int = 0) -> None:
        """Copies one direction of a connection; number is that of a connection whose way to the server this is."""
        passed = 0
        try:
            while data := await reader.read(64 << 10):
                if self.frozen:
                    continue
                if number > 1 and passed + len(data) > 64 << 10:
                    await self.brake.wait()
                passed += len(data)
                if number:
                    self._count(len(data))
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()

    def _count(self, more: int) -> None:
        self.sent += more
        if self.after is not None and self.sent >= self.after[0]:
            self.after[1].set()
            self.after = None
