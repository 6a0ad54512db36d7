"""Makes twins in half precision of tiny models, as the exporters of Hugging Face name them:
weights, arithmetic, inputs and outputs are float16, the cache of keys and values among them.

Example:
    python models/export/tiny_half.py testdata/models
"""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx
from onnxconverter_common import float16

FILES = (
    "tiny-clip/vision_model.onnx",
    "tiny-clip/text_model.onnx",
    "tiny-idefics3/onnx/vision_encoder.onnx",
    "tiny-idefics3/onnx/embed_tokens.onnx",
    "tiny-idefics3/onnx/decoder_model_merged.onnx",
)


def half(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in half precision. Of the model's own Casts between floats, which the
    converter leaves as they are, nothing is left to do."""
    casts = {node.output[0] for node in model.graph.node if node.op_type == "Cast"}
    graph = (model := float16.convert_float_to_float16(model, keep_io_types=False)).graph
    values = [*graph.value_info, *graph.input, *graph.output]
    halves = {value.name for value in values if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16}
    for node in graph.node:
        if node.output[0] not in casts or node.attribute[0].i not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            continue
        node.attribute[0].i = onnx.TensorProto.FLOAT16
        if node.input[0] in halves:
            node.op_type = "Identity"
            del node.attribute[:]
    onnx.checker.check_model(model)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="folder of the tiny models")
    args = parser.parse_args()
    for name in FILES:
        path = args.models / name
        path.with_stem(path.stem + "_fp16").write_bytes(half(onnx.load(path)).SerializeToString())


if __name__ == "__main__":
    main()
