"""What examples/learn has configured, without the learning: make test-learn does that."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import unittest
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import rewardloop
from rewardloop import Outcome, Sample, advantages, rm_scores

from .harness import PATIENCE, REPOSITORY, binary

LEARN = REPOSITORY / "examples" / "learn"


def module(name: str) -> Any:
    """A file of the example that needs no JAX."""
    spec = importlib.util.spec_from_file_location(f"learn_{name}", LEARN / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def line(text: str) -> rewardloop.Media:
    """A picture that is one line of text: 48 rows, as the recogniser has them."""
    page = Image.new("L", (128, 48), 255)
    ImageDraw.Draw(page).text((8, 0), text, 0, font=ImageFont.load_default(40))
    return rewardloop.image(np.asarray(page)[..., None].copy(), layout="HWC")


class LearnTest(unittest.TestCase):
    server: rewardloop.launch

    @classmethod
    def setUpClass(cls) -> None:
        models = os.environ.get("REWARDLOOP_MODELS", "")
        if os.environ.get("REQUIRE_ORT") != "1" and not (
            os.environ.get("ONNXRUNTIME_SHARED_LIBRARY_PATH") and os.path.isdir(models)
        ):
            raise unittest.SkipTest("SKIPPED: ONNX Runtime and the models are not here; make ort models brings them")
        cls.server = rewardloop.launch(f"++pool.python.interpreter={sys.executable}", config=LEARN / "cfg.yaml", binary=binary())
        cls.addClassCleanup(cls.server.close)

    def score(self, profile: str, samples: list[Sample], **settings: Any) -> list[rewardloop.Result]:
        with rewardloop.Client(self.server.url, run="learn", profile=profile, **settings) as client:
            return client.score(samples, timeout=PATIENCE)

    def test_a_picture_of_one_line_is_read_without_a_detector(self) -> None:
        asked = [Sample(prompt=f'the number "{number}"', media=line("4711")) for number in ("4711", "4712", "9999")]
        self.assertEqual([1.0, 0.75, 0.0], [r.score() for r in self.score("", asked)])

    def test_half_of_the_samples_meet_a_fault_and_the_same_ones_each_time(self) -> None:
        def batch() -> list[Sample]:
            return [
                Sample(
                    id=str(i),
                    prompt='the number "4711"',
                    media=line(f"{4700 + i}"),
                    uid="g",
                    group_size=16,
                    extra_info={"sample": f"0/0/0/{i}"},
                )
                for i in range(16)
            ]

        met = [bool(hashlib.sha256(f"0/0/0/{i}".encode()).digest()[0] % 2) for i in range(16)]
        self.assertTrue(0 < sum(met) < 16)
        first, second = (self.score("faulty", batch(), on_sample_failure="group_mean") for _ in range(2))
        for results in (first, second):
            self.assertEqual(met, [r.outcome == Outcome.FAILED for r in results])
            self.assertIn("ConnectionError", results[met.index(True)].why())
        self.assertEqual([r.reward_score for r in first], [r.reward_score for r in second])
        scores, valid = rm_scores(first)
        own = scores[valid[:, 0], 0].astype(np.float64)
        np.testing.assert_allclose(scores[~valid[:, 0], 0], own.mean(), rtol=1e-6)
        imputed = advantages(scores, valid, ["g"] * 16)
        self.assertTrue((imputed[met] == 0).all())
        masked = advantages(scores, valid, ["g"] * 16, failed="mask")[~np.array(met)]
        np.testing.assert_allclose(masked, advantages(own, None, ["g"] * len(own)), atol=1e-6)

    def test_a_neighbour_raises(self) -> None:
        self.assertEqual(Outcome.FAILED, self.score("raises", [Sample(prompt="x", response="y")])[0].outcome)


class GrainTest(unittest.TestCase):
    def test_grain_is_how_far_the_pixels_without_ink_are_from_white(self) -> None:
        pictures = module("pictures")
        ink = np.ones((2, 10, 16, 8), np.float32)  # of each digit one pixel, in another column in each typeface
        ink[0, :, 8, 2] = ink[1, :, 8, 3] = -1
        pictures.glyphs = lambda: ink
        blank = pictures.blank(np.array([[0, 1, 2, 3]]))
        self.assertEqual((1, 16, 32), blank.shape)
        self.assertEqual(16 * 32 - 4 * 2 * 3, blank.sum(), "a digit may be a row higher or lower")
        white = np.full((1, 16, 32), 255, np.uint8)
        inked = np.where(blank, white, 0)
        ids = np.array([[4, 7, 1, 1]])
        for picture, grain in ((white, 0), (inked, 0), (white - 255, 2), (np.full_like(white, 127), 2 * 128 / 255)):
            self.assertAlmostEqual(grain, pictures.grain(picture, ids), 6)
        with mock.patch.dict(sys.modules, pictures=pictures):
            paper = module("faults").paper
            self.assertAlmostEqual(-8, paper(solution_image=white - 255, extra_info={"digits": "4711"}))
            self.assertAlmostEqual(0, paper(solution_image=inked, extra_info={}))


class PairsTest(unittest.TestCase):
    def test_the_p_of_a_randomisation_test(self) -> None:
        flips = module("pairs").sign_flips
        self.assertEqual(1 / 32, flips(np.ones(5)))
        self.assertEqual(1, flips(-np.ones(5)))
        self.assertAlmostEqual(0.5, flips(np.array([1.0, -1, 2, -2, 3, -3])), delta=0.1)
        self.assertLess(flips(np.random.default_rng(0).normal(0.3, 1, 256)), 0.001)
        self.assertGreater(flips(np.random.default_rng(0).normal(0, 1, 256)), 0.01)
