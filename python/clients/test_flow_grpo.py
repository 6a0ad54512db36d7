"""flow_grpo's remote scorers: DeQA, GenEval and UnifiedReward.

The client is written for this test from flow_grpo/rewards.py (yifan123/flow_grpo, MIT): pickles over requests, with
urllib3's Retry of 1000 tries on status 500. flow_grpo's own file runs too where REWARDLOOP_CHECKOUTS holds a checkout
and this Python has torch; its three fixed addresses are then led to the test's server where they are dialled.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
import unittest
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry, connection

from . import site, trainers

#: Pictures of one request.
BATCH = 64


class Client:
    """The three scorers, over one session for each address as flow_grpo has."""

    def __init__(self, url: str) -> None:
        self.url, self.protocol = url, pickle.DEFAULT_PROTOCOL
        self.session = requests.Session()
        tries = Retry(total=1000, backoff_factor=1, status_forcelist=[500], allowed_methods=None)
        self.session.mount("http://", HTTPAdapter(max_retries=tries))
        self.last: requests.Response | None = None

    def ask(self, what: dict[str, Any]) -> Any:
        return self.send(pickle.dumps(what, protocol=self.protocol))

    def send(self, body: bytes) -> Any:
        self.last = self.session.post(self.url, data=body, timeout=120)
        return pickle.loads(self.last.content)  # noqa: S301 - our own server

    @staticmethod
    def split(column: Any) -> list[np.ndarray]:
        """A column in parts of nearly the same size, as numpy splits it."""
        return np.array_split(column, np.ceil(len(column) / BATCH))

    def deqa(self, images: np.ndarray) -> list[float]:
        return [v for part in self.split(images) for v in self.ask({"images": [site.encoded(p) for p in part]})["outputs"]]

    def unified(self, images: np.ndarray, prompts: list[str]) -> list[float]:
        scores = []
        for part, said in zip(self.split(images), self.split(prompts), strict=True):
            scores += self.ask({"images": [site.encoded(p) for p in part], "prompts": said})["outputs"]
        return scores

    def geneval(self, images: np.ndarray, metas: list[dict[str, Any]], strict: bool) -> tuple[Any, ...]:
        keys = ("scores", "rewards", "strict_rewards", "group_rewards", "group_strict_rewards")
        whole: dict[str, Any] = {}
        for part, about in zip(self.split(images), self.split(metas), strict=True):
            got = self.ask({"images": [site.encoded(p) for p in part], "meta_datas": list(about), "only_strict": strict})
            for key in keys:
                if isinstance(got[key], list):
                    whole.setdefault(key, []).extend(got[key])
                else:
                    for tag, values in got[key].items():
                        whole.setdefault(key, {}).setdefault(tag, []).extend(values)
        return tuple(whole[key] for key in keys)


def pictures(n: int) -> np.ndarray:
    """n pictures of different greys, NHWC."""
    return np.stack([site.grey(v) for v in site.levels(n)])


def metas(n: int) -> list[dict[str, Any]]:
    """What GenEval knows of n prompts, every second of which counts."""
    return [
        {
            "tag": "counting" if i % 2 else "colors",
            "include": [{"class": "cat", "count": i}],
            "exclude": [],
            "prompt": f"{i} cats",
        }
        for i in range(n)
    ]


class Cases:
    """What must hold for either client."""

    def scorers(self, path: str, name: str) -> Any:
        """The scorer name against the server's path."""
        raise NotImplementedError

    def test_deqa_gets_the_scores_of_two_requests_in_order(self) -> None:
        with site.shared().answered("/scorers/:name") as answered:
            got = self.scorers("/scorers/brightness", "deqa")(pictures(70))
        np.testing.assert_allclose(got, site.levels(70), atol=0.01)
        self.assertEqual(answered, {200: 2})

    def test_prompts_come_as_an_array_of_numpy(self) -> None:
        prompts = [f"{v:.4f}" for v in site.levels(70)]
        self.assertEqual(self.scorers("/scorers/say", "unified")(pictures(70), prompts), [float(p) for p in prompts])

    def test_geneval_gets_its_five_lists(self) -> None:
        n = 70
        scores, plain, strict, groups, strict_groups = self.scorers("/scorers/geneval", "geneval")(pictures(n), metas(n), False)
        np.testing.assert_allclose(scores, site.levels(n), atol=0.01)
        self.assertEqual(plain, scores)
        self.assertEqual(strict, [float(i % 2) for i in range(n)])
        tags = ["single_object", "two_object", "counting", "colors", "position", "color_attr"]
        self.assertEqual(sorted(groups), sorted(tags))
        self.assertEqual(groups["counting"], [s if i % 2 else -10.0 for i, s in enumerate(scores)])
        self.assertEqual(strict_groups["colors"], [-10.0 if i % 2 else 0.0 for i in range(n)])
        self.assertEqual(groups["position"], [-10.0] * n)

    def test_a_sample_that_fails_for_good_ends_the_step_at_once(self) -> None:
        """The client looks for its key in the error's pickle: KeyError, within seconds instead of a day."""
        for prompt in ("broken:0", "nan"):
            with site.shared().answered("/scorers/:name") as answered, self.assertRaises(KeyError):
                self.scorers("/scorers/say", "unified")(pictures(2), ["1", prompt])
            self.assertEqual(answered, {422: 1}, prompt)

    def test_geneval_of_a_reward_that_cannot_is_refused_by_name(self) -> None:
        with site.shared().answered("/scorers/:name") as answered, self.assertRaises(KeyError):
            self.scorers("/scorers/brightness", "geneval")(pictures(2), metas(2), False)
        self.assertEqual(answered, {422: 1})

    def test_urllib3_tries_again_after_the_pause_that_503_names(self) -> None:
        started = time.monotonic()
        with site.shared().answered("/scorers/:name") as answered:
            self.assertEqual(self.scorers("/scorers/say", "unified")(pictures(1), [f"once:{type(self).__name__}:0.5"]), [0.5])
        self.assertEqual(answered, {503: 1, 200: 1})
        self.assertGreater(time.monotonic() - started, 1)


