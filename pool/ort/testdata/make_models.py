"""Makes the small models that the tests of this folder's parent run.

    python -m venv venv && venv/bin/pip install onnx==1.23.2 numpy
    venv/bin/python make_models.py

canary.onnx goes one folder up: it is part of the binary. The weights are whole
numbers or simple fractions, so that expected values can be worked out by hand.
"""

import pathlib

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

HERE = pathlib.Path(__file__).parent


def port(name, dtype, *shape):
    return h.make_tensor_value_info(name, dtype, shape)


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def save(path, nodes, inputs, outputs, weights=(), **metadata):
    graph = h.make_graph(list(nodes), path.stem, list(inputs), list(outputs), list(weights))
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], producer_name="rewardloop")
    model.ir_version = 8
    onnx.helper.set_model_props(model, metadata)
    if path.stem != "liar":
        onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def canary():
    """y = relu(x W + b): for x = 1..4 it is [30, 0, 13]."""
    save(
        HERE.parent / "canary.onnx",
        [h.make_node("MatMul", ["x", "w"], ["m"]), h.make_node("Add", ["m", "b"], ["s"]), h.make_node("Relu", ["s"], ["y"])],
        [port("x", T.FLOAT, "n", 4)],
        [port("y", T.FLOAT, "n", 3)],
        [
            constant("w", np.array([[1, -1, 2], [2, -2, 0], [3, -3, -1], [4, -4, 3]], np.float32)),
            constant("b", np.array([0, 5, 2], np.float32)),
        ],
    )


def dtypes():
    """One input and output of every type, each output one more than its input."""
    kinds = [("f32", T.FLOAT), ("i64", T.INT64), ("i32", T.INT32), ("u8", T.UINT8)]
    nodes, weights = [], [constant("one", np.array(1, np.int64))]
    for name, kind in kinds:
        nodes += [
            h.make_node("Cast", ["in_" + name], ["a_" + name], to=T.INT64),
            h.make_node("Add", ["a_" + name, "one"], ["b_" + name]),
            h.make_node("Cast", ["b_" + name], ["out_" + name], to=kind),
        ]
    save(
        HERE / "dtypes.onnx",
        nodes,
        [port("in_" + n, k, "n", 2) for n, k in kinds],
        [port("out_" + n, k, "n", 2) for n, k in kinds],
        weights,
        character="a\nb\n\u00e9",
        empty="",
    )


def scalar():
    """total = factor * sum(x), all without axes but x."""
    save(
        HERE / "scalar.onnx",
        [h.make_node("ReduceSum", ["x"], ["sum"], keepdims=0), h.make_node("Mul", ["sum", "factor"], ["total"])],
        [port("x", T.FLOAT, "n", 3), port("factor", T.FLOAT)],
        [port("total", T.FLOAT)],
    )


def slow():
    """y = x, then max(n) times y = y E + x, where E has 1/256 everywhere: one
    product costs about 0.1 ms per row and 2 MB of memory traffic."""
    body = h.make_graph(
        [
            h.make_node("Expand", ["small", "square"], ["e"]),
            h.make_node("MatMul", ["y_in", "e"], ["m"]),
            h.make_node("Add", ["m", "x"], ["y_out"]),
            h.make_node("Identity", ["going"], ["still"]),
        ],
        "body",
        [port("i", T.INT64), port("going", T.BOOL), port("y_in", T.FLOAT, "n", 256)],
        [port("still", T.BOOL), port("y_out", T.FLOAT, "n", 256)],
    )
    save(
        HERE / "slow.onnx",
        [
            h.make_node("ReduceMax", ["n"], ["times"], keepdims=0),
            h.make_node("Loop", ["times", "", "x"], ["y"], body=body),
        ],
        [port("x", T.FLOAT, "batch", 256), port("n", T.INT64, "batch")],
        [port("y", T.FLOAT, "batch", 256)],
        [constant("small", np.array(1 / 256, np.float32)), constant("square", np.array([256, 256], np.int64))],
    )


def echo():
    """y = x, of any shape of four axes."""
    save(
        HERE / "echo.onnx",
        [h.make_node("Identity", ["x"], ["y"])],
        [port("x", T.FLOAT, "n", "c", "h", "w")],
        [port("y", T.FLOAT, "n", "c", "h", "w")],
    )


