"""Functions of whole prompt groups for the tests."""

import asyncio
import math
import os
import time


class Told:
    """Says back what it was told: its score is the number in the response."""

    def __init__(self, base=0):
        self.base = base

    def score_group(self, samples, group, last_mean_std, step=0):
        print("group", group.uid, len(samples))
        return [
            {
                "score": self.base + step + float(s.response), "uid": s.uid, "index": s.index, "other": s.values.get("other"),
                "told": {
                    "failed": s.failed, "size": group.size, "missing": group.missing, "absent": group.absent, "run": group.run,
                    "split": group.split, "step": group.step, "last_mean_std": last_mean_std, "same": group.last_mean_std,
                    "samples": [x.id for x in samples], "references": [x.response for x in samples if x.is_reference],
                },
            }
            for s in samples
        ]


class Waits(Told):
    """The same, in an event loop."""

    async def score_group(self, samples, group, last_mean_std, step=0):
        await asyncio.sleep(0)
        return super().score_group(samples, group, last_mean_std, step)


class Unprintable(Exception):
    def __str__(self):
        return 1 / 0


def do(samples):
    """What the first response says."""
    word = samples[0].response
    if word == "raise":
        raise ValueError("no such group")
    if word == "unprintable":
        raise Unprintable
    if word == "hang":
        time.sleep(3600)
    if word == "crash":
        os._exit(9)
    if word == "exit":
        raise SystemExit(3)
    if word == "few":
        return [1.0] * (len(samples) - 1)
    if word == "float":
        return 1.0
    if word == "memory":
        raise MemoryError("no room")
    if word == "huge":
        return [{"score": 1.0, "text": "x" * (1 << 21)}] * len(samples)
    values = {"nan": math.nan, "none": None, "inf": math.inf, "text": "good", "exception": KeyError("mine"), "bad": {"score": "x"}}
    return [values[s.response] if s.response in values else float(s.response) for s in samples]


class Does:
    def score_group(self, samples):
        return do(samples)


def score_group(samples):
    """A function in the place of a class."""
    return [float(len(s.response)) for s in samples]


class AwaitsAndDoes:
    async def score_group(self, samples):
        if samples[0].response == "wait":
            await asyncio.sleep(3600)
        await asyncio.sleep(0.05)
        return do(samples)


class Shows:
    """Brightness of each member's picture, and 0 for the reference, which has none."""

    def score_group(self, samples):
        return [float(s.image.mean()) if s.image is not None else 0.0 for s in samples]


class Rubrics:
    """A score for each rubric: the numbers of the response."""

    def score_group(self, samples):
        def one(sample):
            rubrics = [float(x) for x in sample.response.split()]
            return {"score": sum(rubrics), "comparison_score": rubrics}

        return [one(s) for s in samples]


class Without:
    def compute_score(self, solution_str):
        return 1.0


class Needy:
    def __init__(self, checkpoint):
        self.checkpoint = checkpoint

    def score_group(self, samples, temperature):
        return [temperature for _ in samples]


def router_everything(samples, **options):
    return [float("reward_router_api_key" in options), float(len(options.keys() & {"scale", "reward_router_address"}))]


def router_named(samples, reward_router_api_key):
    return [float(reward_router_api_key == "sesame"), 0.0]


async def router_args(args, samples):
    return [float(hasattr(args, "reward_router_api_key")), float(hasattr(args, "scale")) + float(hasattr(args, "reward_router_address"))]
