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

    def test_a_composite_worker_gets_both_of_its_scores_from_two_handles(self) -> None:
        import torch
        from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

        composite = verl_omni_stub.load("verl_omni.agent_loop.composite_agent_loop")
        handles = self.handles("reward.custom_reward_function.path=builtin://jpeg_compressibility")
        made = composite.CompositeAgentLoopWorker.__new__(composite.CompositeAgentLoopWorker)
        made.reward_loop_worker_handles, made.ar_reward_loop_worker_handles = handles[:1], handles[1:]
        image = self.images(1)[0]
        output = composite.CompositeAgentLoopOutput(
            prompt_ids=[1], response_diffusion_output=image, num_turns=1, metrics=AgentLoopMetrics(), extra_fields={}
        )
        row = {"uid": "u", "data_source": "d", "reward_model": {"ground_truth": ""}, "raw_prompt": []}
        asyncio.run(made._compute_score(output, prompts=torch.ones(1, 1), responses=image[None], kwargs=row))
        self.assertEqual(output.reward_score, output.llm_reward_score)
        self.assertEqual(1.0, output.extra_fields["reward_extra_info"]["rewardloop/valid"])

    def test_raise_raises(self) -> None:
        with self.assertRaisesRegex(Exception, "ValueError: odd"):
            self.generate(self.handles(*self.python("fails_when_odd"), on_failed="raise"), self.images(12), ["a"] * 12)


if __name__ == "__main__":
    unittest.main()
