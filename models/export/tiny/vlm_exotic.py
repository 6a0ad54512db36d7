"""Decoders and encoders for tiny-idefics3 in forms that are met in public exports, and in forms
that must be refused: one exported decoder, operated on node by node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto, helper
from torch import nn

import idefics3
import vlm


@dataclass
class Exotic:
    """A file of exotic/: whether it must work in tiny-idefics3's place, and if not, what
    the refusal must name. What is in half precision is within 2e-2 of tiny-idefics3."""

    file: str
    works: bool
    names: str = ""
    half: bool = False


EXOTIC = [
    Exotic("no_position_ids.onnx", True),
    Exotic("use_cache_branch.onnx", True),
    Exotic("num_logits_to_keep.onnx", True),
    Exotic("vision_pixel_mask.onnx", True),
    Exotic("fp16_kv.onnx", True, half=True),
    Exotic("unknown_input.onnx", False, "cross_attention_mask"),
    Exotic("missing_attention_mask.onnx", False, "attention_mask"),
    Exotic("no_past.onnx", False, "past_key_values"),
    Exotic("small_vocab.onnx", False, "logits"),
]


def exotic(model: nn.Module, out: Path) -> None:
    """Writes them, from the weights of tiny-idefics3."""
    text, head = model.model.text_model, model.lm_head
    base = out / "base.onnx"
    vlm.export_decoder(text, head, base, keep=False)
    vlm.export_decoder(text, head, out / "no_position_ids.onnx", positions="cumsum", keep=False)
    vlm.export_decoder(text, head, out / "num_logits_to_keep.onnx")
    idefics3.export_vision(model.model, out / "vision_pixel_mask.onnx", "transformers", True)
    operate(base, out / "use_cache_branch.onnx", use_cache_branch)
    operate(base, out / "fp16_kv.onnx", fp16_kv)
    operate(base, out / "unknown_input.onnx", unknown_input)
    operate(base, out / "missing_attention_mask.onnx", missing_attention_mask)
    operate(base, out / "no_past.onnx", no_past)
    operate(base, out / "small_vocab.onnx", small_vocab)

    for name in ("no_position_ids.onnx", "num_logits_to_keep.onnx"):
        vlm.verify_decoder(text, head, out / name)
    vlm.verify_decoder(text, head, out / "use_cache_branch.onnx")
    idefics3.verify_vision(model.model, out / "vision_pixel_mask.onnx", "transformers", True)
    base.unlink()
    for one in EXOTIC:
        vlm.session(out / one.file)
    listed = [
        {"file": one.file, "works": one.works} | ({"names": one.names} if one.names else {}) | ({"half": True} if one.half else {})
        for one in EXOTIC
    ]
    vlm.write_json(out / "index.json", {"of": "tiny-idefics3", "files": listed})


def operate(base: Path, path: Path, change: Callable[[onnx.GraphProto], None]) -> None:
    """Writes to path what change makes of the decoder in base."""
    model = onnx.load(base)
    change(model.graph)
    vlm.save(model, path)


def caches(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    return [value for value in graph.input if value.name.startswith("past_key_values.")]


def feed_instead(graph: onnx.GraphProto, name: str, nodes: list[onnx.NodeProto]) -> None:
    """Lets nodes, the last of which gives "new", stand for what name gave so far."""
    new = f"inner.{name}"
    for node in graph.node:
        node.input[:] = [new if one == name else one for one in node.input]
    nodes[-1].output[0] = new
    for at, node in enumerate(nodes):
        graph.node.insert(at, node)


def constant(graph: onnx.GraphProto, name: str, values: list[int]) -> str:
    if name not in [one.name for one in graph.initializer]:
        graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
    return name


def drop_input(graph: onnx.GraphProto, name: str) -> None:
    graph.input.remove(next(value for value in graph.input if value.name == name))


def use_cache_branch(graph: onnx.GraphProto) -> None:
    """As in merged graphs of old: the past counts only where use_cache_branch says so."""
    zero, axis = constant(graph, "c.zero", [0]), constant(graph, "c.axis", [2])
    for value in caches(graph):
        kind = helper.make_tensor_value_info("taken", TensorProto.FLOAT, None)
        then = helper.make_graph([helper.make_node("Identity", [value.name], ["taken"])], "past", [], [kind])
        cut = helper.make_node("Slice", [value.name, zero, zero, axis], ["taken"])
        other = helper.make_graph([cut], "none", [], [kind])
        node = helper.make_node("If", ["use_cache_branch"], ["new"], then_branch=then, else_branch=other)
        feed_instead(graph, value.name, [node])
    graph.input.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))


def fp16_kv(graph: onnx.GraphProto) -> None:
    """A cache in half precision around arithmetic in float32."""
    for value in caches(graph):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
        feed_instead(graph, value.name, [helper.make_node("Cast", [value.name], ["new"], to=TensorProto.FLOAT)])
    for value in graph.output[1:]:
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
        give_instead(graph, value.name, lambda inner, name: helper.make_node("Cast", [inner], [name], to=10))


def give_instead(graph: onnx.GraphProto, name: str, make: Callable[[str, str], onnx.NodeProto]) -> None:
    """Puts a node between an output and what gave it."""
    inner = f"inner.{name}"
    for node in graph.node:
        node.output[:] = [inner if one == name else one for one in node.output]
        node.input[:] = [inner if one == name else one for one in node.input]
    graph.node.append(make(inner, name))


def unknown_input(graph: onnx.GraphProto) -> None:
    """An input that nobody knows how to feed."""
    node = helper.make_node("Mul", ["inputs_embeds", "cross_attention_mask"], ["new"])
    feed_instead(graph, "inputs_embeds", [node])
    graph.input.append(helper.make_tensor_value_info("cross_attention_mask", TensorProto.FLOAT, ["batch_size", 1, 1]))


def missing_attention_mask(graph: onnx.GraphProto) -> None:
    """Every position is taken as real."""
    axes = {"c.batch": [0], "c.length": [1], "c.past": [2]}
    for name, values in axes.items():
        constant(graph, name, values)
    nodes = [
        helper.make_node("Shape", ["inputs_embeds"], ["m.shape"]),
        helper.make_node("Shape", ["past_key_values.0.key"], ["m.past"]),
        helper.make_node("Gather", ["m.shape", "c.batch"], ["m.b"]),
        helper.make_node("Gather", ["m.shape", "c.length"], ["m.l"]),
        helper.make_node("Gather", ["m.past", "c.past"], ["m.p"]),
        helper.make_node("Add", ["m.l", "m.p"], ["m.total"]),
        helper.make_node("Concat", ["m.b", "m.total"], ["m.size"], axis=0),
        helper.make_node("ConstantOfShape", ["m.size"], ["new"], value=helper.make_tensor("one", 7, [1], [1])),
    ]
    feed_instead(graph, "attention_mask", nodes)
    drop_input(graph, "attention_mask")


def no_past(graph: onnx.GraphProto) -> None:
    """A decoder without a cache, which can be asked only with the whole text."""
    for number, value in enumerate(caches(graph)):
        heads, size = (value.type.tensor_type.shape.dim[axis].dim_value for axis in (1, 3))
        rest = constant(graph, "c.rest", [heads, 0, size])
        names = [f"n{number}.{part}" for part in ("shape", "batch", "size")]
        nodes = [
            helper.make_node("Shape", ["inputs_embeds"], [names[0]]),
            helper.make_node("Gather", [names[0], constant(graph, "c.first", [0])], [names[1]]),
            helper.make_node("Concat", [names[1], rest], [names[2]], axis=0),
            helper.make_node("ConstantOfShape", [names[2]], ["new"]),
        ]
        feed_instead(graph, value.name, nodes)
        drop_input(graph, value.name)
    del graph.output[1:]


def small_vocab(graph: onnx.GraphProto) -> None:
    """Logits of fewer tokens than the tokenizer has."""
    size = graph.output[0].type.tensor_type.shape.dim[2]
    size.dim_value -= 46
    slices = [constant(graph, "c.from", [0]), constant(graph, "c.to", [size.dim_value]), constant(graph, "c.axis", [2])]
    give_instead(graph, "logits", lambda inner, name: helper.make_node("Slice", [inner, *slices], [name]))
