"""What the exporters share: graphs, sidecars, self-tests and checks of a model folder.

A model folder is what a scorer's option `model` names: `scorer.json` (the sidecar), one or
two ONNX graphs, `tokenizer.json` where text goes in, and `selftest.json`, whose answers
PyTorch gave in eager mode, so that a server can tell that it reads the folder right.
"""

from __future__ import annotations

import argparse
import base64
import json
import string
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from PIL import Image
from tokenizers import Tokenizer
from torch import nn

OPSET = 17
# Protobuf ends at 2 GiB; a graph whose weights come near it keeps them in a file beside it.
EXTERNAL_FROM = 1_900_000_000
TOLERANCE = 1e-4
TOLERANCE_FP16 = 2e-2
CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073]
CLIP_STD = [0.26862954, 0.26130258, 0.27577711]
FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box"}
# The exporter cannot trace nn.MultiheadAttention's fused path, which also rounds otherwise.
torch.backends.mha.set_fastpath_enabled(False)
SIDECAR_KEYS = {
    "format", "kind", "name", "source", "licence", "files", "inputs", "outputs", "image", "text",
    "logit_scale", "logit_bias", "score", "constants",
}  # fmt: skip
# The prompts of a self-test: short, long, and with what tokenizers disagree on.
PROMPTS = [
    "a photo of a cat",
    "Two RED cubes left of a blue sphere, studio light, 85mm, f/1.8",
    "une fée à l'orée d'un bois — 水彩画 🌳",
]
RESPONSES = [
    "It shows a cat asleep on a chair.",
    "There are two cubes, both red; the sphere is blue.",
    "Je vois une fée.",
]


# What ONNX was compared with PyTorch on so far: (what, difference, limit).
PARITY: list[tuple[str, float, float]] = []


class ExportError(Exception):
    """The export is wrong and must not be used; the message says where."""


# --- command line ---------------------------------------------------------------------


def parser(description: str, example: str) -> argparse.ArgumentParser:
    """A parser with the options that every exporter has."""
    p = argparse.ArgumentParser(
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--out", required=True, type=Path, help="folder to write")
    p.add_argument("--name", default="", help="name in the sidecar (default: that of the folder)")
    p.add_argument("--source", default="", help="where the weights come from (default: hf://MODEL@REVISION)")
    p.add_argument("--licence", default="unknown", help="licence of the weights, such as MIT")
    p.add_argument(
        "--fp16", action="store_true", help="weights and arithmetic in half precision; inputs and outputs stay float32"
    )
    p.add_argument(
        "--tolerance",
        type=float,
        default=0,
        help=f"largest difference from PyTorch ({TOLERANCE:g}, with --fp16 {TOLERANCE_FP16:g})",
    )
    return p


def hub_options(p: argparse.ArgumentParser) -> None:
    """Options for a checkpoint of the Hugging Face hub or a folder of its form."""
    p.add_argument("--model", required=True, help="checkpoint: a folder, or a name on the hub")
    p.add_argument("--revision", default="main", help="revision on the hub")
    p.add_argument("--processor", default="", help="checkpoint with the preprocessing and the tokenizer, if not MODEL")


def source(args: argparse.Namespace) -> str:
    """The sidecar's source; a folder of this machine is not named by its path."""
    if args.source:
        return args.source
    if Path(args.model).exists():
        return "local"
    return f"hf://{args.model}@{args.revision}"


def checkpoint_file(name: str) -> str:
    """The path of a file: name itself, or where the hub's cache has hf://owner/repository/file@revision."""
    if not name.startswith("hf://"):
        return name
    from huggingface_hub import hf_hub_download

    where, _, revision = name.removeprefix("hf://").partition("@")
    owner, repository, file = where.split("/", 2)
    return hf_hub_download(f"{owner}/{repository}", file, revision=revision or "main")


def tolerance(args: argparse.Namespace) -> float:
    """The largest difference that the export may have."""
    return args.tolerance or (TOLERANCE_FP16 if args.fp16 else TOLERANCE)


def run(main: Callable[[], None]) -> None:
    """Runs main; a wrong export ends the program with status 1 and its reason."""
    try:
        main()
    except ExportError as e:
        sys.exit(f"export failed: {e}")


def begin(out: Path) -> None:
    """Makes the folder. The sidecar is written last, so that a failed export leaves a
    folder that does not load, also where an earlier one was."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "scorer.json").unlink(missing_ok=True)


# --- graphs ---------------------------------------------------------------------------


class Half(nn.Module):
    """A module in half precision behind float32 inputs and outputs."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module.half()

    def forward(self, *inputs: torch.Tensor) -> Any:
        out = self.module(*[x.half() if x.is_floating_point() else x for x in inputs])
        if isinstance(out, tuple):
            return tuple(x.float() for x in out)
        return out.float()


def export_graph(
    module: nn.Module,
    inputs: Mapping[str, torch.Tensor],
    outputs: Sequence[str],
    path: Path,
    axes: Mapping[str, Mapping[int, str]],
    external_from: int = EXTERNAL_FROM,
) -> None:
    """Writes module as an ONNX graph with the named inputs (in forward's order) and outputs.

    axes names the dynamic axes of inputs and outputs. Weights of more than external_from
    bytes go into ONE file, NAME.onnx_data, which must stay beside the graph.
    """
    size = sum(t.numel() * t.element_size() for t in list(module.parameters()) + list(module.buffers()))
    big = size > external_from
    work = path.parent / f".{path.stem}"
    target = work / path.name if big else path
    target.parent.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            str(target),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes={k: dict(v) for k, v in axes.items()},
            opset_version=OPSET,
            dynamo=False,
        )
    graph = onnx.load(str(target))
    for node in graph.graph.node:
        node.ClearField("doc_string")
    if big:
        data = path.parent / (path.name + "_data")
        data.unlink(missing_ok=True)
        onnx.save(graph, str(path), save_as_external_data=True, all_tensors_to_one_file=True, location=data.name)
        for file in work.iterdir():
            file.unlink()
        work.rmdir()
    else:
        onnx.save(graph, str(path))
    onnx.checker.check_model(str(path))


