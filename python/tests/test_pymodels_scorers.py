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
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
FOLDERS = HERE.parents[1] / "rewardloop" / "scorers"
TOLERANCE = 1e-5
WANTED = os.environ.get("REWARDLOOP_PYMODELS") == "1"
OLD = os.environ.get("REWARDLOOP_PYMODELS_OLD_PYTHON", "")
PROMPTS = ["a red fox", "two cats on a wall", "b", "a red fox in the snow and a cat"]


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
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
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
    config = ClapConfig(
        text_config={**text, "projection_dim": 16, "max_position_embeddings": 66, "pad_token_id": 1},
        audio_config=heard,
        projection_dim=16,
    )
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
        for i, (sample, value, wanted) in enumerate(zip(all, batch, package, strict=True)):
            self.assertAlmostEqual(score(value), wanted, delta=TOLERANCE, msg=f"{name}: sample {i} and the package")
            alone = score(scorer.compute_scores([sample])[0])
            self.assertAlmostEqual(score(value), alone, delta=TOLERANCE, msg=f"{name}: sample {i} in a batch and alone")
        return batch


def lacks(name: str, *modules: str) -> str:
    """Why the tests of an entry do not run here; "": they do."""
    if not WANTED:
        return "SKIPPED: it needs torch and the package of the model: make test-pymodels"
    gone = [m for m in modules if importlib.util.find_spec(m) is None]
    if gone and OLD and name in ("HPSv3", "ImageReward"):
        return f"{name} is left to REWARDLOOP_PYMODELS_OLD_PYTHON, see OldTest"
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
        wanted = [self.package(i, p) for i, p in zip(images, PROMPTS, strict=True)]
        self.same("pickscore", scorer, samples(image=images, prompt=PROMPTS), wanted)

    def test_a_video_is_the_mean_of_its_frames(self) -> None:
        videos = [[picture(10 * i + f) for f in range(5 + i)] for i in range(4)]
        three = adapter("videopickscore")("cpu", self.model, self.model, frames=3)
        chosen = [[v[0], v[(len(v) - 1) // 2], v[-1]] for v in videos]
        wanted = [sum(self.package(f, p) for f in frames) / 3 for frames, p in zip(chosen, PROMPTS, strict=True)]
        self.same("videopickscore", three, samples(video=videos, prompt=PROMPTS), wanted)
        first = adapter("videopickscore")("cpu", self.model, self.model, frames=1)
        self.same(
            "videopickscore of the first frame",
            first,
            samples(video=videos, prompt=PROMPTS),
            [self.package(v[0], p) for v, p in zip(videos, PROMPTS, strict=True)],
        )


class ClapTest(Compared):
    def test_a_sound_in_a_batch_alone_and_by_transformers(self) -> None:
        if why := lacks("CLAP", "torch", "torchaudio", "transformers"):
            self.skipTest(why)
        import torch
        import torchaudio
        from transformers import ClapModel, ClapProcessor

        path = clap(self.folder)
        scorer = adapter("clap")("cpu", path)
        sounds = [(sound(i, rate, 1.0 + i), rate) for i, rate in enumerate((48000, 16000, 44100))] + [
            (sound(5, 48000, 12.0), 48000)
        ]
        model, processor = ClapModel.from_pretrained(path).eval(), ClapProcessor.from_pretrained(path)
        wanted = []
        for (channels, rate), prompt in zip(sounds, PROMPTS, strict=True):
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
        (self.folder / "rewardloop-tiny.json").write_text(
            json.dumps({**config, "text_cfg": {**tower, "context_length": 77, "vocab_size": 49408}})
        )
        open_clip.add_model_config(self.folder)
        torch.manual_seed(4)
        model, _, prepare = open_clip.create_model_and_transforms("rewardloop-tiny")
        weights = self.folder / "hps.pt"
        torch.save({"state_dict": model.state_dict()}, weights)
        scorer = adapter("hpsv2")("cpu", str(weights), "rewardloop-tiny")
        images, tokenize = [picture(i, 30 + i, 40 - i) for i in range(4)], open_clip.get_tokenizer("rewardloop-tiny")
        wanted = []
        for image, prompt in zip(images, PROMPTS, strict=True):  # as score() of hpsv2 computes it
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
        for image, path in zip(images, paths, strict=True):
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


# --- packages that nobody can install here ------------------------------------------------


class FakeTest(Compared):
    """The adapters of what is no package: they call a fake as its repository's README calls the class itself."""

    def repository(self, files: dict[str, str]) -> str:
        """A folder as a clone of a repository, whose modules are gone again after the test."""
        for path, text in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)
        before, known = list(sys.path), set(sys.modules)

        def forget() -> None:
            sys.path[:] = before
            for name in set(sys.modules) - known:
                if str(self.folder) in str(getattr(sys.modules[name], "__file__", "")):
                    del sys.modules[name]

        self.addCleanup(forget)
        return str(self.folder)

    def setUp(self) -> None:
        if why := lacks("a fake", "torch"):
            self.skipTest(why)
        super().setUp()

    def test_videoalign_gets_paths_and_returns_what_it_rates(self) -> None:
        text = """
import os
CALLS = []
class VideoVLMRewardInference:
    def __init__(self, load_from_pretrained, load_from_pretrained_step=-1, device="cuda", dtype=None):
        CALLS.append((load_from_pretrained, device, str(dtype)))
    def reward(self, video_paths, prompts, fps=None, num_frames=None, max_pixels=None, use_norm=True):
        assert fps is None or num_frames is None
        CALLS.append((video_paths, prompts, fps, num_frames, use_norm))
        return [{"VQ": float(len(p)), "MQ": 2.0, "TA": 4.0, "Overall": 6.0 + len(p)} for p in prompts]
"""
        code = self.repository({"inference.py": text})
        scorer = adapter("videoalign")("cpu", code, "/weights", fps=2)
        rated = scorer.compute_scores(samples(video=["/a.avi", "/b.avi"], prompt=["x", "yyy"]))
        self.assertEqual(
            rated, [{"score": 7.0, "vq": 1.0, "mq": 2.0, "ta": 4.0}, {"score": 9.0, "vq": 3.0, "mq": 2.0, "ta": 4.0}]
        )
        calls = sys.modules["inference"].CALLS
        self.assertEqual(calls, [("/weights", "cpu", "torch.bfloat16"), (["/a.avi", "/b.avi"], ["x", "yyy"], 2, None, True)])
        omni = adapter("videoalign")("cpu", code, "/weights", weights=[0.5, 0, 0.5])
        self.assertEqual(omni.compute_scores(samples(video=["/a.avi"], prompt=["x"]))[0]["score"], 2.5)
        with self.assertRaisesRegex(ValueError, "fps or num_frames"):
            adapter("videoalign")("cpu", code, "/weights", fps=2, num_frames=8)

    def test_editreward_gets_the_edited_picture_and_its_source(self) -> None:
        text = """
import torch
CALLS = []
class EditRewardInferencer:
    def __init__(self, config_path=None, checkpoint_path=None, device="cuda", reward_dim="dim1", rm_head_type=""):
        CALLS.append((config_path, checkpoint_path, device, reward_dim, rm_head_type))
    def reward(self, prompts, image_src, image_paths):
        assert torch.is_inference_mode_enabled()
        CALLS.append((prompts, image_src, image_paths))
        return torch.tensor([[float(len(p)), -1.0] for p in prompts], dtype=torch.bfloat16)
"""
        code = self.repository({"EditReward/__init__.py": text})
        scorer = adapter("editreward")("cpu", code, "c.yaml", "/weights")
        media = [{"kind": "image", "data": "/edited.png"}, {"kind": "image", "data": "/source.png"}]
        rated = scorer.compute_scores(samples(media=[media, media], prompt=["x", "yyy"]))
        self.assertEqual(rated, [{"score": 1.0, "second": -1.0}, {"score": 3.0, "second": -1.0}])
        self.assertEqual(
            sys.modules["EditReward"].CALLS,
            [
                ("c.yaml", "/weights", "cpu", "overall_detail", "ranknet_multi_head"),
                (["x", "yyy"], ["/source.png"] * 2, ["/edited.png"] * 2),
            ],
        )

    def test_imagebind_loads_its_weights_itself_and_mixes_cosines(self) -> None:
        import torch

        model = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3))
    def forward(self, inputs):
        assert not self.training and torch.is_inference_mode_enabled()
        return {k: v + self.weight for k, v in inputs.items()}
