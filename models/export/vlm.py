"""What the exporters of vision-language models share: wrappers that can be traced,
the three files of the transformers.js layout, and the check of each against PyTorch.

A folder then holds
    config.json, preprocessor_config.json, tokenizer.json, …   copied from the checkpoint
    judge.json                                                  the judge's own settings
    onnx/vision_encoder.onnx        pixel_values, …  -> image_features
    onnx/embed_tokens.onnx          input_ids        -> inputs_embeds
    onnx/decoder_model_merged.onnx  inputs_embeds, attention_mask, position_ids,
                                    past_key_values.{i}.key/.value[, num_logits_to_keep]
                                                     -> logits, present.{i}.key/.value
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn
from transformers.cache_utils import DynamicCache, DynamicLayer

OPSET = 17

# protobuf refuses a message of 2 GiB; weights beyond this go to NAME.onnx_data beside it.
EXTERNAL_BYTES = 1_800_000_000

COPIED = (
    "config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "generation_config.json",
    "LICENSE",
)


# -- graphs ---------------------------------------------------------------------------


def additive_mask(attention_mask: torch.Tensor, length: int, dtype: torch.dtype) -> torch.Tensor:
    """[B, past+L] of 0 and 1 -> [B, 1, L, past+L]: 0 where a position may look, the
    type's lowest value where not. Four axes make transformers leave the mask as it is;
    its own is built with vmap, which the tracer cannot follow."""
    total = attention_mask.shape[1]
    key = torch.arange(total, device=attention_mask.device)
    query = torch.arange(length, device=attention_mask.device) + (total - length)
    seen = (key[None, :] <= query[:, None])[None, None] & (attention_mask[:, None, None, :] != 0)
    lowest = torch.full((), torch.finfo(dtype).min, dtype=dtype, device=attention_mask.device)
    return torch.where(seen, torch.zeros((), dtype=dtype, device=attention_mask.device), lowest)


def cache_of(past: tuple[torch.Tensor, ...]) -> DynamicCache:
    """A cache of the flat key, value, key, value, …; past may have length 0."""
    cache = DynamicCache()
    for key, value in zip(past[::2], past[1::2], strict=True):
        layer = DynamicLayer()
        layer.lazy_initialization(key)
        layer.keys, layer.values = key, value
        cache.layers.append(layer)
    return cache


class Embed(nn.Module):
    """input_ids [B, L] -> inputs_embeds [B, L, D]."""

    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table = table

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.table(input_ids)


class Decoder(nn.Module):
    """One step of a decoder with its cache as plain tensors.

    positions: "input" takes position_ids, "cumsum" counts them from attention_mask.
    keep: takes num_logits_to_keep, a scalar: logits of the last so many positions,
    0 for all of them.
    """

    def __init__(self, text: nn.Module, head: nn.Module, positions: str = "input", keep: bool = False) -> None:
        super().__init__()
        self.text, self.head, self.positions, self.keep = text, head, positions, keep

    def forward(self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor, *rest: torch.Tensor):
        length = inputs_embeds.shape[1]
        past = rest
        if self.positions == "input":
            position_ids, past = rest[0], rest[1:]
        else:
            counted = attention_mask.cumsum(-1) - 1
            position_ids = torch.where(attention_mask == 0, torch.ones_like(counted), counted)[:, -length:]
        if self.keep:
            past, keep = past[:-1], past[-1]
        cache = cache_of(past)
        start = past[0].shape[2] if past else 0
        hidden = self.text(
            inputs_embeds=inputs_embeds,
            attention_mask=additive_mask(attention_mask, length, inputs_embeds.dtype),
            position_ids=position_ids,
            past_key_values=cache,
            use_cache=True,
            cache_position=torch.arange(length) + start,
        ).last_hidden_state
        if self.keep:
            hidden = hidden[:, -keep:, :]
        logits = self.head(hidden).float()
        present = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
        return logits, *present


def text_shape(text) -> tuple[int, int, int, int]:
    """Layers, key/value heads, head size and width of a text config."""
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return text.num_hidden_layers, text.num_key_value_heads, head, text.hidden_size


def past_names(layers: int, prefix: str) -> list[str]:
    return [f"{prefix}.{i}.{part}" for i in range(layers) for part in ("key", "value")]


def export(
    module: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    path: Path,
    input_names: list[str],
    output_names: list[str],
    axes: dict[str, dict[int, str]],
) -> None:
    """Traces module and writes it to path, without the tracer's notes; a graph that
    lost one of its inputs on the way is an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, torch.no_grad(), warnings.catch_warnings():
        # The tracer warns of every shape that Python looked at: those are fixed by the
        # architecture, and verify_* would show one that is not. That this tracer is the
        # old one is known: the new one has no fixed names of inputs for a cache.
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        raw = Path(folder) / "model.onnx"
        torch.onnx.export(
            module.eval(),
            inputs,
            str(raw),
            input_names=input_names,
            output_names=output_names,
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )
        model = onnx.load(raw)
    declared = [value.name for value in model.graph.input]
    if declared != input_names:
        raise SystemExit(f"{path.name}: the graph takes {declared}, want {input_names}")
    save(tidy(model), path)


