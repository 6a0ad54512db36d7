"""The asynchronous client against a real server: every sample gets exactly one result, whatever happens."""

from __future__ import annotations

import asyncio
import random
import unittest
import urllib.request
from collections import Counter

import numpy as np

import rewardloop
from rewardloop import (
    ClosedError,
    InFlightError,
    InputError,
    LostError,
    Outcome,
    QueueFullError,
    Result,
    Sample,
    TakenOverError,
    UnreadError,
)
from rewardloop.loop import MAX_UNREAD

from .harness import PATIENCE, Case, Proxy, eventually, noise, pictures, serve
from .service import Gate, serve_gated


def runs(url: str) -> str:
    """What the server says about its runs."""
    with urllib.request.urlopen(url.replace("ws://", "http://") + "/v1/runs", timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
        return text


async def both_lanes(loop: rewardloop.Loop) -> None:
    """Returns when the lane for large messages is connected, too: until then the first one takes them."""
    await eventually(lambda: all(lane.link for lane in loop._core._lanes), "both lanes are connected")  # noqa: SLF001


class StreamTest(Case):
    async def test_results_come_to_futures_in_order_and_to_the_reader_as_they_come(self) -> None:
        with serve() as server:
            async with rewardloop.connect(server.url, run="r") as loop:
                loop.step(3, 40)
                samples = pictures(40, step=3, split="train")
                results = await self.soon(loop.score(samples))
                self.assertEqual([r.id for r in results], [s.id for s in samples])
                self.assertTrue(all(r.scored and r.outcome is Outcome.SCORED for r in results))
                read = [r.id async for r in loop.results(40)]
                self.assertEqual(sorted(read), sorted(s.id for s in samples))
                loop.end_of_step(3)
                scores, valid = rewardloop.rm_scores(results)
                self.assertEqual((scores.shape, valid.all()), ((40, 1), True))
                self.assertEqual(loop.problems, ())
                self.assertIn("default", loop.profiles)

    async def test_a_score_belongs_to_its_sample(self) -> None:
        """The same picture as a file and raw, in every layout, alone and in a crowd."""
        with serve() as server:
            async with rewardloop.connect(server.url, run="r") as loop:
                alone = [(await self.soon(loop.submit(Sample(media=noise(32, i))))).score() for i in range(8)]
                self.assertEqual(len(set(alone)), 8)
                crowd = []
                for n in range(160):
                    hwc = np.frombuffer(noise(32, n % 8).parts[0], np.uint8).reshape(32, 32, 3)
                    media = (
                        rewardloop.image(hwc.transpose(2, 0, 1), layout="CHW") if n % 3 else rewardloop.image(hwc, layout="HWC")
                    )
                    crowd.append(Sample(media=media))
                results = await self.soon(loop.score(crowd))
                self.assertEqual([r.score() for r in results], [alone[n % 8] for n in range(160)])

    async def test_a_failed_sample_is_a_result_without_a_score(self) -> None:
        with serve() as server:
            async with rewardloop.connect(server.url, run="r", on_sample_failure="group_mean") as loop:
                group = pictures(3, uid="g", group_size=4)
                bad = Sample(id="bad", uid="g", group_size=4, media=rewardloop.image(b"\xff\xd8\xff no picture", encoding="jpeg"))
                *good, failed = await self.soon(loop.score([*group, bad]))
                self.assertEqual((failed.outcome, failed.reward_score), (Outcome.FAILED, None))
                self.assertIn("bad_input", failed.why())
                assert failed.fallback is not None
                self.assertEqual(failed.fallback.policy, "group_mean")
                self.assertAlmostEqual(failed.fallback.value or 0, sum(r.score() for r in good) / 3, places=6)
                self.assertEqual({r.group.size for r in (*good, failed) if r.group}, {4})

    async def test_bad_input_is_refused_before_anything_is_sent(self) -> None:
        with serve("++loop.message_bytes=4KiB") as server:
            async with rewardloop.connect(server.url, run="r") as loop:
                with self.assertRaisesRegex(InputError, "the server accepts 4096"):
                    loop.submit(Sample(media=noise(64)))
                with self.assertRaisesRegex(InputError, "extra_info"):
                    loop.submit(Sample(extra_info={"x": object()}))
                with self.assertRaisesRegex(InputError, "want a rewardloop.Sample"):
                    loop.submit({"id": "a"})  # type: ignore[arg-type]
                self.assertEqual(loop.pending, 0)
                waiting = loop.submit(Sample(id="a", media=noise(8)))
                with self.assertRaisesRegex(InFlightError, "sample 'a': id: the sample is in flight"):
                    loop.submit(Sample(id="a"))
                self.assertTrue((await self.soon(waiting)).scored)

    async def test_more_than_max_pending_are_refused_until_there_is_room(self) -> None:
        with serve() as server:
            async with rewardloop.connect(server.url, run="r", max_pending=2) as loop:
                for s in pictures(2):
                    loop.submit(s)
                with self.assertRaisesRegex(QueueFullError, "await room"):
                    loop.submit(Sample(id="third"))
                await self.soon(loop.room())
                loop.submit(Sample(id="third", media=noise(8)))
                self.assertEqual(len(await self.soon(loop.score(Sample(media=noise(8)) for _ in range(20)))), 20)

    async def test_results_that_nobody_read_are_not_lost_in_silence(self) -> None:
        with serve() as server:
            async with rewardloop.connect(server.url, run="r") as loop:
                n = MAX_UNREAD + 3
                results = await self.soon(loop.score(Sample(prompt="no picture") for _ in range(n)))
                self.assertEqual(len(results), n)
                with self.assertRaisesRegex(UnreadError, "^3 results were let go"):
                    await anext(loop.results())
                self.assertEqual(len([r async for r in loop.results(MAX_UNREAD)]), MAX_UNREAD)

    async def test_close_gives_up_what_is_not_answered_and_ends_the_reader(self) -> None:
        with Gate() as gate, serve_gated(gate) as server:
            loop = await rewardloop.connect(server.url, run="r")
            reader = asyncio.ensure_future(self.collect(loop))
            waiting = [loop.submit(Sample(prompt=str(i))) for i in range(12)]
            gate.let(1)
            await self.soon(asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED))
            await self.soon(loop.close())
            await self.soon(loop.close())
            ended = await asyncio.gather(*waiting, return_exceptions=True)
            self.assertEqual(sorted(type(e) is Result for e in ended), [False] * 11 + [True])
            self.assertTrue(all(isinstance(e, Result | ClosedError) for e in ended), ended)
            self.assertEqual(len(await self.soon(reader)), 1)
            with self.assertRaises(ClosedError):
                loop.submit(Sample())

    async def collect(self, loop: rewardloop.Loop) -> list[Result]:
        return [r async for r in loop.results()]