def imagebind_huge(pretrained=False):
    assert not pretrained, "it would download into the working directory"
    return Model()
"""
        data = """
import torch
def rows(n, *v): return torch.tensor([v] * n)
def load_and_transform_audio_data(paths, device): return rows(len(paths), 1.0, 0.0, 0.0)
def load_and_transform_video_data(paths, device): return rows(len(paths), 1.0, 1.0, 0.0)
def load_and_transform_text(texts, device): return rows(len(texts), 0.0, 0.0, 2.0)
"""
        code = self.repository(
            {
                "imagebind/__init__.py": "",
                "imagebind/data.py": data,
                "imagebind/models/__init__.py": "",
                "imagebind/models/imagebind_model.py": model,
            }
        )
        weights = self.folder / "huge.pth"
        torch.save({"weight": torch.zeros(3)}, weights)
        mixed = adapter("imagebind")("cpu", code, str(weights), mode="all")
        rated = mixed.compute_scores(samples(audio=["/a.wav"] * 2, video=["/a.avi"] * 2, prompt=["x", "y"]))
        self.assertEqual(len(rated), 2)
        self.assertAlmostEqual(rated[1]["score"], 0.5 / math.sqrt(2), delta=TOLERANCE)
        self.assertAlmostEqual(rated[1]["av"], 1 / math.sqrt(2), delta=TOLERANCE)
        heard = adapter("imagebind")("cpu", code, str(weights))
        self.assertEqual(heard.compute_scores(samples(audio=["/a.wav"], prompt=["x"])), [{"score": 0.0, "at": 0.0}])
        with self.assertRaisesRegex(ValueError, "a video or a prompt that sample '0' does not have"):
            mixed.compute_scores(samples(audio=["/a.wav"], prompt=["x"]))


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

        with (
            rewardloop.launch(config=config, binary=binary(), timeout=600) as server,
            rewardloop.Client(server.url, run="catalogue") as loop,
        ):
            sent = [
                rewardloop.Sample(
                    id=str(i),
                    prompt=prompt,
                    media=[
                        rewardloop.image(np.asarray(image), layout="HWC"),
                        rewardloop.audio(channels.T.copy(), layout="TC", sample_rate=rate),
                    ],
                )
                for i, (image, prompt, (channels, rate)) in enumerate(zip(images, PROMPTS, sounds, strict=True))
            ]
            results = loop.score(sent, timeout=300)
            mute = loop.score(
                [rewardloop.Sample(id="mute", prompt="a fox", media=rewardloop.image(np.asarray(images[0]), layout="HWC"))],
                timeout=300,
            )
        for i, result in enumerate(results):
            for key, values in wanted.items():
                self.assertAlmostEqual(
                    result.reward_extra_info[f"reward/{key}"], score(values[i]), delta=TOLERANCE, msg=f"{key} {i}"
                )
        self.assertEqual([e.blame for e in mute[0].errors][:1], ["sample"])
        self.assertIn('scorer://clap needs audio, prompt, but sample "mute" has no audio', str(mute[0].errors))


# --- transformers 4.45.2 ------------------------------------------------------------------


def qwen(folder: Path) -> tuple[str, str]:
    """A configuration of HPSv3 whose base is a tiny Qwen2-VL, and a file with weights of the whole model."""
    import torch
    from hpsv3.train import create_model_and_processor
    from hpsv3.utils.parser import DataConfig, ModelConfig, PEFTLoraConfig, TrainingConfig, parse_args_with_yaml
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import (
        Qwen2TokenizerFast,
        Qwen2VLConfig,
        Qwen2VLForConditionalGeneration,
        Qwen2VLImageProcessor,
        Qwen2VLProcessor,
    )

    marks = [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|image_pad|>",
        "<|video_pad|>",
    ]
    inner = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.add_special_tokens(marks)
    tokenizer = Qwen2TokenizerFast(
        tokenizer_object=inner, pad_token=marks[0], eos_token=marks[2], additional_special_tokens=marks[1:]
    )
    ids = dict(
        zip(
            ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id"),
            tokenizer.convert_tokens_to_ids(marks[3:]),
            strict=True,
        )
    )
    template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}{% if c['type'] == 'image' %}"
        "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    )
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 37,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    config = Qwen2VLConfig(
        **sizes,
        **ids,
        vocab_size=300,
        max_position_embeddings=16384,
        rope_scaling={"type": "mrope", "mrope_section": [1, 1, 2]},
        vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 2},
        bos_token_id=256,
        eos_token_id=258,
    )
    torch.manual_seed(6)
    base = folder / "base"
    Qwen2VLForConditionalGeneration(config).save_pretrained(base)
    Qwen2VLProcessor(Qwen2VLImageProcessor(), tokenizer, chat_template=template).save_pretrained(base)
    path = folder / "tiny.yaml"
    import hpsv3

    ships = (Path(hpsv3.__file__).parent / "config" / "HPSv3_7B.yaml").read_text()
    for was, now in (
        ('"Qwen/Qwen2-VL-7B-Instruct"', json.dumps(str(base))),
        ("bf16: True", "bf16: False"),
        ('torch_dtype: "bfloat16"', 'torch_dtype: "float32"'),
        ("disable_flash_attn2: False", "disable_flash_attn2: True"),
        ("output_dir: output_models", f"output_dir: {folder / 'out'}"),
    ):
        assert was in ships, was
        ships = ships.replace(was, now)
    path.write_text(ships)
    (_, training, model_config, lora), _ = parse_args_with_yaml(
        (DataConfig, TrainingConfig, ModelConfig, PEFTLoraConfig), str(path), is_train=False
    )
    model, _, _ = create_model_and_processor(model_config, lora, training)
    weights = folder / "tiny.safetensors"
    save_file({k: v.clone() for k, v in model.state_dict().items()}, weights)
    return str(path), str(weights)


class HPSv3Test(Compared):
    def test_a_picture_in_a_batch_alone_and_by_the_package(self) -> None:
        if why := lacks("HPSv3", "torch", "hpsv3"):
            self.skipTest(why)
        import torch
        from hpsv3 import HPSv3RewardInferencer

        config, weights = qwen(self.folder)
        scorer = adapter("hpsv3")("cpu", config, weights)
        images = [picture(i, 60 + 40 * i, 140 - 30 * i) for i in range(4)]
        package, wanted = HPSv3RewardInferencer(config, weights, device="cpu"), []
        for image, prompt in zip(images, PROMPTS, strict=True):
            with torch.no_grad():
                wanted.append(package.reward([image], [prompt])[0].tolist())
        batch = self.same("hpsv3", scorer, samples(image=images, prompt=PROMPTS), [mu for mu, _ in wanted])
        for value, (_, sigma) in zip(batch, wanted, strict=True):
            self.assertAlmostEqual(value["sigma"], sigma, delta=TOLERANCE)
        self.assertEqual([p.name for p in self.folder.iterdir() if p.name == "out"], [], "nothing is written beside")


class ImageRewardTest(Compared):
    def test_a_picture_in_a_batch_alone_and_by_the_package(self) -> None:
        if why := lacks("ImageReward", "torch", "ImageReward"):
            self.skipTest(why)
        import ImageReward
        import torch
        from ImageReward.models.BLIP import blip, blip_pretrain, vit
        from transformers import BertTokenizer

        # The package knows large encoders and the tokenizer of the hub alone; both are replaced by small ones.
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({w for p in PROMPTS for w in p.split()})]
        (self.folder / "vocab.txt").write_text("\n".join(words))

        def tokenizer() -> Any:
            made = BertTokenizer(str(self.folder / "vocab.txt"))
            made.add_special_tokens({"bos_token": "[DEC]"})
            made.add_special_tokens({"additional_special_tokens": ["[ENC]"]})
            made.enc_token_id = made.additional_special_tokens_ids[0]
            return made

        def encoder(*_: Any, **__: Any) -> Any:
            return vit.VisionTransformer(img_size=224, patch_size=56, embed_dim=32, depth=2, num_heads=4), 32

        for module, name, made in (
            (blip_pretrain, "init_tokenizer", tokenizer),
            (blip_pretrain, "create_vit", encoder),
            (blip, "init_tokenizer", tokenizer),
        ):
            before = getattr(module, name)
            setattr(module, name, made)
            self.addCleanup(setattr, module, name, before)
        med = {"hidden_size": 768, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 100}
        med |= {"add_cross_attention": True, "encoder_width": 32, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
        med |= {
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": 64,
            "pad_token_id": 0,
            "type_vocab_size": 2,
            "hidden_act": "gelu",
        }
        (self.folder / "med.json").write_text(json.dumps({**med, "architectures": ["BertModel"], "model_type": "bert"}))
        torch.manual_seed(7)
        made = ImageReward.ImageReward(med_config=str(self.folder / "med.json"), device="cpu")
        with torch.no_grad():  # those that the package begins with are so small that all scores are alike
            for parameter in made.mlp.parameters():
                parameter.mul_(30)
        torch.save(made.state_dict(), self.folder / "reward.pt")
        scorer = adapter("imagereward")("cpu", str(self.folder / "reward.pt"), str(self.folder / "med.json"))
        images = [picture(i, 60 + 40 * i, 140 - 30 * i) for i in range(4)]
        wanted = [made.eval().score(prompt, image) for image, prompt in zip(images, PROMPTS, strict=True)]
        self.same("imagereward", scorer, samples(image=images, prompt=PROMPTS), wanted)


class OldTest(unittest.TestCase):
    """In this Python the two are left to the other one."""

    def test_hpsv3_and_imagereward_with_the_transformers_that_they_need(self) -> None:
        if not WANTED or not OLD:
            self.skipTest("SKIPPED: HPSv3 and ImageReward need transformers 4.45.2: make test-pymodels")
        tests = [f"tests.{HERE.stem}.{name}" for name in ("HPSv3Test", "ImageRewardTest")]
        done = subprocess.run(
            [OLD, "-m", "unittest", "-v", *tests], cwd=HERE.parents[1], capture_output=True, text=True, timeout=1200, check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("Ran 2 tests", done.stderr)
        self.assertNotIn("skipped", done.stderr, done.stderr)


if __name__ == "__main__":
    unittest.main()
