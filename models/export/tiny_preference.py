"""Writes tiny preference models of the true architectures, with what PyTorch says of them.

Every folder below OUT is a model folder made by the exporters beside this file, from a
checkpoint with random weights, and holds besides:
  golden.json  images, texts or cases with ids, embeddings of length 1, logits and scores,
               computed by eager PyTorch in float32 and Hugging Face's slow (PIL)
               processors, never by onnxruntime. Matrices are [image][text].
  pixels/      per image the uint8 [H, W, 3] after the last step of the recipe.
Folders: tiny-clip, tiny-clip-combined, tiny-hpsv2, tiny-siglip, tiny-aesthetic,
tiny-textrm-bert, tiny-textrm-qwen2, tiny-graph, and below exotic-clip such as must not
load as they are: extra_input, named_tokens, small_vocabulary.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer
from torch import nn

import aesthetic
import clip
import common
import graph
import siglip
import text_rm
from tiny.preference_goldens import LIMIT, TEXTS, golden_images, golden_pairs, golden_texts, images_of, made_with
from tiny.preference_tokenizers import bert_tokenizer, clip_tokenizer, qwen_tokenizer, unigram

EXAMPLE = "python models/export/tiny_preference.py testdata/models --images testdata/golden/images"
LENGTH = 77


# --- checkpoints ----------------------------------------------------------------------


def randomise(module: nn.Module, seed: int, std: float = 0.2) -> nn.Module:
    """Draws every parameter anew, wide enough that answers differ well beyond rounding."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.dim() == 0 or name in ("logit_scale", "logit_bias"):
                continue
            noise = torch.randn(p.shape, generator=g)
            norm = name.endswith("weight") and p.dim() == 1
            p.copy_(1 + 0.1 * noise if norm else std * noise)
    return module.eval()


def save_clip_processor(tok: Tokenizer, where: Path, size: int) -> None:
    """Writes the tokenizer and the preprocessing of a CLIP checkpoint."""
    from transformers import CLIPImageProcessor, CLIPTokenizerFast

    start, end = "<|startoftext|>", "<|endoftext|>"
    fast = CLIPTokenizerFast(
        tokenizer_object=tok, bos_token=start, eos_token=end, unk_token=end, pad_token=end, model_max_length=LENGTH
    )
    fast.save_pretrained(where)
    CLIPImageProcessor(size={"shortest_edge": size}, crop_size={"height": size, "width": size}).save_pretrained(where)


def clip_model(tok: Tokenizer, seed: int, image_size: int, patch: int, hidden: int = 32, dim: int = 32) -> nn.Module:
    """A CLIPModel with random weights."""
    from transformers import CLIPConfig, CLIPModel

    end = tok.token_to_id("<|endoftext|>")
    text = {
        "vocab_size": tok.get_vocab_size(), "hidden_size": hidden, "intermediate_size": 2 * hidden,
        "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": LENGTH, "projection_dim": dim,
        "bos_token_id": end - 1, "eos_token_id": end, "pad_token_id": end,
    }  # fmt: skip
    vision = {
        "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": 2, "num_attention_heads": 4,
        "image_size": image_size, "patch_size": patch, "projection_dim": dim,
    }  # fmt: skip
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=dim, logit_scale_init_value=4.6052)
    return randomise(CLIPModel(config), seed)


# --- the folders ----------------------------------------------------------------------


def about(name: str) -> dict[str, str]:
    """Name, source and licence of a tiny model."""
    return {"name": name, "source": "random weights", "licence": "Apache-2.0"}


def tiny_clip(out: Path, ims: dict[str, Image.Image], work: Path) -> None:
    """tiny-clip and tiny-clip-combined, of different weights."""
    for name, seed, size, combined in (("tiny-clip", 1, 48, False), ("tiny-clip-combined", 2, 32, True)):
        checkpoint = work / name
        tok = clip_tokenizer()
        clip_model(tok, seed, size, 16).save_pretrained(checkpoint)
        save_clip_processor(tok, checkpoint, size)
        c = clip.load_hf(str(checkpoint), "", "main")
        clip.export(c, out / name, about(name), LIMIT, combined=combined)
        check_slow_tokenizer(tok, c)
        golden_pairs(c, out / name, ims)


