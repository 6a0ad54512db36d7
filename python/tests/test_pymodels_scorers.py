"""Reward models of the catalogue, scorer://NAME, with the real classes of their packages and tiny random weights.

What an adapter gives a sample in a batch is what it gives it alone, and what the package gives it without this project.
HPSv3 and ImageReward need transformers 4.45.2 and run in a Python of their own, REWARDLOOP_PYMODELS_OLD_PYTHON: this
file runs there once more, as a script, for those two.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import types
import unittest
import wave
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
FOLDERS = HERE.parents[1] / "rewardloop" / "scorers"
TOLERANCE = 1e-5
WANTED = os.environ.get("REWARDLOOP_PYMODELS") == "1"
OLD = os.environ.get("REWARDLOOP_PYMODELS_OLD_PYTHON", "")
PROMPTS = ["a red fox", "two cats on a wall", "b", "a red fox in the snow and a cat"]
NEW_NAMES, OLD_NAMES = ("pickscore", "videopickscore", "clap", "aesthetic_v2_5", "hpsv2", "pyiqa", "editscore"), ("hpsv3", "imagereward")


def adapter(name: str) -> Any:
    """The class of an adapter."""
    spec = importlib.util.spec_from_file_location(f"adapter_of_{name}", FOLDERS / name / "adapter.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Scorer


def picture(n: int, width: int = 40, height: int = 32) -> Any:
    """A picture that is like no other."""
    import numpy as np
    from PIL import Image

    return Image.fromarray(np.random.default_rng(n).integers(0, 256, (height, width, 3), dtype="uint8"))


def sound(n: int, rate: int, seconds: float, channels: int = 2) -> Any:
    import numpy as np

    time = np.arange(int(rate * seconds)) / rate
    return np.stack([np.sin(time * 440 * (n + 1 + c)) * 0.3 for c in range(channels)]).astype("float32")


def samples(**columns: list[Any]) -> list[Any]:
    """Samples as a process hands them to compute_scores, of a list for each of their attributes."""
    nothing = {"prompt": "", "image": None, "video": None, "audio": None, "waveform": None}
    rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
    return [types.SimpleNamespace(**{**nothing, "id": str(i), **row}) for i, row in enumerate(rows)]


def score(value: Any) -> float:
    return float(value["score"] if isinstance(value, dict) else value)


# --- tiny models, as the hub has large ones --------------------------------------


def words(folder: Path) -> Path:
    """A tokenizer of CLIP's kind that knows letters only."""
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789.,"]
    tokens = [*letters, *(letter + "</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return folder


def clip(folder: Path) -> str:
    """A folder with a CLIP, its tokenizer and its picture processor."""
    import torch
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizer

    words(folder)
    tokenizer = CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77)
    towers = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = CLIPConfig(
        text_config={**towers, "vocab_size": 99, "bos_token_id": 76, "eos_token_id": 77, "pad_token_id": 77},
        vision_config={**towers, "image_size": 30, "patch_size": 6},
        projection_dim=24,
    )
    torch.manual_seed(1)
    CLIPModel(config).save_pretrained(folder)
    size = {"shortest_edge": 30}
    CLIPProcessor(CLIPImageProcessor(size=size, crop_size={"height": 30, "width": 30}), tokenizer).save_pretrained(folder)
    return str(folder)


def clap(folder: Path) -> str:
    """A folder with a CLAP and what it reads text and sound with."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import ClapConfig, ClapFeatureExtractor, ClapModel, ClapProcessor, PreTrainedTokenizerFast

    names = ["<s>", "<pad>", "</s>", "<unk>", *sorted({w for p in PROMPTS for w in p.split()})]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(names)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>", model_max_length=60
    )
    torch.manual_seed(2)
    text = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
    heard = {"window_size": 4, "num_mel_bins": 64, "spec_size": 256, "hidden_size": 64, "patch_embeds_hidden_size": 8}
    heard |= {"depths": [1, 1], "num_attention_heads": [2, 2], "patch_size": 4, "patch_stride": [4, 4], "projection_dim": 16}
    heard |= {"num_hidden_layers": 2, "hidden_size": 16}
    config = ClapConfig(text_config={**text, "projection_dim": 16, "max_position_embeddings": 66, "pad_token_id": 1}, audio_config=heard, projection_dim=16)
    ClapModel(config).save_pretrained(folder)
    ClapProcessor(ClapFeatureExtractor(feature_size=64, truncation="rand_trunc"), tokenizer).save_pretrained(folder)
    return str(folder)


def siglip(folder: Path) -> tuple[str, str]:
    """A folder with a SigLIP, and a file with a head of the aesthetic predictor."""
    import torch
    from aesthetic_predictor_v2_5.siglip_v2_5 import AestheticPredictorV2_5Head
    from transformers import SiglipImageProcessor, SiglipVisionConfig, SiglipVisionModel

    torch.manual_seed(3)
    config = SiglipVisionConfig(
        hidden_size=32, intermediate_size=37, num_hidden_layers=2, num_attention_heads=4, image_size=30, patch_size=6
    )
    SiglipVisionModel(config).save_pretrained(folder)
    SiglipImageProcessor(size={"height": 30, "width": 30}).save_pretrained(folder)
    torch.save(AestheticPredictorV2_5Head(config).state_dict(), folder / "head.pth")
    return str(folder), str(folder / "head.pth")


# --- comparisons ---------------------------------------------------------------------


class Compared(unittest.TestCase):
    folder: Path

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def same(self, name: str, scorer: Any, all: list[Any], package: list[float]) -> list[Any]:
        """Holds a batch against single samples and against what the package gives; returns what the adapter gave."""
        batch = scorer.compute_scores(all)
        self.assertEqual(len(batch), len(all))
        self.assertGreater(len({round(score(v), 4) for v in batch}), 1, f"{name}: scores that are all alike show nothing")
        for i, (sample, value, wanted) in enumerate(zip(all, batch, package)):
            self.assertAlmostEqual(score(value), wanted, delta=TOLERANCE, msg=f"{name}: sample {i} and the package")
            alone = score(scorer.compute_scores([sample])[0])
            self.assertAlmostEqual(score(value), alone, delta=TOLERANCE, msg=f"{name}: sample {i} in a batch and alone")
        return batch


def lacks(name: str, *modules: str) -> str:
    """Why the tests of an entry do not run here; "": they do."""
    if not WANTED:
        return "SKIPPED: it needs torch and the package of the model: make test-pymodels"
    gone = [m for m in modules if importlib.util.find_spec(m) is None]
    return f"SKIPPED: {name} needs {', '.join(gone)}" if gone else ""


class PickScoreTest(Compared):
    def setUp(self) -> None:
        if why := lacks("PickScore", "torch", "transformers", "PIL"):
            self.skipTest(why)
        super().setUp()
        self.model = clip(self.folder)

    def package(self, image: Any, prompt: str) -> float:
        """The score as the model card computes it, for one picture and text."""
        import torch
        from transformers import CLIPModel, CLIPProcessor

        model, processor = CLIPModel.from_pretrained(self.model).eval(), CLIPProcessor.from_pretrained(self.model)
        with torch.no_grad():
            out = model(**processor(text=[prompt], images=[image], return_tensors="pt", padding=True))
        return float(out.logits_per_image[0, 0]) / 26

    def test_a_picture_in_a_batch_alone_and_by_transformers(self) -> None:
        scorer = adapter("pickscore")("cpu", self.model, self.model)
        images = [picture(i, 30 + i, 40 - i) for i in range(4)]
        wanted = [self.package(i, p) for i, p in zip(images, PROMPTS)]
        self.same("pickscore", scorer, samples(image=images, prompt=PROMPTS), wanted)

    def test_a_video_is_the_mean_of_its_frames(self) -> None:
        videos = [[picture(10 * i + f) for f in range(5 + i)] for i in range(4)]
        three = adapter("videopickscore")("cpu", self.model, self.model, frames=3)
        chosen = [[v[0], v[(len(v) - 1) // 2], v[-1]] for v in videos]
        wanted = [sum(self.package(f, p) for f in frames) / 3 for frames, p in zip(chosen, PROMPTS)]
        self.same("videopickscore", three, samples(video=videos, prompt=PROMPTS), wanted)
        first = adapter("videopickscore")("cpu", self.model, self.model, frames=1)
        self.same("videopickscore of the first frame", first, samples(video=videos, prompt=PROMPTS), [self.package(v[0], p) for v, p in zip(videos, PROMPTS)])


class ClapTest(Compared):
    def test_a_sound_in_a_batch_alone_and_by_transformers(self) -> None:
        if why := lacks("CLAP", "torch", "torchaudio", "transformers"):
            self.skipTest(why)
        import torch
        import torchaudio
        from transformers import ClapModel, ClapProcessor

        path = clap(self.folder)
        scorer = adapter("clap")("cpu", path)
        sounds = [(sound(i, rate, 1.0 + i), rate) for i, rate in enumerate((48000, 16000, 44100))] + [(sound(5, 48000, 12.0), 48000)]
        model, processor = ClapModel.from_pretrained(path).eval(), ClapProcessor.from_pretrained(path)
        wanted = []
        for (channels, rate), prompt in zip(sounds, PROMPTS):
            mono = torchaudio.functional.resample(torch.from_numpy(channels).mean(0), rate, 48000)[:480000].numpy()
            text = processor.tokenizer([prompt], return_tensors="pt")
            heard = processor.feature_extractor([mono], sampling_rate=48000, return_tensors="pt")
            with torch.no_grad():
                out = model(**text, **heard)
            wanted.append(float(out.logits_per_audio[0, 0] / model.logit_scale_a.exp()))
        all = samples(waveform=sounds, prompt=PROMPTS)
        self.same("clap", scorer, all, wanted)
        self.assertEqual(score(scorer.compute_scores(all[3:])[0]), score(scorer.compute_scores(all[3:])[0]), "12 s repeat")


class AestheticTest(Compared):
    def test_a_picture_in_a_batch_alone_and_by_the_package(self) -> None:
        if why := lacks("aesthetic v2.5", "torch", "aesthetic_predictor_v2_5"):
            self.skipTest(why)
        import torch
        from aesthetic_predictor_v2_5 import convert_v2_5_from_siglip

        path, head = siglip(self.folder)
        scorer = adapter("aesthetic_v2_5")("cpu", path, head)
        model, processor = convert_v2_5_from_siglip(predictor_name_or_path=head, encoder_model_name=path)
        images = [picture(i, 30 + i, 40 - i) for i in range(4)]
        with torch.no_grad():
            wanted = [float(model(processor(images=i, return_tensors="pt").pixel_values).logits) for i in images]
        self.same("aesthetic_v2_5", scorer, samples(image=images), wanted)


class HPSv2Test(Compared):
    def test_a_picture_in_a_batch_alone_and_by_open_clip(self) -> None:
        if why := lacks("HPSv2", "torch", "open_clip"):
            self.skipTest(why)
        import open_clip
        import torch

        tower = {"width": 32, "layers": 2, "heads": 4}
        config = {"embed_dim": 24, "vision_cfg": {"image_size": 30, "patch_size": 6, "width": 32, "layers": 2, "head_width": 8}}
        (self.folder / "rewardloop-tiny.json").write_text(json.dumps({**config, "text_cfg": {**tower, "context_length": 77, "vocab_size": 49408}}))
        open_clip.add_model_config(self.folder)
        torch.manual_seed(4)
        model, _, prepare = open_clip.create_model_and_transforms("rewardloop-tiny")
        weights = self.folder / "hps.pt"
        torch.save({"state_dict": model.state_dict()}, weights)
        scorer = adapter("hpsv2")("cpu", str(weights), "rewardloop-tiny")
        images, tokenize = [picture(i, 30 + i, 40 - i) for i in range(4)], open_clip.get_tokenizer("rewardloop-tiny")
        wanted = []
        for image, prompt in zip(images, PROMPTS):  # as score() of hpsv2 computes it
            with torch.no_grad():
                found = model.eval()(prepare(image).unsqueeze(0), tokenize([prompt]))
            wanted.append(float((found[0] @ found[1].T).diagonal()))
        self.same("hpsv2", scorer, samples(image=images, prompt=PROMPTS), wanted)


class PyiqaTest(Compared):
    def test_pictures_of_several_sizes_in_a_batch_alone_and_by_the_package(self) -> None:
        if why := lacks("pyiqa", "torch", "pyiqa"):
            self.skipTest(why)
        import pyiqa
        import torch

        torch.manual_seed(5)
        made = pyiqa.create_metric("cnniqa", device=torch.device("cpu"), pretrained=None)
        weights = self.folder / "cnniqa.pth"
        torch.save({"params": made.net.state_dict()}, weights)
        scorer = adapter("pyiqa")("cpu", "cnniqa", options={"pretrained_model_path": str(weights)})
        images = [picture(i, 64 + 32 * (i % 2), 64) for i in range(4)]
        paths = [str(self.folder / f"{i}.png") for i in range(4)]
        for image, path in zip(images, paths):
            image.save(path)
        batch = self.same("pyiqa", scorer, samples(image=images), [float(made(path)) for path in paths])
        self.assertEqual([v["value"] for v in batch], [v["score"] for v in batch])
        worse = adapter("pyiqa")("cpu", "cnniqa", negate=True, options={"pretrained_model_path": str(weights)})
        self.assertEqual([-v["score"] for v in worse.compute_scores(samples(image=images))], [v["score"] for v in batch])


class EditScoreTest(Compared):
    def test_an_edit_is_rated_as_evaluate_rates_it_and_a_guess_is_a_failure(self) -> None:
        if why := lacks("EditScore", "torch", "editscore"):
            self.skipTest(why)

        class Model:
            """Answers what the vision-language model of the package would."""

            def __init__(self, **_: Any) -> None:
                self.asked: list[Any] = []

            def prepare_input(self, images: Any, text: str) -> Any:
                return images, text

            def inference(self, inputs: Any, seed: int) -> str:
                self.asked.append(inputs[0])
                if "unreadable" in inputs[1]:
                    return "no rating"
                return json.dumps({"score": [20, 15] if isinstance(inputs[0], list) else [10, 12], "reasoning": "so"})

        module = types.ModuleType("editscore.mllm_tools.openai")
        module.GPT4o = lambda *_, **__: Model()  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
        self.addCleanup(sys.modules.pop, module.__name__)
        scorer = adapter("editscore")("cpu", backbone="openai")
        self.assertNotIn("editscore", sys.path, "the package's relative folder")
        import editscore

        edited, source = picture(1), picture(2)
        media = [{"kind": "image", "data": edited}, {"kind": "image", "data": source}]
        found, guess = scorer.compute_scores(samples(media=[media, media], prompt=["make it red", "unreadable"]))
        wanted = editscore.EditScore(backbone="openai").evaluate([source, edited], "make it red")
        self.assertAlmostEqual(found["score"], wanted["overall"], delta=TOLERANCE)
        self.assertAlmostEqual(found["score"], math.sqrt(15 / 2.5 * 10 / 2.5), delta=TOLERANCE)
        self.assertEqual((found["prompt_following"], found["consistency"]), (8.0, 6.0))
        self.assertEqual([i.tobytes() for i in scorer.model.model.asked[0]], [source.tobytes(), edited.tobytes()])
        self.assertIsInstance(guess, ValueError)


# --- the whole loop --------------------------------------------------------------------


class LoopTest(Compared):
    """Samples come over the wire, and their rewards are what the adapters give."""

    def test_pickscore_aesthetic_and_clap_through_the_whole_loop(self) -> None:
        if why := lacks("the loop", "torch", "torchaudio", "transformers", "aesthetic_predictor_v2_5", "websockets"):
            self.skipTest(why)
        import rewardloop

        from .harness import binary

        for name in ("clip", "clap", "siglip"):
            (self.folder / name).mkdir()
        model, heard = clip(self.folder / "clip"), clap(self.folder / "clap")
        seen, head = siglip(self.folder / "siglip")
        entries = {
            "pick": {"path": "scorer://pickscore", "model_path": model, "processor_path": model},
            "look": {"path": "scorer://aesthetic_v2_5", "accept_license": "AGPL-3.0-only", "model_path": seen, "head_path": head},
            "hear": {"path": "scorer://clap", "model_path": heard},
        }
        for entry in entries.values():
            entry |= {"interpreter": sys.executable, "required": True, "max_batch_size": 3}
        config = self.folder / "cfg.yaml"
        config.write_text(json.dumps({"reward": {"num_workers": 4, "reward_functions": entries}}))
        images, sounds = [picture(i) for i in range(4)], [(sound(i, 16000, 1.5), 16000) for i in range(4)]
        both = samples(image=images, prompt=PROMPTS, waveform=sounds)
        wanted = {
            "pick": adapter("pickscore")("cpu", model, model).compute_scores(both),
            "look": adapter("aesthetic_v2_5")("cpu", seen, head).compute_scores(both),
            "hear": adapter("clap")("cpu", heard).compute_scores(both),
        }
        import numpy as np

        with rewardloop.launch(config=config, binary=binary(), timeout=600) as server, rewardloop.Client(server.url, run="catalogue") as loop:
            sent = [
                rewardloop.Sample(
                    id=str(i),
                    prompt=prompt,
                    media=[
                        rewardloop.image(np.asarray(image), layout="HWC"),
                        rewardloop.audio(channels.T.copy(), layout="TC", sample_rate=rate),
                    ],
                )
                for i, (image, prompt, (channels, rate)) in enumerate(zip(images, PROMPTS, sounds))
            ]
            results = loop.score(sent, timeout=300)
            mute = loop.score([rewardloop.Sample(id="mute", prompt="a fox", media=rewardloop.image(np.asarray(images[0]), layout="HWC"))], timeout=300)
        for i, result in enumerate(results):
            for key, values in wanted.items():
                self.assertAlmostEqual(result.reward_extra_info[f"reward/{key}"], score(values[i]), delta=TOLERANCE, msg=f"{key} {i}")
        self.assertEqual([e.blame for e in mute[0].errors][:1], ["sample"])
        self.assertIn("scorer://clap needs audio, prompt, and sample \"mute\" has no audio", str(mute[0].errors))


# --- transformers 4.45.2 ------------------------------------------------------------------


class OldTest(unittest.TestCase):
    def test_hpsv3_and_imagereward_with_the_transformers_that_they_need(self) -> None:
        if not WANTED or not OLD:
            self.skipTest("SKIPPED: HPSv3 and ImageReward need transformers 4.45.2: make test-pymodels")
        done = subprocess.run([OLD, str(HERE), "-v"], capture_output=True, text=True, timeout=1200, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for name in ("HPSv3Test", "ImageRewardTest"):
            self.assertIn(name, done.stderr)
        self.assertNotIn("skipped", done.stderr, done.stderr)


if __name__ == "__main__":
    unittest.main()
