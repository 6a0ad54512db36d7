"""verl-omni's reward functions with a judge behind them: genrm_ocr and unified_reward, unmodified.

They run in a Python process of the server, ask a stub of an engine through the reward router, and must score what
builtin://genrm_ocr and builtin://unified_reward score on the same answers. Needs a checkout of verl-omni
(REWARDLOOP_VERL_OMNI) and a Python with what the files import: torch, transformers, verl, openai, and Levenshtein or
rapidfuzz, by the same author, on which Levenshtein rests: it is under the GPL, and so never downloaded here.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import unittest
from typing import Any

import numpy as np

import rewardloop

from . import site, trainers
from .engine import Answer, Engine, brightness

TARGET = "Hello World"

#: What the engine reads in picture i.
READINGS = [
    "Hello World", "hello world", "HelloWorld, and much more that nobody asked for", "Helo Wrld", "Hello\nWorld\n", "H",
    "", " ", "nothing of the kind, nothing at all", "ＨＥＬＬＯ", "héllo wörld", "W o r l d",
]  # fmt: skip

#: How the engine rates picture i.
RATINGS = [
    "Alignment Score (1-5): 4.2\nCoherence Score (1-5): 3\nStyle Score (1-5): 5",
    "alignment score: 2\ncoherence score : 2.5\nSTYLE SCORE (1-5) : .5", "Alignment Score (1-5): 4", "3, then 4 and 4.5",
    "Alignment Score (1-5): 9\nCoherence Score (1-5): 9\nStyle Score (1-5): 9",
    "Alignment Score (1-5): -3\nStyle Score (1-5): 1e0",
    "Alignment Score (1-5): 1\nAlignment Score (1-5): 5\nCoherence Score (1-5): 3", "out of 5 I would say 1 or 2",
]  # fmt: skip

#: An answer that holds no score: verl-omni takes it for 0, we fail the sample.
UNREADABLE = "I cannot rate this."

READER, RATER = "stub/reader", "stub/rater"

REWARDS = """
reward:
  custom_reward_function: {{path: {folder}/genrm_ocr.py, name: compute_score_ocr, retries: 0, extra_keys: {{}}}}
  reward_model:
    enable: true
    model_path: {reader}
    rollout: {{name: external, base_urls: ["{url}"], attempts: 1}}
rewards:
  read:
    custom_reward_function: {{path: "builtin://genrm_ocr", retries: 0}}
    reward_model: {{enable: true, model_path: {reader}, rollout: {{name: external, base_urls: ["{url}"], attempts: 1}}}}
  rated_by_theirs:
    custom_reward_function:
      path: {folder}/unified_reward.py
      name: compute_score_unified_reward
      extra_keys: {{raw_score: number}}
    reward_model: {{enable: true, model_path: {rater}, rollout: {{name: external, base_urls: ["{url}"], attempts: 1}}}}
  rated:
    custom_reward_function:
      path: "builtin://unified_reward"
      reward_kwargs: {{answer_retries: 0, video: frames, frame_interval: 2}}
    reward_model: {{enable: true, model_path: {rater}, rollout: {{name: external, base_urls: ["{url}"], attempts: 1}}}}
