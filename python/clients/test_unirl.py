"""UniRL's RemoteRewardBackend, the client of unirl-reward-service.

The client is written for this test from unirl/reward/remote.py (Tencent-Hunyuan/UniRL, Apache-2.0): GET /health, then
POST /score, three tries a second apart unless the status is 4xx. UniRL's own, from the package unirl on PyPI, runs
too where this Python has torch.
"""

from __future__ import annotations

import base64
import json
import time
import unittest
import urllib.request
from typing import Any

import numpy as np
import requests

from . import site, trainers


class Client:
    """The numbers of several rewards for each picture, and why one is missing."""

    def __init__(self, url: str, rewards: list[str], pause: float = 1.0) -> None:
        self.url, self.rewards, self.pause = url, rewards, pause

    def check(self) -> None:
        known = requests.get(f"{self.url}/health", timeout=60).json()["rewards"]
        if missing := [name for name in self.rewards if name not in known]:
            raise ValueError(f"{missing} are not served, {sorted(known)} are")

    def score(self, turns: list[list[tuple[str, bytes]]], metadata: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        body = {"protocol_version": "1", "requests": []}
        for i, history in enumerate(turns):
            body["requests"].append({
                "history": [{"text": text, "image_b64": base64.b64encode(data).decode()} for text, data in history],
                "required_rewards": self.rewards, "metadata": metadata[i] if metadata else None,
                "request_id": f"r{i}", "sample_id": f"s{i}", "group_id": "g", "source_rank": None, "policy_version": 3,
                "scorer_version": None, "idempotency_key": f"k{i}",
            })  # fmt: skip
        return self.post(body)

    def post(self, body: dict[str, Any]) -> dict[str, Any]:
        for last in (False, False, True):
            answer = requests.post(f"{self.url}/score", json=body, timeout=300)
            if answer.ok or last or 400 <= answer.status_code < 500:
                answer.raise_for_status()
                return answer.json()
            time.sleep(self.pause)
        raise AssertionError("unreachable")


class FromTheProtocol(unittest.TestCase):
    def turns(self, *prompts: str) -> list[list[tuple[str, bytes]]]:
        return [[(p, site.encoded(site.grey(0.5)))] for p in prompts]

    def test_every_sample_has_every_reward_it_asks_for(self) -> None:
        client = Client(site.shared().url(), ["say", "brightness"])
        client.check()
        got = client.score(self.turns("0.25", "1"))
        self.assertEqual([r["say"]["score"] for r in got["results"]], [0.25, 1])
        self.assertEqual([list(r["say"]) for r in got["results"]], [["score", "height"]] * 2)  # the first is taken
        self.assertAlmostEqual(got["results"][1]["brightness"]["score"], 0.5, delta=0.01)
        self.assertEqual(got["errors"], [{}, {}])
        self.assertEqual([r["request_id"] for r in got["identities"]], ["r0", "r1"])

    def test_a_sample_that_fails_stands_among_the_errors_and_the_others_have_scores(self) -> None:
        got = Client(site.shared().url(), ["say", "brightness"]).score(self.turns("0.25", "broken", "unavailable"))
        self.assertEqual([sorted(r) for r in got["results"]], [["brightness", "say"], ["brightness"], ["brightness"]])
        self.assertIn("cannot be scored", got["errors"][1]["say"])
        self.assertIn("restarting", got["errors"][2]["say"])

    def test_an_edit_has_two_turns(self) -> None:
        source, edited = (site.encoded(site.grey(v)) for v in (0.25, 0.75))
        got = Client(site.shared().url(), ["edit"]).score([[("brighter", source), ("brighter", edited)]])
        self.assertAlmostEqual(got["results"][0]["edit"]["score"], 0.5, delta=0.01)

    def test_a_video_is_a_list_of_its_frames(self) -> None:
        frames = [base64.b64encode(site.encoded(site.grey(v))).decode() for v in (0.25, 0.75)]
        one = {"history": [{"text": "a cat", "video_b64": frames}], "required_rewards": ["brightness"]}
        got = Client(site.shared().url(), []).post({"requests": [one]})
        self.assertAlmostEqual(got["results"][0]["brightness"]["score"], 0.5, delta=0.01)

    def test_metadata_is_extra_info(self) -> None:
        got = Client(site.shared().url(), ["geneval"]).score(self.turns("a cat"), [{"tag": "counting", "only_strict": True}])
        self.assertEqual(got["results"][0]["geneval"]["strict_reward"], 1)

    def test_what_is_not_served_is_refused_by_name(self) -> None:
        refusals = {
            "no reward named": {"required_rewards": ["beauty"]},
            "no versions to pin": {"scorer_version": "2"},
            "does not decode video files": {"history": [{"text": "a", "video_b64": "AAAA"}]},
            "does not read files at a path that a client sends": {"history": [{"text": "a", "video_path": "/etc/passwd"}]},
            "GPU memory of a client": {"history": [{"text": "a", "image_ipc": {}}]},
            "the turn has no image_b64 and no video_b64": {"history": [{"text": "a"}]},
            "base64": {"history": [{"text": "a", "image_b64": "!"}]},
        }
        for why, change in refusals.items():
            one = {"history": [{"text": "a", "image_b64": "AAAA"}], "required_rewards": ["say"]} | change
            answer = requests.post(site.shared().url("/score"), json={"requests": [one]}, timeout=60)
            self.assertIn(answer.status_code, (400, 422), why)
            self.assertIn(why, answer.json()["error"])
        answer = requests.post(site.shared().url("/score"), json={"requests": [], "grad_mode": True}, timeout=60)
        self.assertIn("does not return gradients", answer.json()["error"])

    def test_the_rewards_are_listed(self) -> None:
        with urllib.request.urlopen(site.shared().url("/rewards"), timeout=60) as answer:  # noqa: S310 - our own server
            self.assertLessEqual({"say", "brightness", "jpeg"}, set(json.load(answer)["rewards"]))


class OfUniRL(unittest.TestCase):
    """RemoteRewardBackend of the package unirl."""

    @classmethod
    def setUpClass(cls) -> None:
        trainers.need("torch", "PIL", "requests")
        root = trainers.package("unirl")
        cls.remote = trainers.load(root, "unirl.reward.remote")
        from unirl.types import primitives, reward  # noqa: PLC0415 - just made findable

        cls.primitives, cls.types = primitives, reward

    def backend(self, *rewards: str, url: str = "", **options: Any) -> Any:
        spec = self.remote.RemoteRewardSpec(
            base_url=url or site.shared().url(), required_rewards=rewards, retry_delay=0.01, **options
        )
        return self.remote.RemoteRewardBackend(config=spec, base_device="cpu")

    def request(self, prompts: list[str], levels: list[float], source: list[float] | None = None, **fields: Any) -> Any:
        return self.types.RewardRequest(
            generated={"image": self.images(levels)},
            conditioning={"image": self.images(source)} if source else {},
            generation_prompt=self.primitives.Texts(texts=prompts),
            sample_ids=[f"s{i}" for i in range(len(prompts))], group_ids=["g"] * len(prompts), **fields,
        )  # fmt: skip

    def images(self, levels: list[float]) -> Any:
        import torch

        pixels = torch.from_numpy(np.stack([site.grey(v) for v in levels]))
        return self.primitives.Images.from_dense(pixels.permute(0, 3, 1, 2) / 255)

    def test_a_batch_is_scored_in_order_with_weights_and_identities(self) -> None:
        weights = {"say": 3.0, "brightness": 1.0}
        backend = self.backend("say", "brightness", reward_weights=weights, require_identity_echo=True, request_batch_size=2)
        self.assertTrue(backend.is_available())
        got = backend.compute_rewards(self.request(["0.25", "1", "0"], [0.5, 0.5, 0.5]))
        self.assertEqual(got.successes, [True] * 3)
        self.assertEqual(got.component_rewards["say"], [0.25, 1, 0])
        for total, said in zip(got.rewards, (0.25, 1, 0), strict=True):
            self.assertAlmostEqual(total, (3 * said + 0.5) / 4, delta=0.01)

    def test_an_edit_is_sent_with_its_source(self) -> None:
        got = self.backend("edit").compute_rewards(self.request(["brighter"], [0.75], source=[0.25]))
        self.assertAlmostEqual(got.rewards[0], 0.5, delta=0.01)

    def test_metadata_is_extra_info(self) -> None:
        got = self.backend("geneval", sub_metric_reduce="max").compute_rewards(
            self.request(["a"], [0.25], metadata=[{"tag": "counting", "only_strict": True}])
        )
        self.assertEqual(got.rewards, [1.0])

    def test_a_failed_sample_is_no_success_and_says_why(self) -> None:
        with site.shared().answered("/score") as answered:
            got = self.backend("say").compute_rewards(self.request(["0.25", "broken", "unavailable"], [0.5] * 3))
        self.assertEqual((got.successes, got.rewards), ([True, False, False], [0.25, 0, 0]))
        self.assertIn("cannot be scored", got.errors[1])
        self.assertIn("restarting", got.errors[2])
        self.assertEqual(answered, {200: 1})

    def test_a_reward_that_is_not_served_is_named_before_the_training(self) -> None:
        with self.assertRaisesRegex(ValueError, "beauty"):
            self.backend("beauty").is_available()

    def test_an_error_of_the_request_is_not_tried_again(self) -> None:
        with site.shared().answered("/score") as answered:
            with self.assertRaisesRegex(Exception, "400"):
                self.backend("say", expected_scorer_version="7").compute_rewards(self.request(["1"], [0.5]))
        self.assertEqual(answered, {400: 1})

    def test_a_token_goes_before_the_host(self) -> None:
        guarded = site.shared(site.TOKEN)
        backend = self.backend("say", url=guarded.url())
        self.assertTrue(backend.is_available())
        self.assertEqual(backend.compute_rewards(self.request(["0.5"], [0.5])).rewards, [0.5])
        self.assertFalse(self.backend("say", url=guarded.url(token="")).is_available())


if __name__ == "__main__":
    unittest.main()