def check_slow_tokenizer(tok: Tokenizer, c: clip.Clip) -> None:
    """Holds the tokenizer against transformers' slow one, where ftfy's mending changes nothing."""
    from transformers import CLIPTokenizer

    state = json.loads(tok.to_str())["model"]
    with tempfile.TemporaryDirectory() as d:
        Path(d, "vocab.json").write_text(json.dumps(state["vocab"]))
        Path(d, "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(m) for m in state["merges"]) + "\n")
        slow = CLIPTokenizer(f"{d}/vocab.json", f"{d}/merges.txt")
        for t in TEXTS[:7]:
            want = slow(t, padding="max_length", truncation=True, max_length=LENGTH).input_ids
            if c.ids(t) != want:
                raise common.ExportError(f"tokenizer: {t!r} differs from the slow one")


def tiny_hpsv2(out: Path, ims: dict[str, Image.Image], work: Path) -> None:
    """tiny-hpsv2: open_clip's architecture, the longer edge resized and padded."""
    import open_clip

    tok = clip_tokenizer()
    config = {
        "embed_dim": 32,
        "vision_cfg": {"image_size": 56, "layers": 2, "width": 32, "head_width": 8, "patch_size": 14},
        "text_cfg": {
            "context_length": LENGTH,
            "vocab_size": tok.get_vocab_size(),
            "width": 32,
            "heads": 4,
            "layers": 2,
        },
    }
    model = randomise(open_clip.CLIP(**config), 3)
    with torch.no_grad():
        model.logit_scale.fill_(4.6052)
    checkpoint = work / "hpsv2.pt"
    torch.save({"state_dict": model.half().state_dict()}, checkpoint)
    c = clip.load_hpsv2(str(checkpoint), config, tok)
    clip.export(c, out / "tiny-hpsv2", about("tiny-hpsv2"), LIMIT)
    golden_pairs(c, out / "tiny-hpsv2", ims)


def tiny_siglip(out: Path, ims: dict[str, Image.Image], work: Path) -> None:
    """tiny-siglip: attention pooling, full padding, a bias, lower-case without punctuation."""
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel

    tok = unigram()
    text = {
        "vocab_size": tok.get_vocab_size(), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 64,
        "pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 1,
    }  # fmt: skip
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 32,
        "patch_size": 8,
    }
    model = randomise(SiglipModel(SiglipConfig(text_config=text, vision_config=vision)), 4)
    with torch.no_grad():
        model.logit_scale.fill_(2.0)
        model.logit_bias.fill_(-1.5)
    checkpoint = work / "siglip"
    model.save_pretrained(checkpoint)
    tok.save(str(checkpoint / "tokenizer.json"))
    SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(checkpoint)
    c = siglip.load(str(checkpoint), "", "main")
    clip.export(c, out / "tiny-siglip", about("tiny-siglip"), LIMIT)
    golden_pairs(c, out / "tiny-siglip", ims)


def tiny_aesthetic(out: Path, ims: dict[str, Image.Image], work: Path) -> None:
    """tiny-aesthetic: CLIP's vision tower and a head of five linear layers."""
    checkpoint = work / "aesthetic"
    tok = clip_tokenizer()
    clip_model(tok, 5, 32, 8).save_pretrained(checkpoint)
    save_clip_processor(tok, checkpoint, 32)
    g = torch.Generator().manual_seed(6)
    widths = [32, 48, 24, 16, 8, 1]
    state = {}
    for n, (a, b) in zip((0, 2, 4, 6, 7), itertools.pairwise(widths), strict=True):
        state[f"layers.{n}.weight"] = torch.randn((b, a), generator=g) * (1.5 / a**0.5)
        state[f"layers.{n}.bias"] = torch.randn(b, generator=g)
    head = aesthetic.layers(state)
    model = clip.load_hf(str(checkpoint), "", "main")
    folder = out / "tiny-aesthetic"
    aesthetic.export(model, head, folder, about("tiny-aesthetic"), LIMIT)
    rows, pixels = golden_images(folder, ims, model.recipe, model.pixels)
    with torch.no_grad():
        scores = aesthetic.layered(model.model, head, pixels)
    golden = {"format": 1, "made_with": made_with(), "images": rows, "scores": {"aesthetic": common.floats(scores)}}
    common.write_json(folder / "golden.json", golden)


