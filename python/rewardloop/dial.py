"""Opens a connection: dial, hello and welcome within one deadline, with a hint if they fail."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Iterator
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus, NegotiationError, WebSocketException

from . import __version__
from .config import PROTOCOL, Config
from .errors import ConnectError, HelloRefusedError
from .jsontext import parse, text
from .messages import Message, Welcome

#: Largest text message of a server.
_MAX_TEXT_BYTES = 16 << 20
#: What may wait in memory for the socket before the sender waits.
_WRITE_BUFFER = (512 << 10, 128 << 10)
#: How long an orderly close may take.
CLOSE_TIMEOUT = 2.0

# At DEBUG websockets logs its headers, and with them the token: never.
_LOG = logging.getLogger("rewardloop.websocket")
_LOG.setLevel(logging.WARNING)


class Connection(ClientConnection):
    """A connection that records when it last received data; every byte is a sign of life."""

    reached = False
    heard = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.reached = True
        self.heard = self.loop.time()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self.heard = self.loop.time()
        super().data_received(data)


class _Connect(connect):
    """connect() without redirects: a token goes to the address it was given for, or nowhere."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class _Attempt:
    """Where to, and how far it has come, for the words of its failure."""

    def __init__(self, cfg: Config, url: str, within: float) -> None:
        self.cfg = cfg
        self.url = url
        self.within = within
        self.secure = url.startswith("wss:")
        self.connection: Connection | None = None
        self.greeting = False

    def make(self, protocol: ClientProtocol, **kwargs: Any) -> Connection:
        self.connection = Connection(protocol, **kwargs)
        return self.connection


async def dial(
    cfg: Config, url: str, within: float, context: ssl.SSLContext | None, hello: Message
) -> tuple[Connection, Welcome]:
    """Returns a connection to the gateway at url, and its welcome; raises ConnectError within ``within`` seconds."""
    attempt = _Attempt(cfg, url, within)
    try:
        return await asyncio.wait_for(_dial(attempt, context, hello), within)
    except (asyncio.TimeoutError, TimeoutError) as err:
        raise _late(attempt) from err
    except (OSError, ssl.SSLError, WebSocketException, EOFError) as err:
        if isinstance(err, ConnectError):
            raise
        raise _explain(attempt, err) from err


async def _dial(attempt: _Attempt, context: ssl.SSLContext | None, hello: Message) -> tuple[Connection, Welcome]:
    token = attempt.cfg.bearer()
    await _Connect(
        attempt.url,
        subprotocols=[PROTOCOL],  # type: ignore[list-item]  # a NewType of str
        additional_headers={"Authorization": f"Bearer {token}"} if token else None,
        user_agent_header=f"rewardloop-python/{__version__}",
        compression=None,
        proxy=None,
        max_size=_MAX_TEXT_BYTES,
        max_queue=256,
        write_limit=_WRITE_BUFFER,
        open_timeout=None,
        ping_interval=attempt.cfg.silence / 3,
        ping_timeout=None,  # the loop's watchdog counts every byte, and works while a write is stuck
        close_timeout=CLOSE_TIMEOUT,
        create_connection=attempt.make,  # type: ignore[arg-type]  # any callable does
        logger=_LOG,
        ssl=context if attempt.secure else None,
    )
    ws = attempt.connection
    assert ws is not None  # noqa: S101 - it has just been made
    attempt.greeting = True
    try:
        if ws.subprotocol != PROTOCOL:
            raise ConnectError(attempt.url, f"the server does not support {PROTOCOL}, {_here()}", "is this the address of a reward loop?")
        await ws.send(text(hello))
        return ws, await _welcome(attempt, ws)
    except BaseException:
        ws.transport.abort()
        raise


async def _welcome(attempt: _Attempt, ws: Connection) -> Welcome:
    message = await ws.recv()
    try:
        m = parse(message) if isinstance(message, str) else {}
        kind = m["type"]
        if kind == "error":
            code = str(m["code"])
            raise HelloRefusedError(attempt.url, code, str(m["message"]), _HELLO_HINTS.get(code, ""))
        if kind == "welcome":
            if m.get("protocol") != PROTOCOL:
                raise ConnectError(attempt.url, f"the server uses {m.get('protocol')!r:.100}, {_here()}", _SAME)
            return Welcome.from_wire(m)
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    raise ConnectError(attempt.url, "the server's first message is not a welcome", "is this the address of a reward loop?")


_SAME = "install the same release on both sides"
_HELLO_HINTS = {
    "unknown_reward": "name one of them with profile=",
    "draining": "the server is being stopped; try again when it is back",
    "unavailable": "the server is full",
}


def _here() -> str:
    return f"this client (rewardloop {__version__}) {PROTOCOL}"


