"""Tables of results, and steps in W&B and TensorBoard: their names are the trainers', and a failed sample is never a 0."""

from __future__ import annotations

import importlib
import importlib.util
import io
import math
import os
import sys
import tempfile
import types
import unittest
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np

import rewardloop
from rewardloop import ComponentError, GroupStats, InputError, Outcome, Picture, Result, Sample, log_step, to_frame, to_rows

from .harness import PATIENCE, binary, noise


def scored(name: str, score: float, **parts: Any) -> Result:
    extra = {f"reward/{k}": v for k, v in parts.items()} | ({"reward/combined": score} if parts else {})
    return Result(name, Outcome.SCORED, score, {**extra, "rewardloop/valid": True}, timing_ms={"total": 12.5})


def failed(name: str, component: str = "ocr") -> Result:
    error = ComponentError("timeout", "too slow", component)
    return Result(name, Outcome.FAILED, None, {"reward/ocr": None, "rewardloop/valid": False}, errors=(error,))


def picture(h: int = 8, w: int = 8, value: int = 0) -> rewardloop.Media:
    return rewardloop.image(np.full((h, w, 3), value, np.uint8), layout="HWC")


def sample(name: str, uid: str = "", **fields: Any) -> Sample:
    return Sample(id=name, prompt=fields.pop("prompt", f"prompt of {name}"), uid=uid, **fields)


#: Two groups: one of scores 0.25 and 0.75, one of two equal scores; a third of which one sample failed.
RESULTS = [
    scored("a", 0.25, ocr=0.5, pick=0.0),
    scored("b", 0.75, ocr=1.5, pick=0.0),
    scored("c", 0.5, ocr=1.0, pick=0.0),
    scored("d", 0.5, ocr=1.0, pick=0.0),
    scored("e", 1.0, ocr=2.0, pick=0.0),
    failed("f"),
]
SAMPLES = [sample(n, u, data_source="drawbench", media=picture()) for n, u in zip("abcdef", "112233", strict=True)]


def logged(results: Sequence[Result], step: int = 7, **settings: Any) -> tuple[dict[str, float], list[Picture]]:
    """What a callable gets."""
    got: list[tuple[int, dict[str, float], list[Picture]]] = []
    returned = log_step(lambda *all_of_it: got.append(all_of_it), step, results, **settings)
    ((of, metrics, pictures),) = got
    assert (of, metrics) == (step, returned)
    assert all(type(v) is float and math.isfinite(v) for v in metrics.values()), metrics
    return metrics, pictures


