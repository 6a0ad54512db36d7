"""rm_scores: a score belongs to its row, and a failed sample has none."""

from __future__ import annotations

import math
import unittest

import numpy as np

from rewardloop import InputError, Outcome, Result, SampleFailedError, Substitute, rm_scores
from rewardloop.result import from_wire, refused


def scored(x: float) -> Result:
    return Result(f"ok{x}", Outcome.SCORED, x)


FAILED = refused("bad", Outcome.FAILED, "timeout", "too slow")
MEAN = Result("mean", Outcome.FAILED, None, substitute=Substitute("group_mean", 0.25))


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
        with self.assertRaisesRegex(InputError, r"step_scores\[0\]: 1 scores for 2 set positions"):
            rm_scores([scored(1)], step_mask=mask[:1], step_scores=[[0.5]])

    def test_what_does_not_fit_is_refused(self) -> None:
        for words, call in {
            "row 0 .sample 'ok1'. has no set position": lambda: rm_scores([scored(1)], response_mask=[[0, 0]]),
            r"mask: shape \(2, 1\)": lambda: rm_scores([scored(1)], response_mask=[[1], [1]]),
            "response_mask or step_mask": lambda: rm_scores([], response_mask=[[1]], step_mask=[[1]], step_scores=[]),
            "belong together": lambda: rm_scores([scored(1)], step_mask=[[1]]),
            r"results\[0\]: want a Result": lambda: rm_scores([None]),  # type: ignore[list-item]
            r"results\[0\]: 1e\+39": lambda: rm_scores([scored(1e39)]),
            "backend: 'jax'": lambda: rm_scores([], backend="jax"),  # type: ignore[arg-type]
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
        for change in (
            {"reward_score": None}, {"outcome": "failed"}, {"reward_score": math.inf}, {"reward_score": True},
            {"reward_score": "1"}, {"outcome": "great"}, {"details": [1]}, {"substitute": {"policy": "zero"}},
        ):
            with self.subTest(str(change)), self.assertRaises((KeyError, TypeError, ValueError)):
                from_wire({**good, **change})


if __name__ == "__main__":
    unittest.main()
