"""Steps: declared, handed out in chunks, through lost connections and gateways, in both clients."""

from __future__ import annotations

import asyncio
import math
import threading
import unittest
from unittest import mock

import numpy as np

import rewardloop
from rewardloop import (
    Client,
    ClosedError,
    InputError,
    LostError,
    Missing,
    NoAnswerError,
    Outcome,
    QueueFullError,
    Rewards,
    Sample,
    StepFailedError,
    StepLostError,
    FetchRefusedError,
)

from .gateway import FakeCase, Message, rewards, scored, unready
from .harness import PATIENCE, Case, Proxy, eventually, noise, serve, until


class QuestionTest(FakeCase):
    async def test_a_chunk_comes_as_columns_and_as_arrays(self) -> None:
        self.gateway.answer = lambda take: rewards(
            take, step_scores=[[0.25, 1], []], without=[{"index": 7, "stage": "not arrived"}]
        )
        r = await self.loop.rewards(7, 2, chunk=3, order="index", split="val", wait=2.5)
        self.assertEqual(
            await self.next(self.gateway.fetches),
            {"type": "fetch", "req": 1, "split": "val", "step": 7, "chunk": 3, "groups": 2, "order": "index", "wait_ms": 2500},
        )
        self.assertEqual((r.split, r.step, r.chunk, r.ready, r.done, r.groups, len(r)), ("val", 7, 3, True, False, 2, 2))
        self.assertEqual((r.state, r.expected, r.arrived, r.scored, r.failed, r.pending, r.missing), ("open", 8, 8, 4, 1, 3, 0))
        self.assertEqual((r.ids, r.indices, r.uids), (("s6", "s7"), (6, None), ("u", "")))
        self.assertEqual((r.rm_scores, r.rm_valid, r.outcomes), ((0.5, None), (True, False), (Outcome.SCORED, Outcome.FAILED)))
        self.assertEqual((r.step_scores, r.components), (((0.25, 1.0), ()), {"reward/ocr": (0.5, None)}))
        self.assertEqual(r.without, (Missing("", 7, "", "not arrived"),))
        scores, valid = r.rm_scores_array(), r.valid_array()
        self.assertEqual((scores.dtype, scores.shape, valid.dtype, valid.shape), (np.float32, (2, 1), np.bool_, (2, 1)))
        self.assertEqual((scores[0, 0], math.isnan(scores[1, 0]), valid.tolist()), (0.5, True, [[True], [False]]))
        empty = await self.empty_chunk()
        self.assertEqual((empty.rm_scores_array().shape, empty.valid_array().shape), ((0, 1), (0, 1)))

    async def empty_chunk(self) -> Rewards:
        self.gateway.answer = lambda take: {**unready(take), "ready": True, "done": True, "state": "short"}
        return await self.loop.rewards(7)

    async def test_chunks_come_in_order_until_the_last(self) -> None:
        polls = iter(range(100))
        self.gateway.answer = lambda take: unready(take) if next(polls) % 2 == 0 else rewards(take, done=take["chunk"] == 3)
        with mock.patch("rewardloop.loop.PAUSE", 0.001):
            got = [r.chunk async for r in self.loop.chunks(7, 2, chunk=1)]
        self.assertEqual(got, [1, 2, 3])
        self.assertEqual((await self.next(self.gateway.fetches))["wait_ms"], 60_000)

    async def test_a_wait_that_is_over_says_so(self) -> None:
        self.gateway.answer = unready
        r = await self.soon(self.loop.rewards(7, 2, wait=0.2))
        self.assertEqual((r.ready, r.state, len(r), r.rm_scores_array().shape), (False, "open", 0, (0, 1)))
        self.assertEqual((await self.next(self.gateway.fetches))["wait_ms"], 200)
        r = await self.soon(self.loop.rewards(7, 2, wait=0))
        self.assertFalse(r.ready)

    async def test_questions_that_no_server_would_take_are_refused_here(self) -> None:
        for field, bad in (
            ("groups", {"groups": -1}), ("chunk", {"chunk": True}), ("order", {"order": "random"}), ("split", {"split": "test"}),
            ("step", {"step": 1.0}), ("wait", {"wait": math.nan}), ("wait", {"wait": -1}),
        ):  # fmt: skip
            with self.subTest(field), self.assertRaisesRegex(InputError, f"^{field}: "):
                await self.loop.rewards(**{"step": 7, **bad})
        self.assertTrue(self.gateway.fetches.empty())

    async def test_a_refused_question_says_why(self) -> None:
        self.gateway.answer = lambda take: {
            "type": "error",
            "code": "expired",
            "message": "the rows were dropped",
            "req": take["req"],
        }
        with self.assertRaisesRegex(
            FetchRefusedError, r"rewards of step 7 \(train\), chunk 0: expired: the rows were dropped"
        ) as caught:
            await self.soon(self.loop.rewards(7))
        self.assertEqual((caught.exception.code, self.loop.problems), ("expired", ()))

    async def test_answers_that_break_the_protocol_fail_their_question_and_not_the_connection(self) -> None:
        for wrong, change in (
            ("column 'uids'", {"uids": ["u"]}), ("column 'reward/ocr'", {"components": {"reward/ocr": [1]}}),
            ("'0.5' is not a finite", {"rm_scores": ["0.5", 1]}), ("neither true nor false", {"ready": 1}),
            ("chunk 9 of step 7", {"chunk": 9}), ("chunk 0 of step 6", {"step": 6}), ("state 'done'", {"state": "done"}),
            ("'expected'", {"expected": None}), ("not an integer", {"indices": [0.5, 1]}), ("'won'", {"outcomes": ["won", "won"]}),
            ("0000 is not a finite", {"rm_scores": [10**400, 1]}),
            ("a row of step_scores is a int", {"step_scores": [1, 2]}), ("step_scores is a dict", {"step_scores": {}}),
        ):  # fmt: skip
            with self.subTest(wrong):

                def answer(take: Message, change: Message = change) -> Message:
                    return {k: v for k, v in rewards(take, **change).items() if v is not None}

                self.gateway.answer = answer
                with self.assertRaises(FetchRefusedError) as caught:
                    await self.soon(self.loop.rewards(7))
                self.assertEqual(caught.exception.code, "malformed")
                self.assertIn(wrong, str(caught.exception))
                self.assertIn(wrong, self.loop.problems[-1])
        self.gateway.answer = lambda take: rewards(take, req=99)
        asking = asyncio.ensure_future(self.loop.rewards(7))
        await eventually(lambda: "question 99, which was not asked" in self.loop.problems[-1], "the answer to nothing is noticed")
        asking.cancel()
        self.gateway.answer = rewards
        self.assertEqual(len(await self.soon(self.loop.rewards(7))), 2)
        self.assertEqual(self.gateway.connections, 1)

    async def test_a_server_that_lets_a_question_pass_is_not_waited_for_for_ever(self) -> None:
        with mock.patch("rewardloop.fetches.ANSWER_GRACE", 0.05):
            with self.assertRaisesRegex(NoAnswerError, r"chunk 0: no answer within 0\.06 s"):
                await self.soon(self.loop.rewards(7, wait=0.01))

    async def test_questions_are_bounded_and_one_that_is_given_up_makes_room(self) -> None:
        asking = [asyncio.ensure_future(self.loop.rewards(7)) for _ in range(64)]
        for _ in asking:
            await self.next(self.gateway.fetches)
        with self.assertRaisesRegex(QueueFullError, "64 questions"):
            await self.loop.rewards(7)
        asking.pop().cancel()
        await asyncio.sleep(0)
        self.gateway.answer = rewards
        await self.soon(self.loop.rewards(7))
        await self.loop.close()
        for ended in await self.soon(asyncio.gather(*asking, return_exceptions=True)):
            self.assertIsInstance(ended, ClosedError)
        with self.assertRaises(ClosedError):
            await self.loop.rewards(7)

    async def test_a_failed_step_names_who_is_missing(self) -> None:
        without = [
            {"id": "late", "uid": "u", "stage": "running", "age_ms": 1.5, "worker": "w"}, {"index": 7, "stage": "not arrived"},
            {"uid": "g", "members": 3, "stage": "not arrived"}, *({"id": f"x{i}", "stage": "queued"} for i in range(9)),
        ]  # fmt: skip
        self.gateway.answer = lambda take: {
            **unready(take), "state": "failed", "done": True, "without": without,
            "expected": 64, "arrived": 50, "pending": 2, "missing": 14,
        }  # fmt: skip
        with self.assertRaises(StepFailedError) as caught:
            await self.soon(self.loop.rewards(7))
        err = caught.exception
        self.assertEqual(
            str(err),
            "step 7 (train) failed at its deadline: 16 of 64 samples have no result: 'late' (running), row 7 (not arrived), "
            "3 of group 'g' (not arrived), 'x0' (queued), 'x1' (queued), 'x2' (queued), 'x3' (queued), 'x4' (queued) and 6 more",
        )
        self.assertEqual((len(err.missing), err.missing[0].worker, err.rewards.state), (12, "w", "failed"))