pool: {{python: {{interpreter: {python}}}}}
loop: {{max_attempts: 1}}
"""


def answer(request: dict[str, Any]) -> Answer:
    if request["model"] == READER:
        i = brightness(request) // 20
        return READINGS[i] if i < len(READINGS) else (500, {"error": {"message": "out of memory"}})
    i = brightness(request) // 20
    return RATINGS[i] if i < len(RATINGS) else UNREADABLE


def picture(i: int) -> np.ndarray:
    """The picture that the engine answers with its text number i."""
    return np.full((16, 24, 3), 20 * i + 10, dtype=np.uint8)


class _WithTheirs:
    """A server whose functions are verl-omni's files, with a token or without."""

    token = ""

    @classmethod
    def setUpClass(cls) -> None:
        trainers.need("torch", "transformers", "verl", "openai", "aiohttp", "PIL")
        checkout = trainers.verl_omni()
        cls.engine = Engine(answer)
        cls.addClassCleanup(cls.engine.close)
        # verl_omni's own initialiser needs vllm-omni, and thereby a GPU; the functions import one helper of it.
        empty = site.folder() / "theirs" / "verl_omni"
        empty.mkdir(parents=True, exist_ok=True)
        (empty / "__init__.py").write_text(f"__path__ = [{str(checkout / 'verl_omni')!r}]\n")
        if importlib.util.find_spec("Levenshtein") is None:
            trainers.need("rapidfuzz")
            (empty.parent / "Levenshtein.py").write_text("from rapidfuzz.distance.Levenshtein import distance\n")
        before = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = f"{empty.parent}:{before}"
        cls.addClassCleanup(os.environ.__setitem__, "PYTHONPATH", before)
        config = site.folder() / "judges.yaml"
        config.write_text(REWARDS.format(
            folder=checkout / "verl_omni/utils/reward_score", url=cls.engine.url,
            reader=READER, rater=RATER, python=sys.executable,
        ))  # fmt: skip
        cls.site = site.Site(config=config, token=cls.token)
        cls.addClassCleanup(cls.site.close)
        cls.client = rewardloop.Client(cls.site.server.url, run="judges", **({"token": cls.token} if cls.token else {}))
        cls.addClassCleanup(cls.client.close)

    def score(self, reward: str, medias: list[Any], **fields: Any) -> list[rewardloop.Result]:
        return self.client.score([rewardloop.Sample(media=m, reward=reward, **fields) for m in medias], timeout=60)

    def images(self, n: int) -> list[Any]:
        return [rewardloop.image(picture(i), layout="HWC") for i in range(n)]

    def values(self, results: list[rewardloop.Result]) -> list[float | None]:
        for result in results:
            self.assertEqual(result.errors, ())
        return [result.reward_score for result in results]

    def test_what_is_read_scores_the_same(self) -> None:
        for target in (TARGET, "héllo", "408", " "):
            with self.subTest(target):
                theirs = self.values(self.score("", self.images(len(READINGS)), ground_truth=target))
                self.assertEqual(self.values(self.score("read", self.images(len(READINGS)), ground_truth=target)), theirs)

    def test_what_is_rated_scores_the_same(self) -> None:
        for fields in ({"prompt": "a red cube"}, {"ground_truth": "a red cube"}, {"extra_info": {"prompt": "a red cube"}}):
            with self.subTest(fields):
                theirs = self.score("rated_by_theirs", self.images(len(RATINGS)), **_captioned(fields))
                ours = self.score("rated", self.images(len(RATINGS)), **_captioned(fields))
                np.testing.assert_allclose(self.values(ours), self.values(theirs), rtol=0, atol=1e-12)
                self.assertEqual(
                    [r.reward_extra_info["raw_score"] for r in ours], [r.reward_extra_info["raw_score"] for r in theirs]
                )

    def test_a_video_is_rated_the_same(self) -> None:
        clip = rewardloop.video(np.stack([picture(i) for i in (0, 1, 2, 3, 5)]), layout="THWC")
        fields = {"ground_truth": "a red cube", "extra_info": {"prompt": "a red cube", "frame_interval": 2}}
        theirs = self.values(self.score("rated_by_theirs", [clip], **fields))
        np.testing.assert_allclose(self.values(self.score("rated", [clip], **fields)), theirs, rtol=0, atol=1e-12)

    def test_the_engine_is_asked_the_same(self) -> None:
        """Model, parameters, texts and pixels; only the compression of the PNG may differ."""
        for theirs, ours in (("", "read"), ("rated_by_theirs", "rated")):
            asked = []
            for reward in (theirs, ours):
                before = len(self.engine.requests)
                # A caption that was not asked about before: the builtin would remember the answer.
                text = f"never asked before{self.token}"
                medias = [rewardloop.image(_gradient(), layout="HWC")]
                self.values(self.score(reward, medias, ground_truth=text, extra_info={"prompt": text}))
                asked.append(self.engine.requests[before:])
            self.assertEqual([len(a) for a in asked], [1, 1])
            self.assertEqual(_comparable(asked[0][0]), _comparable(asked[1][0]))

    def test_an_engine_that_fails_is_a_failed_sample_with_both(self) -> None:
        for reward, cls, why in (("", "internal", "ValidationError"), ("read", "unavailable", "out of memory")):
            [failed] = self.score(reward, [rewardloop.image(picture(len(READINGS)), layout="HWC")], ground_truth=TARGET)
            self.assertEqual((failed.outcome, failed.reward_score), (rewardloop.Outcome.FAILED, None))
            self.assertEqual(failed.errors[-1].cls, cls)
            self.assertIn(why, failed.errors[-1].message)

    def test_an_unreadable_rating_is_zero_with_them_and_a_failure_with_us(self) -> None:
        medias = [rewardloop.image(picture(len(RATINGS)), layout="HWC")]
        self.assertEqual(self.values(self.score("rated_by_theirs", medias, ground_truth="a")), [0.0])
        [ours] = self.score("rated", medias, ground_truth="a")
        self.assertEqual((ours.outcome, ours.reward_score), (rewardloop.Outcome.FAILED, None))


def _captioned(fields: dict[str, Any]) -> dict[str, Any]:
    """verl-omni takes the caption from extra_info, where its dataset puts the prompt, else from ground_truth."""
    if "prompt" in fields:
        return {**fields, "extra_info": {"prompt": fields["prompt"]}, "ground_truth": "something else"}
    return {"ground_truth": "", **fields}


def _gradient() -> np.ndarray:
    """A dark picture of many values."""
    return np.arange(16 * 24 * 3, dtype=np.uint32).reshape(16, 24, 3).astype(np.uint8) % 7


def _comparable(request: dict[str, Any]) -> dict[str, Any]:
    """A request with its pictures as pixels."""
    import base64
    import io

    from PIL import Image

    messages = []
    for message in request["messages"]:
        parts = message["content"]
        if isinstance(parts, str):
            parts = [{"type": "text", "text": parts}]
        made = []
        for part in parts:
            if part["type"] == "image_url":
                head, _, data = part["image_url"]["url"].partition("base64,")
                pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
                made.append((head, pixels.shape, pixels.tobytes()))
            else:
                made.append(part["text"])
        messages.append((message["role"], made))
    return {**request, "messages": messages}


class WithoutAToken(_WithTheirs, unittest.TestCase):
    pass


class WithAToken(_WithTheirs, unittest.TestCase):
    """The functions cannot know it: the address they get has a key of its own."""

    token = site.TOKEN


if __name__ == "__main__":
    unittest.main()