def run_onnx(path: Path, inputs: Mapping[str, torch.Tensor], outputs: Sequence[str]) -> list[torch.Tensor]:
    """What Python's onnxruntime makes of the inputs, on one thread of the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {k: v.numpy() for k, v in inputs.items()}
    return [torch.from_numpy(np.asarray(x)) for x in session.run(list(outputs), feeds)]


def compare(what: str, got: torch.Tensor, want: torch.Tensor, limit: float) -> float:
    """The largest difference, by the largest value if that is above 1; ExportError beyond limit."""
    if tuple(got.shape) != tuple(want.shape):
        raise ExportError(f"{what}: shape {tuple(got.shape)}, PyTorch gives {tuple(want.shape)}")
    if not torch.isfinite(want).all():
        raise ExportError(f"{what}: PyTorch gives values that are not finite")
    off = float((got.double() - want.double()).abs().max()) / max(1.0, float(want.abs().max()))
    if not off <= limit:
        raise ExportError(f"{what}: off by {off:.3g} from PyTorch, at most {limit:g} is right")
    print(f"  {what}: off by {off:.2g}")
    return off


def parity(what: str, got: torch.Tensor, want: torch.Tensor, limit: float) -> None:
    """compare, of what ONNX gives and what PyTorch gives: write_parity has the largest difference."""
    PARITY.append((what, compare(what, got, want, limit), limit))


def write_parity(out: Path) -> None:
    """Writes parity.json: the comparison of ONNX and PyTorch that was off by most, which
    `rewardloop models export` reads, prints and holds to the limit."""
    if not PARITY:
        raise ExportError("nothing was compared with PyTorch")
    what, value, limit = max(PARITY, key=lambda row: row[1] / row[2])
    unit = "of the largest value, where that is above 1"
    row = {"name": what, "value": value, "limit": limit, "unit": unit, "comparisons": len(PARITY)}
    write_json(out / "parity.json", {"format": 1, **row})


def unit(x: torch.Tensor) -> torch.Tensor:
    """Rows of length 1."""
    return x / x.norm(dim=-1, keepdim=True)


# --- pictures -------------------------------------------------------------------------


def pictures() -> list[Image.Image]:
    """Three small pictures for a self-test, made by arithmetic alone."""
    out = []
    for w, h, k in [(64, 64, 3), (48, 31, 7), (29, 57, 11)]:
        y, x = np.mgrid[0:h, 0:w]
        rgb = np.stack([x * 255 // (w - 1), y * 255 // (h - 1), (x * x * k + y * y * (k + 2) + x * y) % 256], axis=-1)
        out.append(Image.fromarray(rgb.astype(np.uint8), "RGB"))
    return out


def recipe_of(processor: Any) -> dict[str, Any]:
    """The sidecar's image recipe of a Hugging Face image processor (slow, PIL)."""
    steps: list[dict[str, Any]] = []
    if processor.do_resize:
        filter_ = FILTERS[int(processor.resample)]
        size = processor.size
        if "shortest_edge" in size and len(size) == 1:
            steps.append({"op": "resize_shortest", "size": size["shortest_edge"], "filter": filter_})
        elif set(size) == {"height", "width"}:
            steps.append({"op": "resize", "width": size["width"], "height": size["height"], "filter": filter_})
        else:
            raise ExportError(f"preprocessing: a size of {dict(size)} has no step in a sidecar")
    if getattr(processor, "do_center_crop", False):
        crop = processor.crop_size
        steps.append({"op": "center_crop", "width": crop["width"], "height": crop["height"]})
    if not (processor.do_rescale and processor.do_normalize):
        raise ExportError("preprocessing: a processor that does not rescale and normalise has no recipe")
    return {
        "steps": steps,
        "rescale": float(processor.rescale_factor),
        "mean": [float(v) for v in processor.image_mean],
        "std": [float(v) for v in processor.image_std],
    }