def tiny_bert(out: Path, work: Path) -> None:
    """tiny-textrm-bert: pairs, and three labels of which the last one's probability is stretched to -1…1."""
    from transformers import BertConfig, BertForSequenceClassification

    tok = bert_tokenizer()
    config = BertConfig(
        vocab_size=len(tok), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=64, num_labels=3, pad_token_id=0,
    )  # fmt: skip
    checkpoint = work / "bert"
    randomise(BertForSequenceClassification(config), 7).save_pretrained(checkpoint)
    tok.save_pretrained(checkpoint)
    model, tok = text_rm.load(str(checkpoint), "main")
    folder = out / "tiny-textrm-bert"
    score = {"transform": "softmax", "index": 2, "scale": 2.0, "offset": -1.0}
    text_rm.export(model, tok, folder, about("tiny-textrm-bert"), {"length": 64}, score, LIMIT)
    golden_texts(model, folder, tok, True, [[0, 4, 9], [1, 12, 3, 6]])


def tiny_qwen2(out: Path, work: Path) -> None:
    """tiny-textrm-qwen2: a decoder whose reward is read at the last token before the padding."""
    from transformers import Qwen2Config, Qwen2ForSequenceClassification

    tok = qwen_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tok), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, max_position_embeddings=128, num_labels=1,
        pad_token_id=tok.pad_token_id, bos_token_id=None, eos_token_id=tok.pad_token_id,
    )  # fmt: skip
    checkpoint = work / "qwen2"
    randomise(Qwen2ForSequenceClassification(config), 8).save_pretrained(checkpoint)
    tok.save_pretrained(checkpoint)
    model, tok = text_rm.load(str(checkpoint), "main")
    folder = out / "tiny-textrm-qwen2"
    template = "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n{response}<|im_end|>\n"
    score = {"transform": "raw", "index": 0, "scale": 1.0, "offset": 0.0}
    text_rm.export(model, tok, folder, about("tiny-textrm-qwen2"), {"length": 96, "template": template}, score, LIMIT)
    golden_texts(model, folder, tok, False, [[0, 4, 9], [1, 12, 3, 6], [2]])


