"""rm_scores: a score belongs to its row, and a failed sample has none."""

from __future__ import annotations

import importlib.util
import json
import math
import unittest
from typing import Any

import numpy as np

from rewardloop import InputError, Outcome, Result, SampleFailedError, Fallback, advantages, rm_scores, step_mask
from rewardloop.result import from_wire, refused

from .harness import REPOSITORY


def scored(x: float) -> Result:
    return Result(f"ok{x}", Outcome.SCORED, x)


FAILED = refused("bad", Outcome.FAILED, "timeout", "too slow")
MEAN = Result("mean", Outcome.FAILED, None, fallback=Fallback("group_mean", 0.25))


class RmScoresTest(unittest.TestCase):
    def test_visual_form(self) -> None:
        scores, valid = rm_scores([scored(0.5), FAILED, scored(0.0), MEAN])
        self.assertEqual((scores.dtype, scores.shape), (np.float32, (4, 1)))
        np.testing.assert_array_equal(scores[:, 0], np.float32([0.5, math.nan, 0.0, 0.25]))
        self.assertEqual(valid[:, 0].tolist(), [True, False, True, False])
        self.assertEqual(rm_scores([]).rm_scores.shape, (0, 1))

    def test_what_stands_for_a_failed_sample_is_the_callers_choice(self) -> None:
        batch = [scored(1), MEAN]
        self.assertTrue(math.isnan(rm_scores(batch, on_failed="nan").rm_scores[1, 0]))
        self.assertEqual(rm_scores(batch, on_failed=-1.0).rm_scores[1, 0], -1)
        with self.assertRaisesRegex(SampleFailedError, "'bad' has no score: failed .timeout: too slow"):
            rm_scores([scored(1), FAILED], on_failed="raise")
        for wrong in (math.nan, "zero", True, None):
            with self.assertRaisesRegex(InputError, "on_failed"):
                rm_scores(batch, on_failed=wrong)  # type: ignore[arg-type]

    def test_token_level_form_puts_the_score_at_the_last_valid_token(self) -> None:
        mask = [[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1]]
        scores, valid = rm_scores([scored(0.5), scored(2), FAILED], response_mask=mask, on_failed=0.125)
        np.testing.assert_array_equal(scores, np.float32([[0, 0.5, 0, 0], [0, 0, 2, 0], [0, 0, 0, 0.125]]))
        self.assertEqual(valid[:, 0].tolist(), [True, True, False])

    def test_step_scores_go_to_the_set_positions(self) -> None:
        mask = np.array([[0, 1, 0, 1], [0, 1, 1, 0]], bool)
        scores, _ = rm_scores([scored(1), FAILED], step_mask=mask, step_scores=[[0.5, 0.25], None], on_failed=-1)
        np.testing.assert_array_equal(scores, np.float32([[0, 0.5, 0, 0.25], [0, 0, -1, 0]]))
        own = Result("own", Outcome.SCORED, 1, step_scores=(0.5, 0.25))
        np.testing.assert_array_equal(rm_scores([own, FAILED], step_mask=mask, on_failed=-1).rm_scores, scores)
        self.assertEqual(1, rm_scores([own], response_mask=mask[:1]).rm_scores[0, 3])
        for count, given in {
            "1 scores": {"step_scores": [[0.5]]},
            "3 scores": {"tool_use_scores": [[math.nan, 1, math.nan]]},
        }.items():
            with (
                self.subTest(count),
                self.assertRaisesRegex(InputError, rf"step_scores\[0\]: sample 'own' has {count} for the 2 set positions"),
            ):
                rm_scores([own], step_mask=mask[:1], **given)  # type: ignore[arg-type]

    def test_a_reward_without_step_scores_stands_at_the_last_set_position(self) -> None:
        mask = np.array([[0, 1, 0, 1, 1, 0]] * 3, bool)  # tokens follow the last position
        own = Result("own", Outcome.SCORED, 1, step_scores=(0.5, -1, 1.5))
        scores, _ = rm_scores([own, scored(2), MEAN], step_mask=mask)
        np.testing.assert_array_equal(scores, np.float32([[0, 0.5, 0, -1, 1.5, 0], [0, 0, 0, 0, 2, 0], [0, 0, 0, 0, 0.25, 0]]))
        scores, _ = rm_scores([scored(2)], step_mask=mask[:1], tool_use_scores=[[7, math.nan]])
        np.testing.assert_array_equal(scores, np.float32([[0, 7, 0, 0, 2, 0]]))
        with self.assertRaisesRegex(InputError, "sample 'ok2' has 4 scores for the 3 set positions"):
            rm_scores([scored(2)], step_mask=mask[:1], tool_use_scores=[[7, 7, 7]])

    def test_token_level_sums_are_the_rewards(self) -> None:
        rng = np.random.default_rng(19)
        tokens = rng.integers(0, 4, (500, 24))
        lengths = rng.integers(1, 25, 500)
        attention = np.arange(24) < lengths[:, None]
        mask = step_mask(tokens, 3, attention_mask=attention)
        results, tools = [], []
        for places in mask.sum(axis=1).tolist():
            reward = float(rng.normal())
            tool = rng.integers(0, places) if rng.random() < 0.3 else 0
            steps = rng.normal(size=places - tool)
            steps[-1] = reward - steps[:-1].sum()
            own = tuple(steps.tolist()) if rng.random() < 0.7 else ()
            results.append(Result("s", Outcome.SCORED, reward, step_scores=own))
            tools.append([2.0] * tool)
        self.assertEqual({True, False}, {bool(r.step_scores) for r in results})
        scores, _ = rm_scores(results, step_mask=mask, tool_use_scores=tools)
        before = np.array([sum(t) for t in tools])
        rewards = np.array([r.reward_score for r in results])
        np.testing.assert_allclose(scores.sum(axis=1), before + rewards, rtol=1e-6, atol=1e-5)
        self.assertFalse(scores[~mask].any())
        validation, _ = rm_scores(results, response_mask=attention)
        np.testing.assert_allclose(scores.sum(axis=1) - before, validation.sum(axis=1), atol=1e-5)

    def test_what_does_not_fit_is_refused(self) -> None:
        for words, call in {
            "row 0 .sample 'ok1'. has no set position": lambda: rm_scores([scored(1)], response_mask=[[0, 0]]),
            r"mask: shape \(2, 1\)": lambda: rm_scores([scored(1)], response_mask=[[1], [1]]),
            "response_mask or step_mask": lambda: rm_scores([], response_mask=[[1]], step_mask=[[1]], step_scores=[]),
            "step_scores: a step_mask is needed": lambda: rm_scores([scored(1)], step_scores=[[1]]),
            "tool_use_scores: 2 rows for 1 results": lambda: rm_scores([scored(1)], step_mask=[[1]], tool_use_scores=[[], []]),
            r"results\[0\]: inf": lambda: rm_scores([scored(1)], step_mask=[[1, 1]], tool_use_scores=[[math.inf]]),
            r"results\[0\]: want a Result": lambda: rm_scores([None]),  # type: ignore[list-item]
            r"results\[0\]: 1e\+39": lambda: rm_scores([scored(1e39)]),
            "backend: 'jax'": lambda: rm_scores([], backend="jax"),  # type: ignore[arg-type]
        }.items():
            with self.subTest(words), self.assertRaisesRegex(InputError, words):
                call()


