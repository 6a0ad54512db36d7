"""A gateway that says what the test wants, and notes what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve as listen
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

import rewardloop

from .harness import Case, T

Message = dict[str, Any]


def rewards(take: Message, **changes: Any) -> Message:
    """An answer with two rows, the second without a score."""
    first = 2 * take["chunk"]
    return {
        "type": "rewards", "req": take["req"], "split": take["split"], "step": take["step"], "chunk": take["chunk"],
        "state": "open", "ready": True, "done": False, "groups": 2,
        "expected": 8, "arrived": 8, "scored": 4, "failed": 1, "pending": 3, "missing": 0,
        "ids": [f"s{first}", f"s{first + 1}"], "indices": [first, None], "uids": ["u", ""], "rm_scores": [0.5, None],
        "rm_valid": [True, False], "outcomes": ["scored", "failed"], "components": {"reward/ocr": [0.5, None]}, **changes,
    }  # fmt: skip


def unready(take: Message) -> Message:
    """There is no such chunk yet."""
    columns = ("ids", "indices", "uids", "rm_scores", "rm_valid", "outcomes", "components")
    answer = rewards(take, ready=False, groups=0)
    return {k: v for k, v in answer.items() if k not in columns}


DRAINING = '{"type":"draining"}'


def scored(sample_id: str, seq: int) -> Message:
    """The answer to a sample that has a score."""
    return {"type": "result", "id": sample_id, "seq": seq, "outcome": "scored", "reward_score": 1.0, "attempts": 1}


class Gateway:
    """Greets, notes what it is told, and answers questions as the test says."""

    def __init__(self) -> None:
        self.fetches: asyncio.Queue[Message] = asyncio.Queue()
        self.told: asyncio.Queue[Message] = asyncio.Queue()
        self.flow: asyncio.Queue[Message] = asyncio.Queue()  # what is said of credit
        self.forgetful = False  # it knows no session
        self.answer: Callable[[Message], Message | str | None] = lambda take: None
        self.met: asyncio.Queue[tuple[ServerConnection, Message]] = asyncio.Queue()  # connections with their hello
        self.got: asyncio.Queue[str] = asyncio.Queue()  # samples
        self.samples: dict[str, Message] = {}
        self.score: Callable[[str, int], Message | None] = scored
        self.drains = False  # it says so with each welcome
        self._server: Server | None = None
        self.connections = 0

    async def __aenter__(self) -> Gateway:
        self._server = await listen(self._serve, "127.0.0.1", 0, subprotocols=[Subprotocol("rewardloop.v1")])
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"ws://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}"

    def cut(self, *, forgetful: bool = False) -> None:
        assert self._server is not None
        self.forgetful = forgetful
        for connection in self._server.connections:
            connection.transport.abort()

    async def _serve(self, ws: ServerConnection) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionClosed):  # cut
            await self._talk(ws)

    async def _talk(self, ws: ServerConnection) -> None:
        seq = 0
        async for data in ws:
            if isinstance(data, bytes):  # a sample: scored at once
                size = int.from_bytes(data[:8], "little")
                sample = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["sample"])
                seq += 1
                result = self.score(sample["id"], seq)
                self.samples[sample["id"]] = sample
                self.got.put_nowait(sample["id"])
                if result is not None:
                    await ws.send(json.dumps(result))
                continue
            m = json.loads(data)
            if m["type"] == "hello":
                await ws.send(json.dumps({
                    "type": "welcome", "protocol": "rewardloop.v1", "epoch": 1,
                    "session": "s", "resumed": "resume" in m and not self.forgetful,
                    "credit": {"samples": 100, "bytes": 1 << 20}, "rewards": [{"name": "default"}],
                    "limits": {"message_bytes": 1 << 20, "header_bytes": 1 << 20, "control_bytes": 1 << 16},
                }))  # fmt: skip
                if self.drains:
                    await ws.send(DRAINING)
                self.met.put_nowait((ws, m))
            elif m["type"] == "fetch":
                self.fetches.put_nowait(m)
                answer = self.answer(m)
                if answer is not None:
                    await ws.send(answer if isinstance(answer, str) else json.dumps(answer))
            elif m["type"] in ("want", "yield"):
                self.flow.put_nowait(m)
            elif m["type"] in ("step", "end_of_step"):
                assert len(data.encode()) <= 32 << 10
                self.told.put_nowait(m)


class FakeCase(Case):
    """Against a gateway that says what the test wants."""

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.gateway = await Gateway().__aenter__()
        self.addAsyncCleanup(self.gateway.__aexit__)
        self.loop = await rewardloop.connect(self.gateway.url, run="r", lanes=1)
        self.addAsyncCleanup(self.loop.close)

    async def next(self, queue: asyncio.Queue[T]) -> T:
        return await self.soon(queue.get())