def _late(attempt: _Attempt) -> ConnectError:
    within = f"within {attempt.within:.3g} s"
    if attempt.greeting:
        return ConnectError(attempt.url, f"no welcome {within}", "is this the address of a reward loop?")
    if attempt.connection is not None and attempt.connection.reached:
        other = "" if attempt.secure else " If the server uses TLS, use wss://."
        return ConnectError(
            attempt.url, f"connected, but no answer {within}", "the program at this address may not be a rewardloop server, or hangs." + other
        )
    what = "no connection, or no TLS handshake," if attempt.secure else "no connection"
    plain = " If the server does not use TLS, use ws://." if attempt.secure else ""
    return ConnectError(attempt.url, f"{what} {within}", "check the address; a firewall may drop the packets." + plain)


def _explain(attempt: _Attempt, err: Exception) -> ConnectError:
    """Says what an error of dialling means and what to do about it."""
    for cause in _chain(err):
        if isinstance(cause, ssl.SSLError):
            return _tls(attempt, cause)
    if isinstance(err, InvalidStatus):
        return _status(attempt, err)
    if isinstance(err, InvalidMessage):
        words = " ".join(str(c) for c in _chain(err))
        if not attempt.secure and "HTTP/1.0 400" in words:  # what a TLS server in Go answers
            return ConnectError(attempt.url, "the server refused plain HTTP", "the server may use TLS: use wss://")
        more = "If the server uses TLS, use wss://."
        if attempt.secure:
            more = "The server may require a client certificate: tls_cert=, tls_key=."
        hint = f"is this the address and the port of a reward loop? {more}"
        return ConnectError(attempt.url, f"no HTTP answer ({words})", hint)
    if isinstance(err, NegotiationError):
        return ConnectError(attempt.url, f"the server chose another protocol ({err!s:.100}) than {_here()}", _SAME)
    if isinstance(err, InvalidHandshake):
        return ConnectError(attempt.url, f"the websocket handshake failed ({err})", "is this the address of a reward loop?")
    if isinstance(err, ConnectionClosed):
        return ConnectError(attempt.url, f"the server closed the connection without a welcome ({err})", "see the server's log")
    if isinstance(err, socket.gaierror):
        return ConnectError(attempt.url, f"the host name is unknown ({err.strerror})", "check the address")
    refused = f"[Errno {errno.ECONNREFUSED}]"
    if isinstance(err, ConnectionRefusedError) or refused in str(err):
        return ConnectError(attempt.url, "nothing listens there", "is `rewardloop serve` running, and is it this port?")
    return ConnectError(attempt.url, f"no connection ({err})", "check the address, and that `rewardloop serve` is running there")


def _status(attempt: _Attempt, err: InvalidStatus) -> ConnectError:
    code = err.response.status_code
    said = f"the server answered {code}"
    if code == 401:
        given = attempt.cfg.token is not None or attempt.cfg.token_file is not None
        hint = "the server requires a token: give token_file="
        if given:
            hint = "the server does not accept this token; is it the token of another server?"
        return ConnectError(attempt.url, said, hint)
    if 300 <= code < 400:
        where = err.response.headers.get("Location", "elsewhere")
        return ConnectError(attempt.url, f"{said} and points to {where!r}", "redirects are not followed; give the final address")
    spoken = err.response.headers.get("Sec-WebSocket-Protocol")
    if code == 400 and spoken:
        words = (err.response.body or b"")[:600].decode(errors="replace").strip()
        return ConnectError(attempt.url, f"the server uses {spoken!r:.100}, {_here()} ({said}: {words})", _SAME)
    hints = {
        400: f"the server may use another version than {PROTOCOL}, or may not be a reward loop",
        403: "the server refuses this client: check its token, certificate and origin",
        404: "an HTTP server answered, but there is no reward loop at this path",
        502: "a proxy before the reward loop does not reach it",
        503: "the server is being stopped, or accepts no more connections now; try again later",
    }
    made = ConnectError(attempt.url, said, hints.get(code, "is this the address of a reward loop?"))
    made.stopping = code == 503 and "Retry-After" in err.response.headers
    return made


def _tls(attempt: _Attempt, err: ssl.SSLError) -> ConnectError:
    reason = err.reason or str(err)
    if isinstance(err, ssl.SSLCertVerificationError):
        return ConnectError(
            attempt.url,
            f"the server's certificate is not trusted ({err.verify_message})",
            "name its CA file with tls_ca=, or use the host name the certificate is for",
        )
    if "ALERT" in reason:
        return ConnectError(
            attempt.url,
            f"the server broke off the TLS handshake ({reason})",
            "the server may require a client certificate: tls_cert=, tls_key=",
        )
    return ConnectError(attempt.url, f"TLS failed ({reason})", "if the server does not use TLS, use ws://")


def _chain(err: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = err
    for _ in range(8):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or seen.__context__
