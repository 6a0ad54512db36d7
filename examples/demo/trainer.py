"""Reads scores.jsonl of a demo as results, makes rm_scores, and tests for rm_scores in the batch as verl does."""

import json
import sys

from rewardloop.result import Outcome, Result
from rewardloop.scores import rm_scores

with open(sys.argv[1], encoding="utf-8") as lines:
    rows = sorted(map(json.loads, lines), key=lambda row: row["index"])
results = [Result(row["id"], Outcome(row["outcome"]), row["reward_score"], row["reward_extra_info"]) for row in rows]
scores, valid = rm_scores(results)
batch = {"rm_scores": scores}
print(
    json.dumps(
        {
            "dtype": str(scores.dtype),
            "shape": scores.shape,
            "valid": int(valid.sum()),
            "scores": [float(v) if ok else None for v, ok in zip(scores[:, 0], valid[:, 0])],
            "asks": "rm_scores" not in batch.keys(),
        }
    )
)