def tidy(model: onnx.ModelProto) -> onnx.ModelProto:
    """Short names for what is inside the graph, and none of the tracer's notes."""
    graph = model.graph
    fixed = {value.name for value in [*graph.input, *graph.output]}
    short: dict[str, str] = {"": ""}

    def rename(name: str) -> str:
        if name not in short:
            short[name] = name if name in fixed else f"t{len(short)}"
        return short[name]

    def walk(inner: onnx.GraphProto) -> None:
        for initializer in inner.initializer:
            initializer.name = rename(initializer.name)
        for node in inner.node:
            node.name, node.doc_string = "", ""
            node.input[:] = [rename(name) for name in node.input]
            node.output[:] = [rename(name) for name in node.output]
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    walk(attribute.g)
        if inner is not graph:
            for value in [*inner.input, *inner.output]:
                value.name = rename(value.name)
        del inner.value_info[:]

    walk(graph)
    graph.doc_string, graph.name = "", "main"
    return model


def save(model: onnx.ModelProto, path: Path, limit: int = EXTERNAL_BYTES) -> None:
    """Writes model, its weights beside it if they are too many for one file."""
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    data = path.with_name(path.name + "_data")
    data.unlink(missing_ok=True)
    if size < limit:
        onnx.checker.check_model(model)
        onnx.save(model, path)
        return
    onnx.save(
        model,
        path,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=data.name,
        size_threshold=1024,
    )
    onnx.checker.check_model(str(path))


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def export_embed(table: nn.Module, path: Path) -> None:
    ids = torch.zeros((2, 3), dtype=torch.int64)
    axes = {name: {0: "batch_size", 1: "sequence_length"} for name in ("input_ids", "inputs_embeds")}
    export(Embed(table), (ids,), path, ["input_ids"], ["inputs_embeds"], axes)


def export_decoder(
    text: nn.Module, head: nn.Module, path: Path, *, axes3: bool = False, positions: str = "input", keep: bool = True
) -> None:
    """axes3: position_ids are [3, B, L]; positions and keep: see Decoder."""
    layers, heads, size, width = text_shape(text.config)
    batch, past, length = 2, 5, 3
    inputs = [torch.randn(batch, length, width), torch.ones((batch, past + length), dtype=torch.int64)]
    names = ["inputs_embeds", "attention_mask"]
    axes = {
        "inputs_embeds": {0: "batch_size", 1: "sequence_length"},
        "attention_mask": {0: "batch_size", 1: "total_sequence_length"},
        "logits": {0: "batch_size", 1: "num_logits_to_keep" if keep else "sequence_length"},
    }
    if positions == "input":
        ids = (torch.arange(length) + past).expand(batch, -1)
        inputs.append(ids.expand(3, -1, -1).contiguous() if axes3 else ids.contiguous())
        names.append("position_ids")
        first = 1 if axes3 else 0
        axes["position_ids"] = {first: "batch_size", first + 1: "sequence_length"}
    caches = past_names(layers, "past_key_values")
    presents = past_names(layers, "present")
    inputs += [torch.randn(batch, heads, past, size) for _ in caches]
    names += caches
    axes |= {name: {0: "batch_size", 2: "past_sequence_length"} for name in caches}
    axes |= {name: {0: "batch_size", 2: "total_sequence_length"} for name in presents}
    if keep:
        inputs.append(torch.tensor(1, dtype=torch.int64))
        names.append("num_logits_to_keep")
    module = Decoder(text, head, positions, keep)
    export(module, tuple(inputs), path, names, ["logits", *presents], axes)


