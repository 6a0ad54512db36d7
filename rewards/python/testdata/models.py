"""Models for the tests: each scores a batch of samples by their ground truths."""

import json
import os
import signal
import time

batches = []  # sizes of the batches of this process


def word(sample, alone):
    """What the ground truth asks for."""
    truth = sample.ground_truth
    if truth == "raise":
        raise ValueError("a sample that raises")
    if truth == "exit":
        os._exit(3)
    if truth == "kill":
        os.kill(os.getpid(), signal.SIGSEGV)
    if truth == "hang":
        time.sleep(3600)
    if truth == "eat":
        everything = []
        while True:
            everything.append(bytearray(b"x" * (8 << 20)))
    if truth == "nan":
        return float("nan")
    if truth == "none":
        return None
    if truth == "error":
        return KeyError("this one")
    if truth == "import":
        import a_module_that_is_not_there  # noqa: F401
    return {"score": float(truth), "batch": alone}


class Words:
    """Scores by word; the column batch is the size of its batch."""

    def compute_scores(self, samples):
        batches.append(len(samples))
        return [word(sample, len(samples)) for sample in samples]


class Slow:
    """Costs a fixed time for each batch and one for each sample."""

    def __init__(self, fixed=0.04, each=0.002):
        self.fixed, self.each = fixed, each

    def compute_scores(self, samples):
        time.sleep(self.fixed + self.each * len(samples))
        return [{"score": float(s.ground_truth), "batch": len(samples)} for s in samples]


class Small:
    """Has memory for four samples."""

    def compute_scores(self, samples):
        if len(samples) > 4:
            raise MemoryError(f"{len(samples)} samples")
        return [{"score": float(s.ground_truth), "batch": len(samples)} for s in samples]


class Short:
    """Returns a score too few, but for a sample alone."""

    def compute_scores(self, samples):
        return [1.0] * max(1, len(samples) - 1)


class Where:
    """Says which card it sees, and where it runs."""

    def __init__(self, device):
        self.device = device

    def compute_scores(self, samples):
        about = {"card": os.environ["CUDA_VISIBLE_DEVICES"], "device": self.device, "pid": str(os.getpid())}
        time.sleep(0.02)
        return [{"score": 1.0, **about} for _ in samples]


class Single:
    """Scores one sample at a time."""

    def compute_score(self, ground_truth, factor=1):
        return float(ground_truth) * factor


class Async:
    """Has a client that belongs to one event loop."""

    def __init__(self):
        self.loop = None

    async def compute_scores(self, samples):
        import asyncio

        self.loop = self.loop or asyncio.get_running_loop()
        assert self.loop is asyncio.get_running_loop()
        await asyncio.sleep(0)
        return [float(s.ground_truth) for s in samples]


class Dozes:
    """Leaves its device when it is told to."""

    def __init__(self):
        self.told = []

    def sleep(self):
        self.told.append("sleep")

    def wake(self):
        self.told.append("wake")

    def compute_scores(self, samples):
        return [{"score": 1.0, "told": ",".join(self.told), "pid": str(os.getpid())} for _ in samples]


class Refuses:
    def __init__(self, weights):
        pass

    def compute_scores(self, samples):
        return [0.0 for _ in samples]


def columns(prompts, images, ground_truths, factor=1):
    """Lists of the named arguments; pictures of one shape are stacked."""
    shape = list(getattr(images, "shape", [])) or ["list", *[list(i.shape) for i in images]]
    return [{"score": factor * float(g), "shape": json.dumps(shape), "prompt": p} for p, g in zip(prompts, ground_truths)]


def pictures(prompts, images):
    """Pictures of PIL."""
    return [{"score": float(sum(i.getpixel((0, 0)))), "size": f"{i.width}x{i.height} {i.mode}"} for i in images]
