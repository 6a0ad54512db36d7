"""Samples per second and CPU per sample of the Python client, beside a bare `websockets` client.

    REWARDLOOP_BIN=bin/rewardloop PYTHONPATH=python python python/bench/throughput.py [--rounds 5] [--json out.json]

Four rows, all against a local server of the default configuration with builtin://jpeg_compressibility,
64 samples in flight:

    png 25 KB      files of 25 KB, scored
    raw 786 KB     pictures of 512 x 512 x 3, scored: the server's JPEG encoder is the limit
    wire 25 KB     latents of 25 KB and of 786 KB, which this reward refuses at once: what is left is
    wire 786 KB    the client, the transport and the gateway

In the wire rows a bare client runs in turn: websockets alone, frames made in advance, one message each,
no credit, no futures. The ratio of the two is the figure to hold; medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import connect as bare_connect

import rewardloop
from rewardloop.frame import encode

WINDOW = 64
REWARD = "reward.custom_reward_function.path=builtin://jpeg_compressibility"


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def small_png(size: int) -> bytes:
    """A picture of 16 x 16 pixels as a PNG file of size bytes: the rest is a chunk that readers skip."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = zlib.compress(b"".join(b"\0" + bytes(48) for _ in range(16)))
    parts = [b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)), chunk(b"IDAT", rows)]
    tail = chunk(b"IEND", b"")
    filler = size - sum(map(len, parts)) - len(tail) - 12
    return b"".join([*parts, chunk(b"fiLl", bytes(filler)), tail])


MEDIA = {
    "png 25 KB": lambda: rewardloop.image(small_png(25_000), encoding="png"),
    "raw 786 KB": lambda: rewardloop.image(np.full((512, 512, 3), 127, np.uint8), layout="HWC"),
    "wire 25 KB": lambda: rewardloop.latent(np.zeros(12_500, np.float16), layout="L"),
    "wire 786 KB": lambda: rewardloop.latent(np.zeros((3, 512, 256), np.float16), layout="CHW"),
}


def figures(n: int, seconds: float, cpu: float, taken: list[float]) -> dict[str, float]:
    taken.sort()
    return {
        "samples_per_s": n / seconds,
        "cpu_ms": 1e3 * cpu / n,
        "p50_ms": 1e3 * taken[n // 2],
        "p99_ms": 1e3 * taken[min(n - 1, n * 99 // 100)],
    }


async def ours(url: str, media: rewardloop.Media, n: int, scored: bool) -> dict[str, float]:
    taken: list[float] = []
    async with rewardloop.connect(url, run="bench") as loop:
        window = asyncio.Semaphore(WINDOW)

        async def one(i: int) -> None:
            async with window:
                began = time.perf_counter()
                result = await loop.submit(rewardloop.Sample(id=str(i), prompt="a red cube", media=media))
                taken.append(time.perf_counter() - began)
                if result.scored != scored:
                    raise RuntimeError(result.why())

        begin, cpu = time.perf_counter(), cpu_seconds()
        await asyncio.gather(*(one(i) for i in range(n)))
        return figures(n, time.perf_counter() - begin, cpu_seconds() - cpu, taken)


async def bare(url: str, media: rewardloop.Media, n: int) -> dict[str, float]:
    frames = [bytes(encode(rewardloop.Sample(id=str(i), prompt="a red cube", media=media))) for i in range(n)]
    began, taken = [0.0] * n, []
    async with bare_connect(
        url + "/v1/stream",
        subprotocols=["rewardloop.v1"],
        max_size=None,
        compression=None,
        proxy=None,  # type: ignore[list-item]
    ) as ws:
        await ws.send(json.dumps({"type": "hello", "run": "bare"}))
        await ws.recv()
        window = asyncio.Semaphore(WINDOW)

        async def read() -> None:
            while len(taken) < n:
                message = await ws.recv()
                if isinstance(message, str) and message.startswith('{"type":"result"'):
                    taken.append(time.perf_counter() - began[int(json.loads(message)["id"])])
                    window.release()

        begin, cpu = time.perf_counter(), cpu_seconds()
        reader = asyncio.create_task(read())
        for i, frame in enumerate(frames):
            await window.acquire()
            began[i] = time.perf_counter()
            await ws.send(frame)
        await reader
        return figures(n, time.perf_counter() - begin, cpu_seconds() - cpu, taken)


def median(runs: list[dict[str, float]]) -> dict[str, float]:
    return {k: round(statistics.median(r[k] for r in runs), 3) for k in runs[0]}


def copies() -> dict[str, float]:
    """What 786 KB cost without any transport, in ms: one copy, and the masking of websockets."""
    from websockets.frames import apply_mask  # the one in C, where its wheel has it

    data = bytes(786_432)
    out = {}
    for name, work in {"memcpy_ms": lambda: bytearray(data), "mask_ms": lambda: apply_mask(data, b"mask")}.items():
        begin = time.perf_counter()
        for _ in range(500):
            work()
        out[name] = round(2.0 * (time.perf_counter() - begin), 3)
    return out


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--json", type=Path, help="write the figures to this file")
    options = args.parse_args()
    rows: dict[str, Any] = {}
    with rewardloop.launch(REWARD) as server:
        for name, make in MEDIA.items():
            media, wire = make(), name.startswith("wire")
            n = 4000 if media.nbytes < 100_000 else 1000 if wire else 400
            mine, theirs = [], []
            for _ in range(options.rounds):
                mine.append(asyncio.run(ours(server.url, media, n, scored=not wire)))
                if wire:
                    theirs.append(asyncio.run(bare(server.url, media, n)))
            rows[name] = {"client": median(mine)}
            if wire:
                rows[name]["bare"] = median(theirs)
                ratios = [m["samples_per_s"] / t["samples_per_s"] for m, t in zip(mine, theirs, strict=True)]
                rows[name]["ratio"] = round(statistics.median(ratios), 3)
            print(name, json.dumps(rows[name]), flush=True)
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0], **copies()}
    print("machine", json.dumps(machine))
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "machine": machine}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
