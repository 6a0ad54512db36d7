"""Writes tiny preference models of the true architectures, with what PyTorch says of them.

Every folder below OUT is a model folder made by the exporters beside this file, from a
checkpoint with random weights, and holds besides:
  golden.json  images, texts or cases with ids, embeddings of length 1, logits and scores,
               computed by eager PyTorch in float32 and Hugging Face's slow (PIL)
               processors, never by onnxruntime. Matrices are [image][text].
  pixels/      per image the uint8 [H, W, 3] after the last step of the recipe.
Folders: tiny-clip, tiny-clip-combined, tiny-hpsv2, tiny-siglip, tiny-aesthetic,
tiny-textrm-bert, tiny-textrm-qwen2, tiny-graph, and below exotic-clip such as must not
load as they are: extra_input, named_tokens, small_vocabulary.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import platform
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import nn

import aesthetic
import clip
import common
import graph
import siglip
import text_rm

EXAMPLE = "python models/export/tiny_preference.py testdata/models --images testdata/golden/images"
LIMIT = 1e-5
LENGTH = 77
TEXTS = [
    "",
    "a photo of a cat",
    "A photo of a CAT",
    "two red cubes left of a blue sphere, studio light",
    "An astronaut riding a horse on Mars, oil painting, highly detailed, 8k",
    "  leading,   inner\tand trailing\n whitespace  ",
    "don't stop; it's the cat's 3rd toy, we'll see!",
    "Ünïcödé: naïve façade, smørrebrød, Straße, İstanbul",
    "一只猫坐在椅子上，水彩画",
    "кошка на стуле и собака под столом",
    "🌳🐈‍⬛ emoji & symbols © € → ½ 👩🏽‍🚀",
    "x" * 120,
    "a very long prompt that goes on and on, " * 12 + "until its end is cut off",
    'a sign that says "OPEN 24/7" @ 5th_avenue #neon {bokeh} <lora:1>',
]
CORPUS = [
    "a photo of a cat asleep on a chair by the window in soft morning light",
    "two red cubes to the left of a blue sphere on a wooden table, studio light",
    "an astronaut riding a horse on mars, oil painting, highly detailed",
    "a watercolor painting of a forest with a river and a small bridge",
    "a sign that says open above the door of a bookshop at night, neon",
    "three green apples and one yellow banana in a white bowl on the table",
    "portrait of an old man with a long beard, black and white photograph",
    "a dog and a cat playing with a ball in the garden under a tree",
    "the quick brown fox jumps over the lazy dog while it's raining",
    "don't look now, we'll see what they're painting and what I've missed",
    "a very long prompt that goes on and on until its end is cut off",
    "It shows a cat asleep on a chair. There are two cubes, both red; the sphere is blue.",
    "user asks for a picture of the sea, assistant describes waves and the wind",
    "une fée à l'orée d'un bois, eine Straße im Regen, кошка на стуле, 一只猫 水彩画",
]


# --- randomness and checkpoints -------------------------------------------------------


def randomise(module: nn.Module, seed: int, std: float = 0.2) -> nn.Module:
    """Draws every parameter anew, wide enough that answers differ well beyond rounding."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.dim() == 0 or name in ("logit_scale", "logit_bias"):
                continue
            noise = torch.randn(p.shape, generator=g)
            norm = name.endswith("weight") and p.dim() == 1
            p.copy_(1 + 0.1 * noise if norm else std * noise)
    return module.eval()


def merges_of(size: int, suffix: str, normalizer: Any, pre: Any) -> list[tuple[str, str]]:
    """The first size merges of a BPE trained on CORPUS, the same on every machine.

    The most frequent pair of neighbours is merged first, of equals the first by letters;
    the trainer of `tokenizers` breaks ties by the order of a hash table.
    """
    words: Counter[tuple[str, ...]] = Counter()
    for line in CORPUS:
        for word, _ in pre.pre_tokenize_str(normalizer.normalize_str(line)):
            words[(*word[:-1], word[-1] + suffix)] += 1
    merges: list[tuple[str, str]] = []
    while len(merges) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, n in words.items():
            for pair in itertools.pairwise(word):
                pairs[pair] += n
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        after: Counter[tuple[str, ...]] = Counter()
        for word, n in words.items():
            after[merged(word, best)] += n
        words = after
    return merges


def merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    """word with every occurrence of pair, from the left, made one."""
    out: list[str] = []
    for letter in word:
        if out and (out[-1], letter) == pair:
            out[-1] += letter
        else:
            out.append(letter)
    return tuple(out)


def byte_letters() -> list[str]:
    """The 256 letters of byte-level BPE, in the order in which CLIP and GPT-2 number them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(len(rest))]


def clip_tokenizer(size: int = 400) -> Tokenizer:
    """CLIP's form: 256 bytes, 256 bytes that end a word, merges, start and end."""
    form = clip.build_tokenizer({"<|startoftext|>": 0, "<|endoftext|>": 1}, [])
    letters = byte_letters()
    vocab = [*letters, *[c + "</w>" for c in letters]]
    merges = merges_of(size, "</w>", form.normalizer, form.pre_tokenizer)
    vocab += dict.fromkeys(a + b for a, b in merges)
    vocab += ["<|startoftext|>", "<|endoftext|>"]
    return clip.build_tokenizer({t: i for i, t in enumerate(vocab)}, merges)


def save_clip_processor(tok: Tokenizer, where: Path, size: int) -> None:
    """Writes the tokenizer and the preprocessing of a CLIP checkpoint."""
    from transformers import CLIPImageProcessor, CLIPTokenizerFast

    start, end = "<|startoftext|>", "<|endoftext|>"
    fast = CLIPTokenizerFast(
        tokenizer_object=tok, bos_token=start, eos_token=end, unk_token=end, pad_token=end, model_max_length=LENGTH
    )
    fast.save_pretrained(where)
    CLIPImageProcessor(size={"shortest_edge": size}, crop_size={"height": size, "width": size}).save_pretrained(where)


def clip_model(tok: Tokenizer, seed: int, image_size: int, patch: int, hidden: int = 32, dim: int = 32) -> nn.Module:
    """A CLIPModel with random weights."""
    from transformers import CLIPConfig, CLIPModel

    end = tok.token_to_id("<|endoftext|>")
    text = {
        "vocab_size": tok.get_vocab_size(), "hidden_size": hidden, "intermediate_size": 2 * hidden,
        "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": LENGTH, "projection_dim": dim,
        "bos_token_id": end - 1, "eos_token_id": end, "pad_token_id": end,
    }  # fmt: skip
    vision = {
        "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": 2, "num_attention_heads": 4,
        "image_size": image_size, "patch_size": patch, "projection_dim": dim,
    }  # fmt: skip
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=dim, logit_scale_init_value=4.6052)
    return randomise(CLIPModel(config), seed)


# --- goldens --------------------------------------------------------------------------


def made_with() -> dict[str, str]:
    """The versions of what computed the goldens."""
    import open_clip
    import PIL
    import tokenizers
    import transformers

    packages = {
        "torch": torch,
        "transformers": transformers,
        "tokenizers": tokenizers,
        "numpy": np,
        "pillow": PIL,
        "open_clip_torch": open_clip,
    }
    return {"python": platform.python_version()} | {k: str(m.__version__) for k, m in packages.items()}


def images_of(folder: Path) -> dict[str, Image.Image]:
    """The golden pictures by file name."""
    files = sorted(folder.glob("*.png"))
    if not files:
        raise common.ExportError(f"no pictures in {folder}")
    return {f.name: Image.open(f).convert("RGB") for f in files}


def bytes_back(recipe: dict[str, Any], x: torch.Tensor) -> np.ndarray:
    """uint8 [H, W, 3] of a processor's output [1, 3, H, W]: its normalisation undone."""
    v = x[0].permute(1, 2, 0).double().numpy() * np.asarray(recipe["std"]) + np.asarray(recipe["mean"])
    v = v / recipe["rescale"]
    if np.abs(v - v.round()).max() > 1e-2:
        raise common.ExportError("the processor's output is not made of bytes")
    return v.round().astype(np.uint8)


