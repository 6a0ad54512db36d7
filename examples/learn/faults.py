"""What is configured beside ocr: faults, a judge elsewhere, and a reward for white paper."""

import asyncio
import hashlib


def _odd(extra_info):
    """One of two answers for each sample; False for the known sample that a start calls functions with."""
    name = extra_info.get("sample")
    return name is not None and hashlib.sha256(name.encode()).digest()[0] % 2 == 1


def half(extra_info):
    """Stands for infrastructure that fails for half of the samples: which ones, their names decide."""
    if _odd(extra_info):
        raise ConnectionError("the service that this stands for is away")
    return 0.0


def boom():
    """A neighbour's reward that never works."""
    raise RuntimeError("this reward always raises")


async def judge(extra_info):
    """Stands for a judge that takes its time elsewhere, extra_info.seconds, and likes every second sample."""
    await asyncio.sleep(extra_info.get("seconds", 0.0))
    return float(_odd(extra_info))


def paper(solution_image, extra_info):
    """Minus the grain of the picture, times 4: 0 where the pixels without ink are white, -8 where they are black."""
    import numpy as np
    import pictures

    digits = np.array([[int(d) for d in extra_info.get("digits", "0000")]])
    return -4.0 * pictures.grain(solution_image[:1], digits)
