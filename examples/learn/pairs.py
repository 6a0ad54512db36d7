"""The significance of a difference between two arms with the same seeds or the same strings."""

import numpy as np


def sign_flips(differences: np.ndarray, draws: int = 20_000) -> float:
    """Returns the one-sided p of a mean above 0 of paired differences [N]: a randomisation test with flipped signs.

    Up to N 14 all 2^N patterns are counted, beyond that ``draws`` random ones and the observed one, so that p is never
    0.
    """
    d = np.asarray(differences, np.float64)
    n = len(d)
    if n <= 14:
        patterns = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return float(((patterns @ d) >= d.sum() - 1e-12).mean())
    patterns = np.random.default_rng(1).integers(0, 2, (draws, n), np.int8) * 2 - 1
    return float((1 + ((patterns @ d) >= d.sum() - 1e-12).sum()) / (draws + 1))
