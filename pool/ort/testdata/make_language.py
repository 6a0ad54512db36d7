"""Makes the small language models that the tests of this folder's parent run.

    python -m venv venv && venv/bin/pip install onnx==1.20.1 numpy
    venv/bin/python make_language.py

It writes the folder language: a decoder of two layers with a cache in every form that
exports have, each in three precisions, decoders that must be refused, and language.json
with what a reference in numpy, which has no cache, makes of some prompts. Everything is
seeded.

    flat         float32
    flat_kv16    a cache of float16 around arithmetic in float32
    flat_fp16    weights, arithmetic, cache, embeddings and logits of float16
    mixed        as flat_fp16, with embeddings and logits of float32
"""

import json
import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

OUT = pathlib.Path(__file__).parent / "language"
VOCAB, WIDTH, LAYERS, HEADS, DIM, PLACES = 16, 8, 2, 2, 4, 64
IMAGE, POISON = 13, 14

rng = np.random.default_rng(7)


def weight(*shape, scale=0.6):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


EMBED = weight(VOCAB, WIDTH, scale=1.0)
EMBED[POISON] = 3e38  # its keys and values overflow
HALF_EMBED = np.clip(EMBED, -6e4, 6e4).astype(np.float16)  # they do here, too
PLACE = [weight(PLACES, WIDTH, scale=0.7) for _ in range(3)]
W = [{k: weight(WIDTH, WIDTH) for k in "qkvo"} for _ in range(LAYERS)]
HEAD = weight(WIDTH, VOCAB, scale=1.2)
BIAS = np.zeros(VOCAB, np.float32)
BIAS[[IMAGE, POISON]] = -50  # never said


def port(name, dtype, *shape):
    return h.make_tensor_value_info(name, dtype, shape)


class Graph:
    """Nodes and weights under names that do not repeat, with arithmetic of one type."""

    def __init__(self, kind=T.FLOAT):
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []
        self.kind = kind

    def const(self, value):
        name = f"c{len(self.weights)}"
        value = np.asarray(value)
        if value.dtype == np.float32 and self.kind == T.FLOAT16:
            value = value.astype(np.float16)
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def op(self, kind, *inputs, to=None, to_type=None, **attributes):
        out = to or f"t{len(self.nodes)}"
        if to_type is not None:  # of a Cast
            attributes["to"] = to_type
        self.nodes.append(h.make_node(kind, list(inputs), [out], **attributes))
        return out

    def save(self, name):
        graph = h.make_graph(self.nodes, name, self.inputs, self.outputs, self.weights)
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], producer_name="rewardloop")
        model.ir_version = 8
        onnx.checker.check_model(model)
        (OUT / f"{name}.onnx").write_bytes(model.SerializeToString())


def length(g, value, axis):
    """The size of an axis as a tensor of shape [1]."""
    return g.op("Gather", g.op("Shape", value), g.const(np.array([axis], np.int64)))


def scalar(g, one):
    return g.op("Squeeze", one)


def places(g, form, embeds, total):
    """What is added for the positions."""
    if form == "none":
        seq = length(g, embeds, 1)
        first = g.op("Sub", total, seq)
        ids = g.op("Range", scalar(g, first), scalar(g, total), g.const(np.array(1, np.int64)))
        return g.op("Gather", g.const(PLACE[0]), ids)
    if form == "flat":
        g.inputs.append(port("position_ids", T.INT64, "batch", "sequence"))
        return g.op("Gather", g.const(PLACE[0]), "position_ids")
    g.inputs.append(port("position_ids", T.INT64, 3, "batch", "sequence"))
    parts = []
    for axis in range(3):
        ids = g.op("Gather", "position_ids", g.const(np.array(axis, np.int64)))
        parts.append(g.op("Gather", g.const(PLACE[axis]), ids))
    return g.op("Add", g.op("Add", parts[0], parts[1]), parts[2])


