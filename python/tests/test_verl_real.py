"""The plug-ins driven by verl's own code, with Ray: generation is a stub, everything after it is verl's.

Needs verl 0.9.0 (make test-verl installs it) and a binary that runs Python reward functions.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import harness

MISSING = [
    m for m in ("verl", "ray", "torch", "tensordict", "transformers", "transfer_queue") if importlib.util.find_spec(m) is None
]
PLAIN = [
    "reward.custom_reward_function.path=pkg://verl.utils.reward_score",
    "reward.custom_reward_function.name=default_compute_score",
]

#: gsm8k by verl's own function, except where the answer is 5: that sample fails.
FAILS_AT_FIVE = """
from verl.utils.reward_score import default_compute_score

def compute_score(data_source, solution_str, ground_truth, extra_info):
    if solution_str.endswith(" 5"):
        raise ValueError("five is right out")
    return default_compute_score(data_source, solution_str, ground_truth, extra_info)
"""

#: The answers 0, 1 and 4 have no score; the others have the same one, or in prompts whose index 3 divides a different one.
THIRDS = """
def compute_score(solution_str, extra_info):
    answer = int(solution_str.split()[-1])
    if answer < 2 or answer == 4:
        raise ValueError("no score for it")
    return 0.1 * answer if extra_info["index"] % 3 == 0 else 0.1
"""


#: Two steps, of which the group's end has to know the value where the index is 1 in 4.
PROCESS = """
def compute_score(extra_info):
    if extra_info["index"] % 4 == 1:
        raise ValueError("no steps here")
    return [0.1 * (1 + extra_info["index"]), 0.3]
"""

#: Of the answers 0 to 6 the first function fails at 5 and 6, and the second has no number of words at 0.
COLUMNS = """
reward:
  reward_functions:
    right: {{path: {file}, name: right, required: true}}
    tidy: {{path: {file}, name: tidy, weight: 0.5}}
"""
COLUMN_FUNCTIONS = """
def right(solution_str):
    answer = int(solution_str.split()[-1])
    if answer > 4:
        raise ValueError("no such answer")
    return float(answer)

def tidy(solution_str, extra_info):
    answer = int(solution_str.split()[-1])
    words = float("nan") if answer == 0 else float(len(solution_str.split()) * (1 + extra_info["index"] % 5))
    return {"score": 1.0 / (1 + answer), "words": words}
