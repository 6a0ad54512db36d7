"""TRL's own GRPOTrainer, on a CPU, with a tiny random model, whose rewards come through a reward loop (make test-trainers).

Every number that the trainer gets is that of the function called directly; where the function raises TRL has None, and by its
rule an advantage of 0 and statistics without that completion; and the curve of the server is that of TRL's log.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
import tempfile
import unittest
import urllib.request
from typing import Any
from unittest import mock

import numpy as np

import rewardloop
from rewardloop import _trainers

from . import trl_reward
from .harness import PATIENCE, binary, until

UPDATES, GENERATIONS, PROMPTS = 24, 4, 2
#: Completions are of this many tokens, each a character of the alphabet.
LENGTH = 8
ALPHABET = "abcdefgh"
#: About one completion of six holds it.
FAILS = "h"


def tiny() -> tuple[Any, Any]:
    """A Qwen2 of 20,000 random weights, and a tokenizer of eight letters."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    vocabulary = {c: i for i, c in enumerate([*ALPHABET, "<end>", "<pad>"])}
    tokens = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<end>"))
    tokens.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, eos_token="<end>", pad_token="<pad>")
    torch.manual_seed(7)
    config = Qwen2Config(
        vocab_size=len(vocabulary), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, eos_token_id=8, pad_token_id=9, tie_word_embeddings=False,
    )  # fmt: skip
    return Qwen2ForCausalLM(config), tokenizer


def direct(completion: str, truth: dict[str, str]) -> float | None:
    """The reward without a loop."""
    try:
        return float(trl_reward.compute_score(completion, truth)["score"])
    except ValueError:
        return None


