"""The columns that algorithm.gdpo_reward_keys names, without verl: a finite number in every row, whatever came of it."""

from __future__ import annotations

import concurrent.futures
import enum
import importlib.util
import math
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from rewardloop import ComponentError, InputError, Outcome, Result, Sample
from rewardloop.result import Scalar
from rewardloop.verl import AsyncRewardAgent, Settings, named
from rewardloop.verl.outcome import RewardFailedError
from rewardloop.verl.session import Session, session

from . import harness

WHERE = "ws://127.0.0.1:1"
KEYS = ("reward/ocr", "reward/pretty")
MISSING = Result("gone", Outcome.EXPIRED, None, {"rewardloop/valid": False}, errors=(ComponentError("expired", "too late"),))


def scored(errors: tuple[ComponentError, ...] = (), **columns: Scalar) -> Result:
    info: dict[str, Scalar] = {"reward/ocr": 0.5, "reward/pretty": 3, "rewardloop/valid": True}
    info.update({name.replace("_", "/"): value for name, value in columns.items()})
    return Result("s", Outcome.SCORED, 1.0, info, errors=errors)


def timeout(component: str) -> tuple[ComponentError, ...]:
    return (ComponentError("timeout", "too long", component),)


class NamedColumns(unittest.TestCase):
    def judge(self, result: Result, sample: Sample | None = None, **settings: Any) -> dict[str, Any]:
        given = {"url": WHERE, "gdpo_reward_keys": KEYS, "max_failed_fraction": 1, **settings}
        _, info = Session(Settings(**given)).judge(sample or Sample(uid="u", group_size=4), result)
        return info

    def test_every_row_has_them_whatever_came_of_it(self) -> None:
        for on_failed, stand_in in (("group_mean", math.nan), ("mask", math.nan), ("value:-1", -1.0)):
            rest = stand_in if on_failed == "mask" else 3.0  # nothing of a masked row counts
            for name, result, expected, valid in (
                ("scored", scored(), (0.5, 3.0), 1),
                ("a row that never came", MISSING, (stand_in, stand_in), 0),
                ("a function that failed", scored(timeout("ocr"), reward_ocr=None), (stand_in, rest), 0),
                ("a function of other samples", scored(reward_ocr=None), (stand_in, 3.0), 1),
                ("more than a tensor holds", scored(reward_ocr=1e300), (stand_in, rest), 0),
            ):
                with self.subTest(f"{name}, {on_failed}"):
                    info = self.judge(result, on_failed=on_failed)
                    np.testing.assert_array_equal([info[k] for k in KEYS], expected)
                    self.assertEqual(valid, info["rewardloop/valid"])
                    self.assertEqual(valid == 0, info["rewardloop/error"] != "")

    def test_nothing_stands_in_where_nothing_may(self) -> None:
        absent = scored(timeout("ocr"), reward_ocr=None)
        with self.assertRaisesRegex(RewardFailedError, "no finite reward/ocr .ocr: timeout: too long.,.* on_failed is raise$"):
            self.judge(absent, on_failed="raise")
        with self.assertRaisesRegex(RewardFailedError, "on_failed is group_mean, and the sample has no group"):
            self.judge(absent, sample=Sample())
        with self.assertRaisesRegex(RewardFailedError, "2 of .* more than max_failed_fraction 0.003: no finite reward/ocr"):
            judge = Session(Settings(url=WHERE, gdpo_reward_keys=KEYS, max_failed_fraction=0.003)).judge
            for _ in range(2):
                judge(Sample(uid="u", group_size=4), absent)

    def test_a_name_that_no_row_can_have_is_refused(self) -> None:
        for key, says in (
            ("reward/orc", "'reward/orc' is not a column of this reward; the columns are reward/ocr, reward/pretty"),
            ("reward/ocr/words", "'reward/ocr/words' is text, not a number"),
        ):
            with self.assertRaisesRegex(InputError, f"algorithm.gdpo_reward_keys: {says}"):
                self.judge(scored(reward_ocr_words="a b"), gdpo_reward_keys=(key,))
        # What its function would have said had it not failed is known from no row yet.
        info = self.judge(scored(timeout("ocr"), reward_ocr=None), gdpo_reward_keys=("reward/ocr/words",))
        self.assertTrue(math.isnan(info["reward/ocr/words"]))
        self.assertEqual(0, info["rewardloop/valid"])

    def test_the_mean_of_the_group_stands_in_for_what_is_absent(self) -> None:
        columns = {"reward/ocr": np.array([1, math.nan, 3, math.nan, 5, math.nan], object), "acc": np.array([math.nan] * 6)}
        named.fill(columns, [*KEYS[:1], "absent"], ["a", "a", "a", "b", "c", "c"])
        np.testing.assert_array_equal(columns["reward/ocr"], [1, 2, 3, 0, 5, 5])
        self.assertTrue(np.isnan(columns["acc"]).all(), "nobody named it")

    def test_the_trainers_configuration_names_them_where_its_estimator_is_gdpo(self) -> None:
        class Estimators(str, enum.Enum):
            GDPO = "gdpo"

        for chosen, expected in (("gdpo", KEYS), (Estimators.GDPO, KEYS), ("grpo", ())):
            config = {
                "reward": {"rewardloop": {"url": WHERE}},
                "algorithm": {"adv_estimator": chosen, "gdpo_reward_keys": list(KEYS)},
            }
            self.assertEqual(expected, Settings.from_config(config).gdpo_reward_keys)
            config["reward"]["rewardloop"]["gdpo_reward_keys"] = ["acc"]  # type: ignore[index]
            self.assertEqual(("acc",), Settings.from_config(config).gdpo_reward_keys)
        with self.assertRaisesRegex(InputError, "on_failed: group_mean: a reward function has no groups"):
            Settings(url=WHERE, gdpo_reward_keys="acc").need_no_group_columns("a reward function")  # type: ignore[arg-type]
        Settings(url=WHERE, gdpo_reward_keys=KEYS, on_failed="value:0").need_no_group_columns("a reward function")

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "SKIPPED: torch is not installed; make test-verl does")
    def test_the_pipeline_fills_them_when_a_group_is_complete(self) -> None:
        agent = AsyncRewardAgent(url=WHERE, run=self.id(), gdpo_reward_keys=KEYS, max_failed_fraction=1)
        self.addCleanup(session(agent.settings).close)
        results = [scored(reward_ocr=0.25), scored(timeout("ocr"), reward_ocr=None), MISSING, scored(reward_ocr=0.75)]

        def submit(sample: Any) -> Any:
            future: concurrent.futures.Future[Result] = concurrent.futures.Future()
            future.set_result(results[sample.index])
            return future

        client = SimpleNamespace(step=lambda *_, **__: None, submit=submit)
        with mock.patch.object(agent._session, "client", return_value=client):
            agent.compute_reward_pipeline(Pictures(4), 4)
            _, _, columns = agent.get(4, timeout=harness.PATIENCE)
        np.testing.assert_array_equal(columns["reward/ocr"], [0.25, 0.5, 0.5, 0.75])
        np.testing.assert_array_equal(columns["reward/pretty"], [3, 3, 3, 3])
        np.testing.assert_array_equal(columns["rewardloop/valid"], [1, 0, 0, 1])


class Pictures:
    def __init__(self, n: int) -> None:
        self.batch = {"responses": np.zeros((n, 3, 8, 8), np.uint8)}
        self.non_tensor_batch = {"uid": np.array(["u"] * n, dtype=object)}

    def __len__(self) -> int:
        return len(self.batch["responses"])

    def __getitem__(self, i: int) -> Any:
        return SimpleNamespace(batch={"responses": self.batch["responses"][i]}, non_tensor_batch={"uid": "u"}, meta_info={})


if __name__ == "__main__":
    unittest.main()