def golden_images(
    out: Path, ims: dict[str, Image.Image], recipe: dict[str, Any], pixels: Callable[[Image.Image], torch.Tensor]
) -> tuple[list[dict[str, Any]], torch.Tensor]:
    """The entries of the images, and their pixels [N, 3, H, W] by the checkpoint's own processor."""
    (out / "pixels").mkdir(exist_ok=True)
    rows, tensors = [], []
    for name, im in ims.items():
        x = pixels(im)
        tensors.append(x)
        rgb = bytes_back(recipe, x)
        file = f"pixels/{Path(name).stem}.rgb"
        (out / file).write_bytes(rgb.tobytes())
        rows.append({"file": name, "pixels": file, "width": rgb.shape[1], "height": rgb.shape[0]})
    return rows, torch.cat(tensors)


def pair_scores(cos: torch.Tensor, scale: float, bias: float) -> dict[str, Any]:
    """Every formula of a scorer of pictures and texts, [image][text]."""
    logit = scale * cos + bias
    formulas = {
        "pickscore": logit / 26,
        "clipscore.flow_grpo": logit / 30,
        "clipscore.paper": 2.5 * cos.clamp(min=0),
        "clipscore.cosine": cos,
        "hpsv2": cos,
    }
    if bias:
        formulas = {"siglip.sigmoid": torch.sigmoid(logit), "siglip.logit": logit}
    return {k: common.floats(v) for k, v in formulas.items()}


def golden_pairs(c: clip.Clip, out: Path, ims: dict[str, Image.Image]) -> None:
    """golden.json of a model of pictures and texts."""
    rows, pixels = golden_images(out, ims, c.recipe, c.pixels)
    ids = [c.ids(t) for t in TEXTS]
    if c.text["pad"] == "longest":
        end = c.text["pad_id"]
        ids = [r[: r.index(end) + 1] if end in r else r for r in ids]
    with torch.no_grad():
        images = common.unit(clip.Image2Embeds(c.model)(pixels))
        encode = clip.Text2Embeds(c.model)
        texts = torch.cat([common.unit(encode(torch.tensor([r]))) for r in ids])
    cos = images @ texts.T
    spread = cos.std(dim=0).min(), cos.std(dim=1).min()
    if min(spread) < 0.01:
        raise common.ExportError(f"the answers are nearly alike: {spread}")
    golden = {
        "format": 1,
        "made_with": made_with(),
        "logit_scale": c.scale,
        "logit_bias": c.bias,
        "images": [r | {"image_embeds": common.floats(e)} for r, e in zip(rows, images, strict=True)],
        "texts": [
            {"text": t, "input_ids": r, "text_embeds": common.floats(e)}
            for t, r, e in zip(TEXTS, ids, texts, strict=True)
        ],
        "logits_per_image": common.floats(c.scale * cos + c.bias),
        "scores": pair_scores(cos, c.scale, c.bias) | {"image_similarity": common.floats(images @ images.T)},
    }
    common.write_json(out / "golden.json", golden)


# --- the folders ----------------------------------------------------------------------


def about(name: str) -> dict[str, str]:
    """Name, source and licence of a tiny model."""
    return {"name": name, "source": "random weights", "licence": "Apache-2.0"}


def tiny_clip(out: Path, ims: dict[str, Image.Image], work: Path) -> None:
    """tiny-clip and tiny-clip-combined, of different weights."""
    for name, seed, size, combined in (("tiny-clip", 1, 48, False), ("tiny-clip-combined", 2, 32, True)):
        checkpoint = work / name
        tok = clip_tokenizer()
        clip_model(tok, seed, size, 16).save_pretrained(checkpoint)
        save_clip_processor(tok, checkpoint, size)
        c = clip.load_hf(str(checkpoint), "", "main")
        clip.export(c, out / name, about(name), LIMIT, combined=combined)
        check_slow_tokenizer(tok, c)
        golden_pairs(c, out / name, ims)


