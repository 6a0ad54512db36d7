"""Flow-Factory's remote reward models.

The client is written for this test from src/flow_factory/rewards/my_reward_remote.py (X-GenGroup/Flow-Factory,
Apache-2.0): GET /health, then POST /compute, three tries without a pause. Flow-Factory's own runs too where
REWARDLOOP_CHECKOUTS holds a checkout and this Python has torch, accelerate and diffusers.
"""

from __future__ import annotations

import base64
import logging
import unittest
from types import SimpleNamespace
from typing import Any

import numpy as np
import requests
from PIL import Image

from . import site, trainers


class Client:
    """Rewards of a batch of samples."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        if not requests.get(f"{self.url}/health", timeout=60).ok:
            raise RuntimeError(f"no reward server at {self.url}")

    def compute(
        self, prompt: list[str], image: Any = None, video: Any = None, condition_images: Any = None, **kwargs: Any
    ) -> list[float]:
        body = {
            "prompt": prompt, "image": base64s(image), "video": base64s(video), "condition_images": base64s(condition_images),
            "condition_videos": None, "kwargs": kwargs or None,
        }  # fmt: skip
        for attempt in range(3):
            try:
                answer = requests.post(f"{self.url}/compute", json=body, timeout=60)
                answer.raise_for_status()
                return answer.json()["rewards"]
            except requests.RequestException as err:
                if attempt == 2:
                    raise RuntimeError(f"{self.url}: {err}") from err
        raise AssertionError("unreachable")


def base64s(pictures: Any) -> Any:
    """Pictures as base64 of PNG, in lists as they come."""
    if pictures is None or isinstance(pictures, list):
        return pictures and [base64s(p) for p in pictures]
    return base64.b64encode(site.encoded(np.asarray(pictures), "PNG")).decode()


def picture(level: float) -> Image.Image:
    return Image.fromarray(site.grey(level))


class Cases:
    """What must hold for either client."""

    def asked(self, path: str, site_: site.Site | None = None) -> Any:
        """The client's function of a batch, by the server's path."""
        raise NotImplementedError

    def test_a_batch_is_scored_in_order(self) -> None:
        for path in ("/scorers/brightness", "/scorers/brightness/"):
            got = self.asked(path)(prompt=["a cat"] * 8, image=[picture(v) for v in site.levels(8)])
            np.testing.assert_allclose(got, site.levels(8), atol=0.01)

    def test_the_default_reward_is_that_of_the_bare_address(self) -> None:
        np.testing.assert_allclose(self.asked("")(prompt=["0.25", "1"], image=[picture(0.5)] * 2), [0.25, 1])

    def test_a_video_is_its_frames(self) -> None:
        got = self.asked("/scorers/brightness")(prompt=["a cat"] * 2, video=[[picture(0.25), picture(0.75)], [picture(1)] * 2])
        np.testing.assert_allclose(got, [0.5, 1], atol=0.01)

    def test_an_edit_has_its_condition(self) -> None:
        got = self.asked("/scorers/edit")(prompt=["brighter"], image=[picture(0.75)], condition_images=[[picture(0.25)]])
        np.testing.assert_allclose(got, [0.5], atol=0.01)

    def test_a_token_goes_before_the_host(self) -> None:
        np.testing.assert_allclose(self.asked("", site.shared(site.TOKEN))(prompt=["0.5"], image=[picture(0.5)]), [0.5])

    def test_a_reward_that_is_not_there_stops_the_trainer_at_its_start(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "reward server"):
            self.asked("/scorers/beauty")

    def test_every_failure_is_asked_three_times_and_then_raised(self) -> None:
        for prompt, status in (("broken", 422), ("unavailable", 503)):
            with site.shared().answered("/compute") as answered, self.assertRaisesRegex(RuntimeError, f"{status}"):
                self.asked("")(prompt=["1", prompt], image=[picture(0.5)] * 2)
            self.assertEqual(answered, {status: 3})


class FromTheProtocol(Cases, unittest.TestCase):
    def asked(self, path: str, site_: site.Site | None = None) -> Any:
        return Client((site_ or site.shared()).url(path)).compute

    def test_other_arguments_which_newer_versions_send_are_extra_info(self) -> None:
        got = self.asked("/scorers/geneval")(prompt=["a"], image=[picture(0.25)], tag="counting", only_strict=False)
        np.testing.assert_allclose(got, [0.25], atol=0.01)

    def test_lists_of_unequal_lengths_and_unknown_keys_are_refused(self) -> None:
        for body in ({"prompt": ["a", "b"], "image": [base64s(picture(1))]}, {"prompt": ["a"], "images": []}, {"image": ["!"]}):
            answer = requests.post(site.shared().url("/compute"), json=body, timeout=60)
            self.assertEqual(answer.status_code, 400, answer.text)


class OfFlowFactory(Cases, unittest.TestCase):
    """RemotePointwiseRewardModel."""

    @classmethod
    def setUpClass(cls) -> None:
        trainers.need("torch", "accelerate", "diffusers")
        root = trainers.checkout("Flow-Factory") / "src"
        cls.theirs = trainers.load(root, "flow_factory.rewards.my_reward_remote")
        cls.theirs.logger.setLevel(logging.ERROR)  # it reports every try

    def asked(self, path: str, site_: site.Site | None = None) -> Any:
        import torch

        config = SimpleNamespace(server_url=(site_ or site.shared()).url(path), device=torch.device("cpu"), dtype=torch.float32)
        model = self.theirs.RemotePointwiseRewardModel(config, SimpleNamespace(device=torch.device("cpu")))
        return lambda **batch: model(**batch).rewards.numpy()


if __name__ == "__main__":
    unittest.main()
