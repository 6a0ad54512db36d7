"""deepgen_rl's reward clients, edit pairs included.

The client is written for this test from rewards_services/client/reward_evaluator.py of deepgen_rl (Apache-2.0): one
request of requests.post, no further try. deepgen_rl's own two clients run too where REWARDLOOP_CHECKOUTS holds a
checkout; they need no torch.
"""

from __future__ import annotations

import contextlib
import pickle
import unittest
from typing import Any

import requests
from PIL import Image

from . import site, trainers

Pictures = list[Image.Image] | dict[str, list[Image.Image]]


class Client:
    """Scorers by name, each with an address of its own."""

    def __init__(self, urls: dict[str, str]) -> None:
        self.urls = urls

    def evaluate(self, name: str, images: Pictures, prompts: list[str], metadata: dict[str, Any] | None = None) -> dict[str, Any]:
        groups = images if isinstance(images, dict) else {"": images}
        files = {key: [site.encoded(_pixels(p)) for p in group] for key, group in groups.items()}
        body = pickle.dumps({"images": files.get("", files), "prompts": prompts, "metadata": metadata or {}})
        try:
            answer = requests.post(self.urls[name], data=body, timeout=600)
            answer.raise_for_status()
        except requests.RequestException as err:
            raise RuntimeError(f"HTTP request to {name!r} failed: {err}") from err
        return pickle.loads(answer.content)  # noqa: S301 - our own server


def _pixels(picture: Image.Image) -> Any:
    import numpy as np

    return np.asarray(picture.convert("RGB"))


def greys(values: list[float]) -> list[Image.Image]:
    return [Image.fromarray(site.grey(v)) for v in values]


class Cases:
    """What must hold for every client."""

    def client(self, urls: dict[str, str]) -> Any:
        raise NotImplementedError

    def asked(self, reward: str, site_: site.Site | None = None) -> Any:
        url = (site_ or site.shared()).url(f"/scorers/{reward}/")  # deepgen_rl ends every address with a slash
        client = self.client({reward: url})
        return lambda *args, **kwargs: client.evaluate(reward, *args, **kwargs)

    def test_a_batch_is_scored_in_order(self) -> None:
        got = self.asked("brightness")(greys(site.levels(20)), ["a cat"] * 20, {})
        for score, level in zip(got["scores"], site.levels(20), strict=True):
            self.assertAlmostEqual(score, level, delta=0.01)

    def test_pictures_with_transparency_or_in_grey_are_scored(self) -> None:
        for mode in ("L", "RGBA", "P"):
            got = self.asked("say")([p.convert(mode) for p in greys([0.5])], ["0.5"], {})
            self.assertEqual(got["scores"], [0.5], mode)

    def test_an_edit_has_its_source_and_its_result(self) -> None:
        pair = {"source": greys([0.25, 0.5, 0.75]), "edited": greys([0.75, 0.5, 0.25])}
        got = self.asked("edit")(pair, ["brighter"] * 3, {})
        for score, want in zip(got["scores"], (0.5, 0, -0.5), strict=True):
            self.assertAlmostEqual(score, want, delta=0.01)

    def test_a_reward_for_one_picture_looks_at_the_edited_one(self) -> None:
        got = self.asked("brightness")({"source": greys([0.25]), "edited": greys([0.75])}, ["brighter"], {})
        self.assertAlmostEqual(got["scores"][0], 0.75, delta=0.01)

    def test_geneval_comes_inside_metadata(self) -> None:
        metas = [{"tag": "counting", "include": []}, {"tag": "colors", "include": []}]
        got = self.asked("geneval")(greys([0.25, 0.75]), ["a", "b"], {"meta_datas": metas, "only_strict": False})
        self.assertEqual(got["strict_rewards"], [1.0, 0.0])
        self.assertEqual(got["rewards"], got["scores"])
        self.assertEqual(got["group_strict_rewards"]["counting"], [1.0, -10.0])
        self.assertEqual(len(got["group_rewards"]), 6)

    def test_a_token_goes_before_the_host(self) -> None:
        self.assertEqual(self.asked("say", site.shared(site.TOKEN))(greys([0.5]), ["0.5"], {})["scores"], [0.5])

    def test_no_failure_is_tried_again(self) -> None:
        for prompt, status in (("broken", 422), ("nan", 422), ("unavailable", 503)):
            # The metric counts an address with a slash behind the name as another one.
            with site.shared().answered("other") as answered, self.assertRaisesRegex(RuntimeError, f"{status}"):
                self.asked("say")(greys([0.5, 0.5]), ["1", prompt], {})
            self.assertEqual(answered, {status: 1})


class FromTheProtocol(Cases, unittest.TestCase):
    def client(self, urls: dict[str, str]) -> Any:
        return Client(urls)

    def test_unequal_edits_are_refused(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "400"):
            self.asked("edit")({"source": greys([0.25]), "edited": greys([0.75, 0.5])}, ["a", "b"])
        with self.assertRaisesRegex(RuntimeError, "400"):
            self.asked("edit")({"before": greys([0.25]), "edited": greys([0.75])}, ["a"])


class OfDeepgenServices(Cases, unittest.TestCase):
    """rewards_services/client/reward_evaluator.py."""

    @classmethod
    def setUpClass(cls) -> None:
        root = trainers.checkout("deepgen_rl") / "rewards_services/client"
        cls.theirs = trainers.load(root, "reward_evaluator")

    def client(self, urls: dict[str, str]) -> Any:
        return self.theirs.RewardEvaluatorClient(urls)


class OfDeepgenTrainer(Cases, unittest.TestCase):
    """deepgen_rl/reward_evaluator/reward_evaluator.py, which the trainer uses, with one worker and with three."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.theirs = trainers.load(trainers.checkout("deepgen_rl"), "deepgen_rl.reward_evaluator.reward_evaluator")

    def client(self, urls: dict[str, str]) -> Any:
        return self.theirs.RewardEvaluatorClient({name: self.theirs._normalize_url(url) for name, url in urls.items()})

    def test_three_workers_put_their_parts_in_order(self) -> None:
        client = self.theirs.RewardEvaluatorClient({"brightness": site.shared().url("/scorers/brightness/")}, {"brightness": 3})
        got = client.evaluate("brightness", greys(site.levels(20)), ["a cat"] * 20, {})
        for score, level in zip(got, site.levels(20), strict=True):
            self.assertAlmostEqual(score, level, delta=0.01)

    def test_geneval_in_parts_is_refused_because_each_part_has_all_metadata(self) -> None:
        client = self.theirs.RewardEvaluatorClient({"geneval": site.shared().url("/scorers/geneval/")}, {"geneval": 2})
        with self.assertRaisesRegex(RuntimeError, "400"):
            metas = [{"tag": "counting"}, {"tag": "colors"}]
            client.evaluate("geneval", greys([0.25, 0.75]), ["a", "b"], {"meta_datas": metas, "only_strict": False})

    def test_a_failed_scorer_stands_beside_the_others(self) -> None:
        urls = {"ok": site.shared().url("/scorers/say/"), "none": site.shared().url("/scorers/beauty/")}
        client = self.theirs.RewardEvaluatorClient(urls)
        with contextlib.redirect_stdout(None):  # it prints the error
            got = client.evaluate_multiple({"ok": 1.0, "none": 1.0}, greys([0.5]), ["0.5"], {})
        self.assertEqual(got["ok"]["scores"], [0.5])
        self.assertIn("422", got["none"]["error"])


if __name__ == "__main__":
    unittest.main()