"""
KEYS = ["reward/right", "reward/tidy", "reward/tidy/words"]


@unittest.skipIf(MISSING, f"SKIPPED: not installed: {', '.join(MISSING)}; make test-verl does")
class WithVerl(unittest.TestCase):
    folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def setUpClass(cls) -> None:
        if not os.environ.get("REWARDLOOP_BIN"):
            raise unittest.SkipTest("SKIPPED: REWARDLOOP_BIN names no binary")
        import ray

        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        path = os.pathsep.join([str(harness.REPOSITORY / "python"), os.environ.get("PYTHONPATH", "")])
        os.environ.setdefault("REWARDLOOP_PYTHON", sys.executable)
        ray.init(
            num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False,
            runtime_env={"env_vars": {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}},
        )  # fmt: skip
        cls.addClassCleanup(ray.shutdown)
        from . import verl_stub

        cls.stub = verl_stub
        cls.tokenizer = verl_stub.save_tokenizer(Path(cls.folder.name))

    def serve(self, *overrides: str, config: Path | None = None) -> str:
        import rewardloop

        timeout = 5 * harness.PATIENCE  # Python imports verl
        server = rewardloop.launch(*overrides, "reward.concurrency=128", config=config, timeout=timeout)
        self.addCleanup(server.close)
        return server.url

    def config(self, **settings: Any) -> Any:
        return self.stub.configuration(self.tokenizer, Path(self.folder.name) / "agents.yaml", **settings)

    def by_manager(self, config: Any, rows: Any) -> Any:
        """The batch as verl's RewardLoopManager scores it after generation (colocated)."""
        from verl.experimental.reward_loop import RewardLoopManager

        manager = RewardLoopManager(config)
        try:
            return manager.compute_rm_score(self.stub.generated(rows))
        finally:
            self.end(manager.reward_loop_workers)

    def by_agents(self, config: Any, rows: Any, streaming: bool = True) -> Any:
        """The batch as verl's agent loop workers score it while they generate."""
        from verl.experimental.agent_loop import AgentLoopManager
        from verl.experimental.reward_loop import RewardLoopManager
        from verl.utils.import_utils import load_class_from_fqn

        workers = None
        if streaming:
            manager = load_class_from_fqn("rewardloop.verl.AgentLoopManager")
        else:
            workers, manager = RewardLoopManager(config).reward_loop_workers, AgentLoopManager
        agents = manager.create(config=config, llm_client=None, teacher_client=None, reward_loop_worker_handles=workers)
        try:
            return agents.generate_sequences(rows)
        finally:
            self.end([*agents.agent_loop_workers, *(workers or [])])

    @staticmethod
    def end(actors: list[Any]) -> None:
        import ray

        for actor in actors:
            ray.kill(actor)

    def use_manager(self, config: Any, name: str = "RewardloopRewardManager") -> Any:
        manager = config.reward.reward_manager
        manager.source, manager.name, manager.module.path = "importlib", name, "pkg://rewardloop.verl"
        return config

    def assert_same(self, alone: Any, ours: Any) -> None:
        np.testing.assert_array_equal(alone.batch["rm_scores"].numpy(), ours.batch["rm_scores"].numpy())
        for key in alone.meta_info["reward_extra_keys"]:
            np.testing.assert_array_equal(
                alone.non_tensor_batch[key].astype(np.float64), ours.non_tensor_batch[key].astype(np.float64)
            )
        more = set(ours.meta_info["reward_extra_keys"]) - set(alone.meta_info["reward_extra_keys"])
        self.assertTrue(all(k.startswith("rewardloop/") for k in more), more)
        self.assertEqual(ours.non_tensor_batch["rewardloop/valid"].tolist(), [1.0] * len(ours))

    def test_gsm8k_is_what_verl_alone_says(self) -> None:
        url = self.serve(*PLAIN)
        rows = self.stub.answers(64, [4] * 14 + [5, 3])  # two groups are unequal
        alone = self.by_manager(self.config(), rows)
        self.assertEqual(sorted(set(alone.batch["rm_scores"].sum(-1).tolist())), [0.0, 1.0])
        self.assert_same(alone, self.by_manager(self.use_manager(self.config(url=url)), rows))
        streamed_alone = self.by_agents(self.config(), rows, streaming=False)
        streamed = self.by_agents(self.config(url=url), rows)
        self.assert_same(streamed_alone, streamed)
        np.testing.assert_array_equal(alone.batch["rm_scores"].numpy(), streamed.batch["rm_scores"].numpy())

    def test_step_scores_stand_among_the_tokens_that_verl_trains_on(self) -> None:
        function = Path(self.folder.name) / "steps.py"
        function.write_text("def compute_score(extra_info, ground_truth):\n    return [float(extra_info['index']), 0.5]\n")
        url = self.serve(f"reward.custom_reward_function.path={function}")
        rows = self.stub.answers(8, [4, 4])
        for i in range(8):  # a turn, its tool's answer and half a turn, each of the first two with token 2 behind it
            rows.non_tensor_batch["canned"][i] = [3, *[4] * (i % 3), 2, 5, 2, 3, 3]
        made = self.by_agents(self.config(url=url, stop_ids=[2]), rows)
        expected = np.zeros((8, self.stub.RESPONSE), np.float32)
        for i in range(8):
            expected[i, 1 + i % 3], expected[i, 5 + i % 3] = i, 0.5
        np.testing.assert_array_equal(made.batch["rm_scores"].numpy(), expected)
        with self.assertRaisesRegex(Exception, "row 0 has 2 scores for the 1 positions"):
            self.by_agents(self.config(url=url, stop_ids=[77]), rows)
        with self.assertRaisesRegex(Exception, "RewardloopRewardManager returns one score for each row"):
            self.by_manager(self.use_manager(self.config(url=url, stop_ids=[2])), rows)
        rows.meta_info["validate"] = True
        sums = self.by_agents(self.config(url=url, stop_ids=[2]), rows).batch["rm_scores"]
        self.assertEqual([[5 + i % 3, i + 0.5] for i in range(8)], [[int(r.argmax()), float(r.sum())] for r in sums])

    def test_token_level_sums_are_the_rewards(self) -> None:
        folder = Path(self.folder.name)
        (folder / "process.py").write_text(PROCESS)
        (folder / "outcome.py").write_text("def compute_score(extra_info):\n    return extra_info['index'] / 7\n")
        (folder / "sums.yaml").write_text(
            "reward: {reward_functions: {process: {path: process.py, weight: 0.5, scale: 10, steps: true}, outcome: {path: outcome.py}}}"
        )
        url = self.serve(config=folder / "sums.yaml")
        rows = self.stub.answers(8, [4, 4])
        for i in range(8):  # as above: two places, and a token behind the last where i is even
            rows.non_tensor_batch["canned"][i] = [3, 2, 5, 2, 3, 2, 3][: 7 - i % 2]
        made = self.by_agents(self.config(url=url, stop_ids=[2]), rows)
        self.assertEqual(["[]"] * 2, made.non_tensor_batch["rewardloop/step_scores"][[1, 5]].tolist(), "these failed")
        scores, rewards = made.batch["rm_scores"], made.non_tensor_batch["reward/combined"].astype(np.float64)
        np.testing.assert_allclose(scores.sum(-1).numpy(), rewards, rtol=1e-6, atol=1e-6)
        self.assertEqual({(1, 5), (5,)}, {tuple(np.flatnonzero(row).tolist()) for row in scores.numpy()})
        rows.meta_info["validate"] = True
        validation = self.by_agents(self.config(url=url, stop_ids=[2]), rows)
        np.testing.assert_allclose(validation.batch["rm_scores"].sum(-1).numpy(), rewards, rtol=1e-6, atol=1e-6)

    def test_validation_that_repeats_rows_to_fill_the_batch(self) -> None:
        from verl.protocol import pad_dataproto_to_divisor, unpad_dataproto

        url = self.serve(*PLAIN)
        rows = self.stub.answers(7, [1] * 7)
        rows.meta_info["validate"] = True
        padded, pad = pad_dataproto_to_divisor(rows, 2)
        self.assertEqual(pad, 1)
        alone = unpad_dataproto(self.by_agents(self.config(), padded, streaming=False), pad)
        self.assert_same(alone, unpad_dataproto(self.by_agents(self.config(url=url), padded), pad))
        ours = self.by_manager(self.use_manager(self.config(url=url)), padded)
        self.assert_same(unpad_dataproto(self.by_manager(self.config(), padded), pad), unpad_dataproto(ours, pad))

    def test_a_failed_sample_gets_the_mean_of_its_group_and_the_others_what_they_had(self) -> None:
        function = Path(self.folder.name) / "fails_at_five.py"
        function.write_text(FAILS_AT_FIVE)
        url = self.serve(f"reward.custom_reward_function.path={function}")
        # A manager knows rollout.n alone; the agent loop manager sees the batch, so groups may be unequal.
        for name, groups in (("manager", [4] * 16), ("agents", [4] * 14 + [5, 3])):
            rows = self.stub.answers(64, groups)
            config = self.config(url=url, max_failed_fraction=1)
            made = self.by_manager(self.use_manager(config), rows) if name == "manager" else self.by_agents(config, rows)
            with self.subTest(name):
                self.check_means(rows, made)
        rows = self.stub.answers(16, [4] * 4)
        with self.assertRaisesRegex(Exception, "five is right out"):
            self.by_agents(self.config(url=url, on_failed="raise"), rows)
        with self.assertRaisesRegex(Exception, "max_failed_fraction"):
            self.by_agents(self.config(url=url), rows)

    def check_means(self, rows: Any, made: Any) -> None:
        scores = made.batch["rm_scores"].sum(-1).numpy()
        valid = made.non_tensor_batch["rewardloop/valid"].astype(bool)
        uids = rows.non_tensor_batch["uid"]
        answers = np.arange(len(rows)) % 7
        self.assertTrue(np.isfinite(scores).all())
        np.testing.assert_array_equal(~valid, answers == 5)
        np.testing.assert_array_equal(scores[valid], (answers == 3)[valid])
        for i in np.flatnonzero(~valid):
            self.assertAlmostEqual(scores[i], scores[(uids == uids[i]) & valid].mean(), 6)

    def by_queue(
        self, config: Any, prompts: Any, streaming: bool = True, look: Callable[[], object] = lambda: None
    ) -> dict[str, tuple[Any, dict[str, Any]]]:
        """Scores and columns of the rollouts that verl's workers put into TransferQueue, by uid and number.

        look is called while the queue holds them.
        """
        import transfer_queue as tq
        from verl.experimental.reward_loop import RewardLoopManager
        from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ
        from verl.utils.import_utils import load_class_from_fqn

        workers = None if streaming else RewardLoopManager(config).reward_loop_workers
        manager = load_class_from_fqn("rewardloop.verl.AgentLoopManagerTQ") if streaming else AgentLoopManagerTQ
        agents = manager.create(config=config, llm_client=None, teacher_client=None, reward_loop_worker_handles=workers)
        try:
            agents.generate_sequences(prompts)
            uids = list(prompts["uid"])
            under_way = {"running", "pending"}  # the queue tells nobody
            harness.until(
                lambda: not under_way & {self.queued().get(u, {}).get("status", "pending") for u in uids}, "the queue has all"
            )
            self.assertEqual(["finished"] * len(uids), [self.queued()[u]["status"] for u in uids])
            look()
            keys = sorted(k for k in self.queued() if k not in uids)
            got = tq.kv_batch_get(keys, partition_id="train", select_fields=["rm_scores", "extra_fields"])
            return {
                k.partition("-")[2]: (
                    got["rm_scores"][i].numpy(),
                    getattr(extra := got["extra_fields"][i], "data", extra)["reward_extra_info"],
                )
                for i, k in enumerate(keys)
            }
        finally:
            tq.kv_clear([*self.queued()], partition_id="train")
            self.end([*agents.agent_loop_workers, *(workers or [])])

    @staticmethod
    def queued() -> Any:
        import transfer_queue as tq

        return tq.kv_list(partition_id="train").get("train", {})

    def test_rollouts_that_go_to_transfer_queue(self) -> None:
        import torch

        self.queue()
        url = self.serve(*PLAIN)
        for name, columns in (("rollout.n", {}), ("a number for each prompt", {"__rollout_n__": torch.tensor([4] * 6 + [2, 5])})):
            with self.subTest(name):
                alone = self.by_queue(self.config(), self.stub.prompts(8, "alone", **columns), streaming=False)
                ours = self.by_queue(self.config(url=url), self.stub.prompts(8, "ours", **columns))
                self.assertEqual(sum(columns.get("__rollout_n__", torch.tensor([4] * 8)).tolist()), len(alone))
                self.assertEqual(alone.keys(), ours.keys())
                for key, (scores, extra) in alone.items():
                    np.testing.assert_array_equal(scores, ours[key][0])
                    self.assertEqual(extra, {k: v for k, v in ours[key][1].items() if not k.startswith("rewardloop/")})
                    self.assertEqual(1.0, ours[key][1]["rewardloop/valid"])
                self.assertEqual({0.0, 1.0}, {float(s.sum()) for s, _ in ours.values()})

    def queue(self) -> None:
        """Starts TransferQueue for a test. close() of 0.1.8 keeps the CPUs of its placement group, which the next start would wait for."""
        import transfer_queue as tq
        from ray import PlacementGroupID
        from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

        def close() -> None:
            tq.close()
            for group in placement_group_table().values():
                if group["state"] != "REMOVED":
                    remove_placement_group(PlacementGroup(PlacementGroupID.from_hex(group["placement_group_id"])))

        tq.init()
        self.addCleanup(close)

    def dropped(self, metric: str) -> set[str]:
        """The groups in TransferQueue that verl's own DAPO filter drops with that metric."""
        from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

        buffer = ReplayBuffer.__new__(ReplayBuffer)  # without its actor and its refills: the filter alone
        queued = self.queued()
        uids = {k for k in queued if "_" not in k}  # the others are a uid's rollouts
        buffer.filter_groups_metric = metric
        buffer.finished_keys = {"train": uids}
        buffer.partitions = {"train": {k: tag for k, tag in queued.items() if k not in uids}}
        buffer._dapo_classification_cache = {"train": {}}
        return buffer._dapo_filtered_keys("train")[0]

    def test_verls_filter_drops_a_group_whose_scored_rows_are_equal_when_it_asks_for_the_column_for_it(self) -> None:
        self.queue()
        function = Path(self.folder.name) / "thirds.py"
        function.write_text(THIRDS)
        url = self.serve(f"reward.custom_reward_function.path={function}")
        found: dict[str, set[str]] = {}

        def look() -> None:
            found.update({name: self.dropped(name) for name in ("rewardloop/score", "acc")})

        # The four rollouts of prompt i answer i % 3 to i % 3 + 3.
        rows = self.by_queue(self.config(url=url, max_failed_fraction=1), self.stub.prompts(6, "filter"), look=look)
        imputed = sorted(k for k, (_, extra) in rows.items() if extra["rewardloop/valid"] == 0)
        self.assertEqual(6, len({k.split("_")[0] for k in imputed}), "each group has a row without a score")
        equal = {f"filter-{i}" for i in range(6) if i % 3}
        self.assertEqual(equal, found["rewardloop/score"])
        self.assertEqual(set(), found["acc"], "a row without a score has NaN there, and np.std keeps the group")

    def test_with_mask_the_advantages_are_those_that_verl_computes_without_the_failed_rows(self) -> None:
        from verl.trainer.ppo.ray_trainer import compute_advantage

        function = Path(self.folder.name) / "fails_at_five.py"
        function.write_text(FAILS_AT_FIVE)
        url = self.serve(f"reward.custom_reward_function.path={function}")
        rows = self.stub.answers(64, [4] * 14 + [5, 3])
        config = self.config(url=url, max_failed_fraction=1, on_failed="mask")
        with self.assertRaisesRegex(Exception, "mask needs algorithm.adv_estimator=rewardloop_grpo"):
            self.by_agents(config, rows)
        config.algorithm.adv_estimator = "rewardloop_grpo"
        made = self.by_agents(config, rows)
        scored = made.non_tensor_batch["rewardloop/valid"].astype(bool)
        np.testing.assert_array_equal(~scored, np.arange(64) % 7 == 5)
        self.assertEqual(0, int(made.batch["response_mask"][~scored].sum()), "the tokens of a failed row are in no loss")
        made.batch["token_level_rewards"] = made.batch["rm_scores"]
        made.non_tensor_batch["uid"] = rows.non_tensor_batch["uid"]
        rest = made[np.flatnonzero(scored)]
        order = np.random.default_rng(2).permutation(64)  # as the trainer balances its batch
        for by_std in (True, False):
            config.algorithm.norm_adv_by_std_in_grpo = by_std
            ours = compute_advantage(made[order], "rewardloop_grpo", norm_adv_by_std_in_grpo=by_std, config=config.algorithm)
            theirs = compute_advantage(rest, "grpo", norm_adv_by_std_in_grpo=by_std, config=config.algorithm)
            got = np.empty((64, ours.batch["advantages"].shape[1]), np.float32)
            got[order] = ours.batch["advantages"].numpy()
            np.testing.assert_allclose(got[scored], theirs.batch["advantages"].numpy(), atol=1e-6)
            self.assertTrue((got[~scored] == 0).all())

    def columns(self, on_failed: str, keys: list[str] | None = None) -> tuple[Any, Any, Any]:
        """The rows of 17 groups whose columns gdpo reads, as our agent loop manager gives them to the trainer."""
        folder = Path(self.folder.name)
        (folder / "columns.py").write_text(COLUMN_FUNCTIONS)
        (folder / "columns.yaml").write_text(COLUMNS.format(file=folder / "columns.py"))
        config = self.config(url=self.serve(config=folder / "columns.yaml"), max_failed_fraction=1, on_failed=on_failed)
        config.algorithm.adv_estimator = "gdpo"
        with self.stub.open_dict(config):
            config.algorithm.gdpo_reward_keys, config.algorithm.gdpo_reward_weights = keys or KEYS, [1.0, 0.5, 2.0]
        rows = self.stub.answers(64, [4] * 15 + [2, 2])
        made = self.by_agents(config, rows)
        made.batch["token_level_rewards"] = made.batch["rm_scores"]
        made.non_tensor_batch["uid"] = rows.non_tensor_batch["uid"]
        return config, rows, made

    @staticmethod
    def advantages(config: Any, batch: Any) -> Any:
        """One for each row, as verl's trainer computes them with its estimator gdpo."""
        from verl.trainer.ppo.ray_trainer import compute_advantage

        made = compute_advantage(batch, "gdpo", config=config.algorithm).batch["advantages"].numpy()
        assert np.isfinite(made).all(), made
        return made[:, 0]

    def test_gdpo_reads_a_finite_number_in_every_row_of_every_column_it_names(self) -> None:
        answers = np.arange(64) % 7
        for on_failed in ("group_mean", "value:-2"):
            with self.subTest(on_failed):
                config, rows, made = self.columns(on_failed)
                failed = answers > 4
                np.testing.assert_array_equal(made.non_tensor_batch["rewardloop/valid"] == 0, failed | (answers == 0))
                self.assertIn("no finite reward/tidy/words", made.non_tensor_batch["rewardloop/error"][0])
                uids = rows.non_tensor_batch["uid"]
                for key in KEYS:
                    column = made.non_tensor_batch[key].astype(np.float64)
                    absent = failed | (answers == 0 if key.endswith("words") else np.zeros(64, bool))
                    own = {"reward/right": answers, "reward/tidy": 1 / (1 + answers)}.get(key)
                    if own is not None:
                        np.testing.assert_allclose(column[~absent], own[~absent])
                    for uid in np.unique(uids):
                        members, there = uids == uid, (uids == uid) & ~absent
                        expected = -2.0 if on_failed != "group_mean" else column[there].mean() if there.any() else 0.0
                        np.testing.assert_allclose(column[members & absent], expected, err_msg=f"{key} of {uid}")
                self.assertGreater(np.ptp(self.advantages(config, made)), 0)

    def test_with_mask_gdpos_advantages_are_those_that_verl_computes_without_the_failed_rows(self) -> None:
        from verl.trainer.ppo import core_algos

        verls = core_algos.ADV_ESTIMATOR_REGISTRY["gdpo"]
        self.addCleanup(core_algos.ADV_ESTIMATOR_REGISTRY.__setitem__, "gdpo", verls)
        config, rows, made = self.columns("mask")
        scored = made.non_tensor_batch["rewardloop/valid"].astype(bool)
        left = np.array([scored[rows.non_tensor_batch["uid"] == uid].sum() for uid in rows.non_tensor_batch["uid"]])
        self.assertEqual({0, 1, 2, 3, 4}, set(left.tolist()), "rows of a group that have all of their columns")
        order = np.random.default_rng(2).permutation(64)  # as the trainer balances its batch
        ours = np.empty(64, np.float32)
        ours[order] = self.advantages(config, made[order])
        self.assertTrue((ours[~scored] == 0).all())
        # verl gives the only row of a group its bare numbers; as two equal rows it has the advantage 0, as ours has.
        core_algos.ADV_ESTIMATOR_REGISTRY["gdpo"] = verls
        rest = made[np.concatenate([np.flatnonzero(scored), np.flatnonzero(scored & (left == 1))])]
        rest.batch["response_mask"][scored.sum() :] = 0
        np.testing.assert_allclose(ours[scored], self.advantages(config, rest)[: scored.sum()], atol=1e-5)

    def test_verl_takes_the_overrides_that_the_documents_say_for_gdpo(self) -> None:
        import verl
        from hydra import compose, initialize_config_dir

        from rewardloop.verl import Settings

        said = (harness.REPOSITORY / "docs/verl.md").read_text().partition("## GDPO")[2].split("```")[1].splitlines()[1:]
        folder = str(Path(verl.__file__).parent / "trainer/config")
        with initialize_config_dir(config_dir=folder, version_base=None):
            config = compose("ppo_trainer", [*said, "+reward.rewardloop.url=ws://127.0.0.1:1"])
        self.assertEqual(("reward/ocr", "reward/pickscore"), Settings.from_config(config).gdpo_reward_keys)

    def test_a_column_that_no_function_of_the_server_has_is_refused_by_name(self) -> None:
        with self.assertRaisesRegex(Exception, "gdpo_reward_keys: 'reward/wrong' is not a column of this reward; the columns are reward/"):
            self.columns("group_mean", ["reward/right", "reward/wrong"])
        config = self.config(url="ws://127.0.0.1:1")
        config.algorithm.adv_estimator = "gdpo"
        with self.stub.open_dict(config):
            config.algorithm.gdpo_reward_keys = KEYS
        from rewardloop.verl import AgentLoopManagerTQ, RewardloopRewardManager

        with self.assertRaisesRegex(Exception, "on_failed: group_mean: RewardloopRewardManager has no groups"):
            RewardloopRewardManager(config, None)
        with self.assertRaisesRegex(Exception, "trainer.use_v1=False"):
            AgentLoopManagerTQ(config, None)

    def test_a_reward_model_beside_the_loop_is_refused_at_the_start(self) -> None:
        from verl.trainer.ppo.reward import load_reward_manager

        config = self.use_manager(self.config(url="ws://127.0.0.1:1"))
        config.reward.reward_model.enable = True
        with self.assertRaisesRegex(Exception, "reward.reward_model.enable=False"):
            load_reward_manager(config, None, reward_router_address=None, reward_model_tokenizer=None)


if __name__ == "__main__":
    unittest.main()
