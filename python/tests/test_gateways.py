"""Several gateways, and a first connection to one that is being stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
import unittest
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import rewardloop
from rewardloop import Client, ConnectError, LostError, Outcome, Sample, Server, StepLostError

from .gateway import DRAINING, Gateway, rewards, scored
from .harness import PATIENCE, Case, Proxy, eventually, noise, serve

#: Seconds that the client promises for the way to the next gateway, with as much again for a busy machine.
FAILOVER = 10.0

STOPPED = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Refusing:
    """A server that answers as one that is being stopped, and counts."""

    def __init__(self, answer: bytes = STOPPED) -> None:
        self.answer = answer
        self.dialled = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Refusing:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dialled += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answer)
        writer.close()


class FirstConnectionTest(Case):
    async def test_it_waits_for_the_successor_of_a_server_that_is_being_stopped(self) -> None:
        async with Refusing() as former, Gateway() as successor, Proxy() as proxy:
            proxy.upstream = former.url

            async def connect() -> rewardloop.Loop:
                return await rewardloop.connect(proxy.url, run="r")

            connecting = asyncio.ensure_future(connect())
            await eventually(lambda: former.dialled > 1, "it is dialled again")
            proxy.upstream = "ws://127.0.0.1:1"  # nobody listens while the next one starts
            before = proxy.accepted
            await eventually(lambda: proxy.accepted > before, "it is dialled again")
            proxy.upstream = successor.url
            loop = await self.soon(connecting)
            self.assertTrue((await self.soon(loop.submit(Sample()))).scored)
            await loop.close()

    async def test_a_server_that_is_being_stopped_for_good_is_given_up(self) -> None:
        async with Refusing() as server:
            late = "answered 503, and no other server accepted the connection within 0.6 s; the server is being stopped"
            with self.assertRaisesRegex(ConnectError, late):
                await self.soon(rewardloop.connect(server.url, run="r", connect_timeout=0.6)._open())
            self.assertTrue(1 < server.dialled < 15, server.dialled)

    async def test_a_503_without_retry_after_fails_at_once(self) -> None:
        async with Refusing(STOPPED.replace(b"Retry-After: 2\r\n", b"")) as server:
            with self.assertRaisesRegex(ConnectError, "answered 503"):
                await self.soon(rewardloop.connect(server.url, run="r", connect_timeout=PATIENCE)._open())
            self.assertEqual(server.dialled, 1)

    async def test_it_is_to_the_first_gateway_that_takes_the_client(self) -> None:
        async with Gateway() as gateway, Refusing() as stopping, Proxy() as silent:
            silent.stalled = True
            for other in ("ws://127.0.0.1:1", stopping.url, silent.url):
                with self.subTest(other):
                    async with rewardloop.connect([other, gateway.url], run="r") as loop:
                        self.assertTrue((await self.soon(loop.submit(Sample()))).scored)

    async def test_where_nobody_takes_the_client_each_is_named(self) -> None:
        with self.assertRaisesRegex(ConnectError, "127.0.0.1:1/.*nothing listens there.*127.0.0.1:2/.*nothing listens there"):
            await self.soon(rewardloop.connect("ws://127.0.0.1:1,ws://127.0.0.1:2", run="r")._open())


class NextGatewayTest(Case):
    """One client of two gateways, which do as the test wants."""

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.one, self.two = await Gateway().__aenter__(), await Gateway().__aenter__()
        self.proxy = await Proxy().__aenter__()
        for one in (self.one, self.two, self.proxy):
            self.addAsyncCleanup(one.__aexit__)
        self.proxy.upstream = self.one.url

    @contextlib.asynccontextmanager
    async def connected(self, **settings: Any) -> AsyncIterator[rewardloop.Loop]:
        settings = {"lanes": 1, **settings}
        async with rewardloop.connect([self.proxy.url, self.two.url], run="r", **settings) as loop:
            yield loop

    def gone(self) -> None:
        self.proxy.upstream = "ws://127.0.0.1:1"
        self.proxy.cut()

    async def test_what_has_no_result_goes_there_once(self) -> None:
        for what in ("it is gone", "it drains and is gone", "it is silent", "it drains and hangs"):
            with self.subTest(what):
                self.one.score = lambda sample_id, seq: None
                self.proxy.upstream = self.one.url
                async with self.connected() as loop:
                    first, _ = await self.soon(self.one.met.get())
                    a, b = loop.submit(Sample(id="a")), loop.submit(Sample(id="b"))
                    for _ in range(2):
                        await self.soon(self.one.got.get())
                    await first.send(json.dumps(scored("a", 1)))
                    self.assertTrue((await self.soon(a)).scored)
                    if "drains" in what:
                        await first.send(DRAINING)
                        await eventually(lambda: loop.draining, "the client has heard of it")  # noqa: B023
                    if "gone" in what:
                        self.gone()
                    if "silent" in what:
                        self.proxy.frozen = True
                    begun = time.monotonic()
                    last = loop.submit(Sample(id="last"))
                    _, hello = await self.soon(self.two.met.get())
                    self.assertNotIn("resume", hello, "it knows nothing of the former's session")
                    self.assertNotIn("epoch", hello)
                    for waiting in (b, last):
                        self.assertTrue((await self.soon(waiting)).scored)
                    self.assertLess(time.monotonic() - begun, FAILOVER)
                    self.assertEqual(Counter([self.two.got.get_nowait() for _ in range(2)]), {"b": 1, "last": 1})
                    self.assertEqual(Counter([r.id async for r in loop.results(3)]), {"a": 1, "b": 1, "last": 1})
                while not self.one.got.empty():
                    self.one.got.get_nowait()

    async def test_a_gateway_whose_connection_was_cut_is_dialled_before_the_next(self) -> None:
        async with self.connected() as loop:
            await self.soon(self.one.met.get())
            self.assertTrue((await self.soon(loop.submit(Sample()))).scored)
            self.proxy.cut()
            _, hello = await self.soon(self.one.met.get())
            self.assertEqual(hello["resume"], {"session": "s", "confirmed": 1})
            self.assertTrue((await self.soon(loop.submit(Sample()))).scored)
            self.assertEqual(self.two.connections, 0)

    async def test_a_client_that_comes_back_begins_a_new_session(self) -> None:
        async with self.connected() as loop:
            for i in range(5):
                ws, hello = await self.soon((self.one, self.two)[i % 2].met.get())
                self.assertNotIn("resume", hello)
                self.assertTrue((await self.soon(loop.submit(Sample(id="x")))).scored)
                await ws.send(DRAINING)

    async def test_a_step_that_the_former_gateway_had_heard_of_is_lost(self) -> None:
        self.one.score = lambda sample_id, seq: None
        async with self.connected() as loop:
            first, _ = await self.soon(self.one.met.get())
            loop.step(7, 2)
            old = loop.submit(Sample(id="old", step=7))
            await self.soon(self.one.got.get())
            await first.send(DRAINING)
            await eventually(lambda: loop.draining, "the client has heard of it")
            loop.step(8, 1)  # nobody has heard of it
            self.gone()
            self.assertTrue((await self.soon(old)).scored)
            told = {m["step"] for m in [await self.soon(self.two.told.get()) for _ in range(2)]}
            self.assertEqual(told, {7, 8})
            with self.assertRaises(StepLostError):
                await loop.rewards(7)
            loop.step(7, 2)  # declared again, it is the next one's
            self.two.answer = lambda take: rewards(take, done=True)
            self.assertTrue((await self.soon(loop.rewards(7))).done)

    async def test_all_gone_fail_what_waits_with_a_reason_for_each(self) -> None:
        self.one.score = lambda sample_id, seq: None
        async with rewardloop.connect([self.proxy.url, "ws://127.0.0.1:2"], run="r", lanes=1, reconnect_for=0.5) as loop:
            waiting = loop.submit(Sample(id="x"))
            await self.soon(self.one.got.get())
            self.gone()
            with self.assertRaisesRegex(LostError, "sample 'x': .*127.0.0.1:2/.*nothing listens there"):
                await self.soon(waiting)


class LanesTest(Case):
    async def test_large_samples_follow_the_first_lane_to_its_gateway(self) -> None:
        with serve() as one, serve() as two:
            async with rewardloop.connect([one.url, two.url], run="r") as loop:
                large = [Sample(id=f"l{i}", media=noise(700, i)) for i in range(4)]
                self.assertTrue((await self.soon(loop.submit(large[0]))).scored)
                one.process.kill()
                waiting = [loop.submit(s) for s in (*large[1:], Sample(id="s", media=noise(8)))]
                results = await self.soon(asyncio.gather(*waiting))
                self.assertEqual({r.outcome for r in results}, {Outcome.SCORED})
                first, second = loop._core._lanes
                await eventually(lambda: second.link is not None and second.url == first.url, "both lanes are at one gateway")
                self.assertIn(two.url, first.url)


class KilledTest(unittest.TestCase):
    def test_samples_get_one_result_each_while_one_gateway_after_the_other_is_killed(self) -> None:
        """With small and large ones, over two lanes; the client of threads."""
        addresses: list[str] = []
        servers: list[Server] = []
        try:
            for _ in range(3):
                servers.append(serve())
                addresses.append(servers[-1].url.removeprefix("ws://"))
            samples = [Sample(id=f"s{i}", media=noise(700 if i % 16 == 15 else 64, i % 32)) for i in range(600)]
            with Client([f"ws://{a}" for a in addresses], run="r", reconnect_for=PATIENCE) as client:
                waiting = [client.submit(s) for s in samples[:100]]
                for i in range(3):
                    waiting[100 * (i + 1) - 50].result(PATIENCE)
                    servers[i].process.send_signal(signal.SIGKILL)
                    servers[i].process.wait(PATIENCE)
                    waiting += [client.submit(s) for s in samples[100 * (i + 1) : 100 * (i + 2)]]
                    servers[i] = serve(listen=addresses[i])
                waiting += [client.submit(s) for s in samples[400:]]
                results = [w.result(PATIENCE) for w in waiting]
                read = Counter(r.id for r in client.results(600, timeout=PATIENCE))
            self.assertEqual([r.id for r in results], [s.id for s in samples])
            self.assertEqual({r.outcome for r in results}, {Outcome.SCORED}, [r.why() for r in results if not r.scored][:3])
            for i, r in enumerate(results):
                self.assertEqual(r.score(), results[i % 32].score())
            self.assertEqual(max(read.values()), 1)
        finally:
            for server in servers:
                server.kill()


if __name__ == "__main__":
    unittest.main()