@unittest.skipUnless(importlib.util.find_spec("trl"), "SKIPPED: this Python has no trl: make test-trainers has one that has")
class GRPOTest(unittest.TestCase):
    server: rewardloop.Server

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = rewardloop.launch(
            f"reward.custom_reward_function.path={trl_reward.__file__}",
            "+reward.custom_reward_function.retries=0",
            "+reward.custom_reward_function.extra_keys={length: number}",
            f"++pool.python.interpreter={sys.executable}",
            "++pool.python.processes=1",
            "++loop.workers.breaker_failures=65536",
            binary=binary(),
        )
        cls.addClassCleanup(cls.server.close)

    def train(self, kind: str) -> Any:
        """Trains with a kind of reward; what the function was asked and said is in self.calls."""
        self.run_name = f"trl {kind}"
        import torch
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        from rewardloop.trl import AsyncReward, Reward

        self.calls: list[tuple[list[str], list[Any], list[float | None]]] = []
        calls = self.calls

        class Recorded(Reward):
            def __call__(self, prompts: Any, completions: Any, **columns: Any) -> Any:
                got = super().__call__(prompts, completions, **columns)
                calls.append((completions, columns["ground_truth"], got))
                return got

        class AsyncRecorded(AsyncReward):
            async def __call__(self, prompts: Any, completions: Any, **columns: Any) -> Any:
                got = await super().__call__(prompts, completions, **columns)
                calls.append((completions, columns["ground_truth"], got))
                return got

        torch.manual_seed(11)
        model, tokenizer = tiny()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        truth = {"wanted": "a", "fails": FAILS}
        data = Dataset.from_dict({"prompt": ["ab", "cd", "ef", "ba"], "ground_truth": [truth] * 4})
        arguments = {
            "output_dir": folder.name, "max_steps": UPDATES, "per_device_train_batch_size": GENERATIONS * PROMPTS,
            "num_generations": GENERATIONS, "max_completion_length": LENGTH, "logging_steps": 1, "report_to": "none",
            "save_strategy": "no", "learning_rate": 3e-2, "use_cpu": True, "seed": 11, "disable_tqdm": True, "bf16": False,
            "generation_kwargs": {"min_new_tokens": LENGTH}, "beta": 0.0, "temperature": 1.0,
        }  # fmt: skip
        with mock.patch.dict(os.environ, {"REWARDLOOP_URL": self.server.url, "REWARDLOOP_RUN": self.run_name}):
            trainer = GRPOTrainer(
                model=model,
                reward_funcs=Recorded() if kind == "sync" else AsyncRecorded(),
                args=GRPOConfig(**arguments),
                train_dataset=data,
                processing_class=tokenizer,
            )
            advantages: list[Any] = []
            computed = trainer._generate_and_score_completions

            def watched(inputs: Any) -> Any:
                out = computed(inputs)
                advantages.append(out["advantages"].detach().cpu().numpy().reshape(-1))
                return out

            trainer._generate_and_score_completions = watched
            trainer.train()
            for client in _trainers._CLIENTS.values():
                client.close()
            _trainers._CLIENTS.clear()
        self.advantages = advantages
        return trainer

    def check(self, trainer: Any) -> None:
        self.assertEqual(UPDATES, trainer.state.global_step)
        self.assertEqual(UPDATES, len(self.calls))
        failed = 0
        for (completions, truths, got), advantages in zip(self.calls, self.advantages, strict=True):
            want = [direct(c, t) for c, t in zip(completions, truths, strict=True)]
            self.assertEqual(want, [g if g is None else float(g) for g in got])
            failed += want.count(None)
            self.by_the_rule_of_trl(want, advantages)
        self.assertTrue(0 < failed < UPDATES * GENERATIONS * PROMPTS // 2, failed)
        history = [line for line in trainer.state.log_history if "reward" in line]
        self.assertEqual(UPDATES, len(history))
        for line, (_, _, got) in zip(history, self.calls, strict=True):
            there = [g for g in got if g is not None]
            self.assertAlmostEqual(float(np.mean(there)), line["reward"], places=5)
            self.assertAlmostEqual(float(np.mean(there)), line["rewards/rewardloop/mean"], places=5)
            self.assertAlmostEqual(line["reward"], line["rewardloop/score"], places=5)
        self.assertGreater(np.mean([h["reward"] for h in history[-5:]]), np.mean([h["reward"] for h in history[:5]]) + 0.2)
        self.curve([h["reward"] for h in history])

    def by_the_rule_of_trl(self, want: list[float | None], advantages: Any) -> None:
        """(r − mean) / (std + 1e-4) of the group's own numbers, and 0 for what has none."""
        for start in range(0, len(want), GENERATIONS):
            own = np.array([math.nan if w is None else w for w in want[start : start + GENERATIONS]])
            got = advantages[start : start + GENERATIONS]
            self.assertTrue((got[np.isnan(own)] == 0).all(), (own, got))
            known = own[~np.isnan(own)]
            if len(known) > 1:
                expected = (known - known.mean()) / (known.std(ddof=1) + 1e-4)
                np.testing.assert_allclose(got[~np.isnan(own)], expected, atol=1e-3)

    def curve(self, means: list[float]) -> None:
        """The steps of the run at the server are those of TRL's log, with the same means."""

        def steps() -> dict[int, Any]:
            with urllib.request.urlopen(self.server.url.replace("ws:", "http:") + "/v1/runs", timeout=PATIENCE) as answer:  # noqa: S310
                runs = json.load(answer)["runs"]
            found = [r for r in runs if r["run"] == self.run_name]
            return {s["step"]: s for s in found[0]["steps"]} if found else {}

        until(lambda: set(steps()) >= set(range(1, UPDATES + 1)), f"the steps of {self.run_name}")
        for step, mean in enumerate(means, 1):
            columns = {c["column"]: c for c in steps()[step]["stats"]}
            self.assertAlmostEqual(mean, columns["reward_score"]["mean"], places=5)

    def test_a_function_that_waits(self) -> None:
        self.check(self.train("sync"))

    def test_a_function_that_is_awaited(self) -> None:
        self.check(self.train("async"))


if __name__ == "__main__":
    unittest.main()
