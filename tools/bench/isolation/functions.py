"""The reward functions that make bench-isolation and bench-capacity call: most fail, each in a way of its own.

They fail where the ground truth is "bad" and give 1.0 where it is not, so that the same
function can be measured with and without its failure.
"""

import asyncio
import os
import pathlib
import signal
import time

MIB = 1 << 20
# allocates stops here, so that a server that limits nothing does not fill the machine.
GUARD_MIB = 1024
GUARD_MESSAGE = "allocated 1 GiB and was not stopped"

# The worker whose folder holds this file fails every sample.
BAD_HERE = pathlib.Path(__file__).with_name("bad").exists()
# The worker whose folder holds this file reads four times as slowly.
SLOW_HERE = pathlib.Path(__file__).with_name("slow").exists()


def raises(ground_truth):
    """Raises an exception."""
    if ground_truth == "bad":
        raise ValueError("this sample cannot be scored")
    return 1.0


def nan(ground_truth):
    """Returns NaN."""
    return float("nan") if ground_truth == "bad" else 1.0


def kills_itself(ground_truth):
    """Ends its process without a word."""
    if ground_truth == "bad":
        os.kill(os.getpid(), signal.SIGSEGV)
    return 1.0


def allocates(ground_truth, memory=None):
    """Allocates until something stops it, at most GUARD_MIB, and then holds it for 1 s."""
    if ground_truth != "bad":
        return 1.0
    held = []
    for _ in range(GUARD_MIB // 16):
        held.append(bytearray(b"x") * (16 * MIB))  # every page is written to
        time.sleep(0.01)
    time.sleep(1)
    raise RuntimeError(GUARD_MESSAGE)


def hangs(ground_truth):
    """Never returns; where it is not to hang it waits as many seconds as the ground truth says."""
    while ground_truth == "bad":
        time.sleep(1)
    time.sleep(float(ground_truth))
    return 1.0


def raises_here(ground_truth):
    """Raises on one worker only."""
    if BAD_HERE:
        raise ValueError("this worker cannot score")
    return 1.0


class Batched:
    """A model that scores batches: 1.0 for each sample that is not bad, and what `bad` does for the others."""

    def bad(self):
        raise ValueError("this sample cannot be scored")

    def score(self, sample):
        return self.bad() if sample.ground_truth == "bad" else 1.0

    def compute_scores(self, samples):
        return [self.score(sample) for sample in samples]


class ModelRaises(Batched):
    """Raises an exception, for the whole batch."""


class ModelNaN(Batched):
    """Says NaN of a sample."""

    def bad(self):
        return float("nan")


class ModelKills(Batched):
    """Ends its process without a word."""

    def bad(self):
        os.kill(os.getpid(), signal.SIGSEGV)


class ModelAllocates(Batched):
    """Allocates as allocates does."""

    def bad(self):
        return allocates("bad")


class ModelHangs(Batched):
    """Waits for the whole batch as hangs does."""

    def score(self, sample):
        return hangs(sample.ground_truth)


class ModelBrightness:
    """The first value of each picture: a model that is quick, and looks at its pictures."""

    def compute_scores(self, samples):
        return [float(sample.image[0, 0, 0]) for sample in samples]


async def waits(ground_truth):
    """Waits as many seconds as the ground truth says."""
    await asyncio.sleep(float(ground_truth))
    return 1.0


def blocks(ground_truth):
    """Does so without letting others run."""
    time.sleep(float(ground_truth))
    return 1.0


def reads(ground_truth):
    """Waits as a reader of pictures computes, so that several machines fit on one."""
    time.sleep(float(ground_truth) * (4 if SLOW_HERE else 1))
    return 1.0


class Agent:
    """The class of the recipe async_reward_agent: a client that blocks, a log, and scores of a group."""

    def compute_score(self, data_source, solution_str, ground_truth, extra_info):
        """Asks a service for as many seconds as the ground truth says; a tuple, as the recipe has it."""
        time.sleep(float(ground_truth))
        return 1.0, "what was asked", "what was answered"

    def post_process_scores(self, scores):
        """Puts the mean of the good ones in the place of the others."""
        good = [s for s in scores if s >= 0]
        mean = sum(good) / len(good) if good else None
        return [s if s >= 0 else mean for s in scores]

    def log(self, timestamps, queries, results, latencies, group_uids):
        """Is called after each call."""
