"""Exports any PyTorch reward model as one graph, with what a scorer has to know of it.

--build MODULE:FUNCTION names a function without arguments that returns a graph.Graph: the
module in eager mode, an example of every input (batch first), the role of each input and
the sidecar's parts. The graph answers score float32 [B] or [B, K], of which the sidecar's
score.index picks one, such as the mean of an HPSv3-like head that gives (mean, deviation).
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from tokenizers import Tokenizer
from torch import nn

import common
import text_rm

EXAMPLE = "python graph.py --build tiny_preference:hpsv3_like --licence Apache-2.0 --out tiny-graph"
ROLES = ("pixels", "ids", "mask", "types")


@dataclass
class Graph:
    """A reward model to export.

    module takes the inputs in the order of roles, then the constants, and returns the
    score. It must be deterministic and must not mix the samples of a batch.
    """

    module: nn.Module
    # Role -> name of the input, of pixels (float32 [B, 3, H, W]), ids, mask and types
    # (int64 [B, L]).
    roles: dict[str, str]
    # The sidecar's `image` (with pixels) and `text` (with ids).
    image: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    tokenizer: Tokenizer | None = None
    # Further inputs, without a batch axis.
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    score: dict[str, Any] = field(default_factory=lambda: {"transform": "raw", "index": 0, "scale": 1.0, "offset": 0.0})

    def check(self) -> None:
        """Says what is missing."""
        if unknown := set(self.roles) - set(ROLES):
            raise common.ExportError(f"roles: unknown {sorted(unknown)}; there are {', '.join(ROLES)}")
        if ("pixels" in self.roles) != (self.image is not None):
            raise common.ExportError("an input of pixels needs `image`, and only it")
        if ("ids" in self.roles) != (self.text is not None and self.tokenizer is not None):
            raise common.ExportError("an input of ids needs `text` and `tokenizer`, and only it")
        for name, t in self.constants.items():
            if t.dtype not in (torch.float32, torch.int64):
                raise common.ExportError(f"constant {name!r} is {t.dtype}, want float32 or int64")


def feeds(
    g: Graph, ims: Sequence[Image.Image], texts: Sequence[str], tokenizer: Tokenizer | None
) -> dict[str, torch.Tensor]:
    """The graph's inputs of pictures and texts of equal number."""
    values: dict[str, torch.Tensor] = {}
    if g.image:
        values["pixels"] = torch.cat([common.pixels_of(g.image, im) for im in ims])
    if g.text and tokenizer:
        values["ids"], values["mask"], values["types"] = common.batch_of(tokenizer, g.text, texts)
    return {name: values[role] for role, name in g.roles.items()} | g.constants


def overrides(roles: dict[str, str]) -> dict[str, str]:
    """The sidecar's `inputs`: the names that are not the usual ones."""
    usual = {"pixels": "pixel_values", "ids": "input_ids", "mask": "attention_mask", "types": "token_type_ids"}
    return {k: v for k, v in roles.items() if v != usual[k]}


def constant(name: str, t: torch.Tensor) -> dict[str, Any]:
    """The sidecar's entry of a constant input."""
    dtype = "F32" if t.dtype == torch.float32 else "I64"
    values = common.floats(t.flatten()) if dtype == "F32" else t.flatten().tolist()
    return {"name": name, "dtype": dtype, "shape": list(t.shape), "values": values}


def export(g: Graph, out: Path, about: dict[str, str], limit: float, fp16: bool = False) -> None:
    """Writes the folder and holds it against PyTorch, in a batch and one by one."""
    g.check()
    common.begin(out)
    tokenizer = common.save_tokenizer(g.tokenizer, out) if g.tokenizer else None
    ims = common.pictures()
    texts = [common.render(g.text or {}, p, r) for p, r in zip(common.PROMPTS, common.RESPONSES, strict=True)]
    g.module.eval()

    def each(i: int) -> dict[str, torch.Tensor]:
        return feeds(g, ims[i : i + 1], texts[i : i + 1], tokenizer)

    with torch.no_grad():
        want = torch.cat([g.module(*each(i).values()) for i in range(len(ims))])
        together = g.module(*feeds(g, ims, texts, tokenizer).values())
    common.compare("PyTorch in a batch and alone", together, want, max(limit, 1e-4))

    axes = {name: {0: "batch"} | ({1: "sequence"} if role != "pixels" else {}) for role, name in g.roles.items()}
    module = common.Half(copy.deepcopy(g.module)) if fp16 else g.module
    path = out / "model.onnx"
    common.export_graph(
        module, feeds(g, ims[:2], texts[:2], tokenizer), ["score"], path, axes | {"score": {0: "batch"}}
    )
    for i in range(len(ims)):
        (got,) = common.run_onnx(path, each(i), ["score"])
        common.parity(f"score of sample {i}", got, want[i : i + 1], limit)
    (got,) = common.run_onnx(path, feeds(g, ims, texts, tokenizer), ["score"])
    common.parity("score of a batch", got, want, limit)

    sidecar: dict[str, Any] = {**about, "kind": "graph"}
    if names := overrides(g.roles):
        sidecar["inputs"] = names
    sidecar |= {k: v for k, v in (("image", g.image), ("text", g.text)) if v}
    if g.constants:
        sidecar["constants"] = [constant(n, t) for n, t in g.constants.items()]
    scores = text_rm.score_of(want if want.dim() == 2 else want[:, None], g.score)
    cases = []
    for im, p, r, s in zip(ims, common.PROMPTS, common.RESPONSES, scores, strict=True):
        case: dict[str, Any] = {"picture": im} if g.image else {}
        case |= {"prompt": p, "response": r} if g.text else {}
        cases.append(case | {"score": s})
    common.write_selftest(out, cases, limit)
    common.write_sidecar(out, sidecar | {"score": g.score})
    common.summary(out)


def main() -> None:
    p = common.parser(__doc__ or "", EXAMPLE)
    p.add_argument("--build", required=True, metavar="MODULE:FUNCTION", help="the function that returns a graph.Graph")
    args = p.parse_args()
    module, _, function = args.build.partition(":")
    if not function:
        p.error("--build wants MODULE:FUNCTION")
    sys.modules.setdefault("graph", sys.modules[__name__])
    sys.path.insert(0, str(Path.cwd()))
    g = getattr(importlib.import_module(module), function)()
    about = {"name": args.name or args.out.name, "source": args.source or "local", "licence": args.licence}
    export(g, args.out, about, common.tolerance(args), args.fp16)
    common.write_parity(args.out)


if __name__ == "__main__":
    common.run(main)
