"""The settings of a connection: address, identity and limits."""

from __future__ import annotations

import inspect
import math
import os
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit, urlunsplit

from .errors import InputError

_P = ParamSpec("_P")
_S = TypeVar("_S")

PROTOCOL = "rewardloop.v1"
_PATH = "/v1/stream"
_MAX_NAME_BYTES = 512


#: Defaults of Config.silence. With several gateways a client is at the next one within 5 s.
_SILENCE, _SILENCE_OF_SEVERAL = 45.0, 3.0


def _checked(url: str) -> str:
    """One URL with its path; InputError if it is none."""
    try:
        u = urlsplit(url)
        port = u.port
    except ValueError as err:
        raise InputError(f"{err}", field="url") from None
    if u.username is not None or u.password is not None:
        raise InputError("the URL contains credentials; give the token with token_file", field="url")
    if u.scheme not in ("ws", "wss") or not u.hostname or port == 0:
        raise InputError(f"{url!r}, want ws://host:port or wss://host:port", field="url")
    return urlunsplit(u._replace(path=_PATH)) if u.path in ("", "/") else url


def own_name() -> str:
    """Returns a client name that no other process has: a connection replaces another one with the same name."""
    return f"{socket.gethostname()[:64]}-{os.getpid()}-{secrets.token_hex(4)}"