class Hpsv3Like(nn.Module):
    """A picture and a text to (mean, deviation), as HPSv3's head gives them."""

    def __init__(self, vocab: int, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.words = nn.Embedding(vocab, width)
        self.look = nn.Linear(width, width)
        self.head = nn.Sequential(nn.Linear(2 * width, 48), nn.ReLU(), nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(
        self, pixel_values: torch.Tensor, tokens: torch.Tensor, attention_mask: torch.Tensor, frames: torch.Tensor
    ) -> torch.Tensor:
        seen = torch.tanh(self.patches(pixel_values).flatten(2).transpose(1, 2))
        mask = attention_mask.to(seen.dtype)[:, :, None]
        said = (torch.tanh(self.look(self.words(tokens))) * mask).sum(1) / mask.sum(1)
        weight = torch.softmax((seen @ said[:, :, None])[:, :, 0], -1)
        x = self.head(torch.cat([(seen * weight[:, :, None]).sum(1), said], -1))
        mean = x[:, :1] * 4 / frames.to(seen.dtype)
        return torch.cat([mean, nn.functional.softplus(x[:, 1:]) + 0.01], -1)


def hpsv3_like() -> graph.Graph:
    """The model of tiny-graph; also the example of graph.py."""
    tok = clip_tokenizer()
    recipe = {
        "steps": [{"op": "resize", "width": 40, "height": 32, "filter": "bilinear"}],
        "rescale": 1 / 255,
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
    }
    return graph.Graph(
        module=randomise(Hpsv3Like(tok.get_vocab_size()), 9, std=0.3),
        roles={"pixels": "pixel_values", "ids": "tokens", "mask": "attention_mask"},
        image=recipe,
        text={"length": 48, "pad": "longest", "pad_id": tok.token_to_id("<|endoftext|>"), "template": "rate: {prompt}"},
        tokenizer=tok,
        constants={"frames": torch.tensor([1])},
        score={"transform": "raw", "index": 0, "scale": 0.1, "offset": 0.0},
    )


def tiny_graph(out: Path, ims: dict[str, Image.Image]) -> None:
    """tiny-graph: several inputs, one of them constant, and an output of two columns."""
    g = hpsv3_like()
    folder = out / "tiny-graph"
    graph.export(g, folder, about("tiny-graph"), LIMIT)
    rows, pixels = golden_images(folder, ims, g.image or {}, lambda im: common.pixels_of(g.image or {}, im))
    texts, columns = [], []
    for t in TEXTS:
        ids, mask, _ = common.batch_of(g.tokenizer, g.text or {}, [common.render(g.text or {}, t)])
        texts.append({"text": t, "input_ids": ids[0].tolist()})
        n = len(ims)
        with torch.no_grad():
            columns.append(g.module(pixels, ids.expand(n, -1), mask.expand(n, -1), g.constants["frames"]))
    outputs = torch.stack(columns, 1)
    golden = {
        "format": 1,
        "made_with": made_with(),
        "images": rows,
        "texts": texts,
        "outputs": common.floats(outputs),
        "scores": {"onnx": common.floats(outputs[:, :, 0] * 0.1)},
    }
    common.write_json(folder / "golden.json", golden)


# --- what must not load ---------------------------------------------------------------


class ExtraInput(nn.Module):
    """A vision tower with an input that nobody knows."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.tower = clip.Image2Embeds(model)

    def forward(self, pixel_values: torch.Tensor, noise_level: torch.Tensor) -> torch.Tensor:
        return self.tower(pixel_values) * (1 + noise_level)


def exotic(out: Path, work: Path) -> None:
    """exotic-clip: folders whose graphs do not fit their sidecars."""
    checkpoint = work / "exotic"
    tok = clip_tokenizer()
    clip_model(tok, 10, 32, 16, hidden=16, dim=16).save_pretrained(checkpoint)
    save_clip_processor(tok, checkpoint, 32)
    for name in ("extra_input", "named_tokens", "small_vocabulary"):
        c = clip.load_hf(str(checkpoint), "", "main")
        folder = out / "exotic-clip" / name
        clip.export(c, folder, about(f"exotic-clip {name}"), LIMIT)
        pixels, ids = torch.zeros((2, 3, 32, 32)), torch.tensor([c.ids(t) for t in TEXTS[:2]])
        vision, text = folder / "vision_model.onnx", folder / "text_model.onnx"
        if name == "extra_input":
            axes = {n: {0: "batch"} for n in ("pixel_values", "noise_level", "image_embeds")}
            common.export_graph(
                ExtraInput(c.model),
                {"pixel_values": pixels, "noise_level": torch.zeros((2, 1))},
                ["image_embeds"],
                vision,
                axes,
            )
        elif name == "named_tokens":
            axes = {"tokens": {0: "batch", 1: "sequence"}, "text_embeds": {0: "batch"}}
            common.export_graph(clip.Text2Embeds(c.model), {"tokens": ids}, ["text_embeds"], text, axes)
        else:
            embedding = c.model.text_model.embeddings.token_embedding
            embedding.weight = nn.Parameter(embedding.weight[:600].clone())
            axes = {"input_ids": {0: "batch", 1: "sequence"}, "text_embeds": {0: "batch"}}
            common.export_graph(
                clip.Text2Embeds(c.model), {"input_ids": ids.clamp(max=599)}, ["text_embeds"], text, axes
            )


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, epilog=f"example:\n  {EXAMPLE}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("out", type=Path, help="folder below which the models go")
    here = Path(__file__).resolve().parents[2]
    p.add_argument(
        "--images", type=Path, default=here / "testdata/golden/images", help="folder of the golden pictures (PNG)"
    )
    p.add_argument("--only", default="", help="make only the folders with this in their names")
    p.add_argument("--verbose", action="store_true", help="print what the exporters say")
    args = p.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    ims = images_of(args.images)
    with tempfile.TemporaryDirectory() as d:
        work = Path(d)
        jobs: dict[str, Callable[[], None]] = {
            "tiny-clip tiny-clip-combined": lambda: tiny_clip(args.out, ims, work),
            "tiny-hpsv2": lambda: tiny_hpsv2(args.out, ims, work),
            "tiny-siglip": lambda: tiny_siglip(args.out, ims, work),
            "tiny-aesthetic": lambda: tiny_aesthetic(args.out, ims, work),
            "tiny-textrm-bert": lambda: tiny_bert(args.out, work),
            "tiny-textrm-qwen2": lambda: tiny_qwen2(args.out, work),
            "tiny-graph": lambda: tiny_graph(args.out, ims),
            "exotic-clip": lambda: exotic(args.out, work),
        }
        for names, job in jobs.items():
            if args.only not in names:
                continue
            for name in names.split():
                shutil.rmtree(args.out / name, ignore_errors=True)
            torch.manual_seed(0)
            np.random.seed(0)
            said = contextlib.nullcontext() if args.verbose else contextlib.redirect_stdout(io.StringIO())
            with said:
                job()
            print(names)


if __name__ == "__main__":
    common.run(main)
