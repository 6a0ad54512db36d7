"""The Python side of python_test.go.

make: prints one JSON object a line, {"name", "pickle_b64"} with the "value" it
holds in the form of testdata/golden/pickle/index.jsonl, or with "refuse": true.
load: reads one base64 pickle a line and prints the value each holds.
"""

import base64
import collections
import json
import pickle
import sys

try:
    import numpy as np
except ImportError:
    np = None


def describe(v):
    if v is None or isinstance(v, (bool, str)) and type(v) in (bool, str):
        return v
    if np is not None:
        if isinstance(v, np.ndarray):
            dtype = "object" if v.dtype == object else v.dtype.str if v.dtype.kind == "U" else v.dtype.name
            return {"ndarray": [describe(x) for x in v.ravel().tolist()], "dtype": dtype, "shape": list(v.shape)}
        if isinstance(v, np.generic):
            return describe(v.item())
    if isinstance(v, int):
        return {"int": str(v)}
    if isinstance(v, float):
        return {"float": repr(v)}
    if isinstance(v, complex):
        return {"complex": [repr(v.real), repr(v.imag)]}
    if isinstance(v, (bytes, bytearray)):
        return {"bytes_b64": base64.b64encode(v).decode()}
    if isinstance(v, list):
        return {"list": [describe(x) for x in v]}
    if isinstance(v, tuple):
        return {"tuple": [describe(x) for x in v]}
    if isinstance(v, dict):
        return {"dict": [[describe(k), describe(x)] for k, x in v.items()]}
    raise TypeError(type(v))