class FromTheProtocol(Cases, unittest.TestCase):
    def scorers(self, path: str, name: str) -> Any:
        return getattr(Client(site.shared().url(path)), name)

    def test_a_token_goes_before_the_host(self) -> None:
        guarded = site.shared(site.TOKEN)
        self.assertEqual(Client(guarded.url("/scorers/say")).unified(pictures(2), ["1", "0"]), [1, 0])
        refused = Client(guarded.url(token=""))
        self.assertIn("unauthorized", refused.ask({"images": [b""]})["error"])
        assert refused.last is not None
        self.assertEqual(refused.last.status_code, 401)

    def test_every_protocol_of_pickle_and_every_kind_of_array_is_read(self) -> None:
        client = Client(site.shared().url("/scorers/say"))
        columns: list[Any] = [
            ["0.5", "0.25"], ("0.5", "0.25"), np.array(["0.5", "0.25"]), np.array(["0.5", "0.25"], dtype=object),
            [np.str_("0.5"), np.str_("0.25")], np.array([["0.5", "x"], ["0.25", "y"]])[:, 0],
        ]  # fmt: skip
        pics = [site.encoded(p) for p in pictures(2)]
        for client.protocol in range(1, pickle.HIGHEST_PROTOCOL + 1):
            for i, prompts in enumerate(columns):
                with self.subTest(protocol=client.protocol, column=i):
                    got = client.ask({"images": pics, "prompts": prompts})
                    self.assertEqual(got, {"scores": [0.5, 0.25], "outputs": [0.5, 0.25]})
        client.protocol = 0  # which no client uses
        self.assertIn("protocol 0 is not supported", client.ask({"images": pics})["error"])

    def test_big_pictures_that_leave_the_frames_of_a_pickle_are_read(self) -> None:
        noise = np.random.default_rng(0).integers(0, 256, (512, 512, 3), dtype=np.uint8)
        picture = site.encoded(noise, "PNG")
        self.assertGreater(len(picture), 64 << 10)
        client = Client(site.shared().url("/scorers/say"))
        self.assertEqual(client.ask({"images": [picture] * 3, "prompts": ["0.5", "0.25", "1"]})["outputs"], [0.5, 0.25, 1])

    def test_numbers_of_numpy_in_metadata_are_read(self) -> None:
        client = Client(site.shared().url("/scorers/geneval"))
        found = {"class": "cat", "count": np.int64(2), "box": np.zeros(4, np.float32)}
        metas_ = np.array([{"tag": np.str_("counting"), "include": [found], "exclude": ()}])
        got = client.ask({"images": [site.encoded(site.grey(0.5))], "meta_datas": metas_, "only_strict": np.bool_(True)})
        self.assertEqual(got.get("strict_rewards"), [1.0], got)

    def test_nothing_but_an_overload_ever_asks_for_another_try(self) -> None:
        """500 would be tried a thousand times; none of these has it, and none is tried twice."""
        whole = site.encoded(site.grey(0.5, side=64))
        ask = pickle.dumps
        bodies = {
            "no pickle": b"hello",
            "nothing": b"",
            "cut pickle": ask({"images": [whole]})[:-20],
            "code": b"cos\nsystem\n(S'true'\ntR.",
            "no dict": ask([1, 2]),
            "no images": ask({"prompts": ["a"]}),
            "no picture": ask({"images": []}),
            "cut picture": ask({"images": [whole[:200]]}),
            "text for a picture": ask({"images": ["/etc/passwd"]}),
            "prompts": ask({"images": [whole], "prompts": ["a", "b"]}),
            "unknown key": ask({"images": [whole], "temperature": 1}),
            "metadata": ask({"images": [whole], "metadata": [{}, {}]}),
        }
        for name, body in bodies.items():
            with self.subTest(name), site.shared().answered("/scorers/:name") as answered:
                client = Client(site.shared().url("/scorers/brightness"))
                got = client.send(body)
                assert client.last is not None
                self.assertIn(client.last.status_code, (400, 422))
                self.assertEqual(list(got)[0], "error")
                self.assertNotIn("Retry-After", client.last.headers)
                self.assertEqual(client.last.raw.retries.history, ())
            self.assertEqual(sum(answered.values()), 1, name)

    def test_the_error_names_the_samples_without_a_score(self) -> None:
        asked = {"images": [site.encoded(p) for p in pictures(4)], "prompts": ["1", "broken", "1", "nan"]}
        got = Client(site.shared().url("/scorers/say")).ask(asked)
        self.assertEqual(got["failed"], [1, 3])
        self.assertIn("2 of 4 samples have no score", got["error"])


