"""Gateways that are being stopped: a rolling restart costs time and no sample."""

from __future__ import annotations

import asyncio
import json
import unittest
from collections import Counter
from typing import Any

import rewardloop
from rewardloop import ClosedError, LostError, Outcome, Sample, StepLostError

from .gateway import DRAINING, FakeCase, Message, rewards, scored
from .harness import PATIENCE, Case, Proxy, eventually, noise, serve


def refusal(sample_id: str, seq: int = 0) -> Message:
    """What a draining gateway answers to a sample."""
    return {
        "type": "result", "id": sample_id, "seq": seq, "outcome": "rejected", "reward_score": None, "attempts": 0,
        "errors": [{"class": "draining", "message": "the gateway accepts no new samples"}],
    }  # fmt: skip


def complaint(sample_id: str, seq: int = 0) -> Message:
    """The same, as a complaint about the sample."""
    return {"type": "error", "code": "draining", "message": "stopping", "id": sample_id}


class RestartTest(Case):
    async def test_a_rolling_restart_loses_and_refuses_no_sample(self) -> None:
        servers = [serve("reward.num_workers=2")]
        try:
            async with Proxy() as proxy:
                proxy.upstream = servers[0].url
                async with rewardloop.connect(proxy.url, run="r") as loop:
                    # Some go over the lane for large messages.
                    media = [noise(600 if i % 8 == 7 else 256, i) for i in range(16)]
                    waiting: list[rewardloop.Pending] = []

                    async def submit() -> None:
                        for i in range(600):
                            waiting.append(loop.submit(Sample(id=str(i), media=media[i % 16])))
                            if i % 4 == 3:
                                await asyncio.sleep(0.005)  # they keep coming

                    sending = asyncio.ensure_future(submit())
                    for part in range(1, 4):
                        await eventually(lambda: len(waiting) >= part * 150 or sending.done(), "samples are submitted")  # noqa: B023
                        await self.soon(waiting[part * 150 - 60])
                        servers.append(await asyncio.to_thread(serve, "reward.num_workers=2"))
                        proxy.upstream = "ws://127.0.0.1:1"  # nobody, while one is restarted
                        servers[-2].process.terminate()
                        await asyncio.to_thread(servers[-2].process.wait, PATIENCE)
                        proxy.upstream = servers[-1].url
                    await self.soon(sending)
                    results = await self.soon(asyncio.gather(*waiting))
                    self.assertEqual(
                        Counter(r.outcome for r in results), {Outcome.SCORED: 600}, [r.why() for r in results if not r.scored][:3]
                    )
                    for i, r in enumerate(results):
                        self.assertEqual(r.score(), results[i % 16].score())
                    read = Counter([r.id async for r in loop.results(600)])
                    self.assertEqual(max(read.values()), 1)
                    self.assertEqual(loop.problems, ())
        finally:
            for server in servers:
                server.kill()