class DeclareTest(FakeCase):
    async def test_a_long_list_of_ids_goes_in_messages_that_a_server_takes(self) -> None:
        ids = [f'{i} <"\u2028\x01é> ' + "x" * (i % 100) for i in range(2000)]
        self.loop.step(3, 2000, ids=ids, deadline=600, on_deadline="fail")
        got: list[str] = []
        while len(got) < len(ids):
            m = await self.next(self.gateway.told)
            self.assertEqual((m["expected"], m["on_deadline"], "total" in m), (2000, "fail", False))
            self.assertTrue(500_000 < m["deadline_ms"] <= 600_000)
            got += m["ids"]
        self.assertEqual(got, ids)

    async def test_declarations_that_no_server_would_take_are_refused_here(self) -> None:
        for wrong, bad in (
            ("ids: 2 ids for 1", {"ids": ["a", "b"]}), (r"ids\[0\]: want a string of 1 to 512", {"ids": [""]}),
            ("ids: want a list", {"ids": "ab"}), (r"ids\[0\]: .*surrogate", {"ids": ["\ud800"]}),
            ("deadline: 0, want seconds", {"deadline": 0}), ("on_deadline: 'zero', want mask", {"on_deadline": "zero"}),
            ("expected: True", {"expected": True}), ("split: 'test'", {"split": "test"}),
        ):  # fmt: skip
            with self.subTest(wrong), self.assertRaisesRegex(InputError, wrong):
                self.loop.step(**{"step": 1, "expected": 1, **bad})
        self.assertTrue(self.gateway.told.empty())

    async def test_declarations_are_made_again_over_the_next_connection_until_the_step_is_over(self) -> None:
        self.gateway.answer = rewards
        self.loop.step(1, 3, ids=["a", "b"], deadline=600)
        self.loop.step(1, 3, ids=["b", "c"], deadline=600)
        self.loop.step(2, 1)
        await self.soon(self.loop.submit(Sample(step=2)))
        for _ in range(3):
            await self.next(self.gateway.told)
        self.gateway.cut()
        m = await self.next(self.gateway.told)
        self.assertEqual((m["step"], m["ids"]), (1, ["a", "b", "c"]))
        self.assertTrue(500_000 < m["deadline_ms"] <= 600_000, "what is left of it")
        await self.soon(self.loop.rewards(1))  # behind every declaration
        self.assertTrue(self.gateway.told.empty())


