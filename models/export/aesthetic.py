"""Exports LAION's improved aesthetic predictor as one graph:

  model.onnx  pixel_values float32 [B, 3, 224, 224] -> score [B]

CLIP ViT-L/14's image features of length 1 go through the predictor's five linear layers
(768 -> 1024 -> 128 -> 64 -> 16 -> 1), which have nothing but dropout between them and are
therefore folded into one affine map, in float64. A score is about 1 to 10.
"""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import nn

import clip
import common

EXAMPLE = (
    "python aesthetic.py --model openai/clip-vit-large-patch14 \\\n"
    "    --head hf://trl-lib/ddpo-aesthetic-predictor/aesthetic-model.pth --licence Apache-2.0 --out aesthetic"
)


def layers(state: dict[str, torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Weights and biases of a state dict of `layers.N.weight` and `layers.N.bias`, in order."""
    numbers = sorted({int(k.split(".")[1]) for k in state if k.startswith("layers.")})
    if not numbers:
        raise common.ExportError("head: the checkpoint has no layers.N.weight")
    return [(state[f"layers.{n}.weight"], state[f"layers.{n}.bias"]) for n in numbers]


def fold(parts: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    """One affine map [1, D], [1] of a chain of them."""
    w, b = parts[0][0].double(), parts[0][1].double()
    for weight, bias in parts[1:]:
        w, b = weight.double() @ w, weight.double() @ b + bias.double()
    return w.float(), b.float()


class Aesthetic(nn.Module):
    """pixel_values -> score [B]."""

    def __init__(self, model: nn.Module, head: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        super().__init__()
        self.features = clip.Image2Embeds(model)
        self.head = nn.Linear(head[0][0].shape[1], 1)
        self.head.weight.data, self.head.bias.data = fold(head)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        return self.head(common.unit(self.features(pixel_values)))[:, 0]


def layered(model: nn.Module, head: list[tuple[torch.Tensor, torch.Tensor]], pixels: torch.Tensor) -> torch.Tensor:
    """The reference: layer after layer, as the published predictor computes."""
    x = common.unit(model.get_image_features(pixel_values=pixels))
    for weight, bias in head:
        x = x @ weight.T + bias
    return x[:, 0]


def export(
    model: clip.Clip,
    head: list[tuple[torch.Tensor, torch.Tensor]],
    out: Path,
    about: dict[str, str],
    limit: float,
    fp16: bool = False,
) -> None:
    """Writes the folder and holds it against PyTorch."""
    common.begin(out)
    common.check_recipe(model.recipe, model.pixels)
    ims = common.pictures()
    pixels = torch.cat([common.pixels_of(model.recipe, im) for im in ims])
    with torch.no_grad():
        want = layered(model.model, head, pixels)
    graph: nn.Module = Aesthetic(model.model, head)
    if fp16:
        graph = common.Half(copy.deepcopy(graph))
    path = out / "model.onnx"
    common.export_graph(
        graph, {"pixel_values": pixels[:2]}, ["score"], path, {"pixel_values": {0: "batch"}, "score": {0: "batch"}}
    )
    for n in (len(ims), 1):
        (got,) = common.run_onnx(path, {"pixel_values": pixels[:n]}, ["score"])
        common.parity(f"scores of {n}", got, want[:n], limit)
    score = {"transform": "raw", "index": 0, "scale": 1.0, "offset": 0.0}
    common.write_selftest(out, [{"picture": im, "score": s} for im, s in zip(ims, want, strict=True)], limit)
    common.write_sidecar(out, {**about, "kind": "image", "image": model.recipe, "score": score})
    common.summary(out)


def main() -> None:
    p = common.parser(__doc__ or "", EXAMPLE)
    common.hub_options(p)
    p.add_argument("--head", required=True, help="the predictor's state dict (.pth): a file, or hf://owner/repository/file")
    args = p.parse_args()
    head = layers(torch.load(common.checkpoint_file(args.head), map_location="cpu", weights_only=True))
    about = {"name": args.name or args.out.name, "source": common.source(args), "licence": args.licence}
    model = clip.load_hf(args.model, args.processor, args.revision)
    export(model, head, args.out, about, common.tolerance(args), args.fp16)
    common.write_parity(args.out)


if __name__ == "__main__":
    common.run(main)
