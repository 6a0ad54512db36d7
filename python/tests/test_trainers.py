"""The adapters for trainers, called in the form that each trainer has, against a real server: the scores are those of the
samples, in their order; a failed sample is what its trainer has for that and never a 0; and there is one connection for a
process, whatever event loops, forks and pools come. test_trainers_real.py has the trainers' own code call them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import multiprocessing
import os
import pickle
import re
import sys
import types
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image

import rewardloop
from rewardloop import (
    InputError,
    RewardloopError,
    SampleFailedError,
    _trainers,
    areal,
    diffusers_style,
    ms_swift,
    openrlhf,
    slime,
    trl,
)

from .harness import PATIENCE, REPOSITORY, binary

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
    pixels = np.random.default_rng(value).integers(0, 256, (48, 48, 3), dtype=np.uint8)
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

    def test_where_a_number_was_asked_for_the_sample_is_kept_out_of_the_loss(self) -> None:
        self.environ(REWARDLOOP_PROFILE="imputed")
        samples = self.samples()
        samples[1].label = None
        self.near([1.0, 0.5, 0.0], asyncio.run(slime.reward(self.args(), samples)))
        self.assertEqual([False, True, False], [s.remove_sample for s in samples])

    def test_the_step_is_told_by_the_index(self) -> None:
        args, samples = self.args(), self.samples()
        self.assertEqual([1, 1, 1], [slime._sample(args, s, 3, "").step for s in samples])


class TorchCase(ServedCase):
    """With what the adapters take of torch, in NumPy."""

    def setUp(self) -> None:
        super().setUp()
        self.module(
            "torch",
            Tensor=type("Tensor", (), {}),
            float32=np.float32,
            tensor=lambda values, dtype=np.float32: np.array(values, dtype),
            zeros_like=lambda like, dtype: np.zeros(like.shape, dtype),
            ones=np.ones,
        )

    def fresh(self, name: str) -> Any:
        """An adapter, imported with the stubs of this test."""
        sys.modules.pop(f"rewardloop.{name}", None)
        return importlib.import_module(f"rewardloop.{name}")


class OpenRLHFTest(TorchCase):
    """reward_func(queries, prompts, labels) → {rewards, scores, extra_logs}."""

    def test_the_response_is_what_follows_the_prompt(self) -> None:
        got = openrlhf.reward_func([f"what sat? {a}" for a in ANSWERS], ["what sat? "] * 3, [TRUTH] * 3)
        self.near(SCORES, got["rewards"])
        self.near(SCORES, got["scores"])
        self.assertEqual(np.float32, got["rewards"].dtype)
        self.assertAlmostEqual(sum(SCORES) / 3, got["extra_logs"]["score"])

    def test_a_failed_sample_raises(self) -> None:
        with self.assertRaisesRegex(SampleFailedError, "ground_truth"):
            openrlhf.reward_func(["what sat? a"], ["what sat? "], [None])


class ARealTest(ServedCase):
    """reward_fn(prompt, completions, prompt_ids, completion_ids, **data) in a process pool."""

    def test_processes_of_a_pool_connect_each_for_itself(self) -> None:
        for method in ("fork", "spawn"):
            with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
                asked = [pool.submit(areal.reward_fn, "what sat?", a, [1], [2], answer=TRUTH) for a in ANSWERS]
                self.near(SCORES, [a.result(PATIENCE) for a in asked])

    def test_the_event_loop_asks_without_a_pool(self) -> None:
        async def both() -> list[float]:
            return await asyncio.gather(*(areal.async_reward_fn("what sat?", a, [1], [2], answer=TRUTH) for a in ANSWERS))

        self.near(SCORES, asyncio.run(both()))

    def test_a_failed_sample_raises(self) -> None:
        with self.assertRaisesRegex(SampleFailedError, "ground_truth"):
            areal.reward_fn("what sat?", "a cat", [1], [2])

    def test_what_takes_too_long_is_no_timeout_error_which_areal_takes_for_a_zero(self) -> None:
        never = mock.Mock()
        never.submit.return_value.result.side_effect = concurrent.futures.TimeoutError
        with mock.patch.object(areal, "client", return_value=never), self.assertRaises(RewardloopError) as raised:
            areal.reward_fn("what sat?", "a cat", [1], [2], answer=TRUTH)
        self.assertNotIsInstance(raised.exception, TimeoutError)

    def test_a_sample_is_over_before_areal_gives_up(self) -> None:
        self.assertLess(areal.DEADLINE + 2, 15)
        self.assertEqual(areal.DEADLINE, areal._sample("p", "c", {}, deadline=areal.DEADLINE).deadline)

    def test_its_workflow_asks_from_the_event_loop(self) -> None:
        class RLVRWorkflow:
            def __init__(self, reward_fn: Any, gconfig: Any) -> None:
                self.reward_fn, self.gconfig, self.async_reward_fn = reward_fn, gconfig, "the pool"

        self.module("areal.workflow.rlvr", RLVRWorkflow=RLVRWorkflow)
        self.addCleanup(vars(areal).pop, "RLVRWorkflow", None)
        made = areal.RLVRWorkflow(gconfig=1)
        self.assertIsInstance(made, RLVRWorkflow)
        self.assertEqual((areal.reward_fn, 1, areal.async_reward_fn), (made.reward_fn, made.gconfig, made.async_reward_fn))


class DiffusersStyleTest(ServedCase):
    """f(images, prompts, metadata) → (scores, {})."""

    def test_arrays_and_pil_images_have_the_same_scores(self) -> None:
        self.environ(REWARDLOOP_PROFILE="pictures")
        images = [picture(i) for i in range(3)]
        scores, extra = diffusers_style.Reward()(images, ["p"] * 3, [{"level": 1}] * 3)
        again, _ = diffusers_style.Reward("pictures")(np.stack([np.asarray(i) for i in images]), ["p"] * 3)
        np.testing.assert_array_equal(scores, again)
        self.assertEqual((np.dtype(np.float32), {}, 3), (scores.dtype, extra, len(set(scores))))

    def test_films_are_scored(self) -> None:
        films = np.random.default_rng(1).integers(0, 256, (2, 3, 16, 16, 3), dtype=np.uint8)
        scores, _ = diffusers_style.Reward("pictures")(films, ["p"] * 2)
        self.assertTrue(np.isfinite(scores).all())

    def test_a_failed_sample_raises(self) -> None:
        with self.assertRaises(SampleFailedError):
            diffusers_style.Reward()([picture()], ["p"])

    def test_as_many_prompts_as_pictures(self) -> None:
        with self.assertRaisesRegex(InputError, "prompts: 1 prompts for 2 images, want one for each"):
            diffusers_style.Reward()([picture()] * 2, ["p"])


class FlowFactoryTest(TorchCase):
    """model(config, accelerator)(prompt=, image=, …) → RewardModelOutput."""

    def model(self, kind: str, **config: Any) -> Any:
        class Model:
            def __init__(self, config: Any, accelerator: Any) -> None:
                self.config, self.accelerator = config, accelerator

        self.module(
            "flow_factory.rewards.abc",
            PointwiseRewardModel=Model,
            GroupwiseRewardModel=type("GroupwiseRewardModel", (Model,), {}),
            RewardModelOutput=SimpleNamespace,
        )
        return getattr(self.fresh("flow_factory"), kind)(SimpleNamespace(**config), None)

    def test_pictures_are_scored_by_the_reward_of_that_name(self) -> None:
        images = [picture(i) for i in range(3)]
        for kind in ("PointwiseReward", "GroupwiseReward"):
            got = self.model(kind, name="pictures")(prompt=["p"] * 3, image=images)
            want, _ = diffusers_style.Reward("pictures")(images, ["p"] * 3)
            self.near(list(want), got.rewards)
        named = self.model("PointwiseReward", name="mine", extra_kwargs={"profile": "pictures"})(prompt=["p"] * 3, image=images)
        self.near(list(want), named.rewards)

    def test_a_failed_sample_raises(self) -> None:
        with self.assertRaises(SampleFailedError):
            self.model("PointwiseReward", name="imputed")(prompt=["p"], video=[[picture(), picture(1)]])


class UniRLTest(TorchCase):
    """compute_rewards(request) → RewardResponse(rewards, successes, errors)."""

    def scorer(self, **config: Any) -> Any:
        class Backend:
            def __init__(self, model_name: str, prompt_source: str) -> None:
                self.model_name, self.prompt_source = model_name, prompt_source

            def prompts(self, request: Any) -> list[str]:
                return ["p"] * request.batch_size

        self.module("unirl.reward.base", RewardBackend=Backend, BaseRewardComponentSpec=object)
        self.module("unirl.types.reward", RewardResponse=SimpleNamespace)
        unirl = self.fresh("unirl")
        return unirl.Scorer(config=unirl.ScorerSpec(**config), base_device="cuda")

    def request(self, **fields: Any) -> Any:
        n = {"batch_size": 3, "images": None, "videos": None, "texts": None, "metadata": None, "group_ids": None}
        return SimpleNamespace(conditioning={}, **n | fields)

    def test_pictures_are_scored(self) -> None:
        images = [picture(i) for i in range(3)]
        got = self.scorer(profile="pictures").compute_rewards(self.request(images=images))
        want, _ = diffusers_style.Reward("pictures")(images, ["p"] * 3)
        self.near(list(want), got.rewards)
        self.assertEqual(([True] * 3, [None] * 3), (got.successes, got.errors))

    def test_a_failed_sample_is_no_success_and_no_number(self) -> None:
        metadata = [{"answer": TRUTH}, None, {"answer": TRUTH}]
        scorer = self.scorer(input_kind="text")
        got = scorer.compute_rewards(self.request(texts=ANSWERS, metadata=metadata))
        self.assertEqual([True, False, True], got.successes)
        self.assertTrue(np.isnan(got.rewards[1]))
        self.assertIn("ground_truth", got.errors[1])
        self.assertTrue(scorer.is_available())


class RollTest(TorchCase):
    """compute_rewards(DataProto) → {token_level_rewards, response_level_rewards, scores}."""

    def worker(self) -> Any:
        class Worker:
            def __init__(self, worker_config: Any) -> None:
                self.worker_config, self.rank_info = worker_config, SimpleNamespace(rank=1, world_size=2)

        self.module("roll.distributed.executor.worker", Worker=Worker)
        self.module(
            "roll.distributed.scheduler.decorator",
            Dispatch=SimpleNamespace(ONE_TO_ALL=0, DP_MP_COMPUTE=1),
            register=lambda **_: lambda method: method,
        )
        self.module("roll.distributed.scheduler.protocol", DataProto=SimpleNamespace(from_dict=lambda tensors: tensors))
        decoded = SimpleNamespace(batch_decode=lambda tokens, skip_special_tokens: [ANSWERS[row[0]] for row in tokens])
        self.module("roll.models.model_providers", default_tokenizer_provider=lambda model_args: decoded)
        return self.fresh("roll").RewardLoopWorker(SimpleNamespace(model_args=None))

    def batch(self, truths: list[Any]) -> Any:
        columns = {"prompt": ["p"] * 3, "ground_truth": truths, "tag": ["gsm8k"] * 3, "rollout_id": ["x"] * 3}
        return SimpleNamespace(
            batch={"responses": np.array([[0, 9], [1, 9], [2, 9]])},
            non_tensor_batch={name: np.array(column, object) for name, column in columns.items()},
            meta_info={"global_step": 5},
        )

    def test_rewards_are_float32(self) -> None:
        got = self.worker().compute_rewards(self.batch([TRUTH] * 3))
        self.near(SCORES, got["response_level_rewards"])
        self.near(SCORES, got["scores"])
        self.assertEqual({np.dtype(np.float32)}, {t.dtype for t in got.values()})
        self.assertEqual(((3, 2), 0.0), (got["token_level_rewards"].shape, got["token_level_rewards"].sum()))

    def test_a_failed_sample_raises(self) -> None:
        with self.assertRaisesRegex(SampleFailedError, "ground_truth"):
            self.worker().compute_rewards(self.batch([TRUTH, None, TRUTH]))


class NemoRLTest(TorchCase):
    """step(message_log_batch, metadata) → EnvironmentReturn."""

    def environment(self) -> Any:
        self.module("ray", remote=lambda actor: actor)
        self.module("nemo_rl.environments.interfaces", EnvironmentInterface=object, EnvironmentReturn=lambda *fields: fields)
        return self.fresh("nemo_rl").Environment({})

    def step(self, metadata: list[Any]) -> Any:
        said = [
            [{"role": "user", "content": "what sat?"}, {"role": "assistant", "content": a, "token_ids": object()}]
            for a in ANSWERS
        ]
        return self.environment().step(said, metadata)

    def test_a_batch_is_scored_and_over(self) -> None:
        metadata = [{"ground_truth": TRUTH}] * 3
        told, same, stops, rewards, over, answers = self.step(metadata)
        self.near(SCORES, rewards)
        self.assertEqual(([1.0] * 3, [None] * 3, None), (list(over), stops, answers))
        self.assertIs(metadata, same)
        self.assertEqual([{"role": "environment", "content": ""}] * 3, told)

    def test_a_failed_sample_raises(self) -> None:
        with self.assertRaisesRegex(SampleFailedError, "ground_truth"):
            self.step([{"ground_truth": TRUTH}, {}, {"ground_truth": TRUTH}])


class SkyRLTest(ServedCase):
    """init(prompt), step(action) in a pool of threads."""

    def environment(self, truth: Any, **config: Any) -> Any:
        self.module("skyrl_gym.envs.base_text_env", BaseTextEnv=type("BaseTextEnv", (), {}), BaseTextEnvStepOutput=dict)
        sys.modules.pop("rewardloop.skyrl", None)
        extras = {"reward_spec": {"ground_truth": truth, "method": "rule"}, "data_source": "gsm8k", "level": 1}
        env = importlib.import_module("rewardloop.skyrl").RewardLoopEnv(config, extras)
        env.init([{"role": "user", "content": "what sat?"}])
        return env

    def test_threads_share_the_connection(self) -> None:
        envs = [self.environment(TRUTH) for _ in ANSWERS]
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            got = list(pool.map(lambda env, said: env.step(said), envs, ANSWERS))
        self.near(SCORES, [g["reward"] for g in got])
        self.assertEqual(([True] * 3, [[]] * 3), ([g["done"] for g in got], [g["observations"] for g in got]))
        self.assertEqual(1, len(_trainers._CLIENTS))

    def test_a_failed_sample_raises(self) -> None:
        with self.assertRaisesRegex(SampleFailedError, "ground_truth"):
            self.environment(None).step("a cat")


class ErrorTest(unittest.TestCase):
    def test_every_error_comes_out_of_a_process_pool_as_it_went_in(self) -> None:
        made: list[Exception] = [
            SampleFailedError(rewardloop.Result("a", rewardloop.Outcome.FAILED, None)),
            InputError("is empty", field="url"),
            rewardloop.ConnectError("ws://a", "nothing listens", "start it"),
            rewardloop.HelloRefusedError("ws://a", "draining", "it stops"),
            rewardloop.UnreadError(1, 2),
            rewardloop.LostError("gone"),
        ]
        for err in made:
            again = pickle.loads(pickle.dumps(err))  # noqa: S301
            self.assertEqual((type(err), str(err), vars(err)), (type(again), str(again), vars(again)))


class LengthTest(unittest.TestCase):
    def test_an_adapter_has_at_most_60_lines(self) -> None:
        folder = REPOSITORY / "python" / "rewardloop"
        for name in re.findall(r"\w+", " ".join(re.findall(r"^   10  (.*?) {2}", rewardloop.__doc__ or "", re.MULTILINE))):
            if name != "verl":
                lines = (folder / f"{name}.py").read_text(encoding="utf-8").count("\n")
                self.assertLessEqual(lines, 60, name)


if __name__ == "__main__":
    unittest.main()