class ConnectionTest(FakeCase):
    async def test_a_result_that_breaks_the_protocol_fails_its_sample_and_not_the_connection(self) -> None:
        faults: list[Message] = [
            {"reward_score": 10**400},
            {"reward_score": "1"},
            {"outcome": "won"},
            {"errors": [7]},
            {"details": []},
        ]
        for wrong in faults:
            with self.subTest(wrong):

                def score(sample_id: str, seq: int, wrong: Message = wrong) -> Message:
                    return {**scored(sample_id, seq), **wrong}

                self.gateway.score = score
                result = await self.soon(self.loop.submit(Sample()))
                self.assertEqual((result.outcome, result.errors[0].cls), (Outcome.FAILED, "malformed"))
        self.gateway.score = scored
        self.assertTrue((await self.soon(self.loop.submit(Sample()))).scored)
        self.assertEqual(self.gateway.connections, 1)

    async def test_a_question_outlives_its_connection_and_is_asked_again_with_its_chunk(self) -> None:
        asking = asyncio.ensure_future(self.loop.rewards(7, 2, chunk=3))
        for _ in range(3):
            self.assertEqual((await self.next(self.gateway.fetches))["chunk"], 3)
            self.gateway.cut()
        self.gateway.answer = rewards
        self.gateway.cut()
        self.assertEqual((await self.soon(asking)).ids, ("s6", "s7"))

    async def test_a_step_whose_gateway_is_gone_is_lost_until_it_is_declared_anew(self) -> None:
        self.loop.step(7, 3, ids=["a", "b", "c"])
        await self.soon(self.loop.submit(Sample(id="a", step=7)))
        await self.soon(self.loop.submit(Sample(step=8)))
        asking = asyncio.ensure_future(self.loop.rewards(7, wait=None))
        await self.next(self.gateway.fetches)
        await self.next(self.gateway.told)
        self.gateway.answer = rewards
        self.gateway.cut(forgetful=True)
        with self.assertRaisesRegex(
            StepLostError, r"step 7 \(train\) is lost: .* declare the step with step\(\) and submit its samples"
        ):
            await self.soon(asking)
        self.assertEqual(
            await self.next(self.gateway.told),
            {"type": "step", "split": "train", "step": 7, "expected": 2},
            "what is still to come of it",
        )
        for step in (7, 8):
            with self.assertRaises(StepLostError):
                await self.loop.rewards(step)
        self.assertEqual(len(await self.soon(self.loop.rewards(9))), 2)
        self.loop.step(7, 3)
        self.assertEqual(len(await self.soon(self.loop.rewards(7))), 2)

    async def test_what_was_declared_and_asked_during_an_outage_is_no_loss(self) -> None:
        async with Proxy() as proxy:
            proxy.upstream = self.gateway.url
            async with rewardloop.connect(proxy.url, run="r", lanes=1) as loop:
                proxy.upstream = "ws://127.0.0.1:1"
                proxy.cut()
                await eventually(lambda: not loop.connected, "the client has noticed")
                loop.step(7, 2)
                loop.end_of_step(8)
                asking = asyncio.ensure_future(loop.rewards(7))
                await asyncio.sleep(0)
                self.gateway.forgetful = True
                self.gateway.answer = rewards
                proxy.upstream = self.gateway.url
                self.assertEqual(len(await self.soon(asking)), 2)
                self.assertEqual([(await self.next(self.gateway.told))["type"] for _ in range(2)], ["step", "end_of_step"])

    async def test_a_connection_that_is_lost_for_good_fails_what_is_asked(self) -> None:
        async with Proxy() as proxy:
            proxy.upstream = self.gateway.url
            async with rewardloop.connect(proxy.url, run="r", lanes=1, reconnect_for=0.01) as loop:
                asking = asyncio.ensure_future(loop.rewards(7))
                await self.next(self.gateway.fetches)
                proxy.upstream = "ws://127.0.0.1:1"
                proxy.cut()
                with self.assertRaisesRegex(LostError, r"rewards of step 7 \(train\), chunk 0: "):
                    await self.soon(asking)


