"""The examples run as their READMEs say."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest

import rewardloop

from .harness import PATIENCE, REPOSITORY, binary, serve


class ExampleTest(unittest.TestCase):
    def test_python_streaming(self) -> None:
        with serve() as server:
            done = subprocess.run(
                [sys.executable, REPOSITORY / "examples" / "python_streaming" / "train.py", server.url, "2"],
                env={**os.environ, "PYTHONPATH": str(REPOSITORY / "python")},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(
            done.stdout, r"^step 1: 32 of 32 scored, mean -0\.\d+, largest advantage \d\.\d+\nstep 2: 32 of 32 scored"
        )

    def test_python_reward(self) -> None:
        folder = REPOSITORY / "examples" / "python_reward"
        with rewardloop.launch(
            "pool.python.interpreter=" + sys.executable, config=folder / "cfg.yaml", binary=binary()
        ) as server:
            with rewardloop.Client(server.url, run="example") as loop:
                samples = [
                    rewardloop.Sample(id=f"{i}", response=response, ground_truth="4", extra_info={"seconds": 0.01})
                    for i, response in enumerate(["two and two make 4", "two and two make 5", "", "4"])
                ]
                right, wrong, empty, short = loop.score(samples, timeout=PATIENCE)
        for result, score, words in (
            (right, 1 + 0.2 * 0.18, 5),
            (wrong, 0.2 * 0.18, 5),
            (empty, 0, 0),
            (short, 1 + 0.2 * 0.01, 1),
        ):
            self.assertAlmostEqual(score, result.score())
            self.assertEqual(words, result.reward_extra_info["reward/answer/words"])
            self.assertEqual(score >= 1, result.reward_extra_info["reward/answer/acc"])


if __name__ == "__main__":
    unittest.main()
