"""Rewards that multiply with torch, whose profiles show it."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "stubs"))  # behind a torch that is installed
import torch  # noqa: E402

STUB = not hasattr(torch, "__version__")


def multiply(solution_str):
    score = torch.mm(torch.tensor([[float(len(solution_str))]]), torch.tensor([[2.0]])).item()
    return {"score": score, "stub": STUB, "profiled": torch.autograd._profiler_enabled()}


async def waiting(solution_str):
    return multiply(solution_str)


class Model:
    def compute_scores(self, samples):
        return [multiply(sample.solution_str) for sample in samples]