class TableTest(unittest.TestCase):
    def test_all_rows_have_the_same_columns(self) -> None:
        grouped = Result("g", Outcome.SCORED, 1, {"acc": True}, group=GroupStats("u", 2, 2, 0, 0.5, 0.1, False, 0))
        rows = to_rows([scored("a", 0.5, ocr=0.5), failed("f"), grouped])
        self.assertEqual(len({tuple(r) for r in rows}), 1)
        self.assertEqual(list(rows[0])[:3], ["id", "outcome", "reward_score"])
        self.assertEqual([r["reward_score"] for r in rows], [0.5, None, 1])
        self.assertEqual([r["reward/ocr"] for r in rows], [0.5, None, None])
        self.assertEqual([r["acc"] for r in rows], [None, None, True])
        self.assertEqual([r["group/mean"] for r in rows], [None, None, 0.5])
        self.assertEqual(rows[1]["why"], "failed (ocr: timeout: too slow)")
        self.assertEqual(to_rows([]), [])
        with self.assertRaisesRegex(InputError, r"results\[1\]: want a Result, not dict"):
            to_rows([failed("f"), {}])  # type: ignore[list-item]

    def test_a_frame_has_nan_for_a_number_and_none_for_what_is_no_number(self) -> None:
        if importlib.util.find_spec("pandas") is None:
            self.skipTest("SKIPPED: pandas is not installed")
        frame = to_frame([scored("a", 0.5, ocr=0.5, fine=True), failed("f")])
        self.assertEqual(frame["reward_score"].dtype, np.float64)
        self.assertEqual(frame["reward/ocr"].dtype, np.float64)
        self.assertTrue(math.isnan(frame["reward_score"][1]))
        self.assertEqual(frame["reward_score"].mean(), 0.5)
        self.assertTrue(math.isnan(frame["timing_ms/total"][1]))
        self.assertEqual(frame["reward/fine"].tolist(), [True, None])
        self.assertEqual(frame["attempts"].dtype, np.int64)
        self.assertEqual(frame["why"][1], "failed (ocr: timeout: too slow)")

    def test_a_frame_of_failures_alone_has_no_number_for_the_reward(self) -> None:
        if importlib.util.find_spec("pandas") is None:
            self.skipTest("SKIPPED: pandas is not installed")
        self.assertTrue(to_frame([failed("f")])["reward_score"].isna().all())
        self.assertEqual(to_frame([failed("f")])["reward_score"].dtype, np.float64)
        empty = to_frame([])
        self.assertEqual((len(empty), empty["reward_score"].dtype), (0, np.float64))

    def test_without_pandas_the_error_says_what_to_install(self) -> None:
        with (
            mock.patch.dict(sys.modules, {"pandas": None}),
            self.assertRaisesRegex(InputError, "pip install pandas; to_rows does without"),
        ):
            to_frame([])

    def test_nothing_is_imported_before_it_is_needed(self) -> None:
        import subprocess

        code = "import sys, rewardloop\nrewardloop.log_step\nassert not {'pandas', 'wandb', 'PIL', 'torch'} & set(sys.modules)"
        env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(rewardloop.__file__))}
        subprocess.run([sys.executable, "-c", code], check=True, env=env, timeout=60)  # noqa: S603


