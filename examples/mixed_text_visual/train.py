"""One step of text, pictures and a video: train.py ws://127.0.0.1:8080

All samples use one connection, and their results have the same keys, so that they can form one batch.
"""

import sys

import numpy as np

import rewardloop

rng = np.random.default_rng(7)


def noise(*shape: int) -> np.ndarray:
    """Simulates the output of a model."""
    return rng.integers(0, 256, shape, dtype=np.uint8)


def text(i: int, response: str) -> rewardloop.Sample:
    return rewardloop.Sample(id=f"sum-{i}", step=1, uid="sum", group_size=2, data_source="openai/gsm8k",
                             prompt="What is 3 + 4?", response=response, ground_truth="7")


def seen(name: str, data_source: str, media: rewardloop.Media) -> rewardloop.Sample:
    return rewardloop.Sample(id=name, step=1, data_source=data_source, prompt="a quiet sea", media=media)


samples = [
    text(0, "3 + 4 = 7\n#### 7"),
    text(1, "#### 8"),
    seen("poster", "pictures", rewardloop.image(noise(128, 128, 3), layout="HWC")),
    seen("clip", "clips", rewardloop.video(noise(8, 3, 64, 64), layout="TCHW", fps=8)),
]
with rewardloop.Client(sys.argv[1], run="mixed") as loop:
    results = loop.score(samples, timeout=60)

# One score for each sample, as diffusion trainers keep them.
scores, valid = rewardloop.rm_scores(results)
print("rm_scores", scores.shape, scores.dtype, "valid", int(valid.sum()), "of", len(results))

# At the last token of each response, as text trainers keep them; rows of pictures have one place.
lengths = [17, 6, 1, 1]
mask = np.arange(max(lengths)) < np.array(lengths)[:, np.newaxis]
tokens, _ = rewardloop.rm_scores(results, response_mask=mask)
print("rm_scores", tokens.shape, "in columns", [int(row.nonzero()[0][-1]) for row in mask])

# One key set: a component that is not for a sample is null there, and never absent.
columns = {frozenset(r.reward_extra_info) for r in results}
print("key sets", len(columns))
for r in results:
    values = {name: r.reward_extra_info[f"reward/{name}"] for name in ("answer", "brief", "small")}
    print(r.id, round(r.score(), 3), {k: v if v is None else round(v, 3) for k, v in values.items()})