def log():
    """y = log(x): NaN and infinities for the asking."""
    save(HERE / "log.onnx", [h.make_node("Log", ["x"], ["y"])], [port("x", T.FLOAT, "n", 2)], [port("y", T.FLOAT, "n", 2)])


def halves():
    """An output of float16 of an input of float32."""
    save(
        HERE / "halves.onnx",
        [h.make_node("Cast", ["x"], ["half"], to=T.FLOAT16)],
        [port("x", T.FLOAT, "n", 2)],
        [port("half", T.FLOAT16, "n", 2)],
    )


def half_echo():
    """y = x in float16, and without axes the sum of x."""
    save(
        HERE / "half_echo.onnx",
        [h.make_node("Identity", ["x"], ["y"]), h.make_node("ReduceSum", ["x"], ["sum"], keepdims=0)],
        [port("x", T.FLOAT16, "n", "k")],
        [port("y", T.FLOAT16, "n", "k"), port("sum", T.FLOAT16)],
    )


def half_scalar():
    """An input of float16 that has no axes, which cannot be fed."""
    save(HERE / "half_scalar.onnx", [h.make_node("Mul", ["x", "by"], ["y"])], [port("x", T.FLOAT16, "n", 2), port("by", T.FLOAT16)], [port("y", T.FLOAT16, "n", 2)])


def half_log():
    """y = log(x) in float16: NaN and infinities for the asking."""
    save(HERE / "half_log.onnx", [h.make_node("Log", ["x"], ["y"])], [port("x", T.FLOAT16, "n", 2)], [port("y", T.FLOAT16, "n", 2)])


def brain():
    """An output of bfloat16."""
    save(HERE / "brain.onnx", [h.make_node("Cast", ["x"], ["y"], to=T.BFLOAT16)], [port("x", T.FLOAT, "n", 2)], [port("y", T.BFLOAT16, "n", 2)])


def outside():
    """y = x W in float16, W in a file beside the model."""
    (HERE / "outside.bin").unlink(missing_ok=True)
    save(
        HERE / "outside.onnx",
        [h.make_node("MatMul", ["x", "w"], ["y"])],
        [port("x", T.FLOAT16, "n", 2)],
        [port("y", T.FLOAT16, "n", 2)],
        [constant("w", np.array([[1, 2], [3, 4]], np.float16))],
    )
    model = onnx.load(HERE / "outside.onnx")
    onnx.save_model(model, HERE / "outside.onnx", save_as_external_data=True, location="outside.bin", size_threshold=0)


