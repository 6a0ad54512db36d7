"""Phases of a trainer that shares its cards with the server, which is the real one."""

from __future__ import annotations

import asyncio
import unittest

import numpy as np

import rewardloop
from rewardloop.errors import InputError

from .harness import PATIENCE, serve


def picture(n: int) -> rewardloop.Sample:
    pixels = np.random.default_rng(n).integers(0, 255, (16, 16, 3), np.uint8)
    return rewardloop.Sample(id=str(n), media=rewardloop.image(pixels, layout="HWC"))


class TestPhase(unittest.TestCase):
    def test_samples_wait_until_the_reward_phase_begins(self) -> None:
        async def step(url: str) -> None:
            async with rewardloop.connect(url, run=self.id()) as loop:
                for n in range(2):
                    await loop.phase("rollout", timeout=PATIENCE)
                    first, second = loop.submit(picture(2 * n)), loop.submit(picture(2 * n + 1))
                    done, _ = await asyncio.wait([asyncio.ensure_future(loop.phase("rollout", timeout=PATIENCE))])
                    self.assertEqual(1, len(done))
                    self.assertEqual(2, loop.pending)
                    await loop.phase("reward", timeout=PATIENCE)
                    for result in await asyncio.wait_for(asyncio.gather(first, second), PATIENCE):
                        self.assertTrue(result.scored, result.why())
                with self.assertRaisesRegex(InputError, "want rollout or reward"):
                    await loop.phase("update")  # type: ignore[arg-type]

        with serve("pool.colocated=true") as server:
            asyncio.run(step(server.url))

    def test_another_run_in_rollout_is_named(self) -> None:
        with serve("pool.colocated=true") as server:
            with rewardloop.Client(server.url, run="one") as one, rewardloop.Client(server.url, run="two") as two:
                one.phase("rollout", timeout=PATIENCE)
                with self.assertRaisesRegex(rewardloop.PhaseError, "the other runs on these cards begin their reward phase: one"):
                    two.phase("reward", timeout=PATIENCE)
                scored = two.submit(picture(1))
                one.phase("reward", timeout=PATIENCE)
                self.assertTrue(scored.result(PATIENCE).scored)

    def test_a_server_that_shares_nothing_answers_at_once(self) -> None:
        with serve() as server, rewardloop.Client(server.url, run=self.id()) as client:
            client.phase("rollout", timeout=PATIENCE)
            self.assertTrue(client.submit(picture(1)).result(PATIENCE).scored)

    def test_a_server_that_was_started_anew_is_told_the_phase_again(self) -> None:
        with serve("pool.colocated=true") as server:
            address = server.url.removeprefix("ws://")
            client = rewardloop.Client(server.url, run=self.id())
            self.addCleanup(client.close)
            client.phase("reward", timeout=PATIENCE)
            self.assertTrue(client.submit(picture(1)).result(PATIENCE).scored)
        with serve("pool.colocated=true", listen=address):
            self.assertTrue(client.submit(picture(2)).result(PATIENCE).scored)
