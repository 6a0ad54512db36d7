"""The adapters called by the trainers' own code: of ms-swift, OpenRLHF, AReaL, SkyRL and UniRL from their packages, of slime,
ROLL, NeMo-RL and Flow-Factory from checkouts below REWARDLOOP_CHECKOUTS (make test-trainers). test_trl_real.py is TRL's."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import importlib.util
import logging
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from clients import trainers
from rewardloop import _trainers, diffusers_style

from .harness import PATIENCE
from .test_trainers import ANSWERS, SCORES, TRUTH, ServedCase, picture


class TrainerCase(ServedCase):
    """With a trainer's modules, or skipped."""

    modules: tuple[str, ...] = ()
    checkout = ""
    source = ""

    @classmethod
    def setUpClass(cls) -> None:
        trainers.need("torch")
        if cls.checkout:
            path = mock.patch.object(sys, "path", [*sys.path, str(trainers.checkout(cls.checkout) / cls.source)])
            path.start()
            cls.addClassCleanup(path.stop)
        if not cls.checkout:
            trainers.need(*{m.partition(".")[0] for m in cls.modules})
        cls.addClassCleanup(logging.disable, logging.NOTSET)
        logging.disable(logging.CRITICAL)  # they report every try
        for module in cls.modules:
            try:
                importlib.import_module(module)
            except ImportError as err:
                raise unittest.SkipTest(f"SKIPPED: {module} does not import here: {err}") from None
        super().setUpClass()


class MsSwift(TrainerCase):
    """compute_rewards_per_func and compute_advantages."""

    modules = ("swift.rl_core.grpo_algorithm", "swift.rl_core.advantage", "swift.rewards")

    def rewards(self, step: int, truths: list[str | None]) -> Any:
        import torch
        from swift.rewards import orms
        from swift.rl_core.data import GRPOSample
        from swift.rl_core.grpo_algorithm import compute_rewards_per_func

        import rewardloop.ms_swift

        rewardloop.ms_swift.register()
        asked = {"role": "user", "content": "what sat?"}
        samples = [
            GRPOSample(
                messages=[asked, {"role": "assistant", "content": a}],
                extra={"solution": t},
                prompt_id="p",
                request_id=str(i),
                response_token_ids=[1, 2],
            )
            for i, (a, t) in enumerate(zip(ANSWERS, truths, strict=True))
        ]
        state = SimpleNamespace(global_step=step)
        return compute_rewards_per_func(samples, [orms["rewardloop"](args=None)], None, torch.device("cpu"), state)

    def advantages(self, rewards: Any) -> Any:
        import torch
        from swift.rl_core.advantage import compute_advantages

        return compute_advantages(rewards, torch.ones(1), 3)[0].tolist()

    def test_the_connection_lasts_over_steps_with_an_asyncio_run_each(self) -> None:
        for step in range(4):
            self.near(SCORES, self.rewards(step, [TRUTH] * 3)[:, 0].tolist())
        self.assertEqual(1, len(_trainers._CLIENTS))

    def test_a_failed_sample_has_advantage_0_and_its_group_the_others_advantages(self) -> None:
        rewards = self.rewards(0, [TRUTH, None, TRUTH])
        self.near([1.0, 0.5, 0.0], rewards[:, 0].tolist())
        got = self.advantages(rewards)
        self.assertEqual(0, got[1])
        self.assertGreater(got[0], 0)
        self.assertAlmostEqual(got[0], -got[2], places=5)

    def test_ms_swift_takes_none_for_0_which_is_why_the_mean_is_asked_for(self) -> None:
        import torch

        self.assertLess(self.advantages(torch.tensor([[1.0], [torch.nan], [0.5]]))[1], -0.9)