class AdvantagesTest(unittest.TestCase):
    """What failed samples do to themselves, and to the others of their group."""

    def setUp(self) -> None:
        rng = np.random.default_rng(3)
        self.groups = np.repeat(np.arange(8), 16)
        self.scores = rng.random(128)
        self.valid = rng.random(128) < 0.5
        self.valid[:4] = (True, True, False, False)
        for g in range(8):  # as the server has it
            rows = self.groups == g
            self.scores[rows & ~self.valid] = self.scores[rows & self.valid].mean()

    def test_masked_rows_leave_the_others_as_if_they_had_never_been(self) -> None:
        for ddof in (0, 1):
            got = advantages(self.scores, self.valid, self.groups, failed="mask", ddof=ddof)
            alone = advantages(self.scores[self.valid], None, self.groups[self.valid], ddof=ddof)
            np.testing.assert_allclose(got[self.valid], alone, atol=1e-6)
            self.assertTrue((got[~self.valid] == 0).all())

    def test_imputed_rows_have_advantage_0_and_those_of_the_others_grow(self) -> None:
        for ddof in (0, 1):
            imputed = advantages(self.scores, self.valid, self.groups, ddof=ddof, epsilon=0)
            masked = advantages(self.scores, self.valid, self.groups, failed="mask", ddof=ddof, epsilon=0)
            self.assertTrue((imputed[~self.valid] == 0).all())
            for g in range(8):
                rows = (self.groups == g) & self.valid
                k = rows.sum()
                np.testing.assert_allclose(imputed[rows], masked[rows] * math.sqrt((16 - ddof) / (k - ddof)), rtol=1e-9)
        # The figure of the docstring.
        half = np.tile([True, False], 8)
        scores = np.where(half, np.arange(16.0), np.arange(16.0)[half].mean())
        grown = (
            advantages(scores, half, [0] * 16, ddof=1, epsilon=0)[0]
            / advantages(scores, half, [0] * 16, failed="mask", ddof=1, epsilon=0)[0]
        )
        self.assertAlmostEqual(1.46, grown, 2)

    def test_zero_in_place_of_a_score_moves_everybody(self) -> None:
        zeros = np.where(self.valid, self.scores, 0)
        got = advantages(zeros, None, self.groups)
        self.assertTrue((got[~self.valid] < 0).all())
        self.assertGreater(got[self.valid].mean(), 0)

    def test_columns_of_rm_scores_are_taken_as_they_are(self) -> None:
        scores, valid = rm_scores([scored(1), scored(3), MEAN, FAILED])
        got = advantages(scores, valid, list("aaab"), failed="mask", epsilon=0)
        np.testing.assert_allclose(got, [-1, 1, 0, 0])

    def test_a_group_of_one_or_of_equals_has_advantage_0(self) -> None:
        self.assertEqual([0, 0, 0], advantages([5, 2, 2], None, ["a", "b", "b"]).tolist())
        self.assertEqual([0, 0], advantages([5, math.nan], [True, False], ["a", "a"], failed="mask", ddof=1).tolist())

    def test_what_does_not_fit_is_refused(self) -> None:
        for words, call in {
            "nan in row 1; mask the row": lambda: advantages([1, math.nan], [True, False], [0, 0]),
            "inf in row 0": lambda: advantages([math.inf], None, [0]),
            "2 scores, 1 marks and 2 groups": lambda: advantages([1, 2], [True], [0, 0]),
            "failed: 'zero'": lambda: advantages([1], None, [0], failed="zero"),  # type: ignore[arg-type]
        }.items():
            with self.subTest(words), self.assertRaisesRegex(InputError, words):
                call()


