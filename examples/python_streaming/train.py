"""A training step in miniature: train.py ws://127.0.0.1:8080 [steps]

Eight prompts, four samples each. Every sample is submitted as soon as its "rollout" ends, and is scored while the
others are still being generated. At the end of the step the rewards of the whole batch are available.
"""

import asyncio
import sys

import numpy as np

import rewardloop

PROMPTS, SAMPLES = 8, 4


async def rollout(step: int, index: int) -> np.ndarray:
    """Simulates a diffusion model: 256 x 256 pixels of random roughness, after a random time."""
    rng = np.random.default_rng([step, index])
    await asyncio.sleep(rng.uniform(0, 0.2))
    rough = rng.integers(0, 2 ** rng.integers(1, 9), (256, 256, 3))
    return rough.astype(np.uint8)


async def one(loop: rewardloop.Loop, step: int, index: int) -> rewardloop.Result:
    pixels = await rollout(step, index)
    return await loop.submit(rewardloop.Sample(
        id=f"{step}/{index}", step=step, index=index, uid=f"prompt{index // SAMPLES}", group_size=SAMPLES,
        prompt="a quiet sea", media=rewardloop.image(pixels, layout="HWC"),
    ))


async def main(url: str, steps: int) -> None:
    async with rewardloop.connect(url, run="example") as loop:
        for step in range(1, steps + 1):
            loop.step(step, expected=PROMPTS * SAMPLES)
            results = await asyncio.gather(*(one(loop, step, i) for i in range(PROMPTS * SAMPLES)))
            scores, valid = rewardloop.rm_scores(results, on_failed="raise")
            groups = scores.reshape(PROMPTS, SAMPLES)
            advantages = (groups - groups.mean(1, keepdims=True)) / (groups.std(1, keepdims=True) + 1e-6)
            print(f"step {step}: {valid.sum()} of {len(results)} scored, mean {scores.mean():.4f}, "
                  f"largest advantage {advantages.max():.2f}")


asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3))
