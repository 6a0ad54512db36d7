"""Flow control: what a client says of its credit."""

from __future__ import annotations

import asyncio
import json
import unittest

from rewardloop import Outcome, Sample

from .gateway import FakeCase, Message, scored
from .harness import noise

#: What the gateway lets in flight at first.
GRANTED = 1 << 20


def over_credit(sample_id: str, seq: int) -> Message:
    """The answer to a sample for which the gateway has no room."""
    return {
        "type": "result", "id": sample_id, "seq": 0, "outcome": "rejected", "reward_score": None, "attempts": 0,
        "errors": [{"class": "over_credit", "message": "wait for credit"}],
    }  # fmt: skip


class CreditTest(FakeCase):
    def large(self) -> Sample:
        return Sample(media=noise(384))  # 442 KB

    async def test_what_waits_is_told_and_what_is_not_needed_handed_back(self) -> None:
        self.gateway.score = lambda sample_id, seq: None
        ws, _ = await self.soon(self.gateway.met.get())
        waiting = [self.loop.submit(self.large()) for _ in range(3)]
        want = await self.soon(self.gateway.flow.get())
        self.assertEqual(want["type"], "want")
        size = (want["bytes"] + GRANTED) / 3  # one waits, and most of a third is granted
        self.assertAlmostEqual(size, 384 * 384 * 3, delta=2000)
        waiting += [self.loop.submit(self.large()) for _ in range(3)]
        want = await self.soon(self.gateway.flow.get())
        self.assertEqual(want["type"], "want")
        self.assertGreater(want["bytes"], 4 * size - GRANTED)
        await ws.send('{"type":"reclaim"}')
        self.assertEqual(await self.soon(self.gateway.flow.get()), {"type": "yield", "samples": 0, "bytes": 0})
        await ws.send(json.dumps({"type": "credit", "samples": 200, "bytes": 8 << 20}))
        for _ in waiting:
            await self.soon(self.gateway.got.get())
        await ws.send('{"type":"reclaim"}')
        answer = await self.soon(self.gateway.flow.get())
        while answer["type"] == "want":  # said before the credit came
            answer = await self.soon(self.gateway.flow.get())
        self.assertAlmostEqual(answer["bytes"], (8 << 20) - 6 * size, delta=20)
        self.loop.submit(self.large())
        want = await self.soon(self.gateway.flow.get())
        self.assertAlmostEqual(want["bytes"], size, delta=20, msg="what it has handed back is gone")
        for future in waiting:
            future.cancel()

    async def test_a_client_whose_credit_was_taken_back_asks_for_more(self) -> None:
        self.gateway.score = over_credit
        ws, _ = await self.soon(self.gateway.met.get())
        future = self.loop.submit(Sample(media=noise(8)))
        await self.soon(self.gateway.got.get())
        want = await self.soon(self.gateway.flow.get())
        self.assertEqual(want["type"], "want")
        self.assertGreater(want["bytes"], 0, "although it believes that it has credit")
        self.gateway.score = scored
        await ws.send(json.dumps({"type": "credit", "samples": 100, "bytes": GRANTED}))  # a repeat: it may try again
        self.assertEqual((await self.soon(asyncio.ensure_future(self._result(future)))).outcome, Outcome.SCORED)

    async def _result(self, future: object) -> object:
        return await future  # type: ignore[misc]


if __name__ == "__main__":
    unittest.main()
