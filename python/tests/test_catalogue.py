"""Reward models of the catalogue, scorer://NAME, without torch: what is said before anything is downloaded, and an entry
through the whole loop with fakes of the packages that its environment has."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
from PIL import Image

import rewardloop

from .harness import PATIENCE, binary

FOLDERS = Path(rewardloop.__file__).parent / "scorers"

#: What hpsv3 and torch have that the adapter of scorer://hpsv3 uses. Each model that is made writes a line.
FAKES = {
    "torch.py": """
import contextlib
inference = False
@contextlib.contextmanager
def inference_mode():
    global inference
    inference = True
    yield
    inference = False
""",
    "hpsv3.py": """
import os, torch
class Rows(list):
    def float(self): return self
    def tolist(self): return list(self)
class HPSv3RewardInferencer:
    def __init__(self, config_path=None, checkpoint_path=None, device="cuda"):
        with open(checkpoint_path, "a") as file:
            file.write(f"{device} {os.getpid()}\\n")
    def reward(self, images, prompts):
        assert torch.inference and all(image.mode == "RGB" for image in images)
        if "boom" in prompts:
            raise RuntimeError("a prompt that the package cannot take")
        return Rows([[image.getpixel((0, 0))[0] / 255, float(len(prompt))] for image, prompt in zip(images, prompts)])
