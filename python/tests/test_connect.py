"""A connection that cannot be made fails in time, with a hint."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import ssl
import subprocess
import tempfile
import unittest
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar
from unittest import mock

import rewardloop
from rewardloop import Client, ConnectError, HelloRefusedError, InputError, Sample

from .harness import PATIENCE, serve

#: Within so many seconds two ends in one process have shaken hands, also where the machine is busy.
HANDSHAKE = 3

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def refusal(url: str, **settings: object) -> ConnectError:
    """The error of a connection attempt, which names the URL."""
    try:
        await asyncio.wait_for(rewardloop.connect(url, run="r", **settings)._open(), PATIENCE)
    except ConnectError as err:
        assert url in str(err), err
        return err
    raise AssertionError(f"{url} was connected to")


class SettingsTest(unittest.TestCase):
    def test_wrong_settings_are_refused_by_name(self) -> None:
        for words, settings in {
            "url: 'http://h:1', want ws": {"url": "http://h:1"},
            "url: '127.0.0.1:8080', want ws": {"url": "127.0.0.1:8080"},
            "url: the URL contains credentials": {"url": "ws://me:secret@h:1"},
            "url: Port": {"url": "ws://h:99999"},
            "url: want a string": {"url": None},
            "url: want a string or a list of strings": {"url": ["ws://h:1", 2]},
            "url: '', want ws": {"url": "ws://h:1,"},
            "url: want a string or a list": {"url": []},
            "silence: -1": {"silence": -1},
            "url: TLS settings": {"tls_ca": "ca.pem"},
            "run: ''": {"run": ""},
            "run: '_x'": {"run": "_x"},
            "client: want a string of at most 512": {"client": "c" * 513},
            "lanes: 0": {"lanes": 0},
            "max_pending: 0": {"max_pending": 0},
            "epoch: -1": {"epoch": -1},
            "connect_timeout: 0": {"connect_timeout": 0},
            "reconnect_for: nan": {"reconnect_for": float("nan")},
            "on_sample_failure: 'value:nan'": {"on_sample_failure": "value:nan"},
            "token: give token or": {"token": "a", "token_file": "b"},
        }.items():
            with self.subTest(words), self.assertRaisesRegex(InputError, words):
                rewardloop.connect(**{"url": "ws://127.0.0.1:1", "run": "r", **settings})

    def test_a_token_is_never_printed(self) -> None:
        cfg = rewardloop.Config(url="ws://h", run="r", token="sesame")
        self.assertNotIn("sesame", repr(cfg))
        for token in ("", " ", "se same", "sésame", "se\nsame"):
            with self.assertRaises(InputError) as caught:
                rewardloop.Config(url="ws://h", run="r", token=token).bearer()
            self.assertNotIn("same", str(caught.exception))


class Case(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        asyncio.get_running_loop().set_debug(False)  # it would log every call that takes 100 ms


class HintTest(Case):
    async def listen(self, answer: Answer, **options: object) -> str:
        """Starts a server of the test's own; returns host:port."""
        server = await asyncio.start_server(answer, "127.0.0.1", 0, **options)  # type: ignore[arg-type]

        async def stop() -> None:
            server.close()

        self.addAsyncCleanup(stop)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def saying(self, text: bytes) -> str:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(text)
            writer.close()

        return "ws://" + await self.listen(answer)

    async def test_a_wrong_port(self) -> None:
        with socket.socket() as s:  # bound and not listening: nobody else gets the port
            s.bind(("127.0.0.1", 0))
            for host in ("127.0.0.1", "localhost"):
                err = await refusal(f"ws://{host}:{s.getsockname()[1]}")
                self.assertRegex(str(err), "nothing listens there; is `rewardloop serve` running, and is it this port")

    async def test_an_unknown_host(self) -> None:
        self.assertIn("host name is unknown", str(await refusal("ws://nowhere.invalid:1")))

    async def test_a_server_that_says_nothing(self) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(-1)
            writer.close()

        where = await self.listen(answer)
        err = await refusal("ws://" + where, connect_timeout=HANDSHAKE)
        self.assertRegex(str(err), "connected, but no answer within 3 s; .* If the server uses TLS, use wss://")
        self.assertRegex(str(await refusal("wss://" + where, connect_timeout=0.3)), "no TLS handshake, within 0.3 s")

    async def test_a_black_hole(self) -> None:
        """A listener whose queue is full drops what comes, as a firewall does."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen(0)
            fillers = [socket.socket() for _ in range(8)]
            try:
                for f in fillers:
                    f.setblocking(False)
                    f.connect_ex(s.getsockname())
                err = await refusal(f"ws://127.0.0.1:{s.getsockname()[1]}", connect_timeout=0.5)
            finally:
                for f in fillers:
                    f.close()
        self.assertRegex(str(err), "no connection within 0.5 s; check the address; a firewall")

    async def test_who_does_not_speak_http(self) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-OpenSSH_9.2p1\r\n")
            await reader.read(-1)
            writer.close()

        self.assertRegex(str(await refusal("ws://" + await self.listen(answer))), "no HTTP answer .* is this the address")

    async def test_who_answers_http_and_is_no_reward_loop(self) -> None:
        for status, words in {
            "404 Not Found": "answered 404; an HTTP server answered, but there is no reward loop",
            "200 OK": "answered 200; is this the address of a reward loop",
            "503 Service Unavailable": "answered 503; the server is being stopped",
            "302 Found\r\nLocation: http://elsewhere/": "points to 'http://elsewhere/'; redirects are not followed",
        }.items():
            with self.subTest(status):
                url = await self.saying(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                self.assertRegex(str(await refusal(url)), words)

    async def test_who_hangs_up(self) -> None:
        self.assertRegex(str(await refusal(await self.saying(b""))), "no HTTP answer")

    async def test_a_websocket_that_never_welcomes(self) -> None:
        from websockets.asyncio.server import ServerConnection, serve as ws_serve

        async def mute(ws: ServerConnection) -> None:
            await ws.wait_closed()

        async def chatty(ws: ServerConnection) -> None:
            await ws.send("hello")
            await ws.wait_closed()

        async def nonsense(ws: ServerConnection) -> None:
            limits = {"message_bytes": 10**400, "header_bytes": 1}
            m = {"type": "welcome", "protocol": "rewardloop.v1", "session": "s", "resumed": False, "epoch": 1, "limits": limits}
            await ws.send(json.dumps({**m, "credit": {"samples": 1, "bytes": 1}, "rewards": [{}]}))
            await ws.wait_closed()

        for handler, subprotocols, words in (
            (nonsense, ["rewardloop.v1"], "first message is not a welcome"),
            (mute, ["rewardloop.v1"], "no welcome within 3 s"),
            (chatty, ["rewardloop.v1"], "first message is not a welcome"),
            (mute, None, "does not support rewardloop.v1"),
        ):
            async with ws_serve(handler, "127.0.0.1", 0, subprotocols=subprotocols) as server:  # type: ignore[arg-type]
                port = next(iter(server.sockets)).getsockname()[1]
                self.assertRegex(str(await refusal(f"ws://127.0.0.1:{port}", connect_timeout=HANDSHAKE)), words)

    async def test_a_server_of_another_release_is_named_beside_this_one(self) -> None:
        from websockets.asyncio.server import ServerConnection, serve as ws_serve

        async def other(ws: ServerConnection) -> None:
            await ws.send(json.dumps({"type": "welcome", "protocol": "rewardloop.v2"}))
            await ws.wait_closed()

        here = rf"this client \(rewardloop {rewardloop.__version__}\) rewardloop.v1"
        same = "; install the same release on both sides$"
        async with ws_serve(other, "127.0.0.1", 0, subprotocols=["rewardloop.v1"]) as server:  # type: ignore[list-item]
            port = next(iter(server.sockets)).getsockname()[1]
            self.assertRegex(str(await refusal(f"ws://127.0.0.1:{port}")), f"uses 'rewardloop.v2', {here}{same}")
        said = b"this server (rewardloop/9.0) speaks rewardloop.v2"
        head = b"HTTP/1.1 400 Bad Request\r\nSec-WebSocket-Protocol: rewardloop.v2\r\nContent-Length: %d\r\n\r\n" % len(said)
        err = await refusal(await self.saying(head + said))
        self.assertRegex(str(err), rf"uses 'rewardloop.v2', {here} \(the server answered 400: {re.escape(said.decode())}\){same}")

    async def test_one_that_chooses_another_protocol_is_left(self) -> None:
        from websockets.asyncio.server import ServerConnection, serve as ws_serve

        async def idle(ws: ServerConnection) -> None:
            await ws.wait_closed()

        def wrong(*_: object) -> str:
            return "rewardloop.v2"

        async with ws_serve(idle, "127.0.0.1", 0, select_subprotocol=wrong) as server:  # type: ignore[arg-type]
            port = next(iter(server.sockets)).getsockname()[1]
            err = await refusal(f"ws://127.0.0.1:{port}")
        self.assertRegex(str(err), "rewardloop.v2.* than this client .rewardloop .* rewardloop.v1; install the same release")

    def test_the_facade_fails_in_the_same_way(self) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            with self.assertRaisesRegex(ConnectError, "nothing listens there"):
                Client(f"ws://127.0.0.1:{s.getsockname()[1]}", run="r")


class ServerHintTest(Case):
    async def test_an_unknown_profile_is_refused_with_the_known_ones(self) -> None:
        with serve() as server:
            err = await refusal(server.url, profile="beauty")
        self.assertIsInstance(err, HelloRefusedError)
        self.assertRegex(str(err), "unknown_reward: .*beauty.*; name one of them with profile=")

    async def test_a_client_of_another_release_is_refused_with_both_releases(self) -> None:
        with serve() as server:
            with mock.patch("rewardloop.dial.PROTOCOL", "rewardloop.v0"):
                err = await refusal(server.url)
            async with rewardloop.connect(server.url, run="r", reconnect_for=0.2, lanes=1) as loop:
                with mock.patch("rewardloop.dial.PROTOCOL", "rewardloop.v0"):  # as if the server were of another release now
                    loop._core._lanes[0].link.ws.transport.abort()
                    with self.assertRaises(rewardloop.LostError) as lost:
                        await loop.submit(Sample(response="x"))
        for words in (str(err), str(lost.exception)):
            self.assertRegex(words, rf"uses 'rewardloop.v1', this client \(rewardloop {rewardloop.__version__}\) rewardloop.v0")
            self.assertRegex(words, rf'the client \("rewardloop-python/{rewardloop.__version__}"\) uses "rewardloop.v0"')
            self.assertRegex(words, 'this server .rewardloop/[^)]+. uses "rewardloop.v1": install the same release on both sides')

    async def test_tokens(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            good, wrong = Path(folder, "good"), Path(folder, "wrong")
            good.write_text("the-right-token-of-this-server\n")
            wrong.write_text("another-token-of-some-server\n")
            with serve(token_file=good) as server:
                self.assertRegex(str(await refusal(server.url)), "answered 401; the server requires a token: give token_file=")
                err = await refusal(server.url, token_file=wrong)
                self.assertRegex(str(err), "answered 401; the server does not accept this token")
                self.assertNotIn("another-token", str(err))
                for settings in ({"token_file": good}, {"token": "the-right-token-of-this-server"}):
                    async with rewardloop.connect(server.url, run="r", **settings) as loop:
                        result = await asyncio.wait_for(loop.submit(Sample(prompt="no picture")), PATIENCE)
                        self.assertFalse(result.scored)
                with self.assertRaisesRegex(InputError, "token_file: cannot be read"):
                    await rewardloop.connect(server.url, run="r", token_file=Path(folder, "none"))


class TLSTest(Case):
    folder: ClassVar[tempfile.TemporaryDirectory[str]]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        try:
            for name in ("server", "client"):
                subprocess.run(
                    [
                        "openssl",
                        "req",
                        "-x509",
                        "-newkey",
                        "ec",
                        "-pkeyopt",
                        "ec_paramgen_curve:P-256",
                        "-nodes",
                        "-days",
                        "2",
                        "-keyout",
                        cls.file(name + ".key"),
                        "-out",
                        cls.file(name + ".crt"),
                        "-subj",
                        "/CN=rewardloop test",
                        "-addext",
                        "subjectAltName=IP:127.0.0.1",
                    ],
                    check=True,
                    capture_output=True,
                    timeout=60,
                )
        except FileNotFoundError:
            raise unittest.SkipTest("SKIPPED: no openssl to make certificates with: TLS was not tried") from None

    @classmethod
    def file(cls, name: str) -> str:
        return os.path.join(cls.folder.name, name)

    async def test_mismatches_and_matches(self) -> None:
        tls = (f"++server.tls_cert={self.file('server.crt')}", f"++server.tls_key={self.file('server.key')}")
        with serve(*tls) as server:
            secure = server.url.replace("ws://", "wss://")
            self.assertRegex(str(await refusal(server.url)), "the server may use TLS: use wss://")
            self.assertRegex(str(await refusal(secure)), "certificate is not trusted .*; name its CA file with tls_ca=")
            ca = self.file("server.crt")
            err = await refusal(secure.replace("127.0.0.1", "localhost"), tls_ca=ca)
            self.assertRegex(str(err), "certificate is not trusted .*use the host name the certificate is for")
            for settings in ({"tls_ca": ca}, {"tls": ssl.create_default_context(cafile=ca)}):
                async with rewardloop.connect(secure, run="r", **settings) as loop:
                    self.assertFalse((await asyncio.wait_for(loop.submit(Sample(prompt="p")), PATIENCE)).scored)
            with self.assertRaisesRegex(InputError, "tls: tls_ca, tls_cert or tls_key cannot be used"):
                await rewardloop.connect(secure, run="r", tls_ca=self.file("server.key"))

    async def test_a_server_without_tls(self) -> None:
        with serve() as server:
            err = await refusal(server.url.replace("ws://", "wss://"))
            self.assertRegex(str(err), "TLS failed .*; if the server does not use TLS, use ws://")

    async def test_a_server_that_wants_a_certificate(self) -> None:
        ca = self.file("server.crt")
        with serve(
            f"++server.tls_cert={ca}",
            f"++server.tls_key={self.file('server.key')}",
            f"++server.client_ca={self.file('client.crt')}",
        ) as server:
            secure = server.url.replace("ws://", "wss://")
            self.assertRegex(str(await refusal(secure, tls_ca=ca)), "client certificate")
            mine = {"tls_cert": self.file("client.crt"), "tls_key": self.file("client.key")}
            async with rewardloop.connect(secure, run="r", tls_ca=ca, **mine) as loop:
                self.assertTrue(loop.connected)


if __name__ == "__main__":
    unittest.main()
