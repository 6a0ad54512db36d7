"""on_failed=mask: the advantages of a group are those of a group without its failed rows."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

from rewardloop import InputError, advantages
from rewardloop.verl import Settings, masked

WHERE = "ws://127.0.0.1:1"


class MaskedTest(unittest.TestCase):
    def setUp(self) -> None:
        rng = np.random.default_rng(5)
        self.uids = np.repeat(["a", "b", "c"], 8)
        self.scores = rng.random(24).astype(np.float32)
        self.valid = rng.random(24) < 0.6
        self.valid[[0, 1, 8, 9, 16, 17]] = True
        for uid in "abc":  # what the plug-in gives the trainer
            rows = self.uids == uid
            self.scores[rows & ~self.valid] = self.scores[rows & self.valid].mean(dtype=np.float64)

    def test_the_rows_that_failed_are_known_again_in_any_order(self) -> None:
        masked.remember(self.uids, self.valid, self.scores)
        order = np.random.default_rng(1).permutation(24)  # trainers balance batches
        scored = masked.scored_rows(self.uids[order], self.scores[order])
        np.testing.assert_array_equal(scored, self.valid[order])
        self.assertTrue(masked.scored_rows(self.uids, self.scores).all(), "it is forgotten")

    def test_advantages_are_those_of_the_scored_rows_alone(self) -> None:
        for config, expected in (
            (
                {"norm_adv_by_std_in_grpo": True},
                advantages(self.scores[self.valid], None, self.uids[self.valid], ddof=1, epsilon=1e-4),
            ),
            (None, advantages(self.scores[self.valid], None, self.uids[self.valid], ddof=1, epsilon=1e-4)),
        ):
            got = masked.without(self.scores.astype(np.float64), self.valid, self.uids, 1e-4, config, everybody=False)
            np.testing.assert_allclose(got[self.valid], expected, atol=1e-6)
            self.assertTrue((got[~self.valid] == 0).all())

    def test_the_standard_deviation_of_everybody_is_that_of_the_scored_rows(self) -> None:
        values = self.scores.astype(np.float64)
        got = masked.without(values, self.valid, self.uids, 0.0, {"global_std": True}, everybody=True)
        for uid in "abc":
            rows = (self.uids == uid) & self.valid
            np.testing.assert_allclose(got[rows], (values[rows] - values[rows].mean()) / values[self.valid].std(ddof=1))
        unscaled = masked.without(values, self.valid, self.uids, 0.0, {"norm_adv_by_std_in_grpo": False}, everybody=True)
        np.testing.assert_allclose(unscaled[self.valid], got[self.valid] * values[self.valid].std(ddof=1))

    def test_rewards_that_were_changed_on_the_way_are_not_masked_in_silence(self) -> None:
        valid = [True, False]
        masked.remember(["x", "x"], valid, [0.5, 0.5])
        with self.assertRaisesRegex(InputError, "on_failed: the failed rows of group 'x' are not among"):
            masked.scored_rows(["x", "x"], np.float32([0.7, 0.7]))

    def test_more_groups_than_are_kept_forget_the_oldest(self) -> None:
        kept, masked._GROUPS_KEPT = masked._GROUPS_KEPT, 2
        self.addCleanup(setattr, masked, "_GROUPS_KEPT", kept)
        masked.remember(["1", "2", "3"], [False] * 3, [0.0] * 3)
        self.assertEqual([True, False, False], masked.scored_rows(["1", "2", "3"], np.zeros(3, np.float32)).tolist())

    def test_only_where_the_rows_are_known_it_may_be_asked_for(self) -> None:
        settings: Any = Settings(url=WHERE, on_failed="mask")
        self.assertEqual("group_mean", settings.connection()["on_sample_failure"])
        with self.assertRaisesRegex(InputError, "RewardManager cannot mask a failed sample; AgentLoopManager"):
            settings.need_no_mask("RewardManager")
