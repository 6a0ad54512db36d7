"""What the tests of clients share: one server with the rewards of functions.py, its counts, and pictures."""

from __future__ import annotations

import atexit
import functools
import io
import logging
import os
import re
import sys
import tempfile
import unittest
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

import rewardloop

FUNCTIONS = Path(__file__).with_name("functions.py")

#: The word of the server with a token.
TOKEN = "open-sesame"

#: Every function is a reward of its own; say is the default one.
CONFIG = """
reward:
  custom_reward_function: {{path: {functions}, name: say, retries: 0, extra_keys: {{height: number}}}}
rewards:
  say: {{custom_reward_function: {{path: {functions}, name: say, retries: 0, extra_keys: {{height: number}}}}}}
  brightness: {{custom_reward_function: {{path: {functions}, name: brightness}}}}
  geneval:
    custom_reward_function: {{path: {functions}, name: geneval, extra_keys: {{strict_reward: number, only_strict: bool}}}}
  edit: {{custom_reward_function: {{path: {functions}, name: edit}}}}
  latent: {{custom_reward_function: {{path: {functions}, name: latent, retries: 0}}}}
  answers: {{custom_reward_function: {{path: {functions}, name: answers, retries: 0, extra_keys: {{acc: bool, words: number}}}}}}
  jpeg: {{custom_reward_function: {{path: "builtin://jpeg_compressibility"}}}}
pool: {{python: {{interpreter: {python}, processes: 1}}}}
loop: {{max_attempts: 1, workers: {{breaker_failures: 1000}}}}  # these rewards fail because they are asked to
"""

for _name in ("no_proxy", "NO_PROXY"):  # requests and httpx would ask the proxy of this machine for 127.0.0.1
    os.environ[_name] = "127.0.0.1"
logging.getLogger("asyncio").setLevel(logging.ERROR)  # unittest's loops report every start of a server as slow


def binary() -> str:
    """The binary that REWARDLOOP_BIN names."""
    if not (named := os.environ.get("REWARDLOOP_BIN")):
        raise unittest.SkipTest("SKIPPED: REWARDLOOP_BIN names no binary: no client was tried")
    return named


@functools.cache
def folder() -> Path:
    """A folder that ends with the process."""
    made = tempfile.TemporaryDirectory()
    atexit.register(made.cleanup)
    return Path(made.name)


class Site:
    """A server, where its clients find it, and how often it has answered what."""

    def __init__(self, *overrides: str, config: Path | None = None, token: str = "") -> None:
        token_file = None
        if token:
            token_file = folder() / "token"
            token_file.write_text(token + "\n")
        self.server = rewardloop.launch(*overrides, config=config, binary=binary(), token_file=token_file)
        self.token = token
        self.host = self.server.url.removeprefix("ws://")

    def url(self, path: str = "", *, token: str | None = None) -> str:
        """The address of a path. The token stands before the @, which every client sends on."""
        word = self.token if token is None else token
        return f"http://{f'any:{word}@' if word else ''}{self.host}{path}"

    def counts(self, route: str) -> Counter[int]:
        """How often a route has answered with which status since the start."""
        asked = urllib.request.Request(f"http://{self.host}/metrics", headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 - our own server
            text = answer.read().decode()
        found = re.findall(r'^rewardloop_\w*requests_total\{code="(\d+)",route="([^"]*)"\} (\d+)', text, re.MULTILINE)
        return Counter({int(code): int(n) for code, r, n in found if r == route})

    @contextmanager
    def answered(self, route: str) -> Iterator[Counter[int]]:
        """Counts the answers of a route while the block runs."""
        before, during = self.counts(route), Counter[int]()
        yield during
        during.update(self.counts(route) - before)

    def close(self) -> None:
        self.server.close()


@functools.cache
def shared(token: str = "") -> Site:
    """The server of all modules, with a token or without. It ends with the process."""
    config = folder() / "server.yaml"
    config.write_text(CONFIG.format(functions=FUNCTIONS, python=sys.executable))
    return Site(config=config, token=token)


def grey(level: float, side: int = 16) -> np.ndarray:
    """A picture of one grey, uint8 HWC; JPEG keeps it to 1/255."""
    return np.full((side, side, 3), round(level * 255), dtype=np.uint8)


def levels(n: int) -> list[float]:
    """n different greys."""
    return [(1 + i) / (n + 1) for i in range(n)]


def encoded(pixels: np.ndarray, form: str = "JPEG") -> bytes:
    """A picture as a file."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format=form)
    return out.getvalue()