class OpenRLHF(TrainerCase):
    """SingleTurnAgentExecutor with a file of one line."""

    modules = ("openrlhf.utils.agent",)

    def execute(self, answer: str, label: Any) -> dict[str, Any]:
        from openrlhf.utils.agent import SingleTurnAgentExecutor

        class Tokenizer:
            def __call__(self, text: str, **_: Any) -> dict[str, Any]:
                return {"input_ids": [np.array(list(text.encode()))]}

            def decode(self, tokens: Any, **_: Any) -> str:
                return bytes(tokens).decode()

        class Engine:
            async def generate(self, *_: Any, **__: Any) -> Any:
                output = SimpleNamespace(token_ids=list(answer.encode()), text=answer, finish_reason="stop", logprobs=None)
                return SimpleNamespace(outputs=[output])

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "reward_func.py")
            file.write_text("from rewardloop.openrlhf import reward_func\n", encoding="utf-8")
            executor = SingleTurnAgentExecutor(str(file))
            params = SimpleNamespace(max_tokens=64, logprobs=None)
            return asyncio.run(executor.execute("what sat? ", label, params, 512, Tokenizer(), Engine()))

    def test_a_response_is_scored_and_becomes_an_experience(self) -> None:
        import torch

        for answer, score in zip(ANSWERS, SCORES, strict=True):
            got = self.execute(answer, TRUTH)
            self.near([score], got["reward"])
            self.assertEqual((1,), tuple(torch.tensor([got["reward"]]).shape), "as its samples_generator makes it")
            self.assertAlmostEqual(score, got["extra_logs"]["score"])

    def test_a_failed_sample_has_no_reward(self) -> None:
        got = self.execute("a cat", None)
        self.assertEqual((None, None, {}), (got["reward"], got["scores"], got["extra_logs"]))


