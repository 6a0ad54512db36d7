"""Two reward functions, a plain one and an async one, with the parameters of verl's reward functions.

    bin/rewardloop serve -c examples/python_reward/cfg.yaml
"""

import asyncio


def compute_score(solution_str, ground_truth, bonus=0.0):
    """Returns 1 if the last word is the ground truth, else 0, plus bonus, which is a key of the configuration."""
    words = solution_str.split()
    right = bool(words) and words[-1] == ground_truth
    return {"score": float(right) + bonus, "acc": right, "words": len(words)}


async def judge(solution_str, extra_info):
    """Simulates a call of a judge over HTTP: many calls run at the same time in one process."""
    await asyncio.sleep(extra_info.get("seconds", 0.1))
    return min(len(solution_str) / 100, 1.0)
