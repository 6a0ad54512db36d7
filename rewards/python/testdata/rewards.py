"""Reward functions of the tests, one for each way to answer or to fail."""

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import time


def length(solution_str):
    return len(solution_str)


def everything(**kwargs):
    return {"score": 1, "got": json.dumps(kwargs, sort_keys=True, default=str)}


def filtered(data_source, ground_truth, extra_info, threshold, prompt=""):
    return {"score": threshold, "source": data_source, "truth": json.dumps(ground_truth), "prompt": prompt,
            "n": extra_info.get("n", -1)}


class Vector:
    """What NumPy and torch have of an array with one axis."""

    ndim = 1

    def __init__(self, values):
        self.values = values

    def tolist(self):
        return self.values


def truth(ground_truth):
    """What the ground truth names happens."""
    if ground_truth == "raise":
        raise ValueError("no such answer")
    if ground_truth == "exit":
        sys.exit(7)
    if ground_truth == "os_exit":
        print("about to go", file=sys.stderr)
        os._exit(9)
    if ground_truth == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if ground_truth == "hang":
        while True:
            time.sleep(60)
    if ground_truth == "none":
        return None
    if ground_truth == "nan":
        return float("nan")
    if ground_truth == "list":
        return [1.0, -0.25, True]
    if ground_truth == "steps":
        return {"score": 0.5, "step_scores": (0.1, 2), "acc": True}
    if ground_truth == "steps_alone":
        return {"step_scores": [0.5, 0.25]}, "q", "a"
    if ground_truth == "steps_none":
        return {"score": 0.5, "step_scores": None}
    if ground_truth == "steps_array":
        return Vector([0.5, 1.5])
    if ground_truth == "steps_nan":
        return {"score": 1, "step_scores": [0.5, float("nan"), 1]}
    if ground_truth == "steps_word":
        return {"score": 1, "step_scores": [0.5, None]}
    if ground_truth == "steps_number":
        return {"score": 1, "step_scores": 0.5}
    if ground_truth == "steps_many":
        return [0.0] * 4097
    if ground_truth == "steps_most":
        return [0.25] * 4096
    if ground_truth == "empty":
        return []
    if ground_truth == "score_list":
        return {"score": [1.0, 0.0]}
    if ground_truth == "word":
        return "good"
    if ground_truth == "huge":
        return {"score": 1, "text": "x" * (4 << 20)}
    if ground_truth == "no_score":
        return {"acc": 1}
    if ground_truth == "refused":
        raise ConnectionRefusedError("judge is away")
    if ground_truth == "tuple":
        return {"score": 0.25, "acc": True}, "what was asked", "what was said"
    if ground_truth == "dict":
        return {"score": 0.5, "acc": False, "pred": "42", "n": 2**40, "bad": float("inf"), "lines": ["a", "b"]}
    if ground_truth == "print":
        print("seen")
        print("x" * 5000)
        return 1
    if ground_truth == "flood":
        for _ in range(2000):
            print("y" * 1000)
        return 2
    if ground_truth == "corrupt":
        os.write(3, b"\xff" * 64)
        time.sleep(60)
    if ground_truth == "memory":
        return len(bytearray(8 << 30))
    if ground_truth == "alarm":
        signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("own limit")))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        time.sleep(60)
    return float(ground_truth)


def grandchild(ground_truth):
    """Leaves a process behind and hangs."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(ground_truth, "w") as f:
        f.write(str(child.pid))
    time.sleep(600)


def pixels(solution_image, extra_info):
    kind = type(solution_image).__module__.split(".")[0]
    out = {"score": float(solution_image.astype("f8").sum()), "shape": str(tuple(solution_image.shape)),
           "dtype": str(solution_image.dtype), "kind": kind, "first": float(solution_image.ravel()[1])}
    for name in sorted(extra_info):
        if hasattr(extra_info[name], "shape"):
            out[name] = str(tuple(extra_info[name].shape))
    return out


def first_byte(solution_image):
    return int(solution_image[0, 0, 0])


running, most = 0, 0


async def judge(ground_truth):
    global running, most
    running += 1
    most = max(most, running)
    try:
        print("judging", ground_truth)
        if ground_truth == "stuck":
            time.sleep(600)  # blocks the event loop
        if ground_truth == "stubborn":
            while True:
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    pass
        if ground_truth == "slow":
            await asyncio.sleep(600)
        if ground_truth == "os_exit":
            os._exit(3)
        if ground_truth == "raise":
            raise KeyError("judge")
        await asyncio.sleep(0.1)
        return {"score": float(ground_truth), "most": most}
    finally:
        running -= 1


class Grader:
    made = 0

    def __init__(self):
        Grader.made += 1
        self.calls = 0
        self.logged = []

    def compute_score(self, solution_str):
        self.calls += 1
        return {"score": self.calls, "made": self.made, "logged": len(self.logged)}, "q", "a"

    def log(self, timestamps, queries, results, latencies, group_uids):
        assert queries == ["q"] and len(timestamps) == len(latencies) == len(results) == len(group_uids) == 1
        self.logged.append(results)


class Grouped:
    """Gives failed members of a group, -1 or NaN, the mean of the others; the first score may ask for trouble."""

    def __init__(self):
        self.calls = 0

    def compute_score(self, ground_truth):
        self.calls += 1
        return float(ground_truth)

    def post_process_scores(self, rewards):
        assert all(type(r) is float for r in rewards), rewards
        return GROUPS.get(rewards[0], self.fill)(rewards)

    def fill(self, rewards):
        print("filling", len(rewards), "after", self.calls)
        good = [r for r in rewards if r != -1 and not math.isnan(r)]
        return [r if r in good else sum(good) / len(good) for r in rewards]


def raise_group(rewards):
    raise ValueError("no such group")


GROUPS = {
    100.0: raise_group,
    101.0: lambda rewards: time.sleep(600),
    102.0: lambda rewards: os._exit(9),
    103.0: lambda rewards: rewards[1:],
    104.0: lambda rewards: 0.5,
    105.0: lambda rewards: [None, float("nan"), float("inf"), "good", 10**400, True, 0.25],
    106.0: lambda rewards: Vector([0.5, 1.5]),
    107.0: lambda rewards: sys.exit(3),
}


class AsyncGrouped:
    async def compute_score(self, ground_truth):
        return float(ground_truth)

    async def post_process_scores(self, rewards):
        await asyncio.sleep(0.01)
        if rewards[0] == 101:
            await asyncio.sleep(600)
        return [r - min(rewards) for r in rewards]


def needs_tokenizer(solution_str, reward_model_tokenizer):
    return 1


not_callable = 5