class CreditTest(Case):
    async def test_little_credit_slows_down_and_refuses_nobody(self) -> None:
        limits = ("++loop.max_bytes=1MiB", "++loop.message_bytes=512KiB", "++loop.credit_bytes=64KiB", "++loop.credit_samples=3")
        with serve(*limits) as server:
            async with (
                rewardloop.connect(server.url, run="r") as one,
                rewardloop.connect(server.url, run="r", epoch=one.epoch) as two,
            ):
                small = [Sample(media=noise(8 + i % 90, i)) for i in range(200)]
                large = [Sample(media=noise(400, i)) for i in range(6)]  # 480 KB each: beyond every grant
                results = await self.soon(asyncio.gather(one.score(small[:100] + large), two.score(large and small[100:])))
                self.assertEqual([r.outcome for rs in results for r in rs], [Outcome.SCORED] * 206)
                self.assertEqual(one.problems + two.problems, ())

    async def test_small_samples_pass_large_ones(self) -> None:
        """Large messages have a lane of their own: while one is on its way, small ones come and go."""
        with serve("reward.num_workers=4") as server:
            async with Proxy() as proxy:
                proxy.upstream = server.url
                async with rewardloop.connect(proxy.url, run="r") as loop:
                    first = loop.submit(Sample(media=noise(768)))
                    self.assertTrue((await self.soon(first)).scored)
                    await both_lanes(loop)
                    # 24 MB each. Latents are refused by this reward, so that the server is not kept busy.
                    bulk = np.zeros((12, 1024, 1024), np.float16)
                    proxy.brake.clear()
                    large = [loop.submit(Sample(id=f"large{i}", media=rewardloop.latent(bulk, layout="CHW"))) for i in range(4)]
                    small = [loop.submit(s) for s in pictures(20)]
                    await self.soon(asyncio.gather(*small))
                    self.assertFalse(any(f.done() for f in large), "the small ones were waiting for the large ones")
                    proxy.brake.set()
                    results = await self.soon(asyncio.gather(*large))
                    self.assertTrue(all(r.outcome is Outcome.FAILED for r in results))
                    self.assertEqual(proxy.accepted, 2, "one lane for the small, one for the large")

    async def test_one_lane_is_enough(self) -> None:
        with serve() as server:
            async with rewardloop.connect(server.url, run="r", lanes=1) as loop:
                mixed = [Sample(media=noise(700 if i % 5 == 0 else 16, i)) for i in range(25)]
                self.assertTrue(all(r.scored for r in await self.soon(loop.score(mixed))))