# -- checks ---------------------------------------------------------------------------


def compare(what: str, got: np.ndarray, want: torch.Tensor | np.ndarray, tolerance: float) -> float:
    """The largest difference by the largest value; ends the program where that is more
    than tolerance, or a shape differs, or something is not finite."""
    want = want.detach().numpy() if isinstance(want, torch.Tensor) else want
    if got.shape != want.shape:
        raise SystemExit(f"{what}: shape {got.shape}, PyTorch says {want.shape}")
    if got.size == 0:
        return 0.0
    off = float(np.abs(got - want).max() / max(1.0, float(np.abs(want).max())))
    if not np.isfinite(got).all() or not off <= tolerance:
        raise SystemExit(f"{what}: off by {off:.2e} of the largest value, at most {tolerance:.0e} is right")
    print(f"  {what}: {off:.1e}")
    return off


def verify_embed(table: nn.Module, path: Path, vocab: int) -> None:
    ids = torch.randint(0, vocab, (3, 7))
    with torch.no_grad():
        compare("embed_tokens", session(path).run(None, {"input_ids": ids.numpy()})[0], table(ids), 1e-6)


def verify_decoder(
    text: nn.Module,
    head: nn.Module,
    path: Path,
    *,
    axes3: bool = False,
    tolerance: float = 1e-3,
) -> None:
    """Compares the file with transformers' own eager decoder, whose masks are its own:
    batches of 1 and 3, without a past and with one, with and without padding on the
    left, then two steps one after the other through the file's own presents. The
    tolerance is of the largest value; small models are off by 1e-6."""
    run = session(path)
    layers, heads, size, width = text_shape(text.config)
    takes = {value.name for value in run.get_inputs()}
    caches = past_names(layers, "past_key_values")
    generator = torch.Generator().manual_seed(7)

    def feed(embeds, mask, ids, past, keep):
        feeds = {"inputs_embeds": embeds, "attention_mask": mask, "position_ids": ids}
        feeds |= dict(zip(caches, past, strict=True))
        feeds["num_logits_to_keep"] = torch.tensor(keep)
        feeds["use_cache_branch"] = torch.tensor([past[0].shape[2] > 0])
        return {name: tensor.numpy() for name, tensor in feeds.items() if name in takes}

    for batch, before, length, padded in ((1, 0, 6, 0), (3, 0, 6, 2), (1, 4, 1, 0), (3, 4, 1, 2), (3, 4, 3, 0)):
        embeds = torch.randn(batch, length, width, generator=generator)
        mask = torch.ones((batch, before + length), dtype=torch.int64)
        if padded:
            mask[1, :padded] = 0
        ids = torch.where(mask == 0, 1, mask.cumsum(-1) - 1)[:, -length:]
        ids = ids.expand(3, -1, -1).contiguous() if axes3 else ids
        past = [torch.randn(batch, heads, before, size, generator=generator) for _ in caches]
        with torch.no_grad():
            cache = cache_of(tuple(tensor.clone() for tensor in past))
            reference = text(
                inputs_embeds=embeds,
                attention_mask=mask,
                position_ids=ids,
                past_key_values=cache,
                use_cache=True,
                cache_position=torch.arange(before, before + length),
            )
            want = head(reference.last_hidden_state)
        keep = 1 if "num_logits_to_keep" in takes else length
        answer = run.run(None, feed(embeds, mask, ids, past, keep))
        what = f"decoder batch {batch} past {before} length {length} padded {padded}"
        real = mask[:, -length:].bool()
        compare(what, answer[0][real[:, -keep:].numpy()], want[:, -keep:][real[:, -keep:]], tolerance)
        if keep < length:
            every = run.run(["logits"], feed(embeds, mask, ids, past, 0))[0]
            compare(what + ", all logits", every[real.numpy()], want[real], tolerance)
        seen = mask.bool()[:, None, :].expand(-1, heads, -1)
        for part, got in (("keys", answer[-2]), ("values", answer[-1])):
            compare(f"{what}, last {part}", got[seen.numpy()], getattr(cache.layers[-1], part)[seen], tolerance)

    # In two steps as in one.
    embeds = torch.randn(1, 5, width, generator=generator)
    mask = torch.ones((1, 5), dtype=torch.int64)
    ids = torch.arange(5)[None].expand(3, 1, 5).contiguous() if axes3 else torch.arange(5)[None]
    none = [torch.zeros(1, heads, 0, size) for _ in caches]
    whole = run.run(None, feed(embeds, mask, ids, none, 1))[0][:, -1]
    first = run.run(None, feed(embeds[:, :3], mask[:, :3], ids[..., :3], none, 1))
    past = [torch.from_numpy(tensor) for tensor in first[1:]]
    second = run.run(None, feed(embeds[:, 3:], mask, ids[..., 3:], past, 1))[0][:, -1]
    compare("decoder in two steps", second, whole, tolerance)