class MetricsTest(unittest.TestCase):
    def test_the_names_of_verl_omni(self) -> None:
        metrics, _ = logged(RESULTS, samples=SAMPLES)
        want = {
            "critic/rewards/mean": 0.6,
            "critic/rewards/max": 1.0,
            "critic/rewards/min": 0.25,
            "critic/reward/combined/mean": 0.6,
            "critic/reward/ocr/mean": 1.2,
            "critic/reward/pick/mean": 0.0,
            "critic/rewards/zero_std_ratio": 0.5,  # the third group has one score, and no standard deviation
            "critic/rewards/std_mean": 0.125,
            "critic/rewards/group_size": 2.0,
            "rewardloop/train/samples": 6.0,
            "rewardloop/train/scored": 5.0,
            "rewardloop/train/no_score": 1.0,
            "rewardloop/train/failed/ocr": 1.0,
            "rewardloop/train/failed/pick": 0.0,
        }
        self.assertEqual(set(metrics), set(want))
        for name, value in want.items():
            self.assertAlmostEqual(metrics[name], value, msg=name)

    def test_the_names_of_verls_validation(self) -> None:
        metrics, _ = logged(RESULTS, samples=SAMPLES, split="val")
        self.assertAlmostEqual(metrics["val-core/drawbench/reward/mean@2"], (0.5 + 0.5 + 1.0) / 3)
        self.assertAlmostEqual(metrics["val-aux/drawbench/reward/std@2"], 0.125)
        self.assertAlmostEqual(metrics["val-aux/drawbench/reward/ocr/mean@2"], (1 + 1 + 2) / 3)
        self.assertFalse([k for k in metrics if k.startswith("critic/")])
        alone, _ = logged([Result("a", Outcome.SCORED, 0.5, {"acc": True})], split="val")
        self.assertEqual(alone["val-core/unknown/acc/mean@1"], 1.0)
        self.assertEqual(alone["val-aux/unknown/reward/mean@1"], 0.5)

    def test_the_names_of_flow_factory(self) -> None:
        metrics, _ = logged(RESULTS, samples=SAMPLES, style="flow-factory")
        want = {
            "train/reward_ocr_mean": 1.2,
            "train/reward_ocr_std": float(np.std([0.5, 1.5, 1, 1, 2])),
            "train/reward_pick_mean": 0.0,
            "train/reward_mean": 0.6,
            "train/reward_std": float(np.std([0.25, 0.75, 0.5, 0.5, 1])),
            "train/reward_ocr_group_std_mean": 0.25,
            "train/reward_ocr_group_std_max": 0.5,
            "train/reward_ocr_group_std_min": 0.0,
            "train/reward_ocr_group_mean_std": 0.0,
            "train/reward_group_std_mean": 0.125,
            "train/reward_group_std_max": 0.25,
            "train/reward_group_mean_std": 0.0,
            "train/reward_zero_std_ratio": 0.5,
        }
        for name, value in want.items():
            self.assertAlmostEqual(metrics[name], value, msg=name)
        self.assertNotIn("train/reward_group_std_min", metrics)
        evaluated, _ = logged(RESULTS, samples=SAMPLES, style="flow-factory", split="val")
        names = {k for k in evaluated if not k.startswith("rewardloop/")}
        self.assertEqual(names, {f"eval/reward_{n}_{s}" for n in ("ocr", "pick") for s in ("mean", "std")})

    def test_the_names_of_flow_grpo(self) -> None:
        metrics, _ = logged(RESULTS, samples=SAMPLES, style="flow_grpo")
        self.assertAlmostEqual(metrics["reward_avg"], 0.6)
        self.assertAlmostEqual(metrics["reward_ocr"], 1.2)
        self.assertEqual((metrics["zero_std_ratio"], metrics["reward_std_mean"]), (0.5, 0.125))
        evaluated, _ = logged(RESULTS, samples=SAMPLES, style="flow_grpo", split="val")
        self.assertAlmostEqual(evaluated["eval_reward_avg"], 0.6)

    def test_a_reward_without_components_is_one_by_the_name_of_score(self) -> None:
        metrics, _ = logged([Result("a", Outcome.SCORED, 0.5, {"score": 0.5})], style="flow-factory", split="val")
        self.assertEqual(metrics["eval/reward_score_mean"], 0.5)

    def test_a_step_without_a_score_has_counts_and_no_mean(self) -> None:
        for style in ("verl-omni", "flow-factory", "flow_grpo"):
            for split in ("train", "val"):
                metrics, _ = logged([failed("f"), failed("g")], style=style, split=split)
                self.assertEqual(
                    metrics,
                    {
                        f"rewardloop/{split}/samples": 2.0,
                        f"rewardloop/{split}/scored": 0.0,
                        f"rewardloop/{split}/no_score": 2.0,
                        f"rewardloop/{split}/failed/ocr": 2.0,
                    },
                )
        self.assertEqual(logged([])[0]["rewardloop/train/samples"], 0.0)

    def test_an_imputed_value_is_none_of_the_components_own(self) -> None:
        imputed = Result("i", Outcome.SCORED, 0.5, {"reward/ocr": 0.0, "reward/ocr/imputed": True})
        metrics, _ = logged([scored("a", 1.0, ocr=1.0), imputed])
        self.assertEqual(metrics["critic/reward/ocr/mean"], 1.0)
        self.assertEqual(metrics["critic/rewards/mean"], 0.75)
        self.assertFalse([k for k in metrics if "imputed" in k or "valid" in k])

    def test_without_samples_the_groups_are_those_of_the_results(self) -> None:
        stats = GroupStats("u", 2, 2, 0, 0.5, 0.5, False, 0)
        pair = [Result(str(x), Outcome.SCORED, x, group=stats) for x in (0.0, 1.0)]
        self.assertEqual(logged(pair)[0]["critic/rewards/std_mean"], 0.5)
        self.assertNotIn("critic/rewards/std_mean", logged([scored("a", 1), scored("b", 0)])[0])


