"""Exports CLIP: a Hugging Face CLIPModel, or HPSv2's open_clip checkpoint.

Two graphs by default, so that a group of pictures of one prompt encodes its text once:
  vision_model.onnx  pixel_values float32 [B, 3, H, W] -> image_embeds [B, D]
  text_model.onnx    input_ids int64 [B, L]            -> text_embeds [B, D]
Both are projected and NOT normalised. --combined writes the one graph that optimum makes
(model.onnx: pixel_values, input_ids, attention_mask -> logits and normalised embeddings).
"""

from __future__ import annotations

import argparse
import copy
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from tokenizers import Tokenizer
from torch import nn

import common

EXAMPLE = (
    "python clip.py --model yuvalkirstain/PickScore_v1 --processor laion/CLIP-ViT-H-14-laion2B-s32B-b79K \\\n"
    "    --name pickscore-v1 --licence MIT --out pickscore-v1\n"
    "  python clip.py --hpsv2 hf://xswu/HPSv2/HPS_v2.1_compressed.pt --name hpsv2.1 --licence Apache-2.0 --out hpsv2.1"
)


class Image2Embeds(nn.Module):
    """pixel_values -> image_embeds."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        if hasattr(self.model, "encode_image"):
            return self.model.encode_image(pixel_values)
        return self.model.get_image_features(pixel_values=pixel_values)


class Text2Embeds(nn.Module):
    """input_ids -> text_embeds. Attention is causal and the embedding is read at the end
    token, so that padding after it changes nothing and no mask goes in."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        if hasattr(self.model, "encode_text"):
            return self.model.encode_text(input_ids)
        return self.model.get_text_features(input_ids=input_ids)


