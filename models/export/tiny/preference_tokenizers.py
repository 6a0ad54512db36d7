"""The tokenizers of the tiny preference models: CLIP's, SigLIP's, BERT's and Qwen2's form."""

from __future__ import annotations

from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import clip
import common
import siglip
from tiny.bpe import CORPUS, byte_letters, merges_of, qwen_words


def clip_tokenizer(size: int = 400) -> Tokenizer:
    """CLIP's form: 256 bytes, 256 bytes that end a word, merges, start and end."""
    form = clip.build_tokenizer({"<|startoftext|>": 0, "<|endoftext|>": 1}, [])
    letters = byte_letters()
    vocab = [*letters, *[c + "</w>" for c in letters]]
    merges = merges_of(size, "</w>", form.normalizer, form.pre_tokenizer)
    vocab += dict.fromkeys(a + b for a, b in merges)
    vocab += ["<|startoftext|>", "<|endoftext|>"]
    return clip.build_tokenizer({t: i for i, t in enumerate(vocab)}, merges)


def unigram(size: int = 500) -> Tokenizer:
    """SigLIP's form: <pad>, </s>, <unk>, then pieces with their log-probabilities.

    The pieces are those of a BPE over lower-case words that begin with ▁; a piece's weight
    is how often it stands in the corpus, so that the table is the same on every machine.
    """
    pre = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    plain = [common.canonical(line, {"lower": True, "strip_punctuation": True}) for line in CORPUS]
    text = " ".join("▁" + "▁".join(line.split()) for line in plain)
    letters = sorted(set(text) - {" "} | set("abcdefghijklmnopqrstuvwxyz0123456789"))
    pieces = list(dict.fromkeys([*letters, *("".join(m) for m in merges_of(size, "", normalizers.Lowercase(), pre))]))
    weights = [max(text.count(p), 1) * len(p) for p in pieces]
    scores = np.log(np.asarray(weights) / sum(weights)).round(4).tolist()
    return siglip.build_tokenizer([("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *zip(pieces, scores, strict=True)], 2)


def bert_tokenizer(size: int = 400) -> Any:
    """BERT's WordPiece, uncased."""
    from transformers import BertTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    form = normalizers.BertNormalizer(lowercase=True)
    pre = pre_tokenizers.BertPreTokenizer()
    letters = sorted(
        {c for line in CORPUS for c in form.normalize_str(line)} - {" "}
        | set("abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"-/()#@&")
    )
    merged = list(dict.fromkeys("".join(m) for m in merges_of(size, "", form, pre)))
    words = {w for line in CORPUS for w, _ in pre.pre_tokenize_str(form.normalize_str(line))}
    pieces = [*letters, *["##" + c for c in letters], *[p if p in words else "##" + p for p in merged]]
    vocab = {t: i for i, t in enumerate([*special, *dict.fromkeys(pieces)])}
    tok = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    tok.normalizer, tok.pre_tokenizer, tok.decoder = form, pre, decoders.WordPiece(prefix="##")
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=ends
    )
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in special])
    return BertTokenizerFast(tokenizer_object=tok, model_max_length=64)


def qwen_tokenizer(size: int = 400) -> Any:
    """Qwen2's byte-level BPE: NFC, its pattern, ChatML's special tokens."""
    from transformers import Qwen2TokenizerFast

    pre = qwen_words()
    merges = merges_of(size, "", normalizers.NFC(), pre)
    vocab = {t: i for i, t in enumerate(dict.fromkeys([*byte_letters(), *(a + b for a, b in merges)]))}
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tok.normalizer, tok.pre_tokenizer, tok.decoder = normalizers.NFC(), pre, decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in special])
    return Qwen2TokenizerFast(
        tokenizer_object=tok, pad_token=special[0], eos_token=special[0], unk_token=special[0], model_max_length=96
    )