class StepMaskTest(unittest.TestCase):
    """Against what RL-Factory says of the same responses; the file names the source, and Go reads it too."""

    def setUp(self) -> None:
        self.said: Any = json.loads((REPOSITORY / "client/testdata/rlfactory_steps.json").read_text())
        self.rows = self.said["rows"]
        shape = len(self.rows), self.said["length"]
        # The padding is the stop token, which must not count.
        self.ids, self.attention = np.full(shape, self.said["stop"], np.int64), np.zeros(shape, np.int64)
        for i, row in enumerate(self.rows):
            self.ids[i, : len(row["tokens"])] = row["tokens"]
            self.attention[i, : len(row["tokens"])] = 1

    def test_odd_even_and_no_stop_tokens(self) -> None:
        for mode in ("process", "outcome"):
            mask = step_mask(self.ids, self.said["stop"], mode=mode, attention_mask=self.attention)  # type: ignore[arg-type]
            self.assertEqual((np.bool_, self.ids.shape), (mask.dtype, mask.shape))
            for row, found in zip(self.rows, mask, strict=True):
                with self.subTest(mode, tokens=row["tokens"]):
                    self.assertEqual(row[mode], np.flatnonzero(found).tolist())
        with_prompts = np.concatenate([np.ones((len(self.rows), 3)), self.attention], axis=1)
        mask = step_mask(self.ids, [self.said["stop"], 1000], attention_mask=with_prompts)
        self.assertEqual([row["process"] for row in self.rows], [np.flatnonzero(m).tolist() for m in mask])

    def test_the_scores_stand_where_they_do_there(self) -> None:
        mask = step_mask(self.ids, self.said["stop"], attention_mask=self.attention)
        tool = [[math.nan if v is None else v for v in row["tool_use_scores"]] for row in self.rows]
        results = [Result(f"r{i}", Outcome.SCORED, row["score"]) for i, row in enumerate(self.rows)]
        scores, valid = rm_scores(results, step_mask=mask, tool_use_scores=tool)
        np.testing.assert_array_equal(scores, np.float32([row["rewards"] for row in self.rows]))
        self.assertTrue(valid.all())
        whole = [
            Result(r.id, r.outcome, 7, step_scores=(*(v for v in row["tool_use_scores"] if v is not None), row["score"]))
            for r, row in zip(results, self.rows, strict=True)
        ]
        np.testing.assert_array_equal(scores, rm_scores(whole, step_mask=mask).rm_scores)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "SKIPPED: torch is not installed; make test-verl does")
    def test_tensors_come_back_as_tensors(self) -> None:
        import torch

        ids, attention = torch.from_numpy(self.ids), torch.from_numpy(self.attention)
        mask = step_mask(ids, self.said["stop"], attention_mask=attention)
        self.assertIs(mask.dtype, torch.bool)
        np.testing.assert_array_equal(mask.numpy(), step_mask(self.ids, self.said["stop"], attention_mask=self.attention))
        tool = torch.tensor([[math.nan if v is None else v for v in row["tool_use_scores"]] for row in self.rows])
        results = [Result("r", Outcome.SCORED, row["score"]) for row in self.rows]
        scores, _ = rm_scores(results, step_mask=mask, tool_use_scores=tool)
        np.testing.assert_array_equal(scores.numpy(), np.float32([row["rewards"] for row in self.rows]))

    def test_what_has_no_place_is_refused(self) -> None:
        for words, call in {
            "mode: 'every'": lambda: step_mask([[1]], 9, mode="every"),  # type: ignore[arg-type]
            r"token_ids: int64 of shape \(1,\)": lambda: step_mask(np.ones(1, np.int64), 9),
            r"token_ids: float64 of shape": lambda: step_mask([[1.0]], 9),
            "token_ids: row 1 has no token": lambda: step_mask([[1], [1]], 9, attention_mask=[[1], [0]]),
            "token_ids: row 0 has no token": lambda: step_mask(np.zeros((1, 0), np.int64), 9),
            r"attention_mask: shape \(1, 1\) for token_ids of \(1, 2\)": lambda: step_mask([[1, 2]], 9, attention_mask=[[1]]),
            "attention_mask: shape": lambda: step_mask([[1]], 9, attention_mask=[1]),
        }.items():
            with self.subTest(words), self.assertRaisesRegex(InputError, words):
                call()


