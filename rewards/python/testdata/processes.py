"""Reward functions of the tests that look at processes: their memory, their children, their threads."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time

barrier = threading.Barrier(256)


class Agent:
    """The class of the recipe async_reward_agent: a client that blocks, one object for all threads."""

    def __init__(self):
        self.logged = []

    def compute_score(self, data_source, solution_str, ground_truth, extra_info=None):
        if ground_truth == "together":
            barrier.wait(30)  # returns when 256 calls are here
        print("asked by", threading.current_thread().name, solution_str)
        return 1.0, "query", f"answer to {solution_str}"

    def post_process_scores(self, scores):
        return scores

    def log(self, timestamps, queries, results, latencies, group_uids):
        self.logged.append(results)


class Plain:
    """An agent without post_process_scores."""

    compute_score = Agent.compute_score


def threaded(ground_truth):
    """In threads: waits, hangs, or says where it is and how long it took, in seconds."""
    began = time.monotonic()
    if ground_truth.startswith("hang"):
        if ground_truth[4:]:
            open(ground_truth[4:], "w").close()  # it has begun
        time.sleep(600)
    if ground_truth.startswith("wait"):
        time.sleep(float(ground_truth[4:]))
    return {"score": 1.0, "pid": os.getpid(), "took": time.monotonic() - began}


def quick(ground_truth):
    if ground_truth == "hang":
        time.sleep(600)
    return {"score": 1.0, "pid": os.getpid()}


async def gentle(ground_truth):
    await asyncio.sleep(float(ground_truth))
    return {"score": 1.0, "pid": os.getpid()}


async def poison(ground_truth):
    """One word ends the process while the others are in it."""
    await asyncio.sleep(0.2)
    if ground_truth == "poison":
        os._exit(5)
    return {"score": 1.0, "pid": os.getpid()}


def leave_behind(ground_truth):
    """Starts processes in sessions of their own, one of them by a process that is gone, and then does the second word."""
    file, then = ground_truth.split("|")
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    first = subprocess.Popen(sleep, start_new_session=True, env={})
    twice = "import subprocess, sys; print(subprocess.Popen(%r, start_new_session=True, stdout=-3, stderr=-3).pid)" % sleep
    second = subprocess.run([sys.executable, "-c", twice], capture_output=True, start_new_session=True, text=True)
    with open(file, "w") as f:
        f.write(f"{first.pid} {second.stdout.strip()}")
    if then == "exit":
        os._exit(4)
    if then == "hang":
        time.sleep(600)
    return 1.0


def allocate(ground_truth):
    """Takes memory without end, itself or in a child, after what it is asked first."""
    if ground_truth == "child":
        code = "x = []\nwhile True: x.append(bytearray(b'1' * (4 << 20)))"
        return subprocess.run([sys.executable, "-c", code], start_new_session=True).returncode
    if ground_truth == "itself":
        kept = []
        while True:
            kept.append(bytearray(b"1" * (4 << 20)))
    return 1.0


def reserve(ground_truth):
    """Has far more address space than memory, as CUDA does."""
    import mmap

    return float(len(mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)) > 0)


def killed(ground_truth):
    os.kill(os.getpid(), signal.SIGKILL)


def about(ground_truth):
    """What the process is given: the variables of the environment that the ground truth names, and its rank."""
    with open("/proc/self/oom_score_adj") as score:
        return {"score": float(os.nice(0)), "oom": int(score.read()),
                "env": json.dumps({name: os.environ.get(name) for name in ground_truth.split()})}


class Broken:
    def __init__(self):
        raise RuntimeError("the card is busy")


def router(ground_truth, reward_router_address, reward_router_api_key="none"):
    return {"score": 1.0, "address": reward_router_address, "key": reward_router_api_key}


def everything(**kwargs):
    return {"score": 1.0, "names": " ".join(sorted(kwargs))}