def split(g, x, w):
    """[B, L, D] to [B, heads, L, dim]."""
    y = g.op("Reshape", g.op("MatMul", x, g.const(w)), g.const(np.array([0, 0, HEADS, DIM], np.int64)))
    return g.op("Transpose", y, perm=[0, 2, 1, 3])


def joined(g, past, now, branch):
    """The cache with what is new behind it; without the past where branch says so."""
    if not branch:
        return g.op("Concat", past, now, axis=2)
    name = f"f{len(g.nodes)}"
    then = h.make_graph([h.make_node("Concat", [past, now], [name + "t"], axis=2)], name + "then", [], [port(name + "t", g.kind, None, None, None, None)])
    other = h.make_graph([h.make_node("Identity", [now], [name + "e"])], name + "else", [], [port(name + "e", g.kind, None, None, None, None)])
    return g.op("If", g.op("Squeeze", "use_cache_branch"), then_branch=then, else_branch=other)


def bias(g, mask, seq, total):
    """0 where a position may look, -1e9 where it may not (-3e4 in float16): [B, 1, L, T]."""
    never = -1e9 if g.kind == T.FLOAT else -3e4
    one = g.const(np.array(1, np.int64))
    keys = g.op("Range", g.const(np.array(0, np.int64)), scalar(g, total), one)
    asks = g.op("Range", scalar(g, g.op("Sub", total, seq)), scalar(g, total), one)
    late = g.op("Greater", g.op("Unsqueeze", keys, g.const(np.array([0], np.int64))), g.op("Unsqueeze", asks, g.const(np.array([1], np.int64))))
    late = g.op("Mul", cast(g, late), g.const(np.array(never, np.float32)))
    if mask is None:
        return late
    absent = g.op("Sub", g.const(np.array(1, np.float32)), cast(g, mask))
    absent = g.op("Mul", absent, g.const(np.array(never, np.float32)))
    absent = g.op("Unsqueeze", absent, g.const(np.array([1, 2], np.int64)))
    return g.op("Add", late, absent)


def cast(g, x, kind=None):
    return g.op("Cast", x, to_type=kind or g.kind)


def decoder(name, form="flat", branch=False, keep=None, mask=True, kv=T.FLOAT, past=True, lost=(), more=(), embeds="inputs_embeds", last=False, slow=0, width=WIDTH, logits="logits", room="past", pair=False, items="batch", forget=False, kind=T.FLOAT, ends=T.FLOAT, present=None):
    g = Graph(kind)
    g.inputs.append(port(embeds, ends, "batch", "sequence", width))
    if mask:
        g.inputs.append(port("attention_mask", T.INT64, "batch", "total"))
    if branch:
        g.inputs.append(port("use_cache_branch", T.BOOL, 1))
    if keep is not None:
        g.inputs.append(port("num_logits_to_keep", T.INT64, *keep))
    for extra in more:
        g.inputs.append(extra)
    seq = length(g, embeds, 1)
    total = seq
    if mask:
        total = length(g, "attention_mask", 1)
    elif past:
        total = g.op("Add", seq, length(g, "past_key_values.0.key", 2))
    x = embeds if ends == kind else cast(g, embeds)
    x = g.op("Add", x, places(g, form, embeds, total))
    if pair:  # as a tracer writes it that has seen one prompt
        x = g.op("Reshape", x, g.const(np.array([1, -1, WIDTH], np.int64)))
    look = bias(g, "attention_mask" if mask else None, seq, total)
    for i in range(LAYERS):
        q, k, v = (split(g, x, W[i][c]) for c in "qkv")
        cache = []
        for what, now in (("key", k), ("value", v)):
            all_ = now
            if past:
                source = f"past_key_values.{i}.{what}"
                g.inputs.append(port(source, kv, items, HEADS, room, DIM))
                if kv != kind:
                    source = cast(g, source)
                all_ = joined(g, source, now, branch)
                if f"{i}.{what}" not in lost:
                    new = present or kv
                    g.outputs.append(port(f"present.{i}.{what}", new, "batch", HEADS, "total", DIM))
                    if new != kind:
                        g.op("Cast", all_, to=f"present.{i}.{what}", to_type=new)
                    elif forget:  # all but the last 8 tokens
                        g.op("Slice", all_, g.const(np.array([-8], np.int64)), g.const(np.array([2**40], np.int64)), g.const(np.array([2], np.int64)), to=f"present.{i}.{what}")
                    else:
                        g.op("Identity", all_, to=f"present.{i}.{what}")
            cache.append(all_)
        scores = g.op("MatMul", q, g.op("Transpose", cache[0], perm=[0, 1, 3, 2]))
        scores = g.op("Add", g.op("Mul", scores, g.const(np.array(DIM**-0.5, np.float32))), look)
        y = g.op("MatMul", g.op("Softmax", scores, axis=-1), cache[1])
        y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.const(np.array([0, 0, WIDTH], np.int64)))
        x = g.op("Tanh", g.op("Add", x, g.op("MatMul", y, g.const(W[i]["o"]))))
    if slow:
        x = delayed(g, x, slow)
    if last:
        x = g.op("Slice", x, g.const(np.array([-1], np.int64)), g.const(np.array([2**40], np.int64)), g.const(np.array([1], np.int64)))
    if keep is not None:
        n = g.op("Reshape", "num_logits_to_keep", g.const(np.array([1], np.int64)))
        x = g.op("Slice", x, g.op("Neg", n), g.const(np.array([2**40], np.int64)), g.const(np.array([1], np.int64)))
    if ends == kind:
        g.op("Add", g.op("MatMul", x, g.const(HEAD)), g.const(BIAS), to=logits)
    else:
        g.op("Cast", g.op("Add", g.op("MatMul", x, g.const(HEAD)), g.const(BIAS)), to=logits, to_type=ends)
    g.outputs.insert(0, port(logits, ends, "batch", "kept", VOCAB if form != "none" else "vocabulary"))
    g.save(name)


