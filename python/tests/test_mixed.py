"""One step of text, pictures, videos, latents and audio against a real server: one batch, one key set, the right shapes."""

from __future__ import annotations

import asyncio
import base64
import math
import sys
import tempfile
import unittest
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import rewardloop
from rewardloop import Outcome, Result, Sample, rm_scores
from rewardloop.verl.outcome import Columns

from .harness import PATIENCE, binary, noise
from .service import Service

#: Functions of the profiles below. A sample's extra_info says who shall fail.
FUNCTIONS = '''
def frames(solution_image, extra_info):
    """The number of frames; TCHW."""
    if extra_info.get("fail") == "motion":
        raise ValueError("no motion at all")
    return {"score": float(solution_image.shape[0]), "channels": int(solution_image.shape[1])}


def polite(extra_info, media):
    """Looks at every sample."""
    if extra_info.get("fail") == "polite":
        raise ValueError("rude")
    return 1.0 + len(media)


def tensors(media, extra_info, solution_image=None):
    """What a function is given of latents and audio."""
    said = [f"{m['kind']} {m.get('layout')} {m['data'].dtype} {tuple(m['data'].shape)} {m.get('sample_rate')}" for m in media]
    audio = extra_info.get("audio")
    return {
        "score": float(sum(float(abs(m["data"].astype("f8")).sum()) for m in media)),
        "media": "; ".join(said),
        "audio": "" if audio is None else f"{audio.dtype} {tuple(audio.shape)} at {extra_info['audio_sample_rate']}",
        "solution": "" if solution_image is None else f"{solution_image.dtype} {tuple(solution_image.shape)}",
    }
'''

PROFILES = """
reward:
  reward_functions:
    answer: {path: "builtin://gsm8k", when: [gsm8k]}
    size: {path: "builtin://jpeg_compressibility", when: [pictures]}
    motion: {path: my_reward.py, name: frames, when: [clips], extra_keys: {channels: number}}
    polite: {path: my_reward.py, name: polite, weight: 0.5, on_failure: zero}
rewards:
  tensors:
    custom_reward_function:
      path: my_reward.py
      name: tensors
      extra_keys: {media: string, audio: string, solution: string}
  remote:
    reward_functions:
      words:
        path: URL
        protocol: json
        request: {prompt: "{prompt}", rate: "{extra_info.rate}"}
        score_path: score
        when: [sound, latents]
      pixels:
        path: URL
        protocol: json
        request: {prompt: "{prompt}", picture: "{image_b64}"}
        score_path: score
        when: [pictures, picture_of_sound, picture_of_latent, clips]
"""

#: What a scorer that sends a picture says of audio and latents.
NO_PICTURE = "has no image or video"


def clip(n: int, seed: int = 0) -> rewardloop.Media:
    """A video of n random frames of 8 x 8."""
    pixels = np.random.default_rng(seed).integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)
    return rewardloop.video(pixels, layout="THWC", fps=8)


def text(name: str, response: str, **extra: Any) -> Sample:
    return Sample(id=name, data_source="gsm8k", prompt="6 x 7", response=response, ground_truth="42", extra_info=extra)