def check_slow_tokenizer(tok: Tokenizer, c: clip.Clip) -> None:
    """Holds the tokenizer against transformers' slow one, where ftfy's mending changes nothing."""
    from transformers import CLIPTokenizer

    state = json.loads(tok.to_str())["model"]
    with tempfile.TemporaryDirectory() as d:
        Path(d, "vocab.json").write_text(json.dumps(state["vocab"]))
        Path(d, "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(m) for m in state["merges"]) + "\n")
        slow = CLIPTokenizer(f"{d}/vocab.json", f"{d}/merges.txt")
        for t in TEXTS[:7]:
            want = slow(t, padding="max_length", truncation=True, max_length=LENGTH).input_ids
            if c.ids(t) != want:
                raise common.ExportError(f"tokenizer: {t!r} differs from the slow one")


def tiny_hpsv2(out: Path, ims: dict[str, Image.Image], work: Path) -> None:
    """tiny-hpsv2: open_clip's architecture, the longer edge resized and padded."""
    import open_clip

    tok = clip_tokenizer()
    config = {
        "embed_dim": 32,
        "vision_cfg": {"image_size": 56, "layers": 2, "width": 32, "head_width": 8, "patch_size": 14},
        "text_cfg": {
            "context_length": LENGTH,
            "vocab_size": tok.get_vocab_size(),
            "width": 32,
            "heads": 4,
            "layers": 2,
        },
    }
    model = randomise(open_clip.CLIP(**config), 3)
    with torch.no_grad():
        model.logit_scale.fill_(4.6052)
    checkpoint = work / "hpsv2.pt"
    torch.save({"state_dict": model.half().state_dict()}, checkpoint)
    c = clip.load_hpsv2(str(checkpoint), config, tok)
    clip.export(c, out / "tiny-hpsv2", about("tiny-hpsv2"), LIMIT)
    golden_pairs(c, out / "tiny-hpsv2", ims)


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


def tiny_siglip(out: Path, ims: dict[str, Image.Image], work: Path) -> None:
    """tiny-siglip: attention pooling, full padding, a bias, lower-case without punctuation."""
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel

    tok = unigram()
    text = {
        "vocab_size": tok.get_vocab_size(), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 64,
        "pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 1,
    }  # fmt: skip
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 32,
        "patch_size": 8,
    }
    model = randomise(SiglipModel(SiglipConfig(text_config=text, vision_config=vision)), 4)
    with torch.no_grad():
        model.logit_scale.fill_(2.0)
        model.logit_bias.fill_(-1.5)
    checkpoint = work / "siglip"
    model.save_pretrained(checkpoint)
    tok.save(str(checkpoint / "tokenizer.json"))
    SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(checkpoint)
    c = siglip.load(str(checkpoint), "", "main")
    clip.export(c, out / "tiny-siglip", about("tiny-siglip"), LIMIT)
    golden_pairs(c, out / "tiny-siglip", ims)


def tiny_aesthetic(out: Path, ims: dict[str, Image.Image], work: Path) -> None:
    """tiny-aesthetic: CLIP's vision tower and a head of five linear layers."""
    checkpoint = work / "aesthetic"
    tok = clip_tokenizer()
    clip_model(tok, 5, 32, 8).save_pretrained(checkpoint)
    save_clip_processor(tok, checkpoint, 32)
    g = torch.Generator().manual_seed(6)
    widths = [32, 48, 24, 16, 8, 1]
    state = {}
    for n, (a, b) in zip((0, 2, 4, 6, 7), itertools.pairwise(widths), strict=True):
        state[f"layers.{n}.weight"] = torch.randn((b, a), generator=g) * (1.5 / a**0.5)
        state[f"layers.{n}.bias"] = torch.randn(b, generator=g)
    head = aesthetic.layers(state)
    model = clip.load_hf(str(checkpoint), "", "main")
    folder = out / "tiny-aesthetic"
    aesthetic.export(model, head, folder, about("tiny-aesthetic"), LIMIT)
    rows, pixels = golden_images(folder, ims, model.recipe, model.pixels)
    with torch.no_grad():
        scores = aesthetic.layered(model.model, head, pixels)
    golden = {"format": 1, "made_with": made_with(), "images": rows, "scores": {"aesthetic": common.floats(scores)}}
    common.write_json(folder / "golden.json", golden)


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

    words = Regex(
        r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"""
        r"""| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
    )
    pre = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
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