def delayed(g, x, times):
    """x, after some products of 256 by 256 numbers that change nothing."""
    zero = g.op("Mul", g.op("ReduceMax", x, keepdims=0), g.const(np.array(0, np.float32)))
    square = g.op("Expand", zero, g.const(np.array([256, 256], np.int64)))
    body = h.make_graph(
        [h.make_node("MatMul", ["y_in", square], ["y_out"]), h.make_node("Identity", ["going"], ["still"])],
        "body",
        [port("i", T.INT64), port("going", T.BOOL), port("y_in", T.FLOAT, 256, 256)],
        [port("still", T.BOOL), port("y_out", T.FLOAT, 256, 256)],
    )
    end = g.op("Loop", g.const(np.array(times, np.int64)), "", square, body=body)
    return g.op("Add", x, g.op("ReduceMax", end, keepdims=0))


def embedder(name, table, ids="input_ids", out="inputs_embeds"):
    g = Graph()
    g.inputs.append(port(ids, T.INT64, "batch", "sequence"))
    kind = h.np_dtype_to_tensor_dtype(table.dtype)
    g.outputs.append(port(out, kind, "batch", "sequence", table.shape[1]))
    g.op("Gather", g.const(table), ids, to=out)
    g.save(name)


def reference(embeds, positions):
    """Logits of every position of one prompt: embeds [L, D], positions [axes, L]."""
    x = embeds.astype(np.float64)
    for axis, row in enumerate(positions):
        x = x + PLACE[axis][row]
    n = len(x)
    late = np.triu(np.full((n, n), -1e9), 1)
    for w in W:
        q, k, v = ((x @ w[c]).reshape(n, HEADS, DIM).transpose(1, 0, 2) for c in "qkv")
        s = q @ k.transpose(0, 2, 1) * DIM**-0.5 + late
        s = np.exp(s - s.max(-1, keepdims=True))
        y = (s / s.sum(-1, keepdims=True)) @ v
        x = np.tanh(x + y.transpose(1, 0, 2).reshape(n, WIDTH) @ w["o"])
    return x @ HEAD + BIAS