class ResultTest(unittest.TestCase):
    def test_a_failed_result_never_yields_a_number(self) -> None:
        self.assertFalse(FAILED.scored)
        with self.assertRaises(SampleFailedError) as caught:
            FAILED.score()
        self.assertIs(caught.exception.result, FAILED)
        self.assertEqual(scored(0.0).score(), 0.0)
        self.assertTrue(scored(0.0).scored)

    def test_what_is_no_result_is_not_read_as_one(self) -> None:
        good = {"type": "result", "id": "a", "seq": 1, "outcome": "scored", "reward_score": 0.5, "attempts": 1}
        self.assertEqual(from_wire(good).reward_score, 0.5)
        self.assertEqual(from_wire(good).step_scores, ())
        self.assertEqual(from_wire({**good, "step_scores": [0.5, 1]}).step_scores, (0.5, 1.0))
        for change in (
            {"reward_score": None},
            {"outcome": "failed"},
            {"reward_score": math.inf},
            {"reward_score": True},
            {"reward_score": "1"},
            {"outcome": "great"},
            {"details": [1]},
            {"fallback": {"policy": "zero"}},
            {"step_scores": [None]},
            {"step_scores": [math.nan]},
            {"step_scores": 1},
            {"step_scores": None},
            {"step_scores": [1], "outcome": "failed", "reward_score": None},
        ):
            with self.subTest(str(change)), self.assertRaises((KeyError, TypeError, ValueError)):
                from_wire({**good, **change})


if __name__ == "__main__":
    unittest.main()