def replies() -> list[tuple[str, str]]:
    """Prompts and responses for text reward models, of many lengths."""
    answers = ["", "It shows a cat.", "NO!", *common.RESPONSES, "I don't know what you mean by that, sorry. " * 9]
    return [(p, answers[i % len(answers)]) for i, p in enumerate(TEXTS)]


def golden_texts(model: nn.Module, out: Path, tok: Any, types: bool, batches: Sequence[Sequence[int]]) -> None:
    """golden.json of a text reward model: every case alone, and batches padded on the right."""
    sidecar = json.loads((out / "scorer.json").read_text())
    text, score = sidecar["text"], sidecar["score"]
    tok.padding_side = "right"

    def encode(rows: list[Any]) -> dict[str, torch.Tensor]:
        both = [rows] if isinstance(rows[0], str) else [list(x) for x in zip(*rows, strict=True)]
        enc = tok(*both, padding=True, truncation=True, max_length=text["length"], return_tensors="pt")
        return {k: enc[k] for k in text_rm.INPUTS[: 2 + types]}

    texts = [text_rm.read(text, p, r) for p, r in replies()]
    cases = []
    for (p, r), t in zip(replies(), texts, strict=True):
        enc = encode([t])
        with torch.no_grad():
            logits = model(**enc).logits
        case: dict[str, Any] = {"prompt": p, "response": r} | ({"text": t} if isinstance(t, str) else {})
        case |= {k: v[0].tolist() for k, v in enc.items()}
        cases.append(
            case | {"logits": common.floats(logits[0]), "score": common.floats(text_rm.score_of(logits, score)[0])}
        )
    many = []
    for members in batches:
        enc = encode([texts[i] for i in members])
        with torch.no_grad():
            logits = model(**enc).logits
        alone = torch.tensor([cases[i]["logits"] for i in members])
        common.compare(f"golden batch of {len(members)}", logits, alone, LIMIT)
        many.append(
            {"cases": list(members)} | {k: v.tolist() for k, v in enc.items()} | {"logits": common.floats(logits)}
        )
    common.write_json(out / "golden.json", {"format": 1, "made_with": made_with(), "cases": cases, "batches": many})


def tiny_bert(out: Path, work: Path) -> None:
    """tiny-textrm-bert: pairs, and three labels of which the last one's probability is stretched to -1…1."""
    from transformers import BertConfig, BertForSequenceClassification

    tok = bert_tokenizer()
    config = BertConfig(
        vocab_size=len(tok), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=64, num_labels=3, pad_token_id=0,
    )  # fmt: skip
    checkpoint = work / "bert"
    randomise(BertForSequenceClassification(config), 7).save_pretrained(checkpoint)
    tok.save_pretrained(checkpoint)
    model, tok = text_rm.load(str(checkpoint), "main")
    folder = out / "tiny-textrm-bert"
    score = {"transform": "softmax", "index": 2, "scale": 2.0, "offset": -1.0}
    text_rm.export(model, tok, folder, about("tiny-textrm-bert"), {"length": 64}, score, LIMIT)
    golden_texts(model, folder, tok, True, [[0, 4, 9], [1, 12, 3, 6]])


