"""The trainer of the Go package trainer, in Python: trainer_modes.py --url ws://127.0.0.1:8080

A toy policy learns from the rewards of a running reward loop, whose scorer is the stub beside this file, in the six
ways in which a trainer can arrange its step around the rewards. Rewards and policy are equal to those of the trainer
in Go, bit by bit: the same random numbers, and the same operations in the same order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import rewardloop

DIMS = 4  # numbers of the policy, and of a response
SPREAD, RATE, MAX_NORM, EPSILON = 0.25, 0.1, 1.0, 1e-6
BITS = (1 << 64) - 1

#: Each mode: whether samples are submitted as they are finished, whether a mini-batch is learned from before
#: all are scored, and whether the next rollout comes before the wait for this step's rewards.
MODES = {
    "batch": (False, False, False),
    "pipeline": (False, True, False),
    "streaming": (True, False, False),
    "streaming_pipeline": (True, True, False),
    "one_step_off": (True, False, True),
    "both": (True, True, True),
}


class Random:
    """SplitMix64 (Steele, Lea, Flood 2014): the random sequence for a seed and further numbers."""

    def __init__(self, seed: int, *parts: int) -> None:
        self.state = seed & BITS
        for part in parts:
            self.state = self.next() ^ part

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & BITS
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & BITS
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & BITS
        return z ^ z >> 31

    def uniform(self) -> float:
        return (self.next() >> 11) / (1 << 53)


def draw_noise(seed: int, step: int, row: int) -> list[float]:
    """Returns approximately normal numbers: each is a sum of four uniform numbers, with variance 1."""
    r = Random(seed, 1, step, row)
    return [(r.uniform() + r.uniform() + r.uniform() + r.uniform() - 2) * 1.7320508075688772 for _ in range(DIMS)]


def respond(theta: list[float], noise: list[float]) -> str:
    """Returns the policy's response for a noise; six digits round in the same way in every language."""
    return " ".join(f"{t + SPREAD * n:.6f}" for t, n in zip(theta, noise, strict=True))


def advantages(rewards: list[float | None]) -> list[float]:
    """Returns the GRPO advantages of one group: (r - mean) / (std + 1e-6) over the rewards, 0 without a reward."""
    scored = [r for r in rewards if r is not None]
    if not scored:
        return [0.0] * len(rewards)
    mean = fold(scored) / len(scored)
    std = math.sqrt(fold((r - mean) * (r - mean) for r in scored) / len(scored))
    return [0.0 if r is None else (r - mean) / (std + EPSILON) for r in rewards]


def updated(theta: list[float], batch: list[tuple[float, list[float]]]) -> list[float]:
    """Returns the policy after one mini-batch of advantages and noise: their mean product is cut to length 1."""
    gradient = [fold(a * noise[d] for a, noise in batch) / len(batch) for d in range(DIMS)]
    norm = math.sqrt(fold(g * g for g in gradient))
    factor = RATE / norm if norm > MAX_NORM else RATE
    return [t + factor * g for t, g in zip(theta, gradient, strict=True)]


def fold(values: Iterable[float]) -> float:
    """Returns the sum in the given order; the built-in sum gives another result since Python 3.12."""
    total = 0.0
    for v in values:
        total += v
    return total


def arrive(seed: int, step: int, n: int, within: int) -> list[int]:
    """Returns when each row is finished, in nanoseconds: uniform order statistics, with the last one at ``within``."""
    r = Random(seed, 2, step)
    return sorted([int(r.uniform() * within) for _ in range(n)][:-1] + [within])


@dataclass
class Step:
    """One step, with the batch of its updates."""

    step: int
    theta: list[float]  # of the policy that generated it; after the step, what was learned
    noise: list[list[float]]
    rewards: list[float | None]
    advantages: list[float]
    #: When a row was to be submitted and when it was, in seconds since the run began; waited in seconds.
    planned: list[float]
    submitted: list[float]
    waited: float = 0.0
    end: float = 0.0
    state: str = ""
    without: list[str] = field(default_factory=list)
    serving: list[asyncio.Task[None]] = field(default_factory=list)
    chunks: asyncio.Queue[rewardloop.Rewards | None] = field(default_factory=asyncio.Queue)

    @property
    def failed(self) -> int:
        return sum(r is None for r in self.rewards)


