"""Rows, settings, failures and the pipeline of the verl plug-ins, without verl."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib.util
import math
import pickle
import threading
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

import rewardloop
from rewardloop import InputError, Outcome, Result, Fallback, ComponentError
from rewardloop.verl import AsyncRewardAgent, Settings, compute_score, rows
from rewardloop.verl.outcome import Columns, ExtraInfo, Failures, RewardFailedError, reward_of
from rewardloop.verl.session import session

from . import harness

TORCH = importlib.util.find_spec("torch") is not None
WHERE = "ws://127.0.0.1:1"


def row(responses: Any, meta: dict[str, Any] | None = None, **columns: Any) -> Any:
    return SimpleNamespace(batch={"responses": responses}, non_tensor_batch=columns, meta_info=meta or {})


def picture(seed: int = 0, side: int = 16) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (3, side, side), dtype=np.uint8)


class Rows(unittest.TestCase):
    def settings(self, **more: Any) -> Settings:
        return Settings(url=WHERE, **more)

    def test_a_visual_row_becomes_a_sample(self) -> None:
        chat = np.array([{"role": "user", "content": "old"}, {"role": "assistant", "content": "x"},
                         {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a red cube"}]}])  # fmt: skip
        made = rows.to_sample(
            row(
                picture(), {"validate": True, "global_steps": 9}, uid="u1", raw_prompt=chat, data_source="ocr",
                reward_model={"ground_truth": np.array(["a", "b"], dtype=object)}, extra_info={"index": np.int64(4)},
                __num_turns__=np.int32(2),
            ),
            self.settings(profile="pretty"), sizes=(8, 2),
        )  # fmt: skip
        self.assertEqual(
            ("a red cube", "ocr", "val", 9, "u1", 2, "pretty"),
            (made.prompt, made.data_source, made.split, made.step, made.uid, made.group_size, made.reward),
        )
        self.assertEqual(["a", "b"], made.ground_truth)
        self.assertEqual({"index": 4, "num_turns": 2, "rollout_reward_scores": {}}, made.extra_info)
        self.assertEqual(("image", "CHW"), (made.media[0].kind, made.media[0].layout))

    def test_repeated_rows_have_ids_of_their_own(self) -> None:
        one = row(picture(), uid="u")
        self.assertNotEqual(rows.to_sample(one, self.settings()).id, rows.to_sample(one, self.settings()).id)

    def test_videos_and_latents_are_told_by_dtype_and_axes(self) -> None:
        self.assertEqual("TCHW", rows.visual(np.zeros((2, 3, 4, 4), np.uint8)).layout)
        self.assertEqual(
            ("latent", "CHW"),
            (rows.visual(np.zeros((16, 4, 4), np.float32)).kind, rows.visual(np.zeros((1, 2, 3), np.float16)).layout),
        )
        with self.assertRaisesRegex(InputError, "bool with 3 axes"):
            rows.visual(np.zeros((1, 2, 3), np.bool_))

    def test_text_is_what_the_mask_leaves_of_the_tokens(self) -> None:
        item = row(np.array([5, 6, 7, 0, 0], np.int64))
        item.batch["attention_mask"] = np.array([0, 1, 1, 1, 1, 1, 0, 0], np.int64)
        made = rows.to_sample(item, self.settings(), decode=lambda ids: " ".join(map(str, ids)))
        self.assertEqual("5 6 7", made.response)
        self.assertEqual(3, made.extra_info["response_length"])

    def test_extra_info_is_json_of_at_most_64_kib_and_tensors_only_by_name(self) -> None:
        extra = {
            "keep": [1, np.float32(0.5), None], "nan": math.nan, "object": object(), "nested": {"a": 1, "bad": b"x"},
            "big": "x" * 70_000, "prompt_embeds": np.zeros((2, 3), np.float32), "latents": np.zeros((1, 2, 3), np.float32),
        }  # fmt: skip
        with self.assertLogs("rewardloop", "WARNING"):
            made = rows.to_sample(
                row(picture(), extra_info={}, tool_extra_fields=extra), self.settings(send_tensors=("prompt_embeds",))
            )
        self.assertEqual({"keep": [1, 0.5, None], "nested": {"a": 1}, "latents": [[[0.0] * 3] * 2], "num_turns": None,
                          "rollout_reward_scores": {}, "rewardloop_tensors": ["prompt_embeds"]}, made.extra_info)  # fmt: skip
        self.assertEqual(["image", "latent"], [m.kind for m in made.media])

    def test_a_picture_that_is_sent_by_name_is_a_picture(self) -> None:
        made = rows.to_sample(row(picture(1), extra_info={"source": picture(2)}), self.settings(send_tensors=("source",)))
        self.assertEqual([("image", "CHW")] * 2, [(m.kind, m.layout) for m in made.media], "the edit, then its source")
        self.assertNotIn("rewardloop_tensors", made.extra_info)

    def test_the_managers_columns_win(self) -> None:
        made = rows.to_sample(
            row(picture(), {"global_steps": 1}, uid="u", rewardloop_step=np.int64(5), rewardloop_index=np.int64(3),
                rewardloop_split="val", rewardloop_group_size=np.int64(5)),
            self.settings(), sizes=(8, 1),
        )  # fmt: skip
        self.assertEqual((5, 3, "val", 5), (made.step, made.index, made.split, made.group_size))


class SettingsAreChecked(unittest.TestCase):
    def test_they_are_plain_and_hold_no_token(self) -> None:
        made = Settings(url=WHERE, send_tensors=["a"])  # type: ignore[arg-type]
        self.assertEqual(made, pickle.loads(pickle.dumps(made)))  # noqa: S301 - our own
        hash(made)
        with self.assertRaisesRegex(InputError, "token_file"):
            Settings.read({"url": WHERE, "token": "secret"})
        with mock.patch.dict("os.environ", {"REWARDLOOP_TOKEN": "secret"}):
            self.assertNotIn("secret", repr(made))
            self.assertEqual("secret", made.connection()["token"])

    def test_the_text_of_composite_rollouts_is_a_run_of_its_own(self) -> None:
        made = Settings(url=WHERE, run="r", profile="pretty", llm_profile="words", gdpo_reward_keys=("acc",)).of_llm()
        self.assertEqual(("r/llm", "words", "", ()), (made.run, made.profile, made.llm_profile, made.gdpo_reward_keys))
        self.assertEqual("pretty", Settings(url=WHERE, profile="pretty").of_llm().profile)
        with self.assertRaisesRegex(InputError, "llm_profile: AsyncRewardAgent has one score for each rollout"):
            AsyncRewardAgent(url=WHERE, llm_profile="words")

    def test_several_gateways_are_a_list_or_have_commas_between(self) -> None:
        for url in (["ws://a:1", "ws://b:1"], "ws://a:1,ws://b:1"):
            made = Settings.read({"url": url})
            hash(made)
            self.assertEqual("ws://a:1,ws://b:1", made.connection()["url"])

    def test_faults_are_named(self) -> None:
        for values, says in (
            ({}, "REWARDLOOP_URL"),
            ({"url": WHERE, "onfailed": 1}, "unknown: onfailed"),
            ({"url": WHERE, "on_failed": "zero"}, "group_mean, mask, raise or value:<x>"),
            ({"url": WHERE, "on_failed": "value:nan"}, "group_mean, mask, raise or value:<x>"),
            ({"url": WHERE, "max_failed_fraction": 2}, "0 to 1"),
        ):
            with self.assertRaisesRegex(InputError, says):
                Settings.read(values)

    def test_they_are_read_from_a_trainers_configuration(self) -> None:
        config = {
            "reward": {"rewardloop": {"url": WHERE}, "reward_model": {"enable": False}},
            "trainer": {"project_name": "p", "experiment_name": "e"},
        }
        self.assertEqual("p/e", Settings.from_config(config).run)
        config["reward"]["reward_model"]["enable"] = True  # type: ignore[index]
        with self.assertRaisesRegex(InputError, "enable=False"):
            Settings.from_config(config)


def failed(fallback: Fallback | None = None) -> Result:
    return Result("s", Outcome.FAILED, None, {}, errors=(ComponentError("bad_input", "no target"),), fallback=fallback)


class FailedSamples(unittest.TestCase):
    def test_it_is_always_a_finite_float_or_an_error(self) -> None:
        mean = Settings(url=WHERE)
        self.assertEqual(0.25, reward_of(failed(Fallback("group_mean", 0.25)), mean, True))
        self.assertEqual(0.0, reward_of(failed(Fallback("group_mean", None)), mean, True))
        self.assertEqual(-1.0, reward_of(failed(), Settings(url=WHERE, on_failed="value:-1"), False))
        for settings, grouped, result in (
            (mean, False, failed()),
            (Settings(url=WHERE, on_failed="raise"), True, failed(Fallback("group_mean", 0.25))),
            (mean, True, Result("s", Outcome.SCORED, 1e300)),
        ):
            with self.assertRaises(RewardFailedError):
                reward_of(result, settings, grouped)

    def test_every_sample_has_every_column(self) -> None:
        columns = Columns()
        first = columns.fill({"acc": 1.0, "pred": "42", "rewardloop/valid": True}, None)
        second = columns.fill({"acc": None}, "timeout: too long")
        self.assertEqual({"acc", "pred", "rewardloop/valid", "rewardloop/error"}, set(second))
        self.assertEqual((1.0, "", 0.0), (first["rewardloop/valid"], second["pred"], second["rewardloop/valid"]))
        self.assertEqual(("", "timeout: too long"), (first["rewardloop/error"], second["rewardloop/error"]))
        self.assertTrue(math.isnan(second["acc"]))
        travelled = pickle.loads(pickle.dumps(ExtraInfo(a=1)))  # noqa: S301 - as Ray does
        self.assertTrue(math.isnan(travelled["b"]))

    def test_a_sample_that_nobody_scored_has_the_columns_of_those_that_came_later(self) -> None:
        columns = Columns()
        expired = columns.fill({"rewardloop/valid": False}, "expired")
        scored = columns.fill({"reward/b": 1.0, "pred": "42", "reward/a": None, "rewardloop/valid": True}, None)
        other = Columns().fill({"rewardloop/valid": True, "reward/a": 2.0, "reward/b": 1.0, "pred": ""}, None)
        for info in (expired, scored):
            self.assertEqual(list(other.keys()), list(info.keys()), "batches of several processes are put together")
        self.assertEqual("", expired["pred"])
        self.assertTrue(math.isnan(expired["reward/b"]))
        self.assertEqual({*expired}, {*pickle.loads(pickle.dumps(expired))})  # noqa: S301 - as Ray does

    def test_too_many_failures_raise_with_their_reasons(self) -> None:
        counted = Failures(0.05)
        for _ in range(25):
            counted.count("timeout")
        with self.assertRaisesRegex(RewardFailedError, "max_failed_fraction 0.05: timeout; crashed"):
            counted.count("crashed")
        step = Failures(0.25)
        step.count("a", ("train", 1), 8)
        step.count("a", ("train", 1), 8)
        step.count("a", ("train", 2), 8)
        with self.assertRaisesRegex(RewardFailedError, "train step 1"):
            step.count("b", ("train", 1), 8)


class AgainstAServer(unittest.TestCase):
    def setUp(self) -> None:
        self.server = harness.serve()
        self.addCleanup(self.server.close)

    def settings(self, **more: Any) -> dict[str, Any]:
        made = {"url": self.server.url, "run": self.id(), **more}
        self.addCleanup(lambda: session(Settings(**{"on_failed": "raise", **made})).close())
        return made

    def test_compute_score_returns_score_and_columns(self) -> None:
        async def both() -> list[Any]:
            return await asyncio.gather(
                *(compute_score(solution_image=picture(i), data_source="jpeg", ground_truth=None, extra_info={"n": i},
                                reward_router_address=None, **settings) for i in range(2))
            )  # fmt: skip

        settings = self.settings()
        first = asyncio.run(both())
        again = asyncio.run(both())  # another event loop, the same connection
        self.assertEqual([r["score"] for r in first], [r["score"] for r in again])
        self.assertEqual(1.0, first[0]["rewardloop/valid"])
        self.assertEqual(first[0]["score"], first[0]["acc"])

    def test_compute_score_raises_or_returns_the_value(self) -> None:
        with self.assertRaisesRegex(RewardFailedError, "no image"):
            asyncio.run(compute_score(solution_str="text", **self.settings()))
        scored = asyncio.run(compute_score(solution_str="text", **self.settings(on_failed="value:-2")))
        self.assertEqual((-2.0, 0.0), (scored["score"], scored["rewardloop/valid"]))
        self.assertEqual(-2.0, scored["rewardloop/score"], "a filter of groups meets a number, and no NaN")
        with self.assertRaisesRegex(InputError, "is called without the group"):
            asyncio.run(compute_score(**self.settings(on_failed="group_mean")))

    @unittest.skipUnless(TORCH, "SKIPPED: torch is not installed; make test-verl does")
    def test_the_pipeline_returns_complete_groups_in_the_order_of_the_batch(self) -> None:
        agent = AsyncRewardAgent(**self.settings(on_failed="group_mean"))
        batch = Batch([picture(i) for i in range(7)], ["a", "b", "a", "b", "a", "c", "c"])
        self.assertEqual(7, agent.compute_reward_pipeline(batch, 2))
        indices, scores, extras = agent.get(2, timeout=harness.PATIENCE)
        rest, more, _ = agent.get(7 - len(indices), timeout=harness.PATIENCE)
        self.assertEqual(list(range(7)), sorted(indices + rest))
        self.assertEqual(indices, sorted(indices))
        groups = [batch.non_tensor_batch["uid"][i] for i in indices]
        self.assertEqual({g: groups.count(g) for g in groups}, {g: {"a": 3, "b": 2, "c": 2}[g] for g in groups})
        expected = asyncio.run(all_scores([picture(i) for i in range(7)], self.settings()))
        for found, tensor in ((indices, scores), (rest, more)):
            np.testing.assert_allclose(tensor[:, 0].numpy(), [expected[i] for i in found], rtol=1e-6)
        np.testing.assert_array_equal(extras["rewardloop/valid"], 1.0)
        with self.assertRaises(ValueError):
            agent.get(1)

    @unittest.skipUnless(TORCH, "SKIPPED: torch is not installed; make test-verl does")
    def test_get_begins_and_ends_the_reward_phase_of_a_server_on_the_trainers_cards(self) -> None:
        with harness.serve("pool.colocated=true") as server:
            agent = AsyncRewardAgent(url=server.url, run=self.id(), on_failed="group_mean", colocated=True)
            self.addCleanup(session(agent.settings).close)
            for _ in range(2):
                agent.compute_reward_pipeline(Batch([picture(i) for i in range(4)], ["a", "a", "b", "b"]), 2)
                indices, _, extras = agent.get(4, timeout=harness.PATIENCE)
                self.assertEqual([0, 1, 2, 3], indices)
                np.testing.assert_array_equal(extras["rewardloop/valid"], 1.0)
                with rewardloop.Client(server.url, run="of the same cards") as other:
                    held = other.submit(rewardloop.Sample(media=rewardloop.image(np.zeros((8, 8, 3), np.uint8), layout="HWC")))
                    with self.assertRaises(concurrent.futures.TimeoutError):
                        held.result(0.5)  # in rollout nothing is scored
                    held.cancel()

    @unittest.skipUnless(TORCH, "SKIPPED: torch is not installed; make test-verl does")
    def test_failing_code_does_not_hang_get(self) -> None:
        agent = AsyncRewardAgent(**self.settings(on_failed="raise"))
        agent.compute_reward_pipeline(Batch([picture(0), np.zeros((3, 3), np.bool_)], ["a", "a"]))
        with self.assertRaisesRegex(InputError, "bool with 2 axes"):
            agent.get(2, timeout=harness.PATIENCE)
        agent.compute_reward_pipeline(Batch([picture(0)], ["a"]))
        self.assertEqual([0], agent.get(1, lambda i, s, e, k: i, timeout=harness.PATIENCE, k=1))

    def test_flow_grpos_function_scores_arrays_as_tensors(self) -> None:
        from rewardloop import _trainers, flow_grpo

        batch = np.stack([picture(i).transpose(1, 2, 0) for i in range(3)])
        with mock.patch.dict("os.environ", {"REWARDLOOP_URL": self.server.url}):
            _trainers._CLIENTS.clear()
            scores, extra = flow_grpo.scorer_remote()("cuda")(batch, ["p"] * 3, [{}] * 3)
            if TORCH:
                import torch

                tensors = torch.from_numpy(batch.transpose(0, 3, 1, 2).copy()).float() / 255
                self.assertEqual(scores, flow_grpo.scorer_remote()("cuda")(tensors, ["p"] * 3, [{}] * 3)[0])
            _trainers._CLIENTS.popitem()[1].close()
        self.assertEqual({}, extra)
        self.assertEqual(3, len(set(scores)))
        expected = asyncio.run(all_scores([picture(i) for i in range(3)], self.settings()))
        self.assertEqual(expected, scores)


async def all_scores(pictures: list[Any], settings: dict[str, Any]) -> list[float]:
    found = await asyncio.gather(*(compute_score(solution_image=p, **settings) for p in pictures))
    return [float(r["score"]) for r in found]


class Responses(list[Any]):
    """Rows of different kinds that still look like a tensor."""

    dtype, shape = np.dtype(np.uint8), (1, 1)


class Batch:
    """What the pipeline sees of a DataProto."""

    def __init__(self, pictures: list[Any], uids: list[str]) -> None:
        self.batch = {"responses": Responses(pictures)}
        self.non_tensor_batch = {"uid": np.array(uids, dtype=object)}

    def __len__(self) -> int:
        return len(self.batch["responses"])

    def __getitem__(self, i: int) -> Any:
        return row(self.batch["responses"][i], uid=self.non_tensor_batch["uid"][i])


class OutOfOrder(unittest.TestCase):
    """The pipeline against a client of our own making, which answers in whatever order the test says."""

    @unittest.skipUnless(TORCH, "SKIPPED: torch is not installed; make test-verl does")
    def test_groups_that_finish_out_of_order_keep_their_tokens(self) -> None:
        import concurrent.futures

        class Fake:
            def __init__(self) -> None:
                self.sent: list[tuple[Any, concurrent.futures.Future[Result]]] = []
                self.all = threading.Event()

            def step(self, *_: Any, **__: Any) -> None: ...

            def submit(self, sample: Any) -> Any:
                self.sent.append((sample, concurrent.futures.Future()))
                if len(self.sent) == 4:
                    self.all.set()
                return self.sent[-1][1]

        fake = Fake()
        tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: f"{len(ids)} tokens")
        agent = AsyncRewardAgent(tokenizer, url=WHERE, run=self.id())
        with mock.patch.object(agent._session, "client", return_value=fake):
            agent.compute_reward_pipeline(TextBatch([3, 6, 1, 2], ["a", "b", "a", "b"], 8), 2)
            self.assertTrue(fake.all.wait(harness.PATIENCE))
        for i in (3, 1, 2, 0):  # group b first
            sample, future = fake.sent[i]
            future.set_result(Result(sample.id, Outcome.SCORED, float(sample.index + 1), {"words": sample.response}))
        indices, scores, extras = agent.get(4, timeout=harness.PATIENCE)
        self.assertEqual([0, 1, 2, 3], indices)
        expected = np.zeros((4, 8), np.float32)
        for i, tokens in enumerate((3, 6, 1, 2)):
            expected[i, tokens - 1] = i + 1
        np.testing.assert_array_equal(scores.numpy(), expected)
        self.assertEqual(["3 tokens", "6 tokens", "1 tokens", "2 tokens"], extras["words"].tolist())


class TextBatch:
    def __init__(self, lengths: list[int], uids: list[str], width: int) -> None:
        self.batch = {"responses": np.ones((len(lengths), width), np.int64)}
        self.non_tensor_batch = {"uid": np.array(uids, dtype=object)}
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> Any:
        item = row(self.batch["responses"][i], uid=self.non_tensor_batch["uid"][i])
        mask = np.zeros(2 + len(item.batch["responses"]), np.int64)
        mask[: 2 + self.lengths[i]] = 1
        item.batch["attention_mask"] = mask
        return item


if __name__ == "__main__":
    unittest.main()