class OfFlowGRPO(Cases, unittest.TestCase):
    """flow_grpo's own rewards.py. Its addresses are in its source."""

    @classmethod
    def setUpClass(cls) -> None:
        trainers.need("torch")
        cls.theirs = trainers.load(trainers.checkout("flow_grpo"), "flow_grpo.rewards")

    def scorers(self, path: str, name: str) -> Any:
        import torch

        made = {"deqa": "deqa_score_remote", "geneval": "geneval_score", "unified": "unifiedreward_score_remote"}
        score = getattr(self.theirs, made[name])("cpu")

        def call(images: np.ndarray, *more: Any) -> Any:
            batch = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
            with _led_to(site.shared().host, path), contextlib.redirect_stdout(None):
                if name == "geneval":
                    return score(batch, [], *more)
                return score(batch, more[0] if more else [], [])[0]

        return call


@contextlib.contextmanager
def _led_to(host: str, path: str) -> Iterator[None]:
    """Leads every connection to host, and what is posted to /, the only path of flow_grpo, to path.

    The path is chosen by a relay, so that nothing of flow_grpo, requests or urllib3 is touched.
    """
    relay = _Relay(host, path)
    dial = connection.create_connection

    def redirected(address: tuple[str, int], *args: Any, **kwargs: Any) -> Any:
        if address[0] == "10.82.120.15" or address[1] in (18085, 18086):
            address = ("127.0.0.1", relay.port)
        return dial(address, *args, **kwargs)

    with mock.patch.object(connection, "create_connection", redirected), relay:
        yield


class _Relay:
    """Hands requests on byte for byte, with another path."""

    def __init__(self, host: str, path: str) -> None:
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = requests.post(f"http://{host}{path}", data=body, timeout=120)
                self.send_response(answer.status_code)
                for name in ("Content-Type", "Content-Length", "Retry-After"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, *_: Any) -> None:
                """Not on the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port

    def __enter__(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


if __name__ == "__main__":
    unittest.main()