def vit(name, kind):
    """A small encoder of images as CLIP has: patches of 8 by 8, a layer of attention with two
    heads, the mean of the places, a projection."""
    rng = np.random.default_rng(5)
    dtype = h.tensor_dtype_to_np_dtype(kind)
    wide, heads = 16, 2

    def w(name, *shape):
        return constant(name, (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32).astype(dtype))

    def split(to, last):
        return [
            h.make_node("MatMul", ["tokens", "w_" + to], [to + "0"]),
            h.make_node("Reshape", [to + "0", "apart"], [to + "1"]),
            h.make_node("Transpose", [to + "1"], [to], perm=last),
        ]

    save(
        HERE / f"{name}.onnx",
        [
            h.make_node("Conv", ["pixel_values", "patches"], ["map"], strides=[8, 8]),
            h.make_node("Reshape", ["map", "rows"], ["columns"]),
            h.make_node("Transpose", ["columns"], ["tokens"], perm=[0, 2, 1]),
            *split("q", [0, 2, 1, 3]),
            *split("k", [0, 2, 3, 1]),
            *split("v", [0, 2, 1, 3]),
            h.make_node("MatMul", ["q", "k"], ["looks"]),
            h.make_node("Softmax", ["looks"], ["shares"], axis=-1),
            h.make_node("MatMul", ["shares", "v"], ["seen"]),
            h.make_node("Transpose", ["seen"], ["seen1"], perm=[0, 2, 1, 3]),
            h.make_node("Reshape", ["seen1", "joined"], ["seen2"]),
            h.make_node("Add", ["tokens", "seen2"], ["sum"]),
            h.make_node("Tanh", ["sum"], ["last_hidden_state"]),
            h.make_node("ReduceMean", ["last_hidden_state"], ["mean"], axes=[1], keepdims=0),
            h.make_node("MatMul", ["mean", "projection"], ["image_embeds"]),
        ],
        [port("pixel_values", kind, "n", 3, "h", "w")],
        [port("last_hidden_state", kind, "n", "places", wide), port("image_embeds", kind, "n", 8)],
        [
            w("patches", wide, 3, 8, 8),
            w("w_q", wide, wide),
            w("w_k", wide, wide),
            w("w_v", wide, wide),
            w("projection", wide, 8),
            constant("rows", np.array([0, wide, -1], np.int64)),
            constant("apart", np.array([0, 0, heads, wide // heads], np.int64)),
            constant("joined", np.array([0, 0, wide], np.int64)),
        ],
    )


def conv():
    """A small network with free height and width, like a text detector."""
    def w(name, *shape):
        n = int(np.prod(shape))
        values = (np.arange(n) * 37 % 101 / 101 - 0.5) / np.sqrt(n / shape[0])
        return constant(name, values.astype(np.float32).reshape(shape))

    save(
        HERE / "conv.onnx",
        [
            h.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
            h.make_node("Relu", ["a"], ["b"]),
            h.make_node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
            h.make_node("Relu", ["c"], ["d"]),
            h.make_node("ConvTranspose", ["d", "w3"], ["e"], strides=[2, 2]),
            h.make_node("Sigmoid", ["e"], ["map"]),
        ],
        [port("x", T.FLOAT, "n", 3, "h", "w")],
        [port("map", T.FLOAT, "n", 1, "h2", "w2")],
        [w("w1", 8, 3, 3, 3), w("w2", 8, 8, 3, 3), w("w3", 8, 1, 2, 2)],
    )


def nonzero():
    """An output whose shape depends on the values."""
    save(
        HERE / "nonzero.onnx",
        [h.make_node("NonZero", ["x"], ["at"])],
        [port("x", T.FLOAT, "n", 4)],
        [port("at", T.INT64, "axes", "k")],
    )


def huge():
    """y of shape (n, size): as much memory as one asks for."""
    save(
        HERE / "huge.onnx",
        [
            h.make_node("Shape", ["size"], ["n"]),
            h.make_node("ReduceMax", ["size"], ["m"], keepdims=1),
            h.make_node("Concat", ["n", "m"], ["shape"], axis=0),
            h.make_node("ConstantOfShape", ["shape"], ["y"], value=h.make_tensor("v", T.FLOAT, [1], [0.5])),
        ],
        [port("size", T.INT64, "n")],
        [port("y", T.FLOAT, "n", "m")],
    )


def through():
    """An output that is an input."""
    save(HERE / "through.onnx", [h.make_node("Neg", ["x"], ["y"])], [port("x", T.FLOAT, "n", 2)], [port("x", T.FLOAT, "n", 2), port("y", T.FLOAT, "n", 2)])


def liar():
    """An output that says it has no axes and has two, as careless exporters write."""
    save(HERE / "liar.onnx", [h.make_node("Neg", ["x"], ["y"])], [port("x", T.FLOAT, "n", 2)], [h.make_tensor_value_info("y", T.FLOAT, None)])


def flags():
    """Truth values in and out, and how many of a row are true."""
    save(
        HERE / "flags.onnx",
        [
            h.make_node("Not", ["mask"], ["not"]),
            h.make_node("Cast", ["mask"], ["numbers"], to=T.INT64),
            h.make_node("ReduceSum", ["numbers", "axis"], ["count"], keepdims=0),
        ],
        [port("mask", T.BOOL, "n", "k")],
        [port("not", T.BOOL, "n", "k"), port("count", T.INT64, "n")],
        [constant("axis", np.array([1], np.int64))],
    )


def tower():
    """Like an encoder of images: a small answer, and a large one that few want."""
    save(
        HERE / "tower.onnx",
        [h.make_node("Identity", ["pixel_values"], ["last_hidden_state"]), h.make_node("ReduceMean", ["pixel_values"], ["image_embeds"], axes=[2, 3], keepdims=0)],
        [port("pixel_values", T.FLOAT, "n", 3, "h", "w")],
        [port("last_hidden_state", T.FLOAT, "n", 3, "h", "w"), port("image_embeds", T.FLOAT, "n", 3)],
    )


for make in (canary, dtypes, scalar, slow, echo, log, halves, half_echo, half_scalar, half_log, brain, outside, conv, nonzero, huge, through, liar, flags, tower):
    make()
vit("vit", T.FLOAT)
vit("vit_fp16", T.FLOAT16)