def batch(step: int, n: int = 24) -> list[Sample]:
    """n samples in groups of four."""
    return [
        Sample(id=f"{step}/{i}", step=step, split="train", index=i, uid=f"{step}/g{i // 4}", group_size=4, media=noise(16, i))
        for i in range(n)
    ]


class RealTest(Case):
    """Against the real server."""

    async def test_overlapping_steps_are_handed_out_whole_and_each_row_once_through_cut_connections(self) -> None:
        with serve() as server:
            async with Proxy() as proxy:
                proxy.upstream = server.url
                async with rewardloop.connect(proxy.url, run="r") as loop:

                    async def read(step: int) -> list[Rewards]:
                        order = "index" if step == 1 else "completion"
                        chunks = []
                        async for r in loop.chunks(step, 2, order=order):  # type: ignore[arg-type]
                            again = await loop.rewards(step, 2, chunk=r.chunk, order=order)  # type: ignore[arg-type]
                            self.assertEqual((again.ids, again.rm_scores), (r.ids, r.rm_scores), "read again: the same")
                            chunks.append(r)
                        return chunks

                    steps = [batch(step) for step in range(3)]
                    for step, samples in enumerate(steps):
                        loop.step(step, len(samples), ids=[s.id for s in samples])
                    reading = [asyncio.ensure_future(read(step)) for step in range(3)]
                    waiting = {}
                    for n, samples in enumerate(zip(*steps, strict=True)):
                        for s in samples:
                            waiting[s.id] = loop.submit(s)
                        if n % 6 == 3:
                            await self.soon(waiting[samples[0].id])
                            proxy.cut()
                    for step, chunks in enumerate(await self.soon(asyncio.gather(*reading))):
                        self.assertEqual([r.chunk for r in chunks], [0, 1, 2])
                        self.assertEqual([r.done for r in chunks], [False, False, True])
                        rows = [(i, x, v) for r in chunks for i, x, v in zip(r.ids, r.indices, r.rm_scores, strict=True)]
                        self.assertEqual(sorted(i for i, _, _ in rows), sorted(s.id for s in steps[step]))
                        if step == 1:
                            self.assertEqual([x for _, x, _ in rows], list(range(24)))
                        for sample_id, index, score in rows:
                            self.assertEqual(sample_id, f"{step}/{index}")
                            self.assertAlmostEqual(
                                score or 0, (await waiting[sample_id]).score(), msg="a score belongs to its sample"
                            )
                    self.assertEqual(loop.problems, ())

    async def test_a_step_ends_at_its_deadline_as_its_policy_says(self) -> None:
        with serve() as server:
            async with rewardloop.connect(server.url, run="r") as loop:
                for step, policy in enumerate(("mask", "fail", "proceed_with_shortfall")):
                    samples = batch(step, 8)
                    samples[2] = Sample(
                        id=samples[2].id, step=step, split="train", index=2, uid=samples[2].uid, group_size=4,
                        media=rewardloop.image(b"\xff\xd8\xff no picture", encoding="jpeg"),
                    )  # fmt: skip
                    loop.step(step, 8, ids=[s.id for s in samples])
                    await self.soon(loop.score(samples[:6]))
                    loop.step(step, 8, deadline=0.2, on_deadline=policy)  # type: ignore[arg-type]
                masked = await self.soon(loop.rewards(0, wait=None))
                self.assertEqual((masked.state, masked.done, masked.missing), ("short", True, 2))
                self.assertEqual(masked.ids, tuple(f"0/{i}" for i in range(8)))
                self.assertEqual(masked.valid_array()[:, 0].tolist(), [True, True, False, True, True, True, False, False])
                self.assertEqual(np.isnan(masked.rm_scores_array()[6:]).all(), True)
                self.assertEqual({m.id for m in masked.without}, {"0/6", "0/7"})
                with self.assertRaisesRegex(StepFailedError, "2 of 8 samples have no result: '1/6' .*'1/7'") as caught:
                    await self.soon(loop.rewards(1, wait=None))
                self.assertEqual({m.id for m in caught.exception.missing}, {"1/6", "1/7"})
                short = [r async for r in loop.chunks(2, 1)]
                self.assertEqual([r.state for r in short[-1:]], ["short"])
                rows = [i for r in short for i in r.ids]
                self.assertFalse({"2/6", "2/7"} & set(rows))
                self.assertLessEqual({"2/0", "2/1", "2/3", "2/4", "2/5"}, set(rows))
                self.assertEqual(loop.problems, ())

    async def test_a_chunk_too_far_ahead_and_one_that_is_not_there_yet(self) -> None:
        with serve() as server:
            async with rewardloop.connect(server.url, run="r") as loop:
                loop.step(1, 8)
                await self.soon(loop.score(batch(1, 4)))
                with self.assertRaises(FetchRefusedError) as caught:
                    await self.soon(loop.rewards(1, 1, chunk=5))
                self.assertEqual(caught.exception.code, "malformed")
                self.assertEqual((await self.soon(loop.rewards(1, 1))).ids, tuple(f"1/{i}" for i in range(4)))
                r = await self.soon(loop.rewards(1, 1, chunk=1, wait=0.05))
                self.assertEqual((r.ready, r.arrived, r.expected, r.missing), (False, 4, 8, 4))

    async def test_a_step_of_a_killed_server_is_lost_and_can_be_made_again(self) -> None:
        server = serve()
        try:
            async with Proxy() as proxy:
                proxy.upstream = server.url
                async with rewardloop.connect(proxy.url, run="r") as loop:
                    samples = batch(1, 8)
                    loop.step(1, 8)
                    await self.soon(loop.score(samples[:4]))
                    asking = asyncio.ensure_future(loop.rewards(1, wait=None))
                    await asyncio.sleep(0)
                    server.kill()
                    proxy.cut()
                    server = serve()
                    proxy.upstream = server.url
                    with self.assertRaises(StepLostError):
                        await self.soon(asking)
                    loop.step(1, 8)
                    scores = [r.score() for r in await self.soon(loop.score(samples))]
                    r = await self.soon(loop.rewards(1))
                    self.assertEqual(r.ids, tuple(s.id for s in samples))
                    np.testing.assert_allclose(r.rm_scores_array()[:, 0], scores, rtol=1e-6)
        finally:
            server.kill()