def tiny_qwen2(out: Path, work: Path) -> None:
    """tiny-textrm-qwen2: a decoder whose reward is read at the last token before the padding."""
    from transformers import Qwen2Config, Qwen2ForSequenceClassification

    tok = qwen_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tok), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, max_position_embeddings=128, num_labels=1,
        pad_token_id=tok.pad_token_id, bos_token_id=None, eos_token_id=tok.pad_token_id,
    )  # fmt: skip
    checkpoint = work / "qwen2"
    randomise(Qwen2ForSequenceClassification(config), 8).save_pretrained(checkpoint)
    tok.save_pretrained(checkpoint)
    model, tok = text_rm.load(str(checkpoint), "main")
    folder = out / "tiny-textrm-qwen2"
    template = "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n{response}<|im_end|>\n"
    score = {"transform": "raw", "index": 0, "scale": 1.0, "offset": 0.0}
    text_rm.export(model, tok, folder, about("tiny-textrm-qwen2"), {"length": 96, "template": template}, score, LIMIT)
    golden_texts(model, folder, tok, False, [[0, 4, 9], [1, 12, 3, 6], [2]])


class Hpsv3Like(nn.Module):
    """A picture and a text to (mean, deviation), as HPSv3's head gives them."""

    def __init__(self, vocab: int, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.words = nn.Embedding(vocab, width)
        self.look = nn.Linear(width, width)
        self.head = nn.Sequential(nn.Linear(2 * width, 48), nn.ReLU(), nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(
        self, pixel_values: torch.Tensor, tokens: torch.Tensor, attention_mask: torch.Tensor, frames: torch.Tensor
    ) -> torch.Tensor:
        seen = torch.tanh(self.patches(pixel_values).flatten(2).transpose(1, 2))
        mask = attention_mask.to(seen.dtype)[:, :, None]
        said = (torch.tanh(self.look(self.words(tokens))) * mask).sum(1) / mask.sum(1)
        weight = torch.softmax((seen @ said[:, :, None])[:, :, 0], -1)
        x = self.head(torch.cat([(seen * weight[:, :, None]).sum(1), said], -1))
        mean = x[:, :1] * 4 / frames.to(seen.dtype)
        return torch.cat([mean, nn.functional.softplus(x[:, 1:]) + 0.01], -1)


def hpsv3_like() -> graph.Graph:
    """The model of tiny-graph; also the example of graph.py."""
    tok = clip_tokenizer()
    recipe = {
        "steps": [{"op": "resize", "width": 40, "height": 32, "filter": "bilinear"}],
        "rescale": 1 / 255,
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
    }
    return graph.Graph(
        module=randomise(Hpsv3Like(tok.get_vocab_size()), 9, std=0.3),
        roles={"pixels": "pixel_values", "ids": "tokens", "mask": "attention_mask"},
        image=recipe,
        text={"length": 48, "pad": "longest", "pad_id": tok.token_to_id("<|endoftext|>"), "template": "rate: {prompt}"},
        tokenizer=tok,
        constants={"frames": torch.tensor([1])},
        score={"transform": "raw", "index": 0, "scale": 0.1, "offset": 0.0},
    )


def tiny_graph(out: Path, ims: dict[str, Image.Image]) -> None:
    """tiny-graph: several inputs, one of them constant, and an output of two columns."""
    g = hpsv3_like()
    folder = out / "tiny-graph"
    graph.export(g, folder, about("tiny-graph"), LIMIT)
    rows, pixels = golden_images(folder, ims, g.image or {}, lambda im: common.pixels_of(g.image or {}, im))
    texts, columns = [], []
    for t in TEXTS:
        ids, mask, _ = common.batch_of(g.tokenizer, g.text or {}, [common.render(g.text or {}, t)])
        texts.append({"text": t, "input_ids": ids[0].tolist()})
        n = len(ims)
        with torch.no_grad():
            columns.append(g.module(pixels, ids.expand(n, -1), mask.expand(n, -1), g.constants["frames"]))
    outputs = torch.stack(columns, 1)
    golden = {
        "format": 1,
        "made_with": made_with(),
        "images": rows,
        "texts": texts,
        "outputs": common.floats(outputs),
        "scores": {"onnx": common.floats(outputs[:, :, 0] * 0.1)},
    }
    common.write_json(folder / "golden.json", golden)


# --- what must not load ---------------------------------------------------------------


class ExtraInput(nn.Module):
    """A vision tower with an input that nobody knows."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.tower = clip.Image2Embeds(model)

    def forward(self, pixel_values: torch.Tensor, noise_level: torch.Tensor) -> torch.Tensor:
        return self.tower(pixel_values) * (1 + noise_level)


def exotic(out: Path, work: Path) -> None:
    """exotic-clip: folders whose graphs do not fit their sidecars."""
    checkpoint = work / "exotic"
    tok = clip_tokenizer()
    clip_model(tok, 10, 32, 16, hidden=16, dim=16).save_pretrained(checkpoint)
    save_clip_processor(tok, checkpoint, 32)
    for name in ("extra_input", "named_tokens", "small_vocabulary"):
        c = clip.load_hf(str(checkpoint), "", "main")
        folder = out / "exotic-clip" / name
        clip.export(c, folder, about(f"exotic-clip {name}"), LIMIT)
        pixels, ids = torch.zeros((2, 3, 32, 32)), torch.tensor([c.ids(t) for t in TEXTS[:2]])
        vision, text = folder / "vision_model.onnx", folder / "text_model.onnx"
        if name == "extra_input":
            axes = {n: {0: "batch"} for n in ("pixel_values", "noise_level", "image_embeds")}
            common.export_graph(
                ExtraInput(c.model),
                {"pixel_values": pixels, "noise_level": torch.zeros((2, 1))},
                ["image_embeds"],
                vision,
                axes,
            )
        elif name == "named_tokens":
            axes = {"tokens": {0: "batch", 1: "sequence"}, "text_embeds": {0: "batch"}}
            common.export_graph(clip.Text2Embeds(c.model), {"tokens": ids}, ["text_embeds"], text, axes)
        else:
            embedding = c.model.text_model.embeddings.token_embedding
            embedding.weight = nn.Parameter(embedding.weight[:600].clone())
            axes = {"input_ids": {0: "batch", 1: "sequence"}, "text_embeds": {0: "batch"}}
            common.export_graph(
                clip.Text2Embeds(c.model), {"input_ids": ids.clamp(max=599)}, ["text_embeds"], text, axes
            )


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, epilog=f"example:\n  {EXAMPLE}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("out", type=Path, help="folder below which the models go")
    here = Path(__file__).resolve().parents[2]
    p.add_argument(
        "--images", type=Path, default=here / "testdata/golden/images", help="folder of the golden pictures (PNG)"
    )
    p.add_argument("--only", default="", help="make only the folders with this in their names")
    p.add_argument("--verbose", action="store_true", help="print what the exporters say")
    args = p.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    ims = images_of(args.images)
    with tempfile.TemporaryDirectory() as d:
        work = Path(d)
        jobs: dict[str, Callable[[], None]] = {
            "tiny-clip tiny-clip-combined": lambda: tiny_clip(args.out, ims, work),
            "tiny-hpsv2": lambda: tiny_hpsv2(args.out, ims, work),
            "tiny-siglip": lambda: tiny_siglip(args.out, ims, work),
            "tiny-aesthetic": lambda: tiny_aesthetic(args.out, ims, work),
            "tiny-textrm-bert": lambda: tiny_bert(args.out, work),
            "tiny-textrm-qwen2": lambda: tiny_qwen2(args.out, work),
            "tiny-graph": lambda: tiny_graph(args.out, ims),
            "exotic-clip": lambda: exotic(args.out, work),
        }
        for names, job in jobs.items():
            if args.only not in names:
                continue
            for name in names.split():
                shutil.rmtree(args.out / name, ignore_errors=True)
            torch.manual_seed(0)
            np.random.seed(0)
            said = contextlib.nullcontext() if args.verbose else contextlib.redirect_stdout(io.StringIO())
            with said:
                job()
            print(names)


if __name__ == "__main__":
    common.run(main)