class CancelTest(Case):
    async def test_samples_can_be_taken_back(self) -> None:
        with Gate() as gate, serve_gated(gate) as server:
            async with rewardloop.connect(server.url, run="r", lanes=1) as loop:
                busy = [loop.submit(Sample(id=f"busy{i}")) for i in range(10)]
                last = loop.submit(Sample(id="last"))
                dropped = loop.submit(Sample(id="dropped"))
                gate.let(1)
                await self.soon(busy[0])
                loop.cancel("last", "nobody", "last")
                dropped.cancel()
                self.assertEqual((await self.soon(last)).outcome, Outcome.CANCELLED)
                self.assertTrue(dropped.cancelled())
                gate.open()
                await self.soon(asyncio.gather(*busy))
                results = {r.id: r.outcome for r in await self.read(loop, 12)}
                self.assertEqual(results["dropped"], Outcome.CANCELLED)
                self.assertEqual(loop.pending, 0)

    async def test_many_samples_are_taken_back_at_once(self) -> None:
        with Gate() as gate, serve_gated(gate) as server:
            async with rewardloop.connect(server.url, run="r", lanes=1) as loop:
                first = loop.submit(Sample())
                ids = [f"{i:0500}" for i in range(300)]  # 150 KB of ids: three messages
                waiting = [loop.submit(Sample(id=i)) for i in ids]
                gate.let(1)
                await self.soon(first)
                loop.cancel(*ids)
                outcomes = Counter(r.outcome for r in await self.soon(asyncio.gather(*waiting)))
                self.assertEqual(outcomes, {Outcome.CANCELLED: 300})
                self.assertEqual(loop.problems, ())

    async def test_a_wait_that_runs_out_takes_the_sample_back(self) -> None:
        with Gate() as gate, serve_gated(gate) as server:
            async with rewardloop.connect(server.url, run="r", lanes=1) as loop:
                busy = [loop.submit(Sample()) for i in range(8)]
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(loop.submit(Sample(id="x")), 0.01)
                [taken] = await self.read(loop, 1)
                self.assertEqual((taken.id, taken.outcome), ("x", Outcome.CANCELLED))
                gate.open()
                await self.soon(asyncio.gather(*busy))

    async def read(self, loop: rewardloop.Loop, n: int) -> list[Result]:
        """The next n of results()."""

        async def collect() -> list[Result]:
            return [r async for r in loop.results(n)]

        return await self.soon(collect())


class DeadlineTest(Case):
    async def test_a_sample_expires_at_the_server(self) -> None:
        with Gate() as gate, serve_gated(gate) as server:
            async with rewardloop.connect(server.url, run="r", lanes=1) as loop:
                busy = [loop.submit(Sample()) for i in range(12)]
                late = loop.submit(Sample(deadline=0.05))
                result = await self.soon(late)
                self.assertEqual((result.outcome, result.reward_score), (Outcome.EXPIRED, None))
                self.assertNotIn("at the client", result.why())
                gate.open()
                await self.soon(asyncio.gather(*busy))

    async def test_a_sample_that_cannot_be_sent_expires_at_the_client(self) -> None:
        with serve() as server:
            async with Proxy() as proxy:
                proxy.upstream = server.url
                async with rewardloop.connect(proxy.url, run="r", lanes=1) as loop:
                    proxy.stalled = True
                    proxy.cut()
                    result = await self.soon(loop.submit(Sample(media=noise(8), deadline=0.2)))
                    self.assertEqual(result.outcome, Outcome.EXPIRED)
                    self.assertIn("the sample's deadline passed at the client", result.why())