class BlockingTest(unittest.TestCase):
    """The same from threads."""

    def test_a_thread_takes_chunks_while_another_submits(self) -> None:
        with serve() as server, Client(server.url, run="r") as client:
            samples = batch(1)
            client.step(1, len(samples), ids=[s.id for s in samples], deadline=PATIENCE, on_deadline="mask")
            taken: list[Rewards] = []
            trainer = threading.Thread(target=lambda: taken.extend(client.chunks(1, 2, order="index")))
            trainer.start()
            scores = [r.score() for r in client.score(samples, timeout=PATIENCE)]
            trainer.join(PATIENCE)
            self.assertEqual([r.chunk for r in taken], [0, 1, 2])
            self.assertEqual([i for r in taken for i in r.ids], [s.id for s in samples])
            np.testing.assert_allclose(np.concatenate([r.rm_scores_array() for r in taken])[:, 0], scores, rtol=1e-6)
            self.assertEqual(client.rewards(1, 2, chunk=1).ids, taken[1].ids)
            self.assertFalse(client.rewards(2, wait=0.01).ready)
            with self.assertRaisesRegex(InputError, "^order: "):
                client.rewards(1, order="random")  # type: ignore[arg-type]
            with self.assertRaisesRegex(FetchRefusedError, "malformed"):
                client.rewards(1, chunk=9)
            client.step(3, 4, deadline=0.1, on_deadline="fail")
            with self.assertRaisesRegex(StepFailedError, r"step 3 \(train\) failed"):
                client.rewards(3, wait=None)

    def test_close_ends_who_waits_for_rewards(self) -> None:
        with serve() as server:
            client = Client(server.url, run="r")
            self.addCleanup(client.close)
            client.step(1, 4)
            ended: list[object] = []

            def wait() -> None:
                try:
                    client.rewards(1, wait=None)
                except ClosedError as err:
                    ended.append(err)

            waiting = [threading.Thread(target=wait) for _ in range(4)]
            for t in waiting:
                t.start()
            until(lambda: len(client._core._steps._asks) == 4, "four wait")  # type: ignore[union-attr]  # noqa: SLF001
            client.close()
            for t in waiting:
                t.join(PATIENCE)
            self.assertEqual(len(ended), 4)
            with self.assertRaises(ClosedError):
                client.rewards(1)


if __name__ == "__main__":
    unittest.main()