class PictureTest(unittest.TestCase):
    def test_captions_are_those_of_the_trainers(self) -> None:
        results = [scored("a", 0.25, ocr=0.5, pick=0.123), failed("f")]
        samples = [sample("a", prompt="x" * 300, media=picture()), sample("f", media=picture())]
        long = "x" * 300
        for style, split, want in (
            ("verl-omni", "val", [f"0.25 | {long}", "no score (failed) | prompt of f"]),
            ("flow-factory", "train", [f"ocr: 0.50, pick: 0.12 | {long}", "no score (failed) | prompt of f"]),
            ("flow_grpo", "train", [f"{'x' * 100} | avg: 0.25", "prompt of f | avg: no score (failed)"]),
            ("flow_grpo", "val", [f"{long} | ocr: 0.50 | pick: 0.12 | avg: 0.25", "prompt of f | avg: no score (failed)"]),
        ):
            pictures = logged(results, samples=samples, style=style, split=split)[1]
            self.assertEqual([p.caption for p in pictures], want, style)
            self.assertEqual([p.score for p in pictures], [0.25, None])
        keys = {
            s: [logged(results, samples=samples, style=s, split=x)[1][0].key for x in ("train", "val")]
            for s in ("flow-factory", "flow_grpo")
        }
        self.assertEqual(keys, {"flow-factory": ["train_samples", "eval_samples"], "flow_grpo": ["images", "eval_images"]})

    def test_pictures_are_few_and_small(self) -> None:
        samples = [sample(str(i), media=picture(300, 40, i)) for i in range(20)]
        results = [scored(str(i), 1.0) for i in range(20)]
        pictures = logged(results, samples=samples, max_images=3, max_side=100)[1]
        self.assertEqual([p.pixels[0, 0, 0] for p in pictures], [0, 1, 2])
        self.assertEqual({p.pixels.shape for p in pictures}, {(100, 13, 3)})
        self.assertEqual(logged(results, samples=samples, max_images=0)[1], [])
        self.assertEqual(len(logged(results, samples=samples)[1]), 8)
        self.assertEqual(
            len(logged([scored("p", 1)], samples=[sample("p", prompt="x" * 5000, media=picture())])[1][0].prompt), 1000
        )
        thin = logged([scored("a", 1)], samples=[sample("a", media=picture(5000, 2, 9))], max_side=16)[1][0].pixels
        self.assertEqual((thin.shape[0] <= 16, thin.shape[1], thin.max()), (True, 1, 9))

    def test_every_layout_is_shown_as_rows_of_rgb(self) -> None:
        want = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
        chw = np.ascontiguousarray(want.transpose(2, 0, 1))
        second = np.zeros_like(want)
        rgba = np.concatenate([want, np.full((2, 3, 1), 255, np.uint8)], axis=2)
        media = [
            rewardloop.image(want, layout="HWC"),
            rewardloop.image(chw, layout="CHW"),
            rewardloop.image(rgba, layout="HWC"),
            rewardloop.video(np.stack([want, second]), layout="THWC", fps=8),
            rewardloop.video(np.stack([chw, np.zeros_like(chw)]), layout="TCHW", fps=8),
            rewardloop.video(np.stack([chw, np.zeros_like(chw)], axis=1), layout="CTHW", fps=8),
        ]
        samples = [sample(str(i), media=m) for i, m in enumerate(media)]
        for p in logged([scored(s.id, 1) for s in samples], samples=samples)[1]:
            np.testing.assert_array_equal(p.pixels, want)
        gray = logged([scored("g", 1)], samples=[sample("g", media=rewardloop.image(want[..., :1].copy(), layout="HWC"))])[1][
            0
        ].pixels
        np.testing.assert_array_equal(gray, np.repeat(want[..., :1], 3, axis=2))

    def test_files_are_decoded_and_what_cannot_be_is_left_out_and_counted(self) -> None:
        if importlib.util.find_spec("PIL") is None:
            self.skipTest("SKIPPED: Pillow is not installed")
        from PIL import Image

        data = {}
        for kind in ("png", "jpeg", "webp"):
            stream = io.BytesIO()
            Image.new("RGB", (640, 320), (255, 0, 0)).save(stream, kind)
            data[kind] = stream.getvalue()
        bomb = io.BytesIO()
        Image.new("1", (9000, 9000)).save(bomb, "png")
        samples = [
            sample("text"),
            sample("broken", media=rewardloop.image(data["png"][:60])),
            sample("bomb", media=rewardloop.image(bomb.getvalue())),
            *(sample(k, media=rewardloop.image(d)) for k, d in data.items()),
            sample("frames", media=rewardloop.frames([data["jpeg"], data["png"]], fps=8)),
        ]
        metrics, pictures = logged([scored(s.id, 1) for s in samples], samples=samples, max_side=64)
        self.assertEqual([p.prompt for p in pictures], [f"prompt of {n}" for n in ("png", "jpeg", "webp", "frames")])
        for p in pictures:
            self.assertEqual(p.pixels.shape, (32, 64, 3))
            np.testing.assert_allclose(p.pixels[16, 32], [255, 0, 0], atol=3)
        self.assertEqual(metrics["rewardloop/train/pictures_left_out"], 2.0)
        with mock.patch.dict(sys.modules, {"PIL.Image": None}), self.assertRaisesRegex(InputError, "pip install pillow"):
            logged([scored("png", 1)], samples=[samples[3]])


