"""Exports a text reward model (AutoModelForSequenceClassification) as one graph:

  model.onnx  input_ids, attention_mask[, token_type_ids] int64 [B, L] -> logits [B, labels]

Encoders such as BERT and decoders such as Qwen2 alike. A decoder's reward is read at the
last token that is not the padding token, so that texts are padded on the right and a
checkpoint without a padding token needs --pad-id.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

import common

EXAMPLE = (
    "python text_rm.py --model OpenAssistant/reward-model-electra-large-discriminator \\\n"
    "    --length 512 --out oasst-electra"
)
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


def plain_mask(
    batch_size: int,
    cache_position: torch.Tensor,
    kv_length: int,
    kv_offset: int = 0,
    mask_function: Any = None,
    attention_mask: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    **_: Any,
) -> torch.Tensor:
    """transformers' mask of eager attention, by broadcasting and not by torch.vmap, which
    the exporter cannot trace: 0 where a query sees a key, the lowest number elsewhere."""
    from transformers.masking_utils import causal_mask_function

    device = cache_position.device
    batch = torch.arange(batch_size, device=device)[:, None, None, None]
    head = torch.zeros((1, 1, 1, 1), dtype=torch.int64, device=device)
    query = cache_position[None, None, :, None]
    key = (torch.arange(kv_length, device=device) + kv_offset)[None, None, None, :]
    seen = (mask_function or causal_mask_function)(batch, head, query, key)
    if attention_mask is not None:
        seen = seen & (attention_mask[:, kv_offset : kv_offset + kv_length].bool()[:, None, None, :])
    return torch.where(seen, torch.zeros((), dtype=dtype), torch.full((), torch.finfo(dtype).min, dtype=dtype))


class Reward(nn.Module):
    """input_ids, attention_mask[, token_type_ids] -> logits."""

    def __init__(self, model: nn.Module, types: bool) -> None:
        super().__init__()
        self.model = model
        self.types = types

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(INPUTS, inputs, strict=False))).logits


def load(model: str, revision: str, pad_id: int | None = None) -> tuple[nn.Module, Any]:
    """Loads the model with eager attention, and its fast tokenizer."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    m = AutoModelForSequenceClassification.from_pretrained(
        model, revision=revision, attn_implementation="eager", dtype=torch.float32
    ).eval()
    tok = AutoTokenizer.from_pretrained(model, revision=revision, use_fast=True)
    if pad_id is not None:
        m.config.pad_token_id = pad_id
    if m.config.pad_token_id is None:
        m.config.pad_token_id = tok.pad_token_id
    if m.config.pad_token_id is None:
        raise common.ExportError("the checkpoint names no padding token: give --pad-id")
    return m, tok


def feeds(
    tokenizer: Tokenizer, text: dict[str, Any], texts: Sequence[str | tuple[str, str]], types: bool
) -> dict[str, torch.Tensor]:
    """The graph's inputs of texts, padded on the right."""
    return dict(zip(INPUTS[: 2 + types], common.batch_of(tokenizer, text, texts), strict=False))


def read(text: dict[str, Any], prompt: str, response: str) -> str | tuple[str, str]:
    """What is tokenized: the template filled in; without one, the two as a pair."""
    return common.render(text, prompt, response) if "template" in text else (prompt, response)


def score_of(logits: torch.Tensor, score: dict[str, Any]) -> torch.Tensor:
    """The scores [B] of logits [B, labels] as the sidecar's `score` says."""
    i = score["index"]
    x = logits[:, i]
    if score["transform"] == "sigmoid":
        x = torch.sigmoid(x)
    elif score["transform"] == "softmax":
        x = torch.softmax(logits, -1)[:, i]
    return x * score["scale"] + score["offset"]


