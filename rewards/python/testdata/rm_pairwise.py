"""RM-Gallery's pairwise manager, restated: all pairs are compared once, and a method makes scores of who beat whom.

The judge is the responses themselves: "2|wl.t" is participant 2, who beats participant 0, loses to 1 and ties with
3. In validation the manager has appended the reference, extras[0]["y"][0]["content"], which the others are held
against (comparison_score). Where RM-Gallery draws, for ties of equal orders and for the order of Elo's matches,
this takes the draw of rewards/compare, whose keys are digests of the ids.
"""

import hashlib
import itertools
import struct

FLAT = 1e-6


def beats(a, b):
    """1: a is better, -1: b is better, 0: a tie."""
    mine = a.split("|")[1]
    return {"w": 1, "l": -1, "t": 0}[mine[int(b.split("|")[0])]]


def key(uid, name):
    return struct.unpack("<Q", hashlib.sha256(f"{uid}\0{name}".encode()).digest()[:8])[0]


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) % 2**64
    return x ^ x >> 31


def pair_key(a, b):
    return mix(mix(min(a, b)) ^ max(a, b))


def min_max(values):
    low, high = min(values), max(values)
    return [2 * (v - low) / (high - low) - 1 if high - low >= FLAT else 0.0 for v in values]


def by_largest(values):
    largest = max(abs(v) for v in values)
    return [v / largest if largest >= FLAT else 0.0 for v in values]


def winrate(table, keys):
    return min_max([sum(o > 0 for j, o in enumerate(row) if j != i) / (len(table) - 1) for i, row in enumerate(table)])


def copeland(table, keys):
    return by_largest([sum(row) for row in table])


def tournament(table, keys):
    return [sum(row) / (len(table) - 1) for row in table]


def dgr(table, keys):
    """The cheapest set of comparisons that leaves no cycle is taken out; net wins of the rest."""
    n = len(table)
    wins = [(i, j) for i in range(n) for j in range(n) if table[i][j] > 0]
    price = {(i, j): 1000 * 2**36 + (pair_key(keys[i], keys[j]) >> 35) for i, j in wins}
    place = min(
        ({p: at for at, p in enumerate(order)} for order in itertools.permutations(range(n))),
        key=lambda place: sum(price[i, j] for i, j in wins if place[i] > place[j]),
    )
    kept = [(i, j) for i, j in wins if place[i] < place[j]]
    return by_largest([sum(i == p for i, _ in kept) - sum(j == p for _, j in kept) for p in range(n)])


def elo(table, keys):
    ratings = [1500.0] * len(table)
    byKey = sorted(range(len(table)), key=lambda i: keys[i])
    matches = sorted(itertools.combinations(byKey, 2), key=lambda pair: pair_key(keys[pair[0]], keys[pair[1]]))
    for _ in range(100):
        before = list(ratings)
        for a, b in matches:
            won, gap = (table[a][b] + 1) / 2, ratings[b] - ratings[a]
            ratings[a] += 32 * (won - 1 / (1 + 10 ** (gap / 400)))
            ratings[b] += 32 * (1 - won - 1 / (1 + 10 ** (-gap / 400)))
        if max(abs(x - y) for x, y in zip(ratings, before)) < 0.01:
            break
    return min_max(ratings)


METHODS = {"winrate": winrate, "copeland": copeland, "tournament": tournament, "dgr": dgr, "elo": elo}


def compute_score(prompt, responses, extras=None, method="dgr", **kwargs):
    table = [[beats(a, b) if a != b else 0 for b in responses] for a in responses]
    keys = [key(extra["uid"], "\0" + extra["id"]) for extra in extras]
    info = {}
    reference = (extras[0].get("y") or [{}])[0].get("content")
    if reference == responses[-1]:
        keys[-1] = key(extras[0]["uid"], "reference")
        info["comparison_score"] = [row[-1] for row in table]
    return METHODS[method](table, keys), info


def spread(prompt, responses, extras=None, **kwargs):
    """How much rewards differed within the groups of the step before; -1 in the first step."""
    last = kwargs.get("last_mean_std")
    return [-1.0 if last is None else last] * len(responses), {"told": ["last_mean_std" in kwargs] * len(responses)}
