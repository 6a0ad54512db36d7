"""How sure a difference between two arms is, when both met the same seeds or the same strings."""

import numpy as np


def sign_flips(differences: np.ndarray, draws: int = 20_000) -> float:
    """The one-sided p that the mean of paired differences [N] is above 0: a randomisation test that flips signs.

    All 2^N patterns are counted up to N 14, draws random ones beyond; a draw counts itself, so that p is never 0.
    """
    d = np.asarray(differences, np.float64)
    n = len(d)
    if n <= 14:
        patterns = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        return float(((patterns @ d) >= d.sum() - 1e-12).mean())
    patterns = np.random.default_rng(1).integers(0, 2, (draws, n), np.int8) * 2 - 1
    return float((1 + ((patterns @ d) >= d.sum() - 1e-12).sum()) / (draws + 1))
