"""The adapters for trainers, called in the form that each trainer has, against a real server: the scores are those of the
samples, in their order; a failed sample is what its trainer has for that and never a 0; and there is one connection for a
process, whatever event loops, forks and pools come. test_trainers_real.py has the trainers' own code call them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import multiprocessing
import os
import sys
import types
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image

import rewardloop
from rewardloop import InputError, RewardloopError, SampleFailedError, _trainers
from rewardloop import ms_swift, slime, trl

from .harness import PATIENCE, binary

#: What is compared with the reference word by word; a sample without a reference fails.
F1 = "reward.custom_reward_function.path=builtin://f1"
PICTURES = "++rewards.pictures.custom_reward_function.path=builtin://jpeg_compressibility"
IMPUTED = "++rewards.imputed.custom_reward_function.path=builtin://f1"
POLICY = "++rewards.imputed.on_sample_failure=group_mean"
RETRIES = "++loop.max_attempts=1"

TRUTH = "the cat sat"
ANSWERS = ["the cat sat", "a cat", "dogs bark"]
SCORES = [1.0, 0.4, 0.0]


class ServedCase(unittest.TestCase):
    """A server for the tests of a class, and a connection of their own for each."""

    server: rewardloop.Server

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = rewardloop.launch(F1, PICTURES, IMPUTED, POLICY, RETRIES, binary=binary())
        cls.addClassCleanup(cls.server.close)

    def setUp(self) -> None:
        self.environ(REWARDLOOP_URL=self.server.url)
        self.addCleanup(disconnect)

    def environ(self, **variables: str) -> None:
        patch = mock.patch.dict(os.environ, variables)
        patch.start()
        self.addCleanup(patch.stop)

    def module(self, name: str, **members: Any) -> None:
        """Has a package of a trainer be there that has what the adapter takes from it."""
        patch = mock.patch.dict(sys.modules)
        patch.start()
        self.addCleanup(patch.stop)
        parts = name.split(".")
        for i in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
        vars(sys.modules[name]).update(members)

    def near(self, want: list[float | None], got: Any) -> None:
        self.assertEqual([w is None for w in want], [g is None for g in got], got)
        np.testing.assert_allclose([w for w in want if w is not None], [float(g) for g in got if g is not None], atol=1e-6)


def disconnect() -> None:
    """Has the next test make its connection itself."""
    for client in list(_trainers._CLIENTS.values()):
        client.close()
    _trainers._CLIENTS.clear()


def picture(value: int = 0) -> Image.Image:
    pixels = np.random.default_rng(value).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


class SharedTest(ServedCase):
    def test_without_an_address_the_variable_is_named(self) -> None:
        self.environ(REWARDLOOP_URL="")
        with self.assertRaisesRegex(InputError, "REWARDLOOP_URL"):
            _trainers.client("x")

    def test_one_connection_for_a_process_and_another_one_after_it_ended(self) -> None:
        first = _trainers.client("x")
        self.assertIs(first, _trainers.client("x"))
        first.close()
        self.assertIsNot(first, _trainers.client("x"))

    def test_a_fork_connects_for_itself(self) -> None:
        reward = trl.Reward()
        self.near(SCORES, reward([TRUTH] * 3, ANSWERS, answer=[TRUTH] * 3))
        forked = multiprocessing.get_context("fork").Pool(1)
        with forked as pool:
            self.near(SCORES, pool.apply_async(reward, ([TRUTH] * 3, ANSWERS), {"answer": [TRUTH] * 3}).get(PATIENCE))
        self.near(SCORES, reward([TRUTH] * 3, ANSWERS, answer=[TRUTH] * 3))

    def test_a_number_stands_in_for_a_score_only_where_somebody_asked_for_it(self) -> None:
        failed = rewardloop.Result("a", rewardloop.Outcome.FAILED, None)
        asked = rewardloop.Result("a", rewardloop.Outcome.FAILED, None, fallback=rewardloop.Fallback("value", -1.0))
        nothing = rewardloop.Result("a", rewardloop.Outcome.FAILED, None, fallback=rewardloop.Fallback("group_mean", None))
        self.assertEqual([None, -1.0, None], [_trainers.number(r) for r in (failed, asked, nothing)])
        self.assertEqual(-1.0, _trainers.required(asked))
        for result in (failed, nothing):
            with self.assertRaises(SampleFailedError):
                _trainers.required(result)

    def test_a_row_becomes_a_sample(self) -> None:
        turns = [{"role": "system", "content": "be brief"}, {"role": "user", "content": [{"type": "text", "text": "2+2?"}]}]
        said = [{"role": "assistant", "content": "4"}]
        made = _trainers.sample(turns, said, {"answer": "4", "level": 2, "source": None, "image": picture()}, uid="g")
        self.assertEqual(("2+2?", "4", "4", "g"), (made.prompt, made.response, made.ground_truth, made.uid))
        self.assertEqual({"level": 2, "prompt": turns}, made.extra_info)
        self.assertEqual(1, len(made.media))  # type: ignore[arg-type]
        self.assertEqual(("", ""), (_trainers.sample([], None).prompt, _trainers.sample([], None).response))

    def test_equal_prompts_of_a_call_are_a_group(self) -> None:
        a, b, c = _trainers.groups(7, ["x", "y", "x"])
        self.assertEqual(a, c)
        self.assertEqual((7, 2, 1), (a["step"], a["group_size"], b["group_size"]))
        self.assertNotEqual(a["uid"], b["uid"])
        self.assertNotEqual(a["uid"], _trainers.groups(7, ["x"])[0]["uid"], "another call is another group")

    def test_rows_take_what_is_a_column(self) -> None:
        got = _trainers.rows({"level": np.array([1, 2]), "name": ["a", "b"], "state": object(), "other": [1]}, 2)
        self.assertEqual([{"level": 1, "name": "a"}, {"level": 2, "name": "b"}], got)
        self.assertIs(int, type(got[0]["level"]))


class TRLTest(ServedCase):
    """f(prompts, completions, completion_ids, **columns, trainer_state, log_extra, log_metric)."""

    def columns(self, **columns: Any) -> dict[str, Any]:
        self.metrics: dict[str, float] = {}
        self.extra: dict[str, list[str]] = {}
        return {
            "completion_ids": [[1], [2], [3]],
            "answer": [TRUTH] * 3,
            "level": [1, 2, 3],
            "trainer_state": SimpleNamespace(global_step=4),
            "log_extra": self.extra.__setitem__,
            "log_metric": self.metrics.__setitem__,
        } | columns

    def test_a_batch_is_scored(self) -> None:
        self.near(SCORES, trl.Reward()([TRUTH] * 3, ANSWERS, **self.columns()))
        self.assertEqual({}, self.extra)
        self.assertEqual(1.0, self.metrics["rewardloop/valid"])
        self.assertAlmostEqual(sum(SCORES) / 3, self.metrics["rewardloop/score"])

    def test_a_conversation_is_scored(self) -> None:
        prompts = [[{"role": "user", "content": "what sat?"}]] * 3
        said = [[{"role": "assistant", "content": a}] for a in ANSWERS]
        self.near(SCORES, trl.Reward()(prompts, said, **self.columns()))

    def test_async_rewards_are_awaited_on_any_loop(self) -> None:
        for _ in range(2):
            async def both() -> list[Any]:
                one, two = trl.AsyncReward(), trl.AsyncReward("imputed")
                return await asyncio.gather(*(f([TRUTH] * 3, ANSWERS, **self.columns()) for f in (one, two)))

            for got in asyncio.run(both()):
                self.near(SCORES, got)

    def test_a_failed_sample_is_none_and_the_reason_is_logged(self) -> None:
        got = trl.Reward()([TRUTH] * 3, ANSWERS, **self.columns(answer=[TRUTH, None, TRUTH]))
        self.near([SCORES[0], None, SCORES[2]], got)
        why = self.extra["rewardloop/why"]
        self.assertEqual(["", ""], [why[0], why[2]])
        self.assertIn("ground_truth", why[1])

    def test_names_are_those_that_trl_logs(self) -> None:
        self.assertEqual("rewardloop", trl.Reward().__name__)
        self.assertEqual("pictures", trl.AsyncReward("pictures").__name__)

    def test_pictures_of_a_row_are_scored(self) -> None:
        got = trl.Reward("pictures")(["p"] * 2, ["x"] * 2, images=[[picture(1)], [picture(2)]])
        self.assertEqual(2, len(set(got)))
        self.assertNotIn(None, got)


class MsSwiftTest(ServedCase):
    """orms[name](args=...), called with (completions, **columns, trainer_state) under an asyncio.run of each step."""

    def reward(self, *profiles: str) -> Any:
        class AsyncORM:
            def __init__(self, args: Any = None, **_: Any) -> None:
                self.args = args

        self.module("swift.rewards", orms={}, AsyncORM=AsyncORM)
        ms_swift.register(*profiles)
        table = sys.modules["swift.rewards"].orms
        self.assertEqual(list(profiles) or ["rewardloop"], list(table))
        made = [f(args=None) for f in table.values()]
        self.assertTrue(all(isinstance(f, AsyncORM) and type(f).__name__ == n for n, f in table.items() for f in [f(args=None)]))
        return made[0]

    def call(self, function: Any, step: int, **columns: Any) -> Any:
        asked = {"role": "user", "content": "what sat?"}
        columns = {
            "messages": [[asked, {"role": "assistant", "content": a}] for a in ANSWERS],
            "solution": [TRUTH] * 3,
            "prompt_id": ["p"] * 3,
            "response_token_ids": [[1]] * 3,
            "trainer_state": SimpleNamespace(global_step=step),
        } | columns
        return asyncio.run(function(ANSWERS, **columns))

    def test_every_step_has_an_event_loop_of_its_own_and_one_connection_lasts(self) -> None:
        function = self.reward()
        for step in range(5):
            self.near(SCORES, self.call(function, step))
        self.assertEqual(1, len(_trainers._CLIENTS))

    def test_the_mean_of_its_group_stands_in_for_a_failed_sample(self) -> None:
        self.near([1.0, 0.5, 0.0], self.call(self.reward(), 0, solution=[TRUTH, None, TRUTH]))

    def test_a_group_without_any_score_is_none(self) -> None:
        self.near([None] * 3, self.call(self.reward("imputed"), 0, solution=[None] * 3))


class SlimeTest(ServedCase):
    """await f(args, sample), and with --group-rm await f(args, samples)."""

    def samples(self, **fields: Any) -> list[Any]:
        return [
            SimpleNamespace(
                prompt=[{"role": "user", "content": "what sat?"}], response=a, label=TRUTH, metadata={"level": 1},
                index=24 + i, group_index=8, remove_sample=False, multimodal_inputs=None, **fields,
            )
            for i, a in enumerate(ANSWERS)
        ]  # fmt: skip

    def args(self, **fields: Any) -> Any:
        return SimpleNamespace(**{"n_samples_per_prompt": 3, "rollout_batch_size": 8, "reward_key": None} | fields)

    def test_samples_are_scored_one_by_one(self) -> None:
        async def all_of_them() -> list[float]:
            return await asyncio.gather(*(slime.reward(self.args(), s) for s in self.samples()))

        self.near(SCORES, asyncio.run(all_of_them()))

    def test_a_group_is_scored_in_order(self) -> None:
        self.near(SCORES, asyncio.run(slime.reward(self.args(), self.samples())))

    def test_a_group_of_another_length_is_refused(self) -> None:
        with self.assertRaisesRegex(InputError, "a group of 2, and n_samples_per_prompt is 3"):
            asyncio.run(slime.reward(self.args(), self.samples()[:2]))

    def test_with_a_reward_key_there_is_a_dict_that_has_it(self) -> None:
        got = asyncio.run(slime.reward(self.args(reward_key="f1"), self.samples()[1]))
        self.near([0.4], [got["f1"]])
        self.assertTrue(got["rewardloop/valid"])

    def test_a_failed_sample_raises_with_its_reason(self) -> None:
        samples = self.samples()
        samples[1].label = None
        with self.assertRaisesRegex(SampleFailedError, "ground_truth"):
            asyncio.run(slime.reward(self.args(), samples))

    def test_where_a_stand_in_was_asked_for_the_sample_is_kept_out_of_the_loss(self) -> None:
        self.environ(REWARDLOOP_PROFILE="imputed")
        samples = self.samples()
        samples[1].label = None
        self.near([1.0, 0.5, 0.0], asyncio.run(slime.reward(self.args(), samples)))
        self.assertEqual([False, True, False], [s.remove_sample for s in samples])

    def test_the_step_is_told_by_the_index(self) -> None:
        args, samples = self.args(), self.samples()
        self.assertEqual([1, 1, 1], [slime._sample(args, s, 3, "").step for s in samples])


if __name__ == "__main__":
    unittest.main()