def bytes_of(recipe: Mapping[str, Any], picture: Image.Image) -> np.ndarray:
    """The steps of a recipe with PIL: uint8 [H, W, 3] as they are before normalisation."""
    im = picture.convert("RGB")
    for step in recipe["steps"]:
        w, h = im.size
        op = step["op"]
        if op.startswith("resize"):
            if op == "resize_shortest":  # Hugging Face cuts the longer side's fraction off
                s = step["size"]
                size = (s, int(s * h / w)) if w <= h else (int(s * w / h), s)
            elif op == "resize_longest":  # HPSv2 multiplies and rounds, half to even
                scale = step["size"] / max(w, h)
                size = (max(1, round(w * scale)), max(1, round(h * scale)))
            else:
                size = (step["width"], step["height"])
            im = im.resize(size, getattr(Image.Resampling, step["filter"].upper()))
        elif op == "center_crop":
            left, top = (w - step["width"]) // 2, (h - step["height"]) // 2
            im = im.crop((left, top, left + step["width"], top + step["height"]))
        elif op == "pad":
            v = step.get("value", 0)
            canvas = Image.new("RGB", (step["width"], step["height"]), (v, v, v))
            centre = step.get("position", "center") == "center"
            canvas.paste(im, ((step["width"] - w) // 2, (step["height"] - h) // 2) if centre else (0, 0))
            im = canvas
        else:
            raise ExportError(f"preprocessing: no step {op!r}")
    return np.asarray(im)


def tensor_of(recipe: Mapping[str, Any], rgb: np.ndarray) -> torch.Tensor:
    """Bytes [H, W, 3] rescaled and normalised to float32 [1, 3, H, W]."""
    x = (rgb.astype(np.float64) * recipe["rescale"]).astype(np.float32)
    x = (x - np.asarray(recipe["mean"], np.float32)) / np.asarray(recipe["std"], np.float32)
    return torch.from_numpy(np.ascontiguousarray(x.transpose(2, 0, 1)))[None]


def pixels_of(recipe: Mapping[str, Any], picture: Image.Image) -> torch.Tensor:
    """float32 [1, 3, H, W] of a picture by a recipe."""
    return tensor_of(recipe, bytes_of(recipe, picture))


def check_recipe(recipe: Mapping[str, Any], reference: Callable[[Image.Image], torch.Tensor]) -> None:
    """Holds the recipe against the preprocessing it stands for; reference gives [1, 3, H, W]."""
    wide = pictures()[1].resize((301, 200), Image.Resampling.BICUBIC)
    for im in [*pictures(), wide]:
        compare(f"preprocessing of {im.size[0]}x{im.size[1]}", pixels_of(recipe, im), reference(im), 1e-5)


# --- text -----------------------------------------------------------------------------


def canonical(text: str, spec: Mapping[str, Any]) -> str:
    """What a sidecar's lower and strip_punctuation do to a text, in this order.

    Stripping takes the 32 ASCII punctuation marks away, makes one space of every run of
    whitespace and trims, as SigLIP's canonicalize_text.
    """
    if spec.get("lower"):
        text = text.lower()
    if spec.get("strip_punctuation"):
        text = " ".join(text.translate(str.maketrans("", "", string.punctuation)).split())
    return text


def render(spec: Mapping[str, Any], prompt: str, response: str = "") -> str:
    """The text that is tokenized: the template with {prompt} and {response} filled in."""
    template = spec.get("template", "{prompt}")
    parts = template.replace("{response}", "\0r").replace("{prompt}", "\0p").split("\0")
    out = parts[0] + "".join({"p": prompt, "r": response}[p[0]] + p[1:] for p in parts[1:])
    return canonical(out, spec)


def ids_of(tokenizer: Tokenizer, spec: Mapping[str, Any], text: str | tuple[str, str]) -> list[int]:
    """Token ids of a text or a pair, cut to the length, padded if the sidecar says so."""
    ids, _ = _encode(tokenizer, spec, text)
    if spec["pad"] == "max_length":
        ids = ids + [spec["pad_id"]] * (spec["length"] - len(ids))
    return ids


def _encode(tokenizer: Tokenizer, spec: Mapping[str, Any], text: str | tuple[str, str]) -> tuple[list[int], list[int]]:
    """ids and types with the special tokens; of what is too long the end is cut off."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=spec["length"])
    enc = tokenizer.encode(text) if isinstance(text, str) else tokenizer.encode(*text)
    return enc.ids, enc.type_ids


def batch_of(
    tokenizer: Tokenizer, spec: Mapping[str, Any], texts: Sequence[str | tuple[str, str]]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """ids, mask and types [B, L] of texts, padded on the right to the longest or to the length."""
    rows = [_encode(tokenizer, spec, t) for t in texts]
    length = spec["length"] if spec["pad"] == "max_length" else max(len(ids) for ids, _ in rows)

    def filled(row: list[int], value: int) -> list[int]:
        return row + [value] * (length - len(row))

    ids = torch.tensor([filled(ids, spec["pad_id"]) for ids, _ in rows])
    mask = torch.tensor([filled([1] * len(ids), 0) for ids, _ in rows])
    types = torch.tensor([filled(types, 0) for _, types in rows])
    return ids, mask, types


def save_tokenizer(tokenizer: Tokenizer, out: Path) -> Tokenizer:
    """Writes tokenizer.json without padding and truncation, which are the sidecar's to say."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    path = out / "tokenizer.json"
    path.write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return Tokenizer.from_file(str(path))


def check_ids(tokenizer: Tokenizer, spec: Mapping[str, Any], reference: Callable[[str], list[int]]) -> None:
    """Holds the written tokenizer against the checkpoint's own; reference gives a prompt's ids."""
    for text in [*PROMPTS, "", "word " * 300]:
        got, want = ids_of(tokenizer, spec, render(spec, text)), reference(text)
        if got != want:
            raise ExportError(f"tokenizer: {text[:40]!r} gives {got[:12]}…, the checkpoint's own gives {want[:12]}…")


# --- sidecar and self-test ------------------------------------------------------------


def write_json(path: Path, value: Any) -> None:
    """JSON with a line for every entry, but what holds plain values alone on one line."""
    path.write_text(_json(value, "") + "\n", encoding="utf-8")


def _json(v: Any, indent: str) -> str:
    inner = indent + " "
    if isinstance(v, dict) and v and not (indent and all(isinstance(x, str | int | float) for x in v.values())):
        rows = [f"{inner}{json.dumps(k)}: {_json(x, inner)}" for k, x in v.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(v, list) and any(isinstance(x, dict | list) for x in v):
        return "[\n" + ",\n".join(inner + _json(x, inner) for x in v) + f"\n{indent}]"
    return json.dumps(v, ensure_ascii=False, allow_nan=False)


def floats(x: torch.Tensor) -> list[Any]:
    """Nested lists of a tensor, each number with the nine digits that a float32 needs."""
    if x.dim() == 0:
        return float(f"{float(x):.9g}")  # type: ignore[return-value]
    return [floats(row) for row in x.detach().double()]


def write_sidecar(out: Path, sidecar: Mapping[str, Any]) -> None:
    """Writes scorer.json; an unknown key is refused here already."""
    if unknown := set(sidecar) - SIDECAR_KEYS:
        raise ExportError(f"sidecar: unknown keys {sorted(unknown)}")
    write_json(out / "scorer.json", {"format": 1, **sidecar})


def write_selftest(out: Path, cases: Sequence[Mapping[str, Any]], limit: float) -> None:
    """Writes selftest.json; a case's `picture` becomes width, height and rgb."""
    rows = []
    for case in cases:
        row: dict[str, Any] = {}
        for k, v in case.items():
            if k == "picture":
                row |= {"width": v.size[0], "height": v.size[1], "rgb": base64.b64encode(v.tobytes()).decode()}
            else:
                row[k] = floats(v) if isinstance(v, torch.Tensor) else v
        rows.append({**row, "tolerance": max(1e-3, limit)})
    write_json(out / "selftest.json", {"format": 1, "cases": rows})


def summary(out: Path) -> None:
    """Prints what was written."""
    for f in sorted(out.iterdir()):
        if f.is_file():
            print(f"  {f.stat().st_size:>12,}  {f.name}")
