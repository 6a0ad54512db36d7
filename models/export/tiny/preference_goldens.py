"""golden.json of the tiny preference models: what PyTorch says of pictures and texts.

Computed by eager PyTorch in float32 and Hugging Face's slow (PIL) processors, never by
onnxruntime. Matrices are [image][text].
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

import clip
import common
import text_rm

# Largest difference between an ONNX graph and PyTorch.
LIMIT = 1e-5
TEXTS = [
    "",
    "a photo of a cat",
    "A photo of a CAT",
    "two red cubes left of a blue sphere, studio light",
    "An astronaut riding a horse on Mars, oil painting, highly detailed, 8k",
    "  leading,   inner\tand trailing\n whitespace  ",
    "don't stop; it's the cat's 3rd toy, we'll see!",
    "Ünïcödé: naïve façade, smørrebrød, Straße, İstanbul",
    "一只猫坐在椅子上，水彩画",
    "кошка на стуле и собака под столом",
    "🌳🐈‍⬛ emoji & symbols © € → ½ 👩🏽‍🚀",
    "x" * 120,
    "a very long prompt that goes on and on, " * 12 + "until its end is cut off",
    'a sign that says "OPEN 24/7" @ 5th_avenue #neon {bokeh} <lora:1>',
]


def made_with() -> dict[str, str]:
    """The versions of what computed the goldens."""
    import open_clip
    import PIL
    import tokenizers
    import transformers

    packages = {
        "torch": torch,
        "transformers": transformers,
        "tokenizers": tokenizers,
        "numpy": np,
        "pillow": PIL,
        "open_clip_torch": open_clip,
    }
    return {"python": platform.python_version()} | {k: str(m.__version__) for k, m in packages.items()}


def images_of(folder: Path) -> dict[str, Image.Image]:
    """The golden pictures by file name."""
    files = sorted(folder.glob("*.png"))
    if not files:
        raise common.ExportError(f"no pictures in {folder}")
    return {f.name: Image.open(f).convert("RGB") for f in files}


def bytes_back(recipe: dict[str, Any], x: torch.Tensor) -> np.ndarray:
    """uint8 [H, W, 3] of a processor's output [1, 3, H, W]: its normalisation undone."""
    v = x[0].permute(1, 2, 0).double().numpy() * np.asarray(recipe["std"]) + np.asarray(recipe["mean"])
    v = v / recipe["rescale"]
    if np.abs(v - v.round()).max() > 1e-2:
        raise common.ExportError("the processor's output is not made of bytes")
    return v.round().astype(np.uint8)


def golden_images(
    out: Path, ims: dict[str, Image.Image], recipe: dict[str, Any], pixels: Callable[[Image.Image], torch.Tensor]
) -> tuple[list[dict[str, Any]], torch.Tensor]:
    """The entries of the images, and their pixels [N, 3, H, W] by the checkpoint's own processor."""
    (out / "pixels").mkdir(exist_ok=True)
    rows, tensors = [], []
    for name, im in ims.items():
        x = pixels(im)
        tensors.append(x)
        rgb = bytes_back(recipe, x)
        file = f"pixels/{Path(name).stem}.rgb"
        (out / file).write_bytes(rgb.tobytes())
        rows.append({"file": name, "pixels": file, "width": rgb.shape[1], "height": rgb.shape[0]})
    return rows, torch.cat(tensors)


def pair_scores(cos: torch.Tensor, scale: float, bias: float) -> dict[str, Any]:
    """Every formula of a scorer of pictures and texts, [image][text]."""
    logit = scale * cos + bias
    formulas = {
        "pickscore": logit / 26,
        "clipscore.flow_grpo": logit / 30,
        "clipscore.paper": 2.5 * cos.clamp(min=0),
        "clipscore.cosine": cos,
        "hpsv2": cos,
    }
    if bias:
        formulas = {"siglip.sigmoid": torch.sigmoid(logit), "siglip.logit": logit}
    return {k: common.floats(v) for k, v in formulas.items()}


def golden_pairs(c: clip.Clip, out: Path, ims: dict[str, Image.Image]) -> None:
    """golden.json of a model of pictures and texts."""
    rows, pixels = golden_images(out, ims, c.recipe, c.pixels)
    ids = [c.ids(t) for t in TEXTS]
    if c.text["pad"] == "longest":
        end = c.text["pad_id"]
        ids = [r[: r.index(end) + 1] if end in r else r for r in ids]
    with torch.no_grad():
        images = common.unit(clip.Image2Embeds(c.model)(pixels))
        encode = clip.Text2Embeds(c.model)
        texts = torch.cat([common.unit(encode(torch.tensor([r]))) for r in ids])
    cos = images @ texts.T
    spread = cos.std(dim=0).min(), cos.std(dim=1).min()
    if min(spread) < 0.01:
        raise common.ExportError(f"the answers are nearly alike: {spread}")
    golden = {
        "format": 1,
        "made_with": made_with(),
        "logit_scale": c.scale,
        "logit_bias": c.bias,
        "images": [r | {"image_embeds": common.floats(e)} for r, e in zip(rows, images, strict=True)],
        "texts": [
            {"text": t, "input_ids": r, "text_embeds": common.floats(e)}
            for t, r, e in zip(TEXTS, ids, texts, strict=True)
        ],
        "logits_per_image": common.floats(c.scale * cos + c.bias),
        "scores": pair_scores(cos, c.scale, c.bias) | {"image_similarity": common.floats(images @ images.T)},
    }
    common.write_json(out / "golden.json", golden)


def replies() -> list[tuple[str, str]]:
    """Prompts and responses for text reward models, of many lengths."""
    answers = ["", "It shows a cat.", "NO!", *common.RESPONSES, "I don't know what you mean by that, sorry. " * 9]
    return [(p, answers[i % len(answers)]) for i, p in enumerate(TEXTS)]


def golden_texts(model: nn.Module, out: Path, tok: Any, types: bool, batches: Sequence[Sequence[int]]) -> None:
    """golden.json of a text reward model: every case alone, and batches padded on the right."""
    sidecar = json.loads((out / "scorer.json").read_text())
    text, score = sidecar["text"], sidecar["score"]
    tok.padding_side = "right"

    def encode(rows: list[Any]) -> dict[str, torch.Tensor]:
        both = [rows] if isinstance(rows[0], str) else [list(x) for x in zip(*rows, strict=True)]
        enc = tok(*both, padding=True, truncation=True, max_length=text["length"], return_tensors="pt")
        return {k: enc[k] for k in text_rm.INPUTS[: 2 + types]}

    texts = [text_rm.read(text, p, r) for p, r in replies()]
    cases = []
    for (p, r), t in zip(replies(), texts, strict=True):
        enc = encode([t])
        with torch.no_grad():
            logits = model(**enc).logits
        case: dict[str, Any] = {"prompt": p, "response": r} | ({"text": t} if isinstance(t, str) else {})
        case |= {k: v[0].tolist() for k, v in enc.items()}
        cases.append(
            case | {"logits": common.floats(logits[0]), "score": common.floats(text_rm.score_of(logits, score)[0])}
        )
    many = []
    for members in batches:
        enc = encode([texts[i] for i in members])
        with torch.no_grad():
            logits = model(**enc).logits
        alone = torch.tensor([cases[i]["logits"] for i in members])
        common.compare(f"golden batch of {len(members)}", logits, alone, LIMIT)
        many.append(
            {"cases": list(members)} | {k: v.tolist() for k, v in enc.items()} | {"logits": common.floats(logits)}
        )
    common.write_json(out / "golden.json", {"format": 1, "made_with": made_with(), "cases": cases, "batches": many})
