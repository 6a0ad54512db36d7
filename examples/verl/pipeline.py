"""(d) Rewards in mini-batches of complete groups, while the others are still being scored. Needs torch.

    python examples/verl/pipeline.py               # starts a server of its own; REWARDLOOP_BIN names the binary
"""

from types import SimpleNamespace

import numpy as np
import torch

import rewardloop
from rewardloop.verl import AsyncRewardAgent


class Batch:
    """The parts of verl's DataProto that are needed."""

    def __init__(self, responses: torch.Tensor, uids: list[str]) -> None:
        self.batch = {"responses": responses}
        self.non_tensor_batch = {"uid": np.array(uids, dtype=object)}

    def __len__(self) -> int:
        return len(self.batch["responses"])

    def __getitem__(self, i: int) -> SimpleNamespace:
        row = {"uid": self.non_tensor_batch["uid"][i], "data_source": "demo", "extra_info": {}}
        return SimpleNamespace(batch={"responses": self.batch["responses"][i]}, non_tensor_batch=row, meta_info={})


if __name__ == "__main__":
    with rewardloop.launch("reward.custom_reward_function.path=builtin://jpeg_compressibility") as server:
        agent = AsyncRewardAgent(url=server.url, run="example")
        pictures = torch.randint(0, 256, (8, 3, 64, 64), dtype=torch.uint8)
        agent.compute_reward_pipeline(Batch(pictures, ["a", "a", "b", "b", "c", "c", "d", "d"]), group_size=2)
        for _ in range(2):
            indices, rm_scores, columns = agent.get(4)
            print(indices, rm_scores[:, 0].tolist(), columns["rewardloop/valid"].tolist())
