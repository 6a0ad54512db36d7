"""The reward functions beside ocr: faults, a remote judge, and a reward for white paper."""

import asyncio
import hashlib


def _odd(extra_info):
    """One of two answers for each sample; False for the known sample that a start calls functions with."""
    name = extra_info.get("sample")
    return name is not None and hashlib.sha256(name.encode()).digest()[0] % 2 == 1


def half(extra_info):
    """Simulates infrastructure that fails for half of the samples; a hash of the sample's name selects them."""
    if _odd(extra_info):
        raise ConnectionError("the service that this stands for is away")
    return 0.0


def boom():
    """A neighbour's reward that always raises."""
    raise RuntimeError("this reward always raises")


async def judge(extra_info):
    """Simulates a remote judge that takes extra_info.seconds and returns 1 for half of the samples, else 0."""
    await asyncio.sleep(extra_info.get("seconds", 0.0))
    return float(_odd(extra_info))


def paper(solution_image, extra_info):
    """Returns minus 4 times the grain of the picture: 0 if the pixels without ink are white, -8 if they are black."""
    import numpy as np
    import pictures

    digits = np.array([[int(d) for d in extra_info.get("digits", "0000")]])
    return -4.0 * pictures.grain(solution_image[:1], digits)
