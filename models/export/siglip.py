"""Exports SigLIP (a Hugging Face SiglipModel) as two graphs:

  vision_model.onnx  pixel_values float32 [B, 3, H, W] -> image_embeds [B, D]
  text_model.onnx    input_ids int64 [B, 64]           -> text_embeds [B, D]

Embeddings are not normalised. The text tower has no mask and reads its last position, so
that every text is padded to the full length with the padding token. The probability that
a picture and a text belong together is sigmoid(logit_scale * cos + logit_bias).
"""

from __future__ import annotations

import importlib.util
import math
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import clip
import common

EXAMPLE = "python siglip.py --model google/siglip-base-patch16-224 --licence Apache-2.0 --out siglip-base"


def load(model: str, processor: str, revision: str) -> clip.Clip:
    """Loads a SiglipModel with its slow image processor and its tokenizer."""
    from transformers import SiglipImageProcessor, SiglipModel

    m = SiglipModel.from_pretrained(model, revision=revision, attn_implementation="eager", dtype=torch.float32).eval()
    where, rev = (processor, "main") if processor else (model, revision)
    images = SiglipImageProcessor.from_pretrained(where, revision=rev)
    files = Path(folder(where, rev))
    tokenizer, text = load_tokenizer(files, m.config.text_config)
    return clip.Clip(
        model=m,
        recipe=common.recipe_of(images),
        text=text,
        tokenizer=tokenizer,
        scale=math.exp(float(m.logit_scale)),
        bias=float(m.logit_bias),
        pixels=lambda im: images(images=im, return_tensors="pt").pixel_values,
        ids=own_ids(files, text) or (lambda t: common.ids_of(tokenizer, text, common.render(text, t))),
    )


def folder(model: str, revision: str) -> str:
    """The folder of a checkpoint; of one on the hub, with the tokenizer's files alone."""
    if Path(model).is_dir():
        return model
    from huggingface_hub import snapshot_download

    return snapshot_download(model, revision=revision, allow_patterns=["tokenizer*", "spiece.model", "*tokens*.json"])


def load_tokenizer(where: Path, config: Any) -> tuple[Tokenizer, dict[str, Any]]:
    """The tokenizer and the sidecar's `text`.

    transformers' SiglipTokenizer lowers the text, drops ASCII punctuation and collapses
    whitespace before sentencepiece sees it. Where tokenizer.json does not do so itself the
    sidecar asks for it. A checkpoint with spiece.model alone is converted.
    """
    text: dict[str, Any] = {
        "length": config.max_position_embeddings,
        "pad": "max_length",
        "pad_id": config.pad_token_id,
    }
    if (where / "tokenizer.json").exists():
        tok = Tokenizer.from_file(str(where / "tokenizer.json"))
    elif (where / "spiece.model").exists():
        tok = from_sentencepiece((where / "spiece.model").read_bytes())
    else:
        raise common.ExportError(f"tokenizer: {where.name} has neither tokenizer.json nor spiece.model")
    pad = tok.token_to_id("<pad>")
    if isinstance(tok.model, models.Unigram):  # SigLIP 1; SigLIP 2 has Gemma's BPE
        text |= canonicalisation(tok)
    elif pad is not None:  # its config may still name SigLIP 1's padding
        text["pad_id"] = pad
    return tok, text


def own_ids(where: Path, text: dict[str, Any]) -> Callable[[str], list[int]] | None:
    """SiglipTokenizer itself, where sentencepiece is installed and there is a spiece.model."""
    if importlib.util.find_spec("sentencepiece") is None or not (where / "spiece.model").exists():
        return None
    from transformers import SiglipTokenizer

    tok = SiglipTokenizer.from_pretrained(str(where))
    return lambda t: tok(t, padding="max_length", truncation=True, max_length=text["length"]).input_ids


def canonicalisation(tok: Tokenizer) -> dict[str, bool]:
    """What of SiglipTokenizer's canonicalize_text the tokenizer leaves to the sidecar."""
    tok.no_padding()
    tok.no_truncation()

    def same(a: str, b: str) -> bool:
        return tok.encode(a).ids == tok.encode(b).ids

    marks = all(same(f"red{c} cube", "red cube") for c in string.punctuation)
    return {"lower": not same("RED Cube", "red cube"), "strip_punctuation": not marks}


def from_sentencepiece(data: bytes) -> Tokenizer:
    """tokenizer.json's Unigram of a spiece.model: its pieces, scores and normalisation table."""
    from transformers.convert_slow_tokenizer import import_protobuf

    proto = import_protobuf().ModelProto()
    proto.ParseFromString(data)
    if proto.trainer_spec.model_type != 1:
        raise common.ExportError("tokenizer: spiece.model is not a Unigram model")
    ids = {p.piece: i for i, p in enumerate(proto.pieces)}
    if "</s>" not in ids:
        raise common.ExportError("tokenizer: spiece.model has no </s>")
    return build_tokenizer(
        [(p.piece, p.score) for p in proto.pieces],
        proto.trainer_spec.unk_id,
        proto.normalizer_spec.precompiled_charsmap,
    )


def build_tokenizer(pieces: list[tuple[str, float]], unk: int, charsmap: bytes = b"") -> Tokenizer:
    """A Unigram tokenizer that puts </s> behind the text."""
    tok = Tokenizer(models.Unigram(pieces, unk_id=unk))
    steps: list[Any] = [normalizers.Precompiled(charsmap)] if charsmap else []
    tok.normalizer = normalizers.Sequence([*steps, normalizers.Replace(Regex(" {2,}"), " ")])
    tok.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tok.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    end = next(i for i, p in enumerate(pieces) if p[0] == "</s>")
    tok.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", end)]
    )
    names = [pieces[unk][0], "</s>"]
    tok.add_special_tokens([AddedToken(n, normalized=False, special=True, lstrip=True, rstrip=True) for n in names])
    return tok


def main() -> None:
    p = common.parser(__doc__ or "", EXAMPLE)
    common.hub_options(p)
    args = p.parse_args()
    about = {"name": args.name or args.out.name, "source": common.source(args), "licence": args.licence}
    clip.export(
        load(args.model, args.processor, args.revision), args.out, about, common.tolerance(args), fp16=args.fp16
    )
    common.write_parity(args.out)


if __name__ == "__main__":
    common.run(main)
