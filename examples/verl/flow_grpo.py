"""(e) A reward function for flow_grpo's multi_score. Needs torch.

    python examples/verl/flow_grpo.py              # starts a server of its own; REWARDLOOP_BIN names the binary
"""

import os

import torch

import rewardloop
from rewardloop.flow_grpo import scorer_remote

if __name__ == "__main__":
    with rewardloop.launch("reward.custom_reward_function.path=builtin://jpeg_compressibility") as server:
        os.environ["REWARDLOOP_URL"] = server.url
        score = scorer_remote()("cuda")  # as multi_score does: score_functions[name](device)
        print(score(torch.rand(4, 3, 64, 64), ["a red cube"] * 4, [{}] * 4))