class AReaL(TrainerCase):
    """AsyncRewardWrapper, whose packages' initialisers want what a trainer wants."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        spec = importlib.util.find_spec("areal")
        if spec is None or spec.origin is None:
            raise unittest.SkipTest("SKIPPED: this Python has no areal: make test-trainers has one that has")
        cls.theirs = trainers.load(Path(spec.origin).parents[1], "areal.api.reward_api", "areal.utils")

    def wrapper(self, **settings: Any) -> Any:
        from rewardloop.areal import reward_fn

        self.addCleanup(self.theirs.AsyncRewardWrapper._atexit_shutdown_all)
        return self.theirs.AsyncRewardWrapper(reward_fn, max_workers=2, **settings)

    def test_its_process_pool_is_answered(self) -> None:
        reward = self.wrapper(timeout_seconds=PATIENCE)

        async def ask() -> list[float]:
            return await asyncio.gather(*(reward("what sat?", a, [1], [2], answer=TRUTH) for a in ANSWERS * 3))

        self.near(SCORES * 3, asyncio.run(ask()))

    def test_a_failed_sample_raises_after_its_tries_and_is_no_0(self) -> None:
        with self.assertRaisesRegex(Exception, "ground_truth"):
            asyncio.run(self.wrapper(timeout_seconds=PATIENCE)("what sat?", "a cat", [1], [2]))


class SkyRL(TrainerCase):
    modules = ("skyrl_gym",)

    def test_its_registry_makes_the_environment(self) -> None:
        import skyrl_gym

        import rewardloop.skyrl

        rewardloop.skyrl.register()
        envs = [
            skyrl_gym.make("rewardloop", env_config={}, extras={"reward_spec": {"ground_truth": TRUTH}, "max_turns": 1})
            for _ in ANSWERS
        ]
        for env in envs:
            self.assertEqual(
                ([{"role": "user", "content": "what sat?"}], {}), env.init([{"role": "user", "content": "what sat?"}])
            )
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            got = list(pool.map(lambda env, said: env.step(said), envs, ANSWERS))
        self.near(SCORES, [g["reward"] for g in got])


class UniRL(TrainerCase):
    """RewardService with the backend."""

    modules = ("unirl.reward.service", "unirl.types.primitives")

    def request(self, n: int, edit: bool = False) -> Any:
        import torch
        from unirl.types.primitives import Images, Texts
        from unirl.types.reward import RewardRequest

        pixels = torch.stack([torch.from_numpy(np.asarray(picture(i)).copy()).permute(2, 0, 1) for i in range(n)])
        images = Images.from_dense(pixels / 255)
        return RewardRequest(
            generation_prompt=Texts(texts=["p"] * n), generated={"image": images}, conditioning={"image": images} if edit else {}
        )

    def service(self, profile: str) -> Any:
        from unirl.reward.service import RewardService

        import rewardloop.unirl

        return RewardService(rewardloop.unirl.Scorer(config=rewardloop.unirl.ScorerSpec(profile), base_device="cpu"))

    def test_pictures_are_scored(self) -> None:
        service = self.service("pictures")
        self.assertEqual(("image", True), (service.preferred_input_kind, service.is_available()))
        got = service.compute_rewards(self.request(3))
        want, _ = diffusers_style.Reward("pictures")([picture(i) for i in range(3)], ["p"] * 3)
        self.near(list(want), got.rewards)
        self.assertEqual([True] * 3, got.successes)
        self.assertEqual(
            got.rewards, service.compute_rewards(self.request(3, edit=True)).rewards, "the edit is the first picture"
        )

    def test_a_failed_sample_is_told_as_such(self) -> None:
        got = self.service("").compute_rewards(self.request(2))
        self.assertEqual([False] * 2, got.successes)
        self.assertTrue(np.isnan(got.rewards).all())


class Slime(TrainerCase):
    """async_rm and batched_async_rm with --custom-rm-path."""

    modules = ("slime.rollout.rm_hub",)
    checkout = "slime"
    args = SimpleNamespace(
        custom_rm_path="rewardloop.slime.reward", rm_type=None, reward_key=None, n_samples_per_prompt=3, rollout_batch_size=4
    )

    def samples(self) -> list[Any]:
        from slime.utils.types import Sample

        return [Sample(group_index=1, index=i, prompt="what sat?", response=a, label=TRUTH) for i, a in enumerate(ANSWERS)]

    def test_samples_and_groups_are_scored(self) -> None:
        from slime.rollout.rm_hub import async_rm, batched_async_rm

        self.near(SCORES, asyncio.run(batched_async_rm(self.args, self.samples())))
        self.near(SCORES, [asyncio.run(async_rm(self.args, s)) for s in self.samples()])

    def test_an_imputed_sample_is_kept_out_of_the_loss(self) -> None:
        from slime.rollout.rm_hub import batched_async_rm

        self.environ(REWARDLOOP_PROFILE="imputed")
        samples = self.samples()
        samples[1].label = None
        self.near([1.0, 0.5, 0.0], asyncio.run(batched_async_rm(self.args, samples)))
        self.assertEqual([False, True, False], [s.remove_sample for s in samples])


class FlowFactory(TrainerCase):
    """get_reward_model_class and RewardProcessor."""

    modules = ("flow_factory.rewards.reward_processor", "flow_factory.rewards.registry")
    checkout, source = "Flow-Factory", "src"

    def test_its_processor_asks_for_pictures(self) -> None:
        import torch
        from flow_factory.hparams import RewardArguments
        from flow_factory.rewards.registry import get_reward_model_class
        from flow_factory.rewards.reward_processor import RewardProcessor
        from flow_factory.samples import T2ISample

        accelerator = mock.Mock(device=torch.device("cpu"), num_processes=1, process_index=0)
        config = RewardArguments.from_dict({"name": "mine", "profile": "pictures", "device": "cpu", "batch_size": 2})
        samples = [T2ISample(prompt="p", image=picture(i)) for i in range(4)]
        want, _ = diffusers_style.Reward("pictures")([picture(i) for i in range(4)], ["p"] * 4)
        for kind in ("PointwiseReward", "GroupwiseReward"):
            model = get_reward_model_class(f"rewardloop.flow_factory.{kind}")(config, accelerator)
            processor = RewardProcessor(accelerator, {"pictures": model}, group_on_same_rank=True, verbose=False)
            self.near(list(want), processor.compute_rewards(samples)["pictures"].tolist())


class NemoRL(TrainerCase):
    """Its tables, and its EnvironmentReturn."""

    modules = ("nemo_rl.environments.utils", "rewardloop.nemo_rl")
    checkout = "RL"

    def test_the_environment_is_found_and_steps(self) -> None:
        import torch
        from hydra.utils import get_object
        from nemo_rl.distributed.ray_actor_environment_registry import get_actor_python_env
        from nemo_rl.environments.interfaces import EnvironmentInterface, EnvironmentReturn
        from nemo_rl.environments.utils import ENV_REGISTRY

        import rewardloop.nemo_rl

        rewardloop.nemo_rl.register()
        name = ENV_REGISTRY["rewardloop"]["actor_class_fqn"]
        self.assertTrue(get_actor_python_env(name))
        self.assertIs(rewardloop.nemo_rl.RewardLoopEnvironment, get_object(name))
        said = [
            [{"role": "user", "content": "what sat?"}, {"role": "assistant", "content": a, "token_ids": torch.zeros(2)}]
            for a in ANSWERS
        ]
        environment = rewardloop.nemo_rl.Environment({})
        self.assertIsInstance(environment, EnvironmentInterface)
        got = environment.step(said, [{"ground_truth": TRUTH}] * 3)
        self.assertIsInstance(got, EnvironmentReturn)
        self.near(SCORES, got.rewards.tolist())
        self.assertEqual([1, 1, 1], got.terminateds.tolist())
        _, metrics = environment.global_post_process_and_metrics({"total_reward": got.rewards})
        self.assertAlmostEqual(sum(SCORES) / 3, metrics["reward"], places=5)


class Roll(TrainerCase):
    """The worker with its DataProto."""

    modules = ("rewardloop.roll",)
    checkout = "ROLL"

    @classmethod
    def setUpClass(cls) -> None:
        logs = tempfile.TemporaryDirectory()
        cls.addClassCleanup(logs.cleanup)
        exporter = types.ModuleType("exporter")  # of traces that nobody sends here
        exporter.OTLPSpanExporter = object  # type: ignore[attr-defined]
        sys.modules.setdefault("opentelemetry.exporter.otlp.proto.grpc.trace_exporter", exporter)
        with mock.patch.dict(os.environ, {"ROLL_LOG_DIR": logs.name}):
            super().setUpClass()

    def test_a_batch_is_scored_in_float32(self) -> None:
        import torch
        from roll.distributed.scheduler.protocol import DataProto

        import rewardloop.roll

        tokenizer = SimpleNamespace(batch_decode=lambda tokens, skip_special_tokens: [ANSWERS[int(t[0])] for t in tokens])
        worker = rewardloop.roll.RewardLoopWorker.__new__(rewardloop.roll.RewardLoopWorker)  # its __init__ wants a cluster
        worker.tokenizer = tokenizer
        columns = {"prompt": ["what sat?"] * 3, "ground_truth": [TRUTH] * 3, "tag": ["gsm8k"] * 3}
        data = DataProto.from_dict(
            tensors={"responses": torch.tensor([[0, 9], [1, 9], [2, 9]])},
            non_tensors={name: np.array(c, object) for name, c in columns.items()},
            meta_info={"global_step": 3},
        )
        got = worker.compute_rewards.__wrapped__(worker, data)
        self.assertIsInstance(got, DataProto)
        self.near(SCORES, got.batch["response_level_rewards"].tolist())
        self.assertEqual(
            {torch.float32}, {got.batch[name].dtype for name in ("token_level_rewards", "response_level_rewards", "scores")}
        )


if __name__ == "__main__":
    unittest.main()