class DrainingTest(FakeCase):
    async def meet(self) -> tuple[Any, Message]:
        """The next connection, with its hello."""
        return await self.soon(self.gateway.met.get())

    async def heard(self) -> None:
        """Returns when the client has heard that the server drains."""
        await eventually(lambda: self.loop.draining, "the client has heard of it")

    async def test_a_server_that_drains_and_hangs_is_left_once_it_has_answered_what_it_has(self) -> None:
        self.gateway.score = lambda sample_id, seq: None  # later
        first, _ = await self.meet()
        a, b = self.loop.submit(Sample(id="a")), self.loop.submit(Sample(id="b"))
        for _ in range(2):
            await self.next(self.gateway.got)
        await first.send(DRAINING)
        await first.send(json.dumps(scored("a", 1)))
        self.assertTrue((await self.soon(a)).scored)
        rest = [self.loop.submit(Sample(id="last")), self.loop.submit(Sample(id="own deadline", deadline=60))]
        self.assertTrue(self.loop.draining)
        self.gateway.score = scored
        await first.send(json.dumps(scored("b", 2)))  # it says nothing more, and does not close
        _, hello = await self.meet()
        self.assertEqual(hello["resume"], {"session": "s", "confirmed": 2})
        for waiting in (b, *rest):
            self.assertTrue((await self.soon(waiting)).scored)
        self.assertFalse(self.loop.draining)
        self.assertEqual([self.gateway.got.get_nowait() for _ in range(2)], ["last", "own deadline"])
        self.assertTrue(self.gateway.got.empty(), "nothing goes twice")

    async def test_an_idle_client_leaves_a_draining_server_at_once(self) -> None:
        first, _ = await self.meet()
        await first.send(DRAINING)
        await self.meet()
        self.assertTrue((await self.soon(self.loop.submit(Sample()))).scored)

    async def test_a_refusal_for_draining_is_no_result_although_the_server_did_not_say_that_it_drains(self) -> None:
        await self.meet()
        for refuse in (refusal, lambda sample_id, seq: refusal(sample_id), complaint):

            def once(sample_id: str, seq: int, refuse: Any = refuse) -> Message:
                self.gateway.score = scored
                answer: Message = refuse(sample_id, seq)
                return answer

            self.gateway.score = once
            self.assertTrue((await self.soon(self.loop.submit(Sample(id="x")))).scored)
            ws, hello = await self.meet()
            self.assertEqual(hello["resume"]["confirmed"], 1, "the number of a refusal that has one is confirmed")
            await ws.close()
            await self.meet()
        self.assertEqual([(r.id, r.outcome) async for r in self.loop.results(3)], [("x", Outcome.SCORED)] * 3)

    async def test_results_that_a_draining_server_still_has_are_taken_along(self) -> None:
        self.gateway.score = lambda sample_id, seq: None
        await self.meet()
        waiting = self.loop.submit(Sample(id="x"))
        await self.next(self.gateway.got)
        self.gateway.drains, self.gateway.score = True, refusal
        self.gateway.cut()
        ws, _ = await self.meet()
        await ws.send(json.dumps(scored("x", 1)))  # behind the welcome and the word of draining
        self.assertTrue((await self.soon(waiting)).scored)

    async def test_a_server_that_drains_for_good_is_given_up_as_one_that_is_gone(self) -> None:
        for says in (True, False):
            self.gateway.drains, self.gateway.score = says, refusal
            self.gateway.connections = 0
            async with rewardloop.connect(self.gateway.url, run="r", lanes=1, reconnect_for=0.6) as loop:
                with self.assertRaisesRegex(LostError, "sample 'x': .* draining"):
                    await self.soon(loop.submit(Sample(id="x")))
                self.assertLess(self.gateway.connections, 15, "it is not dialled without a pause")
                with self.assertRaises(LostError):
                    loop.submit(Sample())

    async def test_a_sample_that_waits_for_the_next_server_expires_at_its_deadline(self) -> None:
        self.gateway.score = lambda sample_id, seq: refusal(sample_id) if sample_id == "refused" else None
        await self.meet()
        kept = self.loop.submit(Sample(id="kept"))  # keeps the client there
        late = [self.loop.submit(Sample(id="refused", deadline=0.3))]
        await self.heard()
        late.append(self.loop.submit(Sample(id="queued", deadline=0.3)))
        for waiting in late:
            result = await self.soon(waiting)
            self.assertEqual(result.outcome, Outcome.EXPIRED)
            self.assertIn("passed at the client", result.why())
        self.assertFalse(kept.done())

    async def test_a_client_that_waits_at_a_draining_server_can_be_closed(self) -> None:
        self.gateway.score = lambda sample_id, seq: None
        first, _ = await self.meet()
        waiting = [self.loop.submit(Sample())]
        await self.next(self.gateway.got)
        await first.send(DRAINING)
        await self.heard()
        waiting.append(self.loop.submit(Sample()))
        await self.soon(self.loop.close())
        for one in waiting:
            with self.assertRaises(ClosedError):
                await one

    async def test_a_client_that_waits_for_the_next_server_can_be_closed(self) -> None:
        async with Proxy() as proxy:
            proxy.upstream = self.gateway.url
            loop = await rewardloop.connect(proxy.url, run="r", lanes=1)
            proxy.upstream = "ws://127.0.0.1:1"
            self.gateway.score = refusal
            waiting = loop.submit(Sample())
            await self.next(self.gateway.got)
            await eventually(lambda: not loop.connected, "the client has left")
            await self.soon(loop.close())
            with self.assertRaises(ClosedError):
                await waiting

    async def test_a_step_that_begins_while_a_server_drains_is_the_next_ones(self) -> None:
        self.gateway.score = lambda sample_id, seq: None
        first, _ = await self.meet()
        old = self.loop.submit(Sample(id="old", step=6))
        await self.next(self.gateway.got)
        await first.send(DRAINING)
        await self.heard()
        self.loop.step(7, 1)
        new = self.loop.submit(Sample(id="new", step=7))
        self.loop.end_of_step(8)
        self.gateway.answer = lambda take: rewards(take, done=True)
        answer = asyncio.ensure_future(self.loop.rewards(7))
        self.assertTrue((await self.soon(self.loop.rewards(6))).done, "it had heard of that one")
        self.assertTrue(self.gateway.told.empty())
        self.gateway.forgetful, self.gateway.score = True, scored  # it is started anew
        await first.send(json.dumps(scored("old", 1)))
        self.assertTrue((await self.soon(old)).scored)
        self.assertTrue((await self.soon(new)).scored)
        self.assertTrue((await self.soon(answer)).done)
        told = [await self.next(self.gateway.told) for _ in range(2)]
        self.assertEqual([(m["type"], m["step"]) for m in told], [("step", 7), ("end_of_step", 8)])
        with self.assertRaises(StepLostError):
            await self.loop.rewards(6)

    async def test_a_question_keeps_the_client_at_a_draining_server_until_a_sample_waits(self) -> None:
        for sample_waits in (False, True):
            at, _ = await self.meet()
            self.gateway.answer = lambda take: None
            answer = asyncio.ensure_future(self.loop.rewards(7))
            asked = await self.next(self.gateway.fetches)
            await at.send(DRAINING)
            await self.heard()
            if sample_waits:
                self.gateway.answer = lambda take: rewards(take, done=True)  # the next one does
                self.assertTrue((await self.soon(self.loop.submit(Sample()))).scored)
            else:
                await at.send(json.dumps(rewards(asked, done=True)))
            self.assertTrue((await self.soon(answer)).done)
        self.assertEqual(self.gateway.connections, 3)


if __name__ == "__main__":
    unittest.main()