def lse(row):
    return float(row.max() + np.log(np.exp(row - row.max()).sum()))


def case(ids, features=None, positions=None, new=12, top=3):
    """A prompt with its logits, and what is said behind it."""
    ids = list(ids)
    rows = EMBED[ids]
    if features is not None:
        rows[[i for i, t in enumerate(ids) if t == IMAGE]] = features
    flat = positions is None
    at = np.arange(len(ids))[None] if flat else np.array(positions)
    logits = reference(rows, at)
    out = {"input_ids": ids, "logits": logits.round(6).tolist(), "logsumexp": [lse(r) for r in logits]}
    if features is not None:
        out["image_features"] = np.asarray(features).tolist()
    if positions is not None:
        out["position_ids"] = np.array(positions).tolist()
    said = {"tokens": [], "logprobs": [], "top_ids": [], "top_logprobs": []}
    for _ in range(new):
        row = reference(rows, at)[-1]
        order = np.argsort(-row, kind="stable")
        said["tokens"].append(int(order[0]))
        said["logprobs"].append(float(row[order[0]] - lse(row)))
        said["top_ids"].append(order[:top].tolist())
        said["top_logprobs"].append((row[order[:top]] - lse(row)).tolist())
        rows = np.concatenate([rows, EMBED[order[:1]]])
        at = np.concatenate([at, np.full((len(at), 1), at.max() + 1)], axis=1)
    return out | said


def main():
    OUT.mkdir(exist_ok=True)
    embedder("embed", EMBED)
    embedder("embed_fp16", HALF_EMBED)
    for name, shape in {
        "flat": {},
        "three": {"form": "three"},
        "none": {"form": "none"},
        "branch": {"branch": True},
        "keep": {"keep": ()},
        "keep1": {"keep": (1,)},
        "last": {"last": True},
    }.items():
        decoder(name, **shape)
        decoder(name + "_kv16", kv=T.FLOAT16, **shape)
        decoder(name + "_fp16", kv=T.FLOAT16, kind=T.FLOAT16, ends=T.FLOAT16, **shape)
    decoder("mixed", kv=T.FLOAT16, kind=T.FLOAT16)
    decoder("slow", slow=100)
    decoder("one", items=1)
    decoder("forgets", forget=True)
    # What must be refused.
    decoder("bad_bf16", kv=T.BFLOAT16)
    decoder("bad_types", kv=T.FLOAT16, present=T.FLOAT)
    decoder("bad_input", more=[port("encoder_hidden_states", T.FLOAT, "batch", 4, WIDTH)])
    decoder("bad_mask", mask=False)
    decoder("bad_embeds", embeds="embeddings")
    decoder("bad_past", past=False)
    decoder("bad_present", lost=("1.value",))
    decoder("bad_logits", logits="scores")
    decoder("bad_fixed", room=7)
    decoder("bad_form", pair=True)
    embedder("bad_width", EMBED[:, :5].copy())
    embedder("bad_ids", EMBED, ids="tokens")
    image = rng.standard_normal((3, WIDTH)).round(4)
    more = rng.standard_normal((2, 3, WIDTH)).round(4)
    golden = {
        "vocabulary": VOCAB,
        "width": WIDTH,
        "layers": LAYERS,
        "image_token": IMAGE,
        "flat": [
            case([1, 2, 3, 4, 5]),
            case([7]),
            case([1, IMAGE, IMAGE, 4, IMAGE, 6], image),
            case([2, IMAGE, IMAGE, 9, IMAGE, 11], more[0]),
            case([1, IMAGE, IMAGE, 8, IMAGE, 0], more[1]),
        ],
        "three": [
            case([1, IMAGE, IMAGE, 4, IMAGE, 6], image, [[0, 1, 1, 2, 3, 5], [0, 1, 2, 3, 3, 5], [0, 2, 1, 2, 4, 5]]),
            case([5, 4, 3], None, [[0, 1, 2]] * 3),
        ],
    }
    (OUT / "language.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
