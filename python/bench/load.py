"""One load of make bench-python: load.py client|bare URL SECONDS, and one line of JSON with what it measured.

32 raw pictures of 512 x 512 x 3 are kept in flight over the time given, after a sixth of it to warm up.

    client   the Python client, whose every result must be a score
    bare     websockets alone: frames made in advance, one message each, answered in their order; no credit, no futures
"""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable

import numpy as np
from websockets.asyncio.client import connect as bare_connect

import rewardloop
from rewardloop.frame import encode

WINDOW = 32
RING = 32  # pictures that take turns, so that neither side works from the cache
PICTURES = [np.random.default_rng(i).integers(0, 256, (512, 512, 3), dtype=np.uint8) for i in range(RING)]


def sample(i: int) -> rewardloop.Sample:
    """Number i of a trainer that has 512 samples in a step, 16 of each prompt."""
    return rewardloop.Sample(
        id=f"s{i}", step=i // 512, index=i % 512, uid=f"p{i // 16}", group_size=16, data_source="ocr",
        prompt='A street at night with a sign that says "open until late", rain, reflections on the road',
        ground_truth="open until late", media=rewardloop.image(PICTURES[i % RING], layout="HWC"),
    )  # fmt: skip


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def load(send: Callable[[int], Awaitable[None]], seconds: float) -> dict[str, float]:
    """Keeps WINDOW calls of send running, and counts those that end after the warm-up."""
    taken: list[float] = []
    numbers = itertools.count()
    cpu, warm = cpu_seconds(), time.perf_counter() + seconds / 6
    end = warm + seconds

    async def one() -> None:
        while (began := time.perf_counter()) < end:
            await send(next(numbers))
            if (now := time.perf_counter()) >= warm:
                taken.append(now - began)

    await asyncio.gather(*(one() for _ in range(WINDOW)))
    took, cpu = time.perf_counter() - warm, cpu_seconds() - cpu
    taken.sort()
    n = len(taken)
    return {
        "per_s": n / took, "p50_ms": 1e3 * taken[n // 2], "p99_ms": 1e3 * taken[n * 99 // 100],
        "cpu_ms": 1e3 * cpu / next(numbers),
    }  # fmt: skip


async def client(url: str, seconds: float) -> dict[str, float]:
    async with rewardloop.connect(url, run="bench") as loop:

        async def send(i: int) -> None:
            result = await loop.submit(sample(i))
            if not result.scored:
                raise RuntimeError(result.why())

        return await load(send, seconds)


async def bare(url: str, seconds: float) -> dict[str, float]:
    frames = [bytes(encode(sample(i))) for i in range(RING)]
    waiting: deque[asyncio.Future[None]] = deque()
    async with bare_connect(url + "/v1/stream", max_size=None, compression=None, proxy=None) as ws:

        async def read() -> None:
            async for _ in ws:
                waiting.popleft().set_result(None)

        lock = asyncio.Lock()

        async def send(i: int) -> None:
            answer = asyncio.get_running_loop().create_future()
            async with lock:  # the order of waiting is that of writing
                waiting.append(answer)
                await ws.send(frames[i % RING])
            await answer

        reader = asyncio.create_task(read())
        try:
            return await load(send, seconds)
        finally:
            reader.cancel()


def main() -> None:
    side, url, seconds = sys.argv[1:]
    print(json.dumps(asyncio.run({"client": client, "bare": bare}[side](url, float(seconds)))))


if __name__ == "__main__":
    main()