class ServerTest(unittest.TestCase):
    def test_the_results_of_a_server_have_the_names_of_their_components(self) -> None:
        entries = [
            f"+reward.reward_functions.{n}={{path: 'builtin://jpeg_compressibility', required: true}}" for n in ("size", "twice")
        ]
        samples = [sample(f"s{i}", "u", media=noise(16, i), step=1, group_size=3) for i in range(2)]
        samples.append(sample("broken", "u", media=rewardloop.image(b"\x89PNG\r\n\x1a\n" + b"x" * 50), step=1, group_size=3))
        with rewardloop.launch(*entries, binary=binary()) as server, rewardloop.Client(server.url, run="r") as client:
            results = client.score(samples, timeout=PATIENCE)
        metrics, pictures = logged(results, samples=samples, style="flow-factory")
        means = {k for k in metrics if k.endswith("_mean") and "group" not in k}
        self.assertEqual(means, {"train/reward_size_mean", "train/reward_twice_mean", "train/reward_mean"})
        self.assertEqual((metrics["rewardloop/train/scored"], metrics["rewardloop/train/no_score"]), (2.0, 1.0))
        # The first that fails may end the other.
        self.assertGreaterEqual(metrics["rewardloop/train/failed/size"] + metrics["rewardloop/train/failed/twice"], 1.0)
        self.assertEqual((len(pictures), metrics["rewardloop/train/pictures_left_out"]), (2, 1.0))
        rows = to_rows(results)
        self.assertEqual([r["reward/size"] is None for r in rows], [False, False, True])
        self.assertIn("bad_input", str(rows[2]["why"]))