class Combined(nn.Module):
    """optimum's graph: the whole forward pass."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, pixel_values: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        o = self.model(input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask)
        return o.logits_per_image, o.logits_per_text, o.text_embeds, o.image_embeds


@dataclass
class Clip:
    """A model in eager mode with what stands around it."""

    model: nn.Module
    recipe: dict[str, Any]
    text: dict[str, Any]
    tokenizer: Tokenizer
    scale: float
    bias: float
    # The checkpoint's own preprocessing and tokenizer, which the folder is held against.
    pixels: Callable[[Image.Image], torch.Tensor]
    ids: Callable[[str], list[int]]


def load_hf(model: str, processor: str, revision: str) -> Clip:
    """Loads a CLIPModel with its slow image processor and its fast tokenizer."""
    from transformers import AutoTokenizer, CLIPImageProcessor, CLIPModel

    m = CLIPModel.from_pretrained(model, revision=revision, attn_implementation="eager", dtype=torch.float32).eval()
    rest = {} if processor else {"revision": revision}
    images = CLIPImageProcessor.from_pretrained(processor or model, **rest)
    tok = AutoTokenizer.from_pretrained(processor or model, use_fast=True, **rest)
    length = m.config.text_config.max_position_embeddings
    text = {"length": length, "pad": "max_length", "pad_id": tok.pad_token_id}

    def ids(t: str) -> list[int]:
        return tok(t, padding="max_length", truncation=True, max_length=length).input_ids

    return Clip(
        model=m,
        recipe=common.recipe_of(images),
        text=text,
        tokenizer=Tokenizer.from_str(tok.backend_tokenizer.to_str()),
        scale=math.exp(float(m.logit_scale)),
        bias=0.0,
        pixels=lambda im: images(images=im, return_tensors="pt").pixel_values,
        ids=ids,
    )


def load_hpsv2(checkpoint: str, config: dict[str, Any] | None, tokenizer: Tokenizer | None) -> Clip:
    """Loads HPSv2: open_clip's ViT-H-14 with the checkpoint's state_dict.

    HPSv2 resizes the LONGER edge to 224, bicubic, and pads with black to a square around
    the centre; nothing is cropped. config and tokenizer stand in for ViT-H-14's and CLIP's.
    """
    import open_clip

    cfg = config or open_clip.get_model_config("ViT-H-14")
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    state = state.get("state_dict", state)
    m = open_clip.CLIP(**{k: v for k, v in cfg.items() if k in ("embed_dim", "vision_cfg", "text_cfg", "quick_gelu")})
    m.load_state_dict({k.removeprefix("module."): v.float() for k, v in state.items()})
    m = m.float().eval()
    size = cfg["vision_cfg"]["image_size"]
    length = cfg["text_cfg"].get("context_length", 77)
    recipe = {
        "steps": [
            {"op": "resize_longest", "size": size, "filter": "bicubic"},
            {"op": "pad", "width": size, "height": size, "value": 0, "position": "center"},
        ],
        "rescale": 1 / 255,
        "mean": common.CLIP_MEAN,
        "std": common.CLIP_STD,
    }
    tok = tokenizer or clip_tokenizer()
    text = {"length": length, "pad": "max_length", "pad_id": 0}
    reference = None if tokenizer else open_clip.get_tokenizer("ViT-H-14")

    def ids(t: str) -> list[int]:
        if reference is None:
            return common.ids_of(tok, text, t)
        return reference([t])[0].tolist()

    return Clip(
        model=m,
        recipe=recipe,
        text=text,
        tokenizer=tok,
        scale=math.exp(float(m.logit_scale)),
        bias=0.0,
        pixels=lambda im: hpsv2_pixels(im, size, on_bytes=True),
        ids=ids,
    )


def hpsv2_pixels(im: Image.Image, size: int, on_bytes: bool) -> torch.Tensor:
    """HPSv2's preprocessing (ResizeMaxSize, then normalisation) with torchvision.

    HPSv2's own package resizes float tensors (ToTensor comes first), where bicubic
    overshoots below black and above white and nothing is rounded. on_bytes resizes bytes
    with PIL, as open_clip does today and as a server does.
    """
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms import functional as f

    scale = size / max(im.size)
    w, h = (max(1, round(n * scale)) for n in im.size)
    x = f.resize(im if on_bytes else f.to_tensor(im), [h, w], InterpolationMode.BICUBIC, antialias=True)
    x = f.pad(x, [(size - w) // 2, (size - h) // 2, (size - w + 1) // 2, (size - h + 1) // 2], fill=0)
    return f.normalize(f.to_tensor(x) if on_bytes else x, common.CLIP_MEAN, common.CLIP_STD)[None]


def float_difference(c: Clip) -> float:
    """How far the cosine of HPSv2's own package is from the sidecar's, at most."""
    size = c.recipe["steps"][0]["size"]
    ids = torch.tensor([c.ids(p) for p in common.PROMPTS])
    worst = 0.0
    with torch.no_grad():
        texts = common.unit(Text2Embeds(c.model)(ids))
        for im in common.pictures():
            both = [hpsv2_pixels(im, size, on_bytes) for on_bytes in (False, True)]
            own, ours = (common.unit(Image2Embeds(c.model)(x)) @ texts.T for x in both)
            worst = max(worst, float((own - ours).abs().max()))
    return worst


def clip_tokenizer() -> Tokenizer:
    """CLIP's tokenizer made of the table of merges that open_clip carries.

    open_clip first mends a text with ftfy and resolves HTML entities; tokenizer.json has
    no such step, so that a prompt with curly quotes, full-width punctuation or "&amp;"
    differs.
    """
    from open_clip.tokenizer import SimpleTokenizer

    own = SimpleTokenizer()
    ends = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    vocab = {ends.get(k, k): v for k, v in own.encoder.items()}
    return build_tokenizer(vocab, sorted(own.bpe_ranks, key=own.bpe_ranks.__getitem__))


def build_tokenizer(vocab: dict[str, int], merges: list[tuple[str, str]]) -> Tokenizer:
    """A tokenizer of the form of openai's tokenizer.json."""
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

    start, end = "<|startoftext|>", "<|endoftext|>"
    tok = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token=end, continuing_subword_prefix="", end_of_word_suffix="</w>")
    )
    tok.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    words = Regex(r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+""")
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tok.post_processor = processors.RobertaProcessing(
        sep=(end, vocab[end]), cls=(start, vocab[start]), add_prefix_space=False, trim_offsets=False
    )
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens(
        [AddedToken(start, normalized=True, special=True), AddedToken(end, normalized=False, special=True)]
    )
    return tok


def export(
    clip: Clip, out: Path, about: dict[str, str], limit: float, combined: bool = False, fp16: bool = False
) -> None:
    """Writes the folder of a model and holds it against PyTorch."""
    common.begin(out)
    if combined:
        clip.text = {**clip.text, "pad": "longest"}
    common.check_recipe(clip.recipe, clip.pixels)
    tokenizer = common.save_tokenizer(clip.tokenizer, out)
    if not combined:
        common.check_ids(tokenizer, clip.text, clip.ids)

    ims = common.pictures()
    pixels = torch.cat([common.pixels_of(clip.recipe, im) for im in ims])
    ids, mask, _ = common.batch_of(tokenizer, clip.text, [common.render(clip.text, p) for p in common.PROMPTS])
    vision, text = Image2Embeds(clip.model), Text2Embeds(clip.model)
    with torch.no_grad():
        image_embeds, text_embeds = common.unit(vision(pixels)), common.unit(text(ids))
    scores = clip.scale * (image_embeds * text_embeds).sum(-1) + clip.bias

    def lowered(module: nn.Module) -> nn.Module:
        return common.Half(copy.deepcopy(module)) if fp16 else module

    if combined:
        write_combined(
            lowered(Combined(clip.model)), out, pixels, ids, mask, image_embeds, text_embeds, clip.scale, limit
        )
    else:
        write_towers(lowered(vision), lowered(text), out, pixels, ids, image_embeds, text_embeds, limit)
    sidecar = {
        **about,
        "kind": "combined" if combined else "two_tower",
        "image": clip.recipe,
        "text": clip.text,
        "logit_scale": clip.scale,
    }
    cases = [
        {"picture": im, "prompt": p, "image_embeds": i, "text_embeds": t, "score": s}
        for im, p, i, t, s in zip(ims, common.PROMPTS, image_embeds, text_embeds, scores, strict=True)
    ]
    common.write_selftest(out, cases, limit)
    common.write_sidecar(out, sidecar | ({"logit_bias": clip.bias} if clip.bias else {}))
    common.summary(out)


def write_towers(
    vision: nn.Module,
    text: nn.Module,
    out: Path,
    pixels: torch.Tensor,
    ids: torch.Tensor,
    images: torch.Tensor,
    texts: torch.Tensor,
    limit: float,
) -> None:
    """Writes and checks vision_model.onnx and text_model.onnx, with batches of 3 and of 1."""
    path = out / "vision_model.onnx"
    common.export_graph(
        vision,
        {"pixel_values": pixels[:2]},
        ["image_embeds"],
        path,
        {"pixel_values": {0: "batch"}, "image_embeds": {0: "batch"}},
    )
    for n in (len(pixels), 1):
        (got,) = common.run_onnx(path, {"pixel_values": pixels[:n]}, ["image_embeds"])
        common.parity(f"image_embeds of {n}", common.unit(got), images[:n], limit)
    path = out / "text_model.onnx"
    axes = {"input_ids": {0: "batch", 1: "sequence"}, "text_embeds": {0: "batch"}}
    common.export_graph(text, {"input_ids": ids[:2]}, ["text_embeds"], path, axes)
    for n in (len(ids), 1):
        (got,) = common.run_onnx(path, {"input_ids": ids[:n]}, ["text_embeds"])
        common.parity(f"text_embeds of {n}", common.unit(got), texts[:n], limit)


def write_combined(
    model: nn.Module, out: Path, pixels: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor,
    images: torch.Tensor, texts: torch.Tensor, scale: float, limit: float,
) -> None:  # fmt: skip
    """Writes and checks model.onnx, also with fewer texts than pictures."""
    names = ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"]
    axes = {
        "input_ids": {0: "text_batch_size", 1: "sequence_length"},
        "pixel_values": {0: "image_batch_size"},
        "attention_mask": {0: "text_batch_size", 1: "sequence_length"},
        "logits_per_image": {0: "image_batch_size", 1: "text_batch_size"},
        "logits_per_text": {0: "text_batch_size", 1: "image_batch_size"},
        "text_embeds": {0: "text_batch_size"},
        "image_embeds": {0: "image_batch_size"},
    }
    path = out / "model.onnx"
    common.export_graph(
        model, {"input_ids": ids[:2], "pixel_values": pixels, "attention_mask": mask[:2]}, names, path, axes
    )
    for n in (len(ids), 1):
        feeds = {"input_ids": ids[:n], "pixel_values": pixels, "attention_mask": mask[:n]}
        logits, _, t, i = common.run_onnx(path, feeds, names)
        common.parity(f"logits with {n} texts", logits / scale, images @ texts[:n].T, limit)
        common.parity(f"text_embeds with {n} texts", t, texts[:n], limit)
        common.parity(f"image_embeds with {n} texts", i, images, limit)


def main() -> None:
    p = common.parser(__doc__ or "", EXAMPLE)
    g = p.add_mutually_exclusive_group(required=True)
    g.add_argument("--model", default="", help="CLIPModel checkpoint: a folder, or a name on the hub")
    g.add_argument("--hpsv2", default="", metavar="FILE.pt", help="HPSv2's checkpoint: a file, or hf://xswu/HPSv2/HPS_v2.1_compressed.pt")
    p.add_argument("--revision", default="main", help="revision on the hub")
    p.add_argument("--processor", default="", help="checkpoint with the preprocessing and the tokenizer, if not MODEL")
    p.add_argument("--combined", action="store_true", help="one graph, as optimum makes it, instead of two")
    p.add_argument(
        "--open-clip-config", type=Path, help="with --hpsv2: another architecture than ViT-H-14 (open_clip's JSON)"
    )
    p.add_argument("--tokenizer", default="", help="with --hpsv2: another tokenizer.json than CLIP's")
    args = p.parse_args()
    if args.hpsv2 and args.combined:
        p.error("--combined takes a CLIPModel, not --hpsv2")
    about = {"name": args.name or args.out.name, "source": source(args), "licence": args.licence}
    if args.hpsv2:
        config = json.loads(args.open_clip_config.read_text()) if args.open_clip_config else None
        clip = load_hpsv2(common.checkpoint_file(args.hpsv2), config, Tokenizer.from_file(args.tokenizer) if args.tokenizer else None)
    else:
        clip = load_hf(args.model, args.processor, args.revision)
    if args.hpsv2:
        print(f"  resized as floats, as HPSv2's package does, a cosine is off by up to {float_difference(clip):.2g}")
    export(clip, args.out, about, common.tolerance(args), args.combined, args.fp16)
    common.write_parity(args.out)


def source(args: argparse.Namespace) -> str:
    """The sidecar's source."""
    if not args.hpsv2:
        return common.source(args)
    return args.source or (args.hpsv2 if args.hpsv2.startswith("hf://") else "local")


if __name__ == "__main__":
    common.run(main)
