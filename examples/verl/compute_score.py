"""(a) verl's custom reward function, called as verl calls it: one coroutine for each sample.

    python examples/verl/compute_score.py          # starts a server of its own; REWARDLOOP_BIN names the binary
"""

import asyncio

import numpy as np

import rewardloop
from rewardloop.verl import compute_score


async def main(url: str) -> None:
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (3, 64, 64), dtype=np.uint8) // (1 + i) for i in range(4)]
    asked = (
        compute_score(data_source="demo", solution_image=p, ground_truth="", extra_info={}, url=url, run="example")
        for p in pictures
    )
    for scored in await asyncio.gather(*asked):
        print(f"score {scored['score']:.4f}, valid {scored['rewardloop/valid']:g}")


if __name__ == "__main__":
    with rewardloop.launch("reward.custom_reward_function.path=builtin://jpeg_compressibility") as server:
        asyncio.run(main(server.url))