def export(
    model: nn.Module,
    tok: Any,
    out: Path,
    about: dict[str, str],
    text: dict[str, Any],
    score: dict[str, Any],
    limit: float,
    fp16: bool = False,
) -> None:
    """Writes the folder and holds it against PyTorch: alone, and in a batch of different lengths."""
    from transformers import masking_utils

    common.begin(out)
    pad = model.config.pad_token_id
    text = {"length": text["length"], "pad": "longest", "pad_id": pad} | text
    types = "token_type_ids" in tok.model_input_names and getattr(model.config, "type_vocab_size", 0) > 0
    tokenizer = common.save_tokenizer(Tokenizer.from_str(tok.backend_tokenizer.to_str()), out)
    texts = [read(text, p, r) for p, r in zip(common.PROMPTS, common.RESPONSES, strict=True)]
    for t in texts:
        row = common.ids_of(tokenizer, text, t)
        both = (t,) if isinstance(t, str) else t
        if len(both) == 2 and row == [i for x in both for i in tok(x).input_ids]:
            raise common.ExportError("the tokenizer puts nothing between prompt and response: give --template")
        if row != tok(*both, truncation=True, max_length=text["length"]).input_ids:
            raise common.ExportError(f"tokenizer: {both[0][:40]!r} differs from the checkpoint's own")
        if pad in row[:-1] and not types:
            raise common.ExportError(f"the padding token {pad} stands inside a text: give another --pad-id")
    with torch.no_grad():
        alone = torch.cat([model(**feeds(tokenizer, text, [t], types)).logits for t in texts])
        together = model(**feeds(tokenizer, text, texts, types)).logits
    common.compare("PyTorch padded and alone", together, alone, max(limit, 1e-4))

    names = INPUTS[: 2 + types]
    axes = {n: {0: "batch", 1: "sequence"} for n in names} | {"logits": {0: "batch"}}
    path = out / "model.onnx"
    graph: nn.Module = Reward(copy.deepcopy(model) if fp16 else model, types)
    stock = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS["eager"]
    masking_utils.ALL_MASK_ATTENTION_FUNCTIONS.register("eager", plain_mask)
    try:
        common.export_graph(
            common.Half(graph) if fp16 else graph, feeds(tokenizer, text, texts[:2], types), ["logits"], path, axes
        )
    finally:
        masking_utils.ALL_MASK_ATTENTION_FUNCTIONS.register("eager", stock)
    for i, t in enumerate(texts):
        (got,) = common.run_onnx(path, feeds(tokenizer, text, [t], types), ["logits"])
        common.parity(f"logits of text {i}", got, alone[i : i + 1], limit)
    (got,) = common.run_onnx(path, feeds(tokenizer, text, texts, types), ["logits"])
    common.parity("logits of a batch", got, alone, limit)

    scores = score_of(alone, score)
    cases = [
        {"prompt": p, "response": r, "score": s}
        for p, r, s in zip(common.PROMPTS, common.RESPONSES, scores, strict=True)
    ]
    common.write_selftest(out, cases, limit)
    common.write_sidecar(out, {**about, "kind": "text", "outputs": {"score": "logits"}, "text": text, "score": score})
    common.summary(out)


def main() -> None:
    p = common.parser(__doc__ or "", EXAMPLE)
    p.add_argument("--model", required=True, help="checkpoint: a folder, or a name on the hub")
    p.add_argument("--revision", default="main", help="revision on the hub")
    p.add_argument(
        "--template",
        default="",
        help="the text that is scored, with {prompt} and {response}, special tokens written out "
        "(default: the two as the tokenizer's pair)",
    )
    p.add_argument(
        "--length",
        type=int,
        default=1024,
        help="tokens at most; what is longer loses its end (of a pair, the longer text)",
    )
    p.add_argument("--pad-id", type=int, help="padding token, where the checkpoint names none")
    p.add_argument(
        "--transform", choices=["raw", "sigmoid", "softmax"], default="raw", help="what is made of the logits"
    )
    p.add_argument("--index", type=int, default=0, help="the label whose logit or probability is the score")
    p.add_argument("--scale", type=float, default=1.0, help="the score is value * SCALE + OFFSET")
    p.add_argument("--offset", type=float, default=0.0, help="see --scale")
    args = p.parse_args()
    model, tok = load(args.model, args.revision, args.pad_id)
    if not 0 <= args.index < model.config.num_labels:
        p.error(f"--index: the model has {model.config.num_labels} labels")
    about = {"name": args.name or args.out.name, "source": common.source(args), "licence": args.licence}
    score = {"transform": args.transform, "index": args.index, "scale": args.scale, "offset": args.offset}
    text = {"length": args.length} | ({"template": args.template} if args.template else {})
    export(model, tok, args.out, about, text, score, common.tolerance(args), args.fp16)
    common.write_parity(args.out)


if __name__ == "__main__":
    common.run(main)