@dataclass(frozen=True)
class Config:
    """The settings of a connection: the parameters of connect() and Client().

    Args:
        url: ws://host:port or wss://host:port; the path /v1/stream is added if the URL has no path. Several URLs, as a
            list or separated by commas, are interchangeable gateways. The client uses one of them: at first the first
            one that accepts it. When that gateway is unreachable, silent or draining, the client sends the samples
            without a result to the next one.
        run: Name of the training run, 1 to 512 bytes; must not begin with "_".
        token: Bearer token, never printed; None: the token in token_file, or no token.
        token_file: Path of the file with the token, read at every dial; None: no file.
        profile: Reward profile of samples without a profile of their own; "": the server's default profile.
        on_sample_failure: Policy for a missing score: none, group_mean, zero or value:<x>; "": the profile's policy.
        client: Name of this client within the run, at most 512 bytes. Default: a name that no other process has.
        epoch: Epoch of the run to join; 0: the current epoch, or a new one if no client is connected.
        lanes: Number of connections, 1 to 64: the first for small messages, the others for messages over 1 MiB, which
            would delay the small ones. The others are opened at the first message over 1 MiB.
        connect_timeout: Timeout in seconds, more than 0, for opening a connection, including hello and welcome, and for
            the wait for the successor of a server that is being stopped.
        reconnect_for: Seconds for which the client tries to restore a lost connection before all unanswered samples
            fail.
        silence: Seconds without any data from a gateway, including answers to pings, after which the connection
            counts as lost. 0: 45, or 3 with several URLs. Set a larger value if a ping can wait longer than this
            behind samples.
        max_pending: Maximum number of samples without a result, 1 to 1,048,576.
        tls: TLS context for wss URLs; None: a context from tls_ca, tls_cert and tls_key.
        tls_ca: PEM file of the CA to trust; None: the CAs of the system.
        tls_cert: PEM file of the client certificate; None: no client certificate.
        tls_key: PEM file of the private key of tls_cert; None: the key is in tls_cert.
    """

    url: str | Sequence[str]
    _: KW_ONLY
    run: str
    token: str | None = field(default=None, repr=False)
    token_file: str | os.PathLike[str] | None = None
    profile: str = ""
    on_sample_failure: str = ""
    client: str = field(default_factory=own_name)
    epoch: int = 0
    lanes: int = 2
    connect_timeout: float = 10.0
    reconnect_for: float = 300.0
    silence: float = 0.0
    max_pending: int = 16384
    tls: ssl.SSLContext | None = None
    tls_ca: str | os.PathLike[str] | None = None
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        given: Any = self.url
        if not isinstance(given, str):
            if not isinstance(given, Sequence) or not given or not all(isinstance(u, str) for u in given):
                raise InputError(f"want a string or a list of strings, not {type(given).__name__}", field="url")
            given = ",".join(given)
        object.__setattr__(self, "url", ",".join(_checked(u.strip()) for u in given.split(",")))
        for name in ("run", "profile", "client", "on_sample_failure"):
            value = getattr(self, name)
            if not isinstance(value, str) or len(value.encode(errors="replace")) > _MAX_NAME_BYTES:
                raise InputError(f"want a string of at most {_MAX_NAME_BYTES} bytes", field=name)
        if not self.run or self.run.startswith("_"):
            raise InputError(f"{self.run!r}; a run needs a name that does not begin with _", field="run")
        if self.token is not None and self.token_file is not None:
            raise InputError("give token or token_file, not both", field="token")
        for name, low, high in (("lanes", 1, 64), ("max_pending", 1, 1 << 20), ("epoch", 0, (1 << 63) - 1)):
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise InputError(f"{value!r}, want an integer from {low} to {high}", field=name)
        for name in ("connect_timeout", "reconnect_for", "silence"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not (0 <= value and math.isfinite(value)):
                raise InputError(f"{value!r}, want seconds", field=name)
        if not self.connect_timeout:
            raise InputError("0 s leaves no time to connect", field="connect_timeout")
        if not self.silence:
            object.__setattr__(self, "silence", _SILENCE_OF_SEVERAL if len(self.urls) > 1 else _SILENCE)
        self._check_policy()
        if not self.secure and (self.tls or self.tls_ca or self.tls_cert):
            raise InputError("TLS settings with a ws:// URL; use wss://", field="url")

    def _check_policy(self) -> None:
        p = self.on_sample_failure
        if p in ("", "none", "group_mean", "zero"):
            return
        try:
            if p.startswith("value:") and math.isfinite(float(p[6:])):
                return
        except ValueError:
            pass
        raise InputError(f"{p!r}, want none, group_mean, zero or value:<x>", field="on_sample_failure")

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the gateways."""
        assert isinstance(self.url, str)  # noqa: S101 - since __post_init__
        return tuple(self.url.split(","))

    @property
    def secure(self) -> bool:
        """Whether any URL uses TLS."""
        return any(url.startswith("wss:") for url in self.urls)

    def bearer(self) -> str:
        """Returns the token, or an empty string if there is none."""
        text = self.token
        if self.token_file is not None:
            try:
                text = Path(self.token_file).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as err:
                raise InputError(f"cannot be read: {err}", field="token_file") from None
        if text is None:
            return ""
        name = "token" if self.token_file is None else "token_file"
        text = text.strip()
        if not text:
            raise InputError("the token is empty", field=name)
        if not text.isascii() or not text.isprintable() or " " in text:
            raise InputError("the token contains characters that are not allowed", field=name)
        return text

    def context(self) -> ssl.SSLContext | None:
        """Returns the TLS context; None if no URL uses TLS."""
        if not self.secure:
            return None
        if self.tls is not None:
            return self.tls
        try:
            made = ssl.create_default_context(cafile=None if self.tls_ca is None else os.fspath(self.tls_ca))
            if self.tls_cert is not None:
                made.load_cert_chain(os.fspath(self.tls_cert), None if self.tls_key is None else os.fspath(self.tls_key))
        except (OSError, ssl.SSLError) as err:
            raise InputError(f"tls_ca, tls_cert or tls_key cannot be used: {err}", field="tls") from None
        return made


def takes(settings: Callable[_P, Config]) -> Callable[[Callable[[_S, Config], None]], Callable[Concatenate[_S, _P], None]]:
    """Turns an __init__ with a Config into one with the fields of Config, which editors and help() then show."""

    def decorate(init: Callable[[_S, Config], None]) -> Callable[Concatenate[_S, _P], None]:
        def __init__(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
            init(self, settings(*args, **kwargs))

        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = inspect.Signature([own, *inspect.signature(settings).parameters.values()])
        vars(__init__)["__signature__"] = signature
        __init__.__doc__, __init__.__qualname__ = settings.__doc__, init.__qualname__
        return __init__

    return decorate
