"""Process rewards in the verl plug-ins, without verl: where the step scores of a row stand."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib.util
import json
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from rewardloop import InputError, Outcome, Result, Fallback
from rewardloop.verl import AsyncRewardAgent, Settings, compute_score, steps
from rewardloop.verl.outcome import STEPS, RewardFailedError
from rewardloop.verl.session import Session

from . import harness

WHERE = "ws://127.0.0.1:1"
STOP, LENGTH = 9, 8
#: Two turns with a tool between them; one turn cut short; one turn; padding is the stop token.
TOKENS = [[1, 2, 9, 3, 9, 4, 9], [1, 2, 3], [5, 9]]
NEEDS_TORCH = unittest.skipUnless(importlib.util.find_spec("torch"), "SKIPPED: torch is not installed; make test-verl does")


class Tokens:
    """What the plug-ins see of a DataProto with text."""

    def __init__(self, validate: bool = False) -> None:
        self.ids = np.full((len(TOKENS), LENGTH), STOP, np.int64)
        self.mask = np.zeros((len(TOKENS), 2 + LENGTH), np.int64)
        for i, ids in enumerate(TOKENS):
            self.ids[i, : len(ids)] = ids
            self.mask[i, : 2 + len(ids)] = 1
        self.batch: dict[str, Any] = {"responses": self.ids, "attention_mask": self.mask}
        self.non_tensor_batch = {"uid": np.array(["u"] * len(TOKENS), dtype=object)}
        self.meta_info = {"validate": validate}

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> Any:
        return SimpleNamespace(
            batch={"responses": self.ids[i], "attention_mask": self.mask[i]},
            non_tensor_batch={"uid": "u"},
            meta_info=self.meta_info,
        )


class Loop:
    """A client that answers at once with what the test says of each row."""

    def __init__(self, answers: list[Result]) -> None:
        self.answers = answers

    def step(self, *_: Any, **__: Any) -> None: ...

    def submit(self, sample: Any) -> Any:
        done: concurrent.futures.Future[Result] = concurrent.futures.Future()
        done.set_result(self.answers[sample.index])
        return done


def scored(score: float, *steps: float) -> Result:
    return Result("r", Outcome.SCORED, score, step_scores=steps)


FAILED = Result("bad", Outcome.FAILED, None, fallback=Fallback("group_mean", 0.25))


class Steps(unittest.TestCase):
    def reward(self, answers: list[Result], stop_ids: Any = STOP, validate: bool = False) -> tuple[Any, dict[str, Any]]:
        tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: "text")
        agent = AsyncRewardAgent(tokenizer, url=WHERE, run=self.id(), stop_ids=stop_ids, max_failed_fraction=1.0)
        with mock.patch.object(agent._session, "client", return_value=Loop(answers)):
            agent.compute_reward_pipeline(Tokens(validate), 3)
            indices, scores, columns = agent.get(3, timeout=harness.PATIENCE)
        self.assertEqual([0, 1, 2], indices)
        return scores.numpy(), columns

    @NEEDS_TORCH
    def test_the_pipeline_puts_them_where_rl_factory_does(self) -> None:
        scores, columns = self.reward([scored(9, 0.5, -1), FAILED, scored(2)])
        expected = np.zeros((3, LENGTH), np.float32)
        expected[0, 2], expected[0, 6], expected[1, 2], expected[2, 1] = 0.5, -1, 0.25, 2
        np.testing.assert_array_equal(scores, expected)
        self.assertEqual(["[0.5, -1]", "", "[]"], columns[STEPS].tolist())

    @NEEDS_TORCH
    def test_a_row_without_step_scores_has_its_reward_at_its_last_place(self) -> None:
        for batch in ([scored(2), FAILED, scored(1)], [scored(-0.5, 0.5, -1), scored(0.75), scored(2, 2)]):
            scores, _ = self.reward(batch)
            sums = [0.25 if r is FAILED else r.reward_score for r in batch]
            self.assertEqual(sums, scores.sum(-1).tolist())
            self.assertEqual([6, 2, 1], [int(np.flatnonzero(row)[-1]) for row in scores])
            validation, _ = self.reward([r if r is FAILED else scored(r.reward_score or 0.0) for r in batch], validate=True)
            self.assertEqual(sums, validation.sum(-1).tolist())
        with mock.patch.dict(globals(), {"TOKENS": [[1, 9, 3], [1, 9, 3], [1, 9, 3]]}):  # a token behind the last place
            scores, _ = self.reward([scored(3), FAILED, scored(1, 1)])
        self.assertEqual([[1, 3], [1, 0.25], [1, 1]], [[int(np.flatnonzero(row)[0]), float(row.sum())] for row in scores])

    def test_what_stands_at_the_places_of_a_row_sums_to_its_score(self) -> None:
        rng = np.random.default_rng(19)
        for _ in range(2000):
            ids = rng.integers(0, 4, rng.integers(1, 30))
            at = steps.places(ids, (3,))
            reward = float(rng.normal())
            own = rng.normal(size=len(at))
            own[-1] = reward - own[:-1].sum()
            for text in (json.dumps(own.tolist()), "[]", ""):
                where, found = steps.standing(text, reward, at, "row 0")
                self.assertEqual(at if text and text != "[]" else at[-1:], where)
                row = np.zeros(len(ids), np.float32)
                row[where] = found
                self.assertAlmostEqual(reward, float(row.sum()), delta=1e-5)
        self.assertEqual([], steps.places(np.zeros(0, np.int64), (3,)))

    @NEEDS_TORCH
    def test_a_validation_row_has_its_score_at_the_last_token(self) -> None:
        scores, _ = self.reward([scored(9, 0.5, -1, 3), FAILED, scored(2)], validate=True)
        self.assertEqual([[6, 9], [2, 0.25], [1, 2]], [[int(r.argmax()), float(r.sum())] for r in scores])

    @NEEDS_TORCH
    def test_without_stop_ids_nothing_changes(self) -> None:
        scores, columns = self.reward([scored(9, 0.5, -1), FAILED, scored(2)], stop_ids=())
        self.assertEqual([[6, 9], [2, 0.25], [1, 2]], [[int(r.argmax()), float(r.sum())] for r in scores])
        self.assertNotIn(STEPS, columns)

    @NEEDS_TORCH
    def test_another_number_of_steps_raises_by_name(self) -> None:
        for answers, words in (
            ([scored(9, 0.5), FAILED, scored(2)], r"row 0. has 1 scores for the 2 positions"),
            ([scored(9, 0.5, 1), FAILED, scored(2, 1, 1)], r"row 2. has 2 scores for the 1 positions"),
            ([scored(9, 0.5, 1e39), FAILED, scored(2)], r"row 0.: the step scores .* not finite float32"),
        ):
            with self.subTest(words), self.assertRaisesRegex(RewardFailedError, words):
                self.reward(answers)

    @NEEDS_TORCH
    def test_the_agent_loop_managers_batch_has_them_where_the_pipelines_has(self) -> None:
        import torch

        from rewardloop.verl.steps import spread

        rows, answers = Tokens(), [scored(9, 0.5, -1), FAILED, scored(2)]
        settings = Settings(url=WHERE, stop_ids=(STOP, 77), max_failed_fraction=1.0)
        sample = SimpleNamespace(uid="u", group_size=3, split="train", step=1)
        infos = [Session(settings).judge(sample, a) for a in answers]  # type: ignore[arg-type]
        rm_scores = torch.zeros(3, LENGTH)
        for i, (value, _) in enumerate(infos):
            rm_scores[i, len(TOKENS[i]) - 1] = value
        rows.batch = {k: torch.from_numpy(v) for k, v in rows.batch.items()} | {"rm_scores": rm_scores}
        rows.non_tensor_batch[STEPS] = np.array([info[STEPS] for _, info in infos])
        spread(rows, settings.stop_ids)
        np.testing.assert_array_equal(self.reward(answers)[0], rows.batch["rm_scores"].numpy())
        rows.non_tensor_batch[STEPS][2] = "[1, 2]"
        with self.assertRaisesRegex(RewardFailedError, "row 2 has 2 scores for the 1 positions"):
            spread(rows, settings.stop_ids)

    def test_where_a_row_has_one_number_stop_ids_are_refused(self) -> None:
        with self.assertRaisesRegex(InputError, "stop_ids: a reward function returns one score"):
            asyncio.run(compute_score(url=WHERE, stop_ids=[STOP]))
        self.assertEqual((9,), Settings(url=WHERE, stop_ids=9).stop_ids)  # type: ignore[arg-type]
        self.assertEqual((9, 8), Settings(url=WHERE, stop_ids=[9, 8]).stop_ids)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