""",
}


class CatalogueTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name, text in FAKES.items():
            (self.folder / name).write_text(text)
        paths = os.pathsep.join(p for p in (str(self.folder), os.environ.get("PYTHONPATH", "")) if p)
        self.enterContext(mock.patch.dict(os.environ, {"PYTHONPATH": paths, "REWARDLOOP_ENVS": str(self.folder / "envs")}))
        self.made = self.folder / "made"
        self.made.touch()

    def run_binary(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([binary(), *args], capture_output=True, text=True, timeout=PATIENCE, check=False)

    def config(self, **keys: object) -> str:
        path = self.folder / "cfg.yaml"
        path.write_text(json.dumps({"reward": {"num_workers": 4, "reward_functions": {"a": {"required": True, **keys}}}}))
        return str(path)

    def hpsv3(self) -> dict[str, object]:
        return {"path": "scorer://hpsv3", "interpreter": sys.executable, "checkpoint_path": str(self.made)}

    def test_an_entry_scores_batches_through_the_whole_loop_with_a_model_that_is_made_once(self) -> None:
        shades = [np.full((8, 8, 3), shade, "uint8") for shade in range(0, 240, 10)]
        with rewardloop.launch(config=self.config(**self.hpsv3()), binary=binary()) as server:
            with rewardloop.Client(server.url, run="catalogue") as loop:
                sent = [
                    rewardloop.Sample(id=str(i), prompt="p" * (i + 1), media=rewardloop.image(shade, layout="HWC"))
                    for i, shade in enumerate(shades)
                ]
                results = loop.score(sent, timeout=PATIENCE)
                picture = rewardloop.image(shades[0], layout="HWC")
                odd = [
                    rewardloop.Sample(id="silent", media=picture),
                    rewardloop.Sample(id="blind", prompt="a fox"),
                    rewardloop.Sample(id="boom", prompt="boom", media=picture),
                ]
                silent, blind, boom = loop.score(odd, timeout=PATIENCE)
        for i, result in enumerate(results):
            self.assertAlmostEqual(i * 10 / 255, result.score(), places=6)
            self.assertEqual(i + 1, result.reward_extra_info["reward/a/sigma"])
        for result, lacks in ((silent, "prompt"), (blind, "image")):
            self.assertIn(
                f"scorer://hpsv3 needs image, prompt, but sample {json.dumps(result.id)} has no {lacks}", str(result.errors)
            )
            self.assertEqual([e.blame for e in result.errors], ["sample"])
        self.assertIn("a prompt that the package cannot take", str(boom.errors))
        self.assertIn('scorer://hpsv3", line', str(boom.errors), "the adapter's line is in the traceback")
        self.assertIn("self.model.reward(", str(boom.errors))
        self.assertEqual(len(self.made.read_text().splitlines()), 1, "no model is loaded for a call")

    def test_try_scores_one_picture_and_says_before_what_is_downloaded(self) -> None:
        picture = self.folder / "a.png"
        Image.new("L", (9, 9), 51).save(picture)
        flags = [f"--set={key}={value}" for key, value in self.hpsv3().items() if key != "path"]
        done = self.run_binary("try", "scorer://hpsv3", "--image", str(picture), "--prompt", "a fox", "--json", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        self.assertAlmostEqual(document["samples"][0]["reward_score"], 0.2)
        self.assertEqual(document["reward_extra_info"]["reward/hpsv3/sigma"], 5)
        self.assertRegex(
            done.stderr,
            r"^note: .*downloads when it is loaded .*Qwen/Qwen2-VL-7B-Instruct, about 16\.6 GB, Apache-2\.0 \(https://",
        )
        self.assertNotIn("MizzenAI", done.stderr, "the file of its weights was given")

    def test_an_option_that_the_adapter_does_not_take_is_a_fault(self) -> None:
        done = self.run_binary("config", "check", self.config(**self.hpsv3(), checkpoint_pth="v3"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("a.checkpoint_pth: is not a parameter of Scorer", done.stderr)
        self.assertIn("did you mean checkpoint_path?", done.stderr)

    def test_a_licence_is_refused_until_it_is_agreed_to(self) -> None:
        keys = {"path": "scorer://aesthetic_v2_5", "interpreter": sys.executable}
        done = self.run_binary("config", "check", self.config(**keys))
        self.assertEqual(done.returncode, 2)
        self.assertIn("scorer://aesthetic_v2_5 is used under AGPL-3.0-only, which does not allow every use", done.stderr)
        self.assertIn("if you agree add accept_license: AGPL-3.0-only to the entry", done.stderr)
        done = self.run_binary("config", "check", self.config(**keys, accept_license="AGPL-3.0-only"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("google/siglip-so400m-patch14-384, about 3.5 GB, Apache-2.0", done.stdout)

    def test_env_make_says_size_and_licence_of_the_weights_too(self) -> None:
        done = self.run_binary("env", "make", "-c", self.config(**self.hpsv3()))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(
            done.stderr, r"^note: .*about 16\.6 GB, Apache-2\.0 .*\nno entry of this configuration has an environment"
        )

    def test_scorers_lists_the_catalogue_and_says_all_about_one(self) -> None:
        rows = json.loads(self.run_binary("scorers", "--json").stdout)["scorers"]
        named = {row["path"]: row for row in rows}
        folders = sorted(f.name for f in FOLDERS.iterdir() if (f / "scorer.yaml").exists())
        self.assertEqual([p for p in named if p.startswith("scorer://")], [f"scorer://{name}" for name in folders])
        said = self.run_binary("scorers", "scorer://hpsv3").stdout
        for text in (
            "Inputs from the sample: image, prompt.",
            "Downloads: MizzenAI/HPSv3, about 16.60 GB, MIT",
            "--allow-source",
            "transformers==4.45.2",
        ):
            self.assertIn(text, said)
        both = self.run_binary("scorers", "pickscore").stdout
        self.assertTrue(both.startswith("builtin://pickscore\n"))
        self.assertIn("\nscorer://pickscore\n", both)
        pins = self.run_binary("scorers", "scorer://clap", "--requirements").stdout
        self.assertEqual(pins, (FOLDERS / "clap" / "requirements.txt").read_text())
        self.assertEqual(self.run_binary("scorers", "ocr", "--requirements").returncode, 2)
        self.assertIn("did you mean hpsv3?", self.run_binary("scorers", "scorer://hpsv33").stderr)

    def test_every_adapter_is_python_that_imports_nothing_until_it_is_made(self) -> None:
        adapters = sorted(FOLDERS.glob("*/adapter.py"))
        self.assertGreaterEqual(len(adapters), 12)
        for path in adapters:
            with self.subTest(path.parent.name):
                tree = ast.parse(path.read_text())
                self.assertEqual(
                    [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))], [], "config check imports it"
                )
                loads = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name != "__init__"]
                calls = {
                    n.func.attr
                    for f in loads
                    for n in ast.walk(f)
                    if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
                }
                self.assertFalse(
                    calls & {"from_pretrained", "load", "load_state_dict", "create_metric", "chdir"}, "loaded in a call"
                )


if __name__ == "__main__":
    unittest.main()