class LoggerTest(unittest.TestCase):
    def test_wrong_settings_are_refused_by_name(self) -> None:
        for name, wrong in {
            "step": {"step": -1},
            "style": {"style": "verl"},
            "split": {"split": "eval"},
            "max_images": {"max_images": 257},
            "max_side": {"max_side": 8},
            "samples": {"samples": SAMPLES[:2]},
        }.items():
            with self.assertRaisesRegex(InputError, f"^{name}: "):
                logged(RESULTS, **wrong)
        with self.assertRaisesRegex(InputError, "samples: 6 samples for 6 results"):
            logged(RESULTS, samples=SAMPLES[::-1])
        with self.assertRaisesRegex(InputError, "logger: int, want a W&B run"):
            log_step(3, 0, RESULTS)
        with self.assertRaisesRegex(InputError, "logger: Logger, want a W&B run"):
            log_step(importlib.import_module("logging").getLogger("x"), 0, RESULTS)

    def test_wandb_gets_a_step_in_one_call(self) -> None:
        run = mock.Mock(spec=["log"])
        fake = types.SimpleNamespace(
            Image=lambda pixels, caption: (pixels.shape, caption), Table=lambda columns, data: (columns, data)
        )
        with mock.patch.dict(sys.modules, {"wandb": fake}):
            log_step(run, 7, RESULTS, samples=SAMPLES, style="flow-factory", max_images=2)
            log_step(run, 7, RESULTS, samples=SAMPLES, split="val", max_images=1)
        (first,), at = run.log.call_args_list[0]
        self.assertEqual(at, {"step": 7})
        self.assertEqual(first["train_samples"][0], ((8, 8, 3), "ocr: 0.50, pick: 0.00 | prompt of a"))
        self.assertEqual((len(first["train_samples"]), first["rewardloop/train/no_score"]), (2, 1.0))
        (second,), _ = run.log.call_args_list[1]
        columns, rows = second["val/generations"]
        self.assertEqual(columns, ["step", "input_1", "output_1", "score_1"])
        self.assertEqual(rows, [[7, "prompt of a", ((8, 8, 3), "0.25 | prompt of a"), 0.25]])
        with mock.patch.dict(sys.modules, {"wandb": None}):
            log_step(run, 8, RESULTS, samples=SAMPLES, max_images=0)  # numbers need no wandb
            with self.assertRaisesRegex(InputError, "pip install wandb"):
                log_step(run, 8, RESULTS, samples=SAMPLES)

    def test_a_real_wandb_run_takes_it(self) -> None:
        if importlib.util.find_spec("wandb") is None:
            self.skipTest("SKIPPED: wandb is not installed")
        wandb = importlib.import_module("wandb")
        self.addCleanup(wandb.teardown)  # ends its process
        settings = wandb.Settings(silent=True, console="off", x_disable_stats=True)
        with tempfile.TemporaryDirectory() as folder:
            run = wandb.init(project="p", dir=folder, mode="offline", settings=settings)
            log_step(run, 1, RESULTS, samples=SAMPLES, style="flow-factory")
            log_step(run, 2, RESULTS, samples=SAMPLES, split="val")
            log_step(run, 3, [])  # a step is over when the next one begins
            self.assertAlmostEqual(run.summary["train/reward_mean"], 0.6)
            self.assertAlmostEqual(run.summary["val-core/drawbench/reward/mean@2"], 2 / 3)
            self.assertEqual(run.summary["train_samples"]["count"], 6)
            self.assertEqual((run.summary["val/generations"]["nrows"], run.summary["val/generations"]["ncols"]), (1, 1 + 6 * 3))
            run.finish()

    def test_event_files_of_tensorboard_hold_what_was_logged(self) -> None:
        found = False
        for module in ("tensorboardX", "torch.utils.tensorboard"):
            try:
                writer_class = importlib.import_module(module).SummaryWriter
                events = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
            except ImportError:
                continue
            found = True
            with self.subTest(module), tempfile.TemporaryDirectory() as folder:
                writer = writer_class(folder)
                for step in (1, 2):
                    log_step(writer, step, RESULTS, samples=SAMPLES, style="flow-factory", max_images=2)
                writer.close()
                read = events.EventAccumulator(folder, size_guidance={"images": 0, "tensors": 0})
                read.Reload()
                self.assertEqual([(e.step, round(e.value, 6)) for e in read.Scalars("train/reward_mean")], [(1, 0.6), (2, 0.6)])
                self.assertEqual([e.value for e in read.Scalars("rewardloop/train/no_score")], [1.0, 1.0])
                self.assertEqual(sorted(read.Tags()["images"]), ["train_samples/0", "train_samples/1"])
                shown = read.Images("train_samples/0")
                self.assertEqual([(e.step, e.width, e.height) for e in shown], [(1, 8, 8), (2, 8, 8)])
                captions = [t for t in read.Tags()["tensors"] if t.startswith("train_samples/0/caption")]
                text = read.Tensors(captions[0])[0].tensor_proto.string_val[0].decode()
                self.assertEqual(text, "ocr: 0.50, pick: 0.00 | prompt of a")
        if not found:
            self.skipTest("SKIPPED: tensorboard and tensorboardX are not installed")


if __name__ == "__main__":
    unittest.main()