class MixedTest(unittest.IsolatedAsyncioTestCase):
    """All tests share a server; each has a run of its own."""

    server: rewardloop.Server
    service: Service
    asked: list[Any]

    @classmethod
    def answer(cls, question: Any) -> Any:
        """Scores the length of the prompt, and keeps what was asked."""
        cls.asked.append(question)
        return {"score": len(question["prompt"])}

    @classmethod
    def setUpClass(cls) -> None:
        program = binary()
        cls.asked = []
        cls.service = Service(cls.answer)
        cls.addClassCleanup(cls.service.close)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        (Path(folder.name) / "my_reward.py").write_text(FUNCTIONS)
        config = Path(folder.name) / "cfg.yaml"
        config.write_text(PROFILES.replace("URL", cls.service.url))
        cls.server = rewardloop.launch(
            f"pool.python.interpreter={sys.executable}", "pool.python.processes=1", config=config, binary=program
        )
        cls.addClassCleanup(cls.server.close)

    async def score(self, *samples: Sample, profile: str = "") -> list[Result]:
        asyncio.get_running_loop().set_debug(False)
        async with rewardloop.connect(self.server.url, run=self.id(), profile=profile) as loop:
            loop.step(1, len(samples))
            for sample in samples:
                sample.step, sample.split = 1, "train"
            results = list(await asyncio.wait_for(loop.score(samples), PATIENCE))
            loop.end_of_step(1)
            return results

    def batch(self) -> list[Sample]:
        """One step: two of each kind score, one text without its polite component, one video not at all."""
        return [
            text("right", "so it is #### 42"),
            Sample(id="picture", data_source="pictures", media=noise(16)),
            Sample(id="short", data_source="clips", media=clip(3)),
            text("wrong", "so it is #### 41"),
            text("rude", "#### 42", fail="polite"),
            Sample(id="broken", data_source="clips", media=clip(4), extra_info={"fail": "motion"}),
            Sample(id="long", data_source="clips", media=clip(9)),
            Sample(id="other picture", data_source="pictures", media=noise(24, seed=1)),
        ]

    async def test_every_sample_goes_to_its_own_reward_and_has_the_keys_of_all(self) -> None:
        results = await self.score(*self.batch())
        by_id = {r.id: r for r in results}
        self.assertEqual([r.id for r in results], [s.id for s in self.batch()])
        columns = {f"reward/{k}" for k in ("answer", "size", "motion", "polite", "combined", "motion/channels")}
        for r in results:
            with self.subTest(r.id):
                self.assertLessEqual(columns, set(r.reward_extra_info))
                self.assertEqual(set(r.reward_extra_info), set(results[0].reward_extra_info))
                asked = {"right": "answer", "wrong": "answer", "rude": "answer", "short": "motion", "long": "motion"}
                own = asked.get(r.id, "motion" if r.id == "broken" else "size")
                for component in {"answer", "size", "motion"} - {own}:
                    self.assertIsNone(r.reward_extra_info[f"reward/{component}"], "it was not asked; it did not say 0")

        self.assertEqual(by_id["right"].reward_score, 1 + 0.5)
        self.assertEqual(by_id["wrong"].reward_score, 0 + 0.5)
        self.assertEqual(by_id["short"].reward_score, 3 + 0.5 * 2)
        self.assertEqual(by_id["long"].reward_extra_info["reward/motion"], 9)
        self.assertEqual(by_id["long"].reward_extra_info["reward/motion/channels"], 3)
        for name in ("picture", "other picture"):
            extra = by_id[name].reward_extra_info
            self.assertEqual(by_id[name].reward_score, extra["reward/size"] + 0.5 * extra["reward/polite"])  # type: ignore[operator]
        self.assertNotEqual(by_id["picture"].reward_score, by_id["other picture"].reward_score)

    async def test_what_is_absent_is_nan_in_the_trainers_columns(self) -> None:
        columns = Columns()
        results = await self.score(*self.batch())
        filled = [columns.fill(r.reward_extra_info, None if r.scored else r.why()) for r in results]
        self.assertEqual(1, len({frozenset(row) for row in filled}))
        answers = np.array([row["reward/answer"] for row in filled], np.float64)
        nan = math.nan
        np.testing.assert_array_equal(answers, [1, nan, nan, 0, 1, nan, nan, nan])
        np.testing.assert_array_equal([row["reward/motion"] for row in filled], [nan, nan, 3, nan, nan, nan, 9, nan])
        self.assertEqual([row["rewardloop/valid"] for row in filled], [1, 1, 1, 1, 1, 0, 1, 1])

    async def test_a_failed_component_is_that_samples_alone(self) -> None:
        by_id = {r.id: r for r in await self.score(*self.batch())}
        self.assertEqual([r.id for r in by_id.values() if not r.scored], ["broken"])
        broken = by_id["broken"]
        self.assertIs(broken.outcome, Outcome.FAILED)
        self.assertIsNone(broken.reward_extra_info["reward/combined"])
        self.assertIsNone(broken.reward_extra_info["reward/motion"])
        self.assertEqual(broken.reward_extra_info["reward/polite"], 2, "what is known of it is said")
        self.assertEqual({(e.component, e.cls) for e in broken.errors}, {("motion", "internal")}, "of every attempt")
        self.assertIn("no motion at all", broken.why())

        rude = by_id["rude"]
        self.assertEqual(rude.reward_score, 1, "on_failure: zero")
        self.assertIs(rude.reward_extra_info["reward/polite/imputed"], True)
        self.assertIs(by_id["right"].reward_extra_info["reward/polite/imputed"], False)
        self.assertEqual([(e.component, e.cls) for e in rude.errors], [("polite", "internal")])

    async def test_rm_scores_have_the_shape_of_what_was_rolled_out(self) -> None:
        results = await self.score(*self.batch())
        values = np.float32([math.nan if r.reward_score is None else r.reward_score for r in results])
        valid = [r.id != "broken" for r in results]

        scores, mask = rm_scores(results)
        self.assertEqual((scores.shape, scores.dtype, mask.shape, mask.dtype), ((8, 1), np.float32, (8, 1), np.bool_))
        np.testing.assert_array_equal(scores[:, 0], values)
        self.assertEqual(mask[:, 0].tolist(), valid)

        # The rows of text have responses of 5, 2 and 4 tokens, the last after a tool's answer.
        rows = [0, 3, 4]
        tokens = np.zeros((3, 6), np.int64)
        tokens[0, :5] = tokens[1, :2] = tokens[2, [0, 3]] = 1
        scores, mask = rm_scores([results[i] for i in rows], response_mask=tokens)
        want = np.zeros((3, 6), np.float32)
        want[[0, 1, 2], [4, 1, 3]] = values[rows]
        np.testing.assert_array_equal(scores, want)
        self.assertEqual(mask.tolist(), [[True]] * 3)

        visual = [r for r in results if r.id not in ("right", "wrong", "rude")]
        scores, mask = rm_scores(visual, on_failed=0.0)
        self.assertEqual(scores.shape, (5, 1))
        self.assertEqual((scores[2, 0], mask[2, 0]), (0, False), "the number is the caller's, the mask still says so")

    async def test_a_function_gets_latents_and_audio_as_they_were_sent(self) -> None:
        rng = np.random.default_rng(5)
        half = rng.standard_normal((4, 2, 3)).astype(np.float16)
        film = rng.standard_normal((4, 2, 2, 3)).astype(np.float32)
        wave = rng.integers(-(2**15), 2**15, (2, 50)).astype(np.int16)
        mono = rng.standard_normal(40).astype(np.float32)
        sent: Mapping[str, tuple[list[rewardloop.Media], list[Any]]] = {
            "latent": ([rewardloop.latent(half, layout="CHW")], [half]),
            "film": ([rewardloop.latent(film, layout="CTHW")], [film]),
            "stereo": ([rewardloop.audio(wave, layout="CT", sample_rate=44100)], [wave]),
            "mono": ([rewardloop.audio(mono, layout="T", sample_rate=16000)], [mono]),
            "both": ([rewardloop.latent(half, layout="CHW"), rewardloop.audio(mono, layout="T", sample_rate=8000)], [half, mono]),
        }
        results = await self.score(*(Sample(id=name, media=media) for name, (media, _) in sent.items()), profile="tensors")
        said = {}
        for r in results:
            self.assertTrue(r.scored, r.why())
            self.assertAlmostEqual(r.score(), sum(float(np.abs(a.astype("f8")).sum()) for a in sent[r.id][1]), places=6)
            said[r.id] = {k: r.reward_extra_info[k] for k in ("media", "audio", "solution")}
        self.assertEqual(said, {
            "latent": {"media": "latent CHW float16 (4, 2, 3) None", "audio": "", "solution": "float16 (4, 2, 3)"},
            "film": {"media": "latent CTHW float32 (4, 2, 2, 3) None", "audio": "", "solution": "float32 (4, 2, 2, 3)"},
            "stereo": {"media": "audio CT int16 (2, 50) 44100", "audio": "int16 (2, 50) at 44100", "solution": ""},
            "mono": {"media": "audio T float32 (40,) 16000", "audio": "float32 (40,) at 16000", "solution": ""},
            "both": {
                "media": "latent CHW float16 (4, 2, 3) None; audio T float32 (40,) 8000",
                "audio": "float32 (40,) at 8000", "solution": "float16 (4, 2, 3)",
            },
        })  # fmt: skip

    async def test_an_http_scorer_gets_what_json_can_say_and_refuses_the_rest_by_name(self) -> None:
        wave = rewardloop.audio(np.ones(40, np.float32), layout="T", sample_rate=16000)
        latent = rewardloop.latent(np.ones((4, 2, 2), np.float32), layout="CHW")
        results = await self.score(
            Sample(id="sound", data_source="sound", prompt="a bell", media=wave, extra_info={"rate": 16000}),
            Sample(id="latent", data_source="latents", prompt="four", media=latent, extra_info={"rate": None}),
            Sample(id="rateless", data_source="sound", prompt="a bell", media=wave),
            Sample(id="picture", data_source="pictures", prompt="a cat", media=noise(8)),
            Sample(id="heard", data_source="picture_of_sound", prompt="?", media=wave),
            Sample(id="felt", data_source="picture_of_latent", prompt="?", media=latent),
            Sample(id="clip", data_source="clips", prompt="?", media=clip(2)),
            profile="remote",
        )
        by_id = {r.id: r for r in results}
        self.assertEqual({r.id: r.reward_score for r in results if r.scored}, {"sound": 6, "latent": 4, "picture": 5})
        self.assertIn({"prompt": "a bell", "rate": 16000}, self.asked)
        self.assertIn({"prompt": "four", "rate": None}, self.asked)
        picture = next(q["picture"] for q in self.asked if "picture" in q)
        self.assertTrue(base64.b64decode(picture).startswith(b"\x89PNG"))
        self.assertEqual(3, len(self.asked), "nothing was sent for the others")
        for name, words in {"rateless": "rate", "heard": NO_PICTURE, "felt": NO_PICTURE, "clip": "the sample is a video"}.items():
            with self.subTest(name):
                self.assertIs(by_id[name].outcome, Outcome.FAILED)
                self.assertEqual([e.cls for e in by_id[name].errors], ["bad_input"])
                self.assertIn(words, by_id[name].why())
        self.assertEqual(1, len({frozenset(r.reward_extra_info) for r in results}))

    def test_what_json_has_no_place_for_is_refused_when_the_server_starts(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "cfg.yaml"
            for placeholder in ("audio_b64", "latent_b64"):
                config.write_text(
                    "reward: {reward_functions: {a: {path: 'http://127.0.0.1:9/rate', protocol: json, score_path: score, "
                    f"request: {{sound: '{{{placeholder}}}'}}}}}}}}\n"
                )
                with self.subTest(placeholder), self.assertRaisesRegex(rewardloop.RewardloopError, placeholder):
                    rewardloop.launch(config=config, binary=binary())


if __name__ == "__main__":
    unittest.main()