# -- folders --------------------------------------------------------------------------


def copy_files(checkpoint: Path, out: Path) -> None:
    """Copies what describes the model; a tokenizer.json there must be."""
    out.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        if (checkpoint / name).is_file():
            shutil.copyfile(checkpoint / name, out / name)
    for name in ("config.json", "preprocessor_config.json", "tokenizer.json"):
        if not (out / name).is_file():
            raise SystemExit(f"{checkpoint} has no {name}")
    keep_template(checkpoint, out)


def keep_template(checkpoint: Path, out: Path) -> None:
    """Older checkpoints have their chat template in tokenizer_config.json only."""
    if any((out / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return
    config = checkpoint / "tokenizer_config.json"
    template = json.loads(config.read_text()).get("chat_template") if config.is_file() else None
    if not isinstance(template, str):
        raise SystemExit(f"{checkpoint} has no chat template: a judge cannot ask without one")
    (out / "chat_template.jinja").write_text(template)


def write_json(path: Path, value: dict) -> None:
    """One line for each value, and for each item of a list of objects."""
    lines = []
    for key, entry in value.items():
        if isinstance(entry, list) and entry and isinstance(entry[0], dict):
            text = "[\n" + ",\n".join("  " + json.dumps(item, ensure_ascii=False) for item in entry) + "\n ]"
        else:
            text = json.dumps(entry, ensure_ascii=False)
        lines.append(f" {json.dumps(key)}: {text}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def write_judge(out: Path, **settings: object) -> None:
    """judge.json: how the judge uses the folder, where that differs from the defaults."""
    write_json(out / "judge.json", {"format": 1, "dtype": {"vision": "", "embed": "", "decoder": ""}, **settings})


def load(checkpoint: Path) -> nn.Module:
    """The checkpoint in float32 on the CPU with plain attention, which can be traced."""
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )
    return model.eval().requires_grad_(False)


def main(
    description: str,
    kinds: tuple[str, ...],
    options: Callable[[argparse.ArgumentParser], None],
    convert: Callable[[nn.Module, Path, argparse.Namespace], None],
) -> None:
    """The command line of a family's exporter."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="folder with config.json, *.safetensors and tokenizer.json")
    parser.add_argument("out", type=Path, help="folder to write, made if missing")
    parser.add_argument(
        "--all-logits",
        action="store_true",
        help="leave out the input num_logits_to_keep: logits of every position, as public exports have it "
        "(a prompt of 1,100 tokens with 49,280 words is 217 MB a sample)",
    )
    options(parser)
    args = parser.parse_args()
    config = args.checkpoint / "config.json"
    if not config.is_file():
        parser.error(f"{config} is not there")
    kind = json.loads(config.read_text()).get("model_type")
    if kind not in kinds:
        parser.error(f"{config} says model_type {kind!r}; want one of {', '.join(kinds)}")
    torch.manual_seed(0)
    model = load(args.checkpoint)
    copy_files(args.checkpoint, args.out)
    convert(model, args.out, args)
    print(f"{args.out}: every file answers as PyTorch does")