class ResumeTest(Case):
    async def test_cut_at_random_points_every_sample_has_one_result(self) -> None:
        dice = random.Random(7)
        with serve("++loop.credit_bytes=2MiB", "++loop.max_bytes=16MiB", "++loop.message_bytes=4MiB") as server:
            async with Proxy() as proxy:
                proxy.upstream = server.url
                async with rewardloop.connect(proxy.url, run="r") as loop:
                    epoch = loop.epoch
                    samples = [Sample(id=str(i), media=noise(dice.choice((16, 64, 200, 700)), i % 50)) for i in range(300)]
                    expected: dict[tuple[int, int], float] = {}
                    waiting = {s.id: loop.submit(s) for s in samples}
                    for _ in range(12):
                        await self.soon(proxy.passed(dice.randrange(1, 3 << 20)).wait())
                        proxy.cut()
                    results = await self.soon(asyncio.gather(*waiting.values()))
                    self.assertEqual(loop.epoch, epoch, "the session was resumed")
                    self.assertGreaterEqual(proxy.accepted, 10)
                    for sample, r in zip(samples, results, strict=True):
                        self.assertEqual((r.id, r.outcome), (sample.id, Outcome.SCORED), r.why())
                        size, seed = len(sample.media.parts[0]), int(sample.id) % 50  # type: ignore[union-attr]
                        self.assertEqual(expected.setdefault((size, seed), r.score()), r.score(), "a score belongs to its sample")
                    read = Counter([r.id async for r in loop.results(300)])
                    self.assertEqual(max(read.values()), 1)

    async def test_a_server_killed_three_times_in_2000_samples(self) -> None:
        server = serve()
        try:
            async with Proxy() as proxy:
                proxy.upstream = server.url
                async with rewardloop.connect(proxy.url, run="r") as loop:
                    first = loop.epoch
                    loop.step(1, 2000)
                    media = [noise(48, i) for i in range(16)]
                    waiting = [loop.submit(Sample(id=str(i), step=1, media=media[i % 16])) for i in range(2000)]
                    reader = asyncio.ensure_future(self.read(loop, 2000))
                    for part in range(1, 4):
                        await self.soon(waiting[part * 450])
                        server.kill()
                        proxy.cut()
                        server = serve()
                        proxy.upstream = server.url
                    results = await self.soon(asyncio.gather(*waiting))
                    self.assertEqual(Counter(r.outcome for r in results), {Outcome.SCORED: 2000})
                    for i, r in enumerate(results):
                        self.assertEqual(r.score(), results[i % 16].score())
                    self.assertEqual(max((await self.soon(reader)).values()), 1)
                    self.assertNotEqual(loop.epoch, first, "another process: another epoch")
        finally:
            server.kill()

    async def read(self, loop: rewardloop.Loop, n: int) -> Counter[str]:
        return Counter([r.id async for r in loop.results(n)])

    async def test_what_was_taken_back_during_an_outage_stays_taken_back(self) -> None:
        with Gate() as gate, serve_gated(gate) as server:
            async with Proxy() as proxy:
                proxy.upstream = server.url
                async with rewardloop.connect(proxy.url, run="r", lanes=1) as loop:
                    busy = [loop.submit(Sample()) for _ in range(24)]
                    sent = loop.submit(Sample(id="sent"))
                    gate.let(1)
                    await self.soon(busy[0])
                    proxy.upstream = "ws://127.0.0.1:1"
                    proxy.cut()
                    unsent = loop.submit(Sample(id="unsent"))
                    loop.cancel("sent", "unsent")
                    self.assertEqual((await self.soon(unsent)).outcome, Outcome.CANCELLED)
                    proxy.upstream = server.url
                    self.assertEqual((await self.soon(sent)).outcome, Outcome.CANCELLED)
                    gate.open()
                    await self.soon(asyncio.gather(*busy))

    async def test_a_server_that_does_not_come_back_fails_every_sample_with_the_reason(self) -> None:
        with Gate() as gate, serve_gated(gate) as server:
            async with rewardloop.connect(server.url, run="r", reconnect_for=0.2, lanes=1) as loop:
                waiting = [loop.submit(Sample(id=f"w{i}")) for i in range(8)]
                gate.let(1)
                await self.soon(waiting[0])
                server.kill()
                ended = await self.soon(asyncio.gather(*waiting, return_exceptions=True))
                self.assertIsInstance(ended[-1], LostError)
                self.assertRegex(str(ended[-1]), "sample 'w7': .* not restored within 0.2 s: .* nothing listens there")
                with self.assertRaises(LostError):
                    await self.soon(self.read(loop, 2))
                with self.assertRaises(LostError):
                    loop.submit(Sample())

    async def test_a_connection_that_falls_silent_is_closed_and_resumed(self) -> None:
        with serve() as server:
            async with Proxy() as proxy:
                proxy.upstream = server.url
                async with rewardloop.connect(proxy.url, run="r", silence=3) as loop:
                    proxy.frozen = True
                    waiting = loop.submit(Sample(media=noise(8)))
                    await eventually(lambda: proxy.accepted == 2, "it is dialled again")
                    self.assertTrue((await self.soon(waiting)).scored)
                    self.assertEqual(proxy.accepted, 2)

    async def test_steps_declared_during_an_outage_reach_the_server(self) -> None:
        with serve() as server:
            async with Proxy() as proxy:
                proxy.upstream = server.url
                async with rewardloop.connect(proxy.url, run="steps") as loop:
                    loop.step(1, 2)
                    await self.soon(loop.submit(Sample(step=1, media=noise(8))))
                    proxy.upstream = "ws://127.0.0.1:1"
                    proxy.cut()
                    await eventually(lambda: not loop.connected, "the client has noticed")
                    loop.step(2, 7)
                    loop.end_of_step(1)
                    proxy.upstream = server.url
                    await self.soon(loop.submit(Sample(step=2, media=noise(8))))
                    await self.soon(loop.submit(Sample(step=2, media=noise(8))))
                    state = await asyncio.to_thread(runs, server.url)
                    self.assertRegex(state, '"expected": ?7')

    async def test_a_connection_in_the_middle_of_an_outage_is_not_waited_for_by_close(self) -> None:
        with serve() as server:
            async with Proxy() as proxy:
                proxy.upstream = server.url
                loop = await rewardloop.connect(proxy.url, run="r", connect_timeout=10 * PATIENCE)
                proxy.stalled = True
                proxy.cut()
                waiting = loop.submit(Sample())
                await eventually(lambda: proxy.accepted == 2, "the client is reconnecting")
                await self.soon(loop.close())
                with self.assertRaises(ClosedError):
                    await waiting

    async def test_a_namesake_takes_over_and_the_older_one_says_so(self) -> None:
        with Gate() as gate, serve_gated(gate) as server:
            async with rewardloop.connect(server.url, run="r", client="twin") as one:
                busy = [one.submit(Sample(media=noise(640, i))) for i in range(4)]
                # Its lane for large messages stays connected meanwhile, and with it the run.
                await both_lanes(one)
                gate.let(1)
                await self.soon(asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED))
                async with rewardloop.connect(server.url, run="r", client="twin") as two:
                    with self.assertRaisesRegex(TakenOverError, "give every process another client="):
                        await self.soon(asyncio.gather(*busy))
                    gate.open()
                    self.assertTrue((await self.soon(two.submit(Sample()))).scored)
                    self.assertEqual(two.epoch, one.epoch)

    async def test_a_restarted_trainer_may_use_its_ids_again(self) -> None:
        with serve() as server:
            epochs, scores = set(), set()
            for seed in range(3):
                async with rewardloop.connect(server.url, run="r", client="trainer") as loop:
                    epochs.add(loop.epoch)
                    scores.add((await self.soon(loop.submit(Sample(id="0", media=noise(32, seed))))).score())
            self.assertEqual((len(epochs), len(scores)), (3, 3))
            async with rewardloop.connect(server.url, run="r") as one, rewardloop.connect(server.url, run="r", epoch=one.epoch):
                with self.assertRaisesRegex(rewardloop.HelloRefusedError, "is at epoch"):
                    await rewardloop.connect(server.url, run="r", epoch=one.epoch + 1)


class DrainTest(Case):
    async def test_a_draining_server_finishes_what_it_has_and_what_it_refuses_waits_for_the_next(self) -> None:
        with Gate() as gate, serve_gated(gate, slots=2) as server:
            async with rewardloop.connect(server.url, run="r", reconnect_for=0.2, lanes=1) as loop:
                waiting = [loop.submit(Sample()) for _ in range(16)]
                await asyncio.to_thread(gate.wait_asked, 2)
                server.process.terminate()
                await eventually(lambda: loop.draining, "the client has heard of it")
                refused = loop.submit(Sample())
                gate.open()
                ended = await self.soon(asyncio.gather(*waiting, refused, return_exceptions=True))
                # What it had is scored; no other server comes for the rest.
                results = [r for r in ended if isinstance(r, Result)]
                self.assertTrue(all(isinstance(e, Result | LostError) for e in ended), ended)
                self.assertEqual({r.outcome for r in results}, {Outcome.SCORED}, [r.why() for r in results])
                self.assertGreaterEqual(len(results), 2)
                self.assertIsInstance(ended[-1], LostError)


if __name__ == "__main__":
    unittest.main()
