"""The visual plug-ins driven by verl-omni's own agent loop worker, reward function and advantage.

Needs verl and a checkout of verl-omni (REWARDLOOP_VERL_OMNI); tests/verl_omni_stub.py says what is replaced.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from . import verl_omni_stub

MISSING = [m for m in ("verl", "ray", "torch", "PIL") if importlib.util.find_spec(m) is None]

#: verl-omni's function as a user would name it, and one that fails for pictures whose first byte is odd.
FUNCTIONS = """
import sys
sys.path[:0] = [{tests!r}]
import os
os.environ["REWARDLOOP_VERL_OMNI"] = {checkout!r}
from tests import verl_omni_stub
theirs = verl_omni_stub.load("verl_omni.utils.reward_score.jpeg_compressibility").compute_score

def compute_score(solution_image):
    return theirs(solution_image)

def words(solution_str, solution_image):
    assert solution_image.shape == (3, 64, 64), solution_image.shape
    if solution_str == "no words":
        raise ValueError("no words at all")
    return float(len(solution_str.split()))

def fails_when_odd(solution_image):
    if int(solution_image[0, 0, 0]) % 2:
        raise ValueError("odd")
    return theirs(solution_image)
"""


@unittest.skipIf(MISSING, f"SKIPPED: not installed: {', '.join(MISSING)}; make test-verl does")
@unittest.skipUnless(verl_omni_stub.available(), "SKIPPED: REWARDLOOP_VERL_OMNI names no checkout of verl-omni")
class WithVerlOmni(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        if not os.environ.get("REWARDLOOP_BIN"):
            raise unittest.SkipTest("SKIPPED: REWARDLOOP_BIN names no binary")
        os.environ.setdefault("REWARDLOOP_PYTHON", sys.executable)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.functions = Path(folder.name) / "functions.py"
        cls.functions.write_text(
            FUNCTIONS.format(tests=str(Path(__file__).resolve().parents[1]), checkout=str(verl_omni_stub.CHECKOUT))
        )
        cls.loops = verl_omni_stub.load("verl_omni.agent_loop.diffusion_agent_loop")

    def handles(self, *overrides: str, **settings: Any) -> list[Any]:
        import rewardloop
        from rewardloop.verl import Settings
        from rewardloop.verl.agents import Handle
        from rewardloop.verl.session import session

        server = rewardloop.launch(*overrides)
        self.addCleanup(server.close)
        chosen = Settings(url=server.url, run=self.id(), **settings)
        self.addCleanup(session(chosen).close)
        return [Handle(chosen, (4, 1), "")] * 2

    def python(self, name: str) -> list[str]:
        return [f"reward.custom_reward_function.path={self.functions}", f"reward.custom_reward_function.name={name}"]

    def generate(self, handles: list[Any], images: Any, uids: list[str], worker: str = "diffusion") -> Any:
        """Scores and packs a batch as the agent loop worker does, generation left out."""
        import torch
        from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

        made = self.loops.DiffusionAgentLoopWorker.__new__(self.loops.DiffusionAgentLoopWorker)
        made.reward_loop_worker_handles = handles
        outputs = [
            self.loops.DiffusionAgentLoopOutput(
                prompt_ids=[1], response_diffusion_output=image, num_turns=1, metrics=AgentLoopMetrics(),
                extra_fields={"prompt_embeds": torch.zeros(4, 8)},
            )
            for image in images
        ]  # fmt: skip

        async def score() -> None:
            await asyncio.gather(
                *(
                    made._compute_score(
                        output, prompts=torch.ones(1, 1, dtype=torch.int64), responses=output.response_diffusion_output[None],
                        kwargs={"uid": uid, "data_source": "jpeg_compressibility", "reward_model": {"ground_truth": ""},
                                "raw_prompt": [{"role": "user", "content": "a cube"}], "rewardloop_group_size": uids.count(uid)},
                    )
                    for output, uid in zip(outputs, uids, strict=True)
                )
            )  # fmt: skip

        asyncio.run(score())
        rows = [
            SimpleNamespace(
                prompt_ids=torch.ones(1, 1, dtype=torch.int64), response_diffusion_output=o.response_diffusion_output[None],
                response_logprobs=None, reward_score=o.reward_score, num_turns=1, metrics=o.metrics,
                extra_fields={"reward_extra_info": o.extra_fields["reward_extra_info"]},
            )
            for o in outputs
        ]  # fmt: skip
        return made._postprocess(rows, input_non_tensor_batch={"uid": np.array(uids, dtype=object)})

    def images(self, n: int) -> Any:
        import torch

        rng = np.random.default_rng(3)
        smooth = [rng.integers(0, 256, (3, 8, 8)).repeat(8, 1).repeat(8, 2) + rng.integers(0, 9, (3, 64, 64)) for _ in range(n)]
        return [torch.from_numpy(s.clip(0, 255).astype(np.uint8)) for s in smooth]

    def theirs(self, images: Any) -> list[float]:
        score = verl_omni_stub.load("verl_omni.utils.reward_score.jpeg_compressibility").compute_score
        return [score(i) for i in images]

    def test_jpeg_by_a_python_host_is_verl_omnis_own(self) -> None:
        images = self.images(8)
        made = self.generate(self.handles(*self.python("compute_score")), images, ["a", "b"] * 4)
        expected = np.array(self.theirs(images), np.float32)
        np.testing.assert_array_equal(made.batch["rm_scores"][:, 0].numpy(), expected)
        np.testing.assert_array_equal(made.non_tensor_batch["acc"].astype(np.float32), expected)
        self.assertTrue(set(made.meta_info["reward_extra_keys"]) - {"acc"})
        self.assertTrue(all(k.startswith("rewardloop/") for k in set(made.meta_info["reward_extra_keys"]) - {"acc"}))

    def test_jpeg_by_the_go_scorer_is_within_a_five_hundredth(self) -> None:
        images = self.images(8)
        made = self.generate(
            self.handles("reward.custom_reward_function.path=builtin://jpeg_compressibility"), images, ["a", "b"] * 4
        )
        np.testing.assert_allclose(made.batch["rm_scores"][:, 0].numpy(), self.theirs(images), rtol=0.002)

    def test_a_failed_sample_has_the_advantage_zero(self) -> None:
        algos = verl_omni_stub.load("verl_omni.trainer.diffusion.diffusion_algos")
        images = self.images(12)
        odd = np.array([int(i[0, 0, 0]) % 2 == 1 for i in images])
        self.assertTrue(0 < odd.sum() < 12)
        uids = ["a"] * 4 + ["b"] * 5 + ["c"] * 3
        made = self.generate(self.handles(*self.python("fails_when_odd"), max_failed_fraction=1), images, uids)
        np.testing.assert_array_equal(made.non_tensor_batch["rewardloop/valid"].astype(bool), ~odd)
        scores = made.batch["rm_scores"]
        self.assertTrue(np.isfinite(scores.numpy()).all())
        np.testing.assert_array_equal(scores[:, 0].numpy()[~odd], np.array(self.theirs(images), np.float32)[~odd])
        for all_at_once in (True, False):
            advantages, _ = algos.compute_flow_grpo_outcome_advantage(scores, np.array(uids), global_std=all_at_once)
            np.testing.assert_allclose(advantages[:, 0].numpy()[odd], 0, atol=1e-4)

    def test_with_mask_the_advantages_are_those_of_the_rows_that_have_scores(self) -> None:
        from rewardloop.verl import masked

        algos = verl_omni_stub.load("verl_omni.trainer.diffusion.diffusion_algos")
        images = self.images(24)
        odd = np.array([int(i[0, 0, 0]) % 2 == 1 for i in images])
        uids = np.array(["a", "b", "c"] * 8, dtype=object)
        handles = self.handles(*self.python("fails_when_odd"), max_failed_fraction=1, on_failed="mask")
        made = self.generate(handles, images, uids.tolist())
        scores, valid = made.batch["rm_scores"], made.non_tensor_batch["rewardloop/valid"]
        np.testing.assert_array_equal(valid.astype(bool), ~odd)
        steps = scores.double().expand(-1, 5)  # one reward at each step of the sampler; in float32 theirs is 1e-5 off
        for everybody in (True, False):
            theirs, _ = algos.compute_flow_grpo_outcome_advantage(steps[~odd], uids[~odd], global_std=everybody)
            masked.remember(uids, valid, scores.numpy())  # what the agent loop manager does with a batch
            config = SimpleNamespace(global_std=everybody, norm_adv_by_std_in_grpo=True)
            ours, _ = masked.flow_grpo(steps, uids, config=config)
            np.testing.assert_allclose(ours[~odd].numpy(), theirs.numpy(), atol=1e-6)
            np.testing.assert_allclose(ours[odd].numpy(), 0, atol=1e-6)  # the mean may be another row's score, too

    def composite(self, handles: list[Any], images: Any, texts: list[Any], uids: list[str]) -> Any:
        """Scores and packs a batch as the composite agent loop worker does, generation left out."""
        import torch
        from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

        loops = verl_omni_stub.load("verl_omni.agent_loop.composite_agent_loop")
        made = loops.CompositeAgentLoopWorker.__new__(loops.CompositeAgentLoopWorker)
        made.reward_loop_worker_handles, made.ar_reward_loop_worker_handles = handles[:1], handles[1:]
        made.tokenizer = SimpleNamespace(pad=lambda ids, **_: {"input_ids": torch.ones(1, 4, dtype=torch.int64),
                                                              "attention_mask": torch.ones(1, 4, dtype=torch.int64)})  # fmt: skip
        made.rollout_config, made.max_prompt_embed_length = SimpleNamespace(prompt_length=4), 4
        outputs = [
            loops.CompositeAgentLoopOutput(
                prompt_ids=[1], response_diffusion_output=image, num_turns=2, metrics=AgentLoopMetrics(),
                extra_fields={"text_encoder_responses": text},
            )
            for image, text in zip(images, texts, strict=True)
        ]  # fmt: skip

        async def score() -> Any:
            return await asyncio.gather(
                *(
                    made._agent_loop_postprocess(
                        output, uid=uid, data_source="d", reward_model={"ground_truth": ""},
                        raw_prompt=[{"role": "user", "content": "a cube"}], rewardloop_group_size=uids.count(uid),
                    )
                    for output, uid in zip(outputs, uids, strict=True)
                )
            )  # fmt: skip

        return made._postprocess(asyncio.run(score()), input_non_tensor_batch={"uid": np.array(uids, dtype=object)})

    def composite_handles(self, *profiles: str, **settings: Any) -> list[Any]:
        """Those of CompositeAgentLoopManager, with words as the profile of the text."""
        from rewardloop.verl.agents import composite_handles
        from rewardloop.verl.session import session

        first = self.handles("reward.custom_reward_function.path=builtin://jpeg_compressibility", *profiles, **settings)[0]
        handles = composite_handles(first.settings, (4, 1), "")
        self.addCleanup(session(handles[1].settings).close)
        return handles

    def test_a_composite_rollout_has_the_scores_of_two_profiles(self) -> None:
        handles = self.composite_handles(
            f"+rewards.words.custom_reward_function.path={self.functions}", "rewards.words.custom_reward_function.name=words",
            llm_profile="words", max_failed_fraction=1,
        )  # fmt: skip
        images = self.images(8)
        uids = ["a", "b"] * 4
        texts = [[f"{'very ' * i}red cube"] if i % 2 else f"{'very ' * i}red cube" for i in range(7)] + ["no words"]
        made = self.composite(handles, images, texts, uids)
        np.testing.assert_allclose(made.batch["rm_scores"][:, 0].numpy(), self.theirs(images), rtol=0.002)
        words = np.arange(2.0, 10)
        words[7] = np.mean(words[[1, 3, 5]])  # it failed: the mean of its group, which pictures' scores are not in
        np.testing.assert_allclose(made.batch["llm_rm_scores"][:, 0].numpy(), words)
        columns = made.non_tensor_batch
        self.assertEqual([1.0] * 8, columns["rewardloop/valid"].tolist(), "of the picture")
        self.assertEqual([1.0] * 7 + [0.0], columns["llm/rewardloop/valid"].tolist(), "of the text")
        self.assertIn("no words at all", columns["llm/rewardloop/error"][7])
        np.testing.assert_allclose(columns["acc"].astype(np.float32), made.batch["rm_scores"][:, 0].numpy())
        np.testing.assert_allclose(columns["llm/acc"].astype(np.float32)[:7], words[:7])
        self.assertTrue(np.isnan(columns["llm/acc"][7]))

    def test_the_manager_gives_its_workers_both_handles_and_declares_both_runs(self) -> None:
        from rewardloop import InputError
        from rewardloop.verl import agents
        from rewardloop.verl.outcome import RewardFailedError

        class Base:
            def __init__(self, config: Any, llm_client: Any, teacher_client: Any, handles: list[Any]) -> None:
                self.handles = handles

        def manager(worker: str) -> Any:
            made = type("Manager", (agents.Streaming, Base), {"workers": ("verl_omni.agent_loop", worker)})
            with mock.patch.object(agents, "workers_class"):
                return made(config, None)

        rewardloop = {"url": "ws://127.0.0.1:1", "run": "r", "llm_profile": "words"}
        config = {"reward": {"rewardloop": rewardloop}}
        with self.assertRaisesRegex(InputError, "llm_profile: Manager has one score for each rollout"):
            manager("DiffusionAgentLoopWorker")
        composite = manager("CompositeAgentLoopWorker")
        self.assertEqual([None, composite.rewardloop], [h.picture for h in composite.handles])
        self.assertEqual([("r", ""), ("r/llm", "words")], [(h.settings.run, h.settings.profile) for h in composite.handles])
        with mock.patch.object(agents, "session") as session:
            composite.declare(3, 8, "train")
        self.assertEqual(["r", "r/llm"], [call.args[0].run for call in session.call_args_list])
        columns = {"rewardloop_split": ["train"] * 4, "rewardloop_step": [3] * 4}
        good, bad = np.ones(4), np.array([1.0, 1, 1, 0])
        said = np.array(["", "", "", "timeout"], dtype=object)
        found = {"rewardloop/valid": good, "rewardloop/error": said, "llm/rewardloop/valid": bad, "llm/rewardloop/error": said}
        with self.assertRaisesRegex(RewardFailedError, "1 of the 4 samples of train step 3 failed.*: llm/timeout"):
            composite.check(SimpleNamespace(non_tensor_batch=found), columns)

    def test_without_a_profile_of_its_own_the_text_is_scored_with_the_other(self) -> None:
        made = self.composite(self.composite_handles(), self.images(2), ["x", "y"], ["a", "a"])
        np.testing.assert_array_equal(made.batch["rm_scores"].numpy(), made.batch["llm_rm_scores"].numpy())
        with self.assertRaisesRegex(Exception, "text_encoder_responses: NoneType, want the text"):
            self.composite(self.composite_handles(), self.images(1), [None], ["a"])

    def test_raise_raises(self) -> None:
        with self.assertRaisesRegex(Exception, "ValueError: odd"):
            self.generate(self.handles(*self.python("fails_when_odd"), on_failed="raise"), self.images(12), ["a"] * 12)


if __name__ == "__main__":
    unittest.main()