def picture(n):
    return bytes((i * i + i // 7) % 256 for i in range(n))


def plain_cases():
    image = picture(3000)
    shared = [1, 2, "three"]
    yield "verl_omni", {"images": [image], "prompts": ['a sign that says "hello"'], "metadata": {}}
    yield "deepgen_edit", {"images": {"source": [image], "edited": [image[:100]]}, "prompts": ["p"], "metadata": {}}
    yield "deepgen_geneval", {
        "images": [image, image],
        "prompts": ["a", "b"],
        "metadata": {
            "meta_datas": [
                {"tag": "counting", "include": [{"class": "cup", "count": 2}], "exclude": [{"class": "cup", "count": 3}]},
                {"tag": "color_attr", "include": [{"class": "cup", "count": 1, "color": "red"}]},
            ],
            "only_strict": False,
        },
    }
    yield "llava", {"images": [image], "queries": [["q1", "q2"]], "answers": [["a1", "a2"]]}
    yield "bytes_over_64k", {"images": [picture(65535), picture(65536), picture(200000)], "prompts": ["x" * 70000] * 3}
    yield "over_256_memo_entries", {
        "images": [picture(300)] * 3 + [picture(i % 300) for i in range(400)],
        "prompts": ["prompt %d" % i for i in range(403)],
        "metadata": {"again": ["prompt %d" % i for i in range(2500)]},
    }
    yield "shared", {"a": shared, "b": shared, "c": [shared, shared], "d": (shared,)}
    yield "ints", [s * (1 << e) + d for e in (0, 7, 8, 15, 16, 31, 32, 40, 47, 55, 56, 62) for s in (1, -1) for d in (-1, 0, 1)]
    yield "int64", [2**63 - 1, -(2**63)]
    yield "floats", [0.0, -0.0, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"), 1 / 3, -2.5]
    yield "constants", [True, False, None, [], (), {}, "", b""]
    yield "strings", ["é", "中文", "😀", "a\x00b", "line\nline", "x" * 255, "x" * 256, "\uffff", "ÿ" * 300]
    yield "byte_strings", [b"", b"\x00", b"\xff" * 255, b"\x80" * 256, bytearray(), bytearray(b"ab\xff"), bytearray(picture(70000))]
    yield "tuples", [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((), ((),))]
    yield "keys", {"s": 1, 2: 2, 3.5: 3, None: 4, False: 5, -(2**40): 6}
    yield "long_dict", {"key %d" % i: i for i in range(3000)}
    yield "ordered_dict", collections.OrderedDict([("b", 1), ("a", [2])])
    yield "defaultdicts", [
        collections.defaultdict(list, {"counting": [1.0, 0.0]}),
        collections.defaultdict(dict, {"a": {"b": 1}}),
        collections.defaultdict(None, {"x": 1}),
    ]
    yield "complex", [1 + 2j, complex(-0.0, 1e300)]


def numpy_cases():
    yield "np_prompts", {"images": [picture(500)] * 2, "prompts": np.array(["a cat", "ein Hund, 中文 😀"])}
    yield "np_object_prompts", {"prompts": np.array(["a", None, {"k": [1.5, (b"x", 2)]}], dtype=object)}
    yield "np_scores", {"scores": np.array([0.5, 1, -3.25], dtype=np.float32)}
    yield "np_scalars", [
        np.bool_(True), np.uint8(200), np.int32(-5), np.int64(2**62), np.float16(0.1), np.float16("inf"),
        np.float16(6e-8), np.float32(0.1), np.float64(0.1), np.float32("nan"), np.str_("abc 中"), np.str_(""),
    ]
    for code in ("b1", "u1", "i4", "i8", "f2", "f4", "f8"):
        yield "np_" + code, {
            "3d": (np.arange(24) % 7).astype(code).reshape(2, 3, 4),
            "0d": np.array(1, dtype=code),
            "empty": np.zeros((0, 3), dtype=code),
            "strided": np.arange(20).astype(code)[::3],
        }
    read_only = np.arange(5, dtype=np.float32)
    read_only.flags.writeable = False
    yield "np_read_only", read_only
    yield "np_over_64k", {"latents": (np.arange(40000) % 256).astype(np.uint8).reshape(2, 100, 200), "f": np.ones(9000)}
    yield "np_text_2d", np.array([["a", "bb"], ["", "c\x00d"]])
    yield "np_object_2d", np.array([[1, "x"], [None, b"y"]], dtype=object)
    one = np.array([1.0, 2.0])
    yield "np_shared", [one, one, np.float64(3), np.array([3.0])]


class Thing:
    pass


def refused_cases():
    """Yields (name, value, protocols)."""
    every = range(1, 6)
    cycle = []
    cycle.append(cycle)
    knot = {"images": [b"x"], "metadata": {}}
    knot["metadata"]["k"] = [knot["metadata"]]
    bomb = ["lol"] * 10
    for _ in range(40):
        bomb = [bomb, bomb]
    yield "protocol_0", {"images": [b"x"], "prompts": ["p"]}, [0]
    yield "protocol_0_list", [1.5], [0]
    yield "cycle", cycle, every
    yield "cycle_in_metadata", knot, every
    yield "bomb_in_metadata", {"images": [b"x"], "metadata": {"b": bomb}}, every
    yield "surrogate", "\ud800", every
    yield "set", {1, 2}, every
    yield "frozenset", frozenset([1]), every
    yield "object", Thing(), every
    yield "class", dict, every
    yield "function", len, every
    yield "range", range(3), every
    yield "default_int", collections.defaultdict(int), every
    yield "counter", collections.Counter("aab"), every
    yield "tuple_key", {(1, 2): 3}, every
    yield "int_65_bits", 2**64, range(2, 6)
    yield "int_21_digits", 10**20, [1]


def refused_numpy_cases():
    every = range(1, 6)
    yield "np_fortran", np.asfortranarray(np.arange(6.0).reshape(2, 3)), every
    yield "np_transposed_3d", np.zeros((2, 3, 4)).transpose(2, 0, 1), [5]
    yield "np_big_endian", np.array([1.5], dtype=">f4"), every
    yield "np_bytes", np.array([b"ab"]), every
    yield "np_structured", np.zeros(2, dtype=[("a", "f4")]), every
    yield "np_datetime", np.array(["2020-01-01"], dtype="M8[D]"), every
    yield "np_complex", np.array([1j]), every
    yield "np_i2", np.array([1], dtype=np.int16), every
    yield "np_masked", np.ma.array([1.0], mask=[True]), every
    yield "np_matrix", np.asmatrix([[1.0]]), every
    yield "np_dtype", np.dtype("f4"), every
    loop = np.empty(1, dtype=object)
    loop[0] = [loop]
    yield "np_cycle", loop, every


def make():
    def put(name, v, protocol, **more):
        data = base64.b64encode(pickle.dumps(v, protocol)).decode()
        print(json.dumps({"name": "%s.p%d" % (name, protocol), "pickle_b64": data, **more}))

    cases = list(plain_cases())
    refused = list(refused_cases())
    if np is not None:
        cases += numpy_cases()
        refused += refused_numpy_cases()
    print(json.dumps({"name": "python", "version": sys.version.split()[0], "numpy": np.__version__ if np else ""}))
    for name, v in cases:
        for protocol in range(1, 6):
            put(name, v, protocol, value=describe(v))
    put("big_ints", [2**64 - 1, -(10**20 - 1), 10**19], 1, value=describe([2**64 - 1, -(10**20 - 1), 10**19]))
    for name, v, protocols in refused:
        for protocol in protocols:
            put(name, v, protocol, refuse=True)


def load():
    for line in sys.stdin:
        print(json.dumps(describe(pickle.loads(base64.b64decode(line)))))


if __name__ == "__main__":
    {"make": make, "load": load}[sys.argv[1]]()