class Trainer:
    """One run in one mode. All times in o are in seconds and already scaled."""

    def __init__(self, loop: rewardloop.Loop, mode: str, o: argparse.Namespace) -> None:
        self.loop, self.o = loop, o
        self.streams, self.pipelines, self.ahead = MODES[mode]
        self.rows = o.prompts * o.group
        self.theta = [0.0] * DIMS
        self.steps: list[Step] = []
        self.serving: list[asyncio.Task[None]] = []
        self.began = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self.began

    async def until(self, at: float) -> None:
        """Sleeps until a point in time, even if an earlier sleep ended late."""
        if (left := at - self.now()) > 0:
            await asyncio.sleep(left)

    async def run(self) -> None:
        try:
            await self.train()
        finally:  # nothing of it outlives the run
            for task in self.serving:
                task.cancel()
            await asyncio.gather(*self.serving, return_exceptions=True)

    async def train(self) -> None:
        ahead = await self.generate(1) if self.ahead else None
        for number in range(1, self.o.steps + 1):
            if ahead is None:
                current = await self.generate(number)
            else:
                current = ahead
                if number < self.o.steps:
                    ahead = await self.generate(number + 1)
            await self.until(self.now() + self.o.log_prob)
            end = await self.learn(current)
            await self.until(end + self.o.other)
            current.theta, current.end = self.theta, self.now()
            self.steps.append(current)

    async def generate(self, number: int) -> Step:
        """Runs one rollout to its end; each response is drawn at its own time."""
        n = self.rows
        step = Step(
            step=number, theta=self.theta, noise=[draw_noise(self.o.seed, number, row) for row in range(n)],
            rewards=[None] * n, advantages=[0.0] * n, planned=[0.0] * n, submitted=[0.0] * n,
        )
        self.loop.step(number, n, total=True, ids=[f"{number}/{row}" for row in range(n)])
        start = self.now()
        step.serving = [asyncio.create_task(self.submit(step, start)), asyncio.create_task(self.collect(step))]
        self.serving += step.serving
        await self.until(start + self.o.generation)
        return step

    async def submit(self, step: Step, start: float) -> None:
        try:
            await self.submit_all(step, start)
        except BaseException:
            step.chunks.put_nowait(None)  # nobody waits for what was not submitted
            raise

    async def submit_all(self, step: Step, start: float) -> None:
        arrivals = arrive(self.o.seed, step.step, self.rows, int(self.o.generation * 1e9))
        samples = []
        for row, at in enumerate(arrivals):
            await self.until(start + at / 1e9)
            samples.append(self.sample(step, row))
            if self.streams:
                await self.send(step, row, samples[row], start + at / 1e9)
        if not self.streams:
            await self.until(start + self.o.generation)
            for row, sample in enumerate(samples):
                await self.send(step, row, sample, start + self.o.generation)

    def sample(self, step: Step, row: int) -> rewardloop.Sample:
        least, most = int(self.o.least * 1e9), int(self.o.most * 1e9)
        delay = least + int(Random(self.o.seed, 3, step.step, row).uniform() * (most - least))
        return rewardloop.Sample(
            id=f"{step.step}/{row}", step=step.step, index=row, uid=f"{step.step}/p{row // self.o.group}",
            group_size=self.o.group, prompt=f"prompt {row // self.o.group}",
            response=respond(step.theta, step.noise[row]), ground_truth={"wait_ms": delay / 1e6},
        )

    async def send(self, step: Step, row: int, sample: rewardloop.Sample, planned: float) -> None:
        await self.loop.room()
        step.planned[row], step.submitted[row] = planned, self.now()
        self.loop.submit(sample)  # its result is not awaited: rewards come in chunks

    async def collect(self, step: Step) -> None:
        """Fetches rewards in the background, so that the next chunk is available when an update ends."""
        groups = self.o.prompts // self.o.mini_batches if self.pipelines else 0
        try:
            async for chunk in self.loop.chunks(step.step, groups=groups, order=self.o.order):
                step.chunks.put_nowait(chunk)
        finally:
            step.chunks.put_nowait(None)  # there is no more

    async def learn(self, step: Step) -> float:
        """Updates the policy with every mini-batch, and returns the time at which the last update ended."""
        end = self.now()

        async def update(rows: list[int]) -> None:
            nonlocal end
            self.theta = updated(self.theta, [(step.advantages[row], step.noise[row]) for row in rows])
            end = max(end, self.now()) + self.o.update / self.o.mini_batches
            await self.until(end)

        while True:
            waiting = self.now()
            chunk = await step.chunks.get()
            step.waited += self.now() - waiting
            if chunk is None:
                break
            rows = self.take(step, chunk)
            if self.pipelines and rows:
                await update(rows)
        await asyncio.gather(*step.serving)  # raises what ended them
        if not self.pipelines:
            size = self.rows // self.o.mini_batches
            for first in range(0, self.rows, size):
                await update(list(range(first, first + size)))
        return end

    def take(self, step: Step, chunk: rewardloop.Rewards) -> list[int]:
        """Records a chunk of whole groups; a row without its own reward keeps an advantage of 0."""
        rows = [int(name.partition("/")[2]) for name in chunk.ids]
        for row, score, valid in zip(rows, chunk.rm_scores, chunk.rm_valid, strict=True):
            if valid:
                step.rewards[row] = score
        group = self.o.group
        for first in sorted({row // group * group for row in rows}):
            step.advantages[first : first + group] = advantages(step.rewards[first : first + group])
        step.state = chunk.state
        step.without += [str(m) for m in chunk.without]
        return sorted(rows)


def table(runs: dict[str, Trainer]) -> str:
    """Returns a table of the modes, which also contains the mode with the same rewards and policy, bit by bit."""

    def per_step(mode: str) -> float:
        return runs[mode].steps[-1].end / len(runs[mode].steps)

    def learned(mode: str) -> str:
        for other in ("batch", "one_step_off"):
            if other == mode:
                return "-"
            pairs = zip(runs[mode].steps, runs[other].steps, strict=True)
            if all(a.theta == b.theta and a.rewards == b.rewards for a, b in pairs):
                return "as " + other
        return "otherwise"

    def line(*cells: str) -> str:
        return "  ".join(cell.rjust(width) for cell, width in zip(cells, (18, 6, 6, 7, 17, 6, 15), strict=True))

    lines = [line("mode", "s/step", "waited", "saved", "reward, last step", "failed", "learned")]
    for mode, run in runs.items():
        scored = [r for r in run.steps[-1].rewards if r is not None]
        mean = fold(scored) / max(len(scored), 1)
        saved = f"{100 * (1 - per_step(mode) / per_step('batch')):.1f} %"
        waited = fold(s.waited for s in run.steps) / len(run.steps)
        failed = sum(s.failed for s in run.steps)
        times = f"{per_step(mode):.3f}", f"{waited:.3f}"
        lines.append(line(mode, *times, saved, f"{mean:.4f}", str(failed), learned(mode)))
    return "\n".join(lines)


async def main(o: argparse.Namespace) -> None:
    runs = {}
    for mode in MODES:
        async with rewardloop.connect(o.url, run=f"trainer_modes-{mode}-{time.time_ns()}") as loop:
            runs[mode] = Trainer(loop, mode, o)
            await runs[mode].run()
        if o.json:
            for s in runs[mode].steps:
                print(json.dumps({
                    "mode": mode, "step": s.step, "rewards": s.rewards, "advantages": s.advantages, "theta": s.theta,
                    "failed": s.failed, "state": s.state, "without": s.without, "waited": s.waited, "end": s.end,
                    "planned": s.planned, "submitted": s.submitted,
                }))
    if not o.json:
        print(table(runs))


def options() -> argparse.Namespace:
    """Parses the flags and scales the times."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flag: Callable[..., object] = p.add_argument
    flag("--url", required=True, help="a running reward loop whose scorer is a stub")
    flag("--prompts", type=int, default=32, help="prompts of a step")
    flag("--group", type=int, default=4, help="samples of a prompt")
    flag("--mini-batches", type=int, default=4, help="updates of a step; they divide the prompts")
    flag("--steps", type=int, default=3, help="steps of each mode")
    flag("--seed", type=int, default=1, help="of all randomness")
    flag("--order", choices=("completion", "index"), default="index", help="in which the pipeline modes get groups")
    flag("--scale", type=float, default=600, help="all times, in seconds, are divided by it")
    times = {"generation": 53, "log-prob": 13, "update": 100, "other": 26, "least": 1, "most": 40}
    for name, seconds in times.items():
        flag("--" + name, type=float, default=seconds, help=f"default {seconds}")
    flag("--json", action="store_true", help="a line for each step instead of the table")
    o = p.parse_args()
    for name in times:
        name = name.replace("-", "_")
        setattr(o, name, getattr(o, name) / o.scale)
    if o.prompts % o.mini_batches:
        p.error(f"{o.mini_batches} mini-batches do not divide {o.prompts} prompts")
    return o


if __name__ == "__main__":
    asyncio.run(main(options()))
