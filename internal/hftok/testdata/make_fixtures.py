"""Write the fixtures of internal/hftok: small tokenizers and what the Rust library makes of texts.

Needs Python's tokenizers 0.22.2 and nothing else; takes about two minutes. What is compared is
reproducible; the tokenizers themselves are not, as the library's trainers number some tokens by
chance, so that they are trained again only with --train.

Example:
    python internal/hftok/testdata/make_fixtures.py internal/hftok/testdata
"""

import argparse
import base64
import hashlib
import json
import random
import struct
from pathlib import Path

import tokenizers
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

SEED = 20260101

CORPUS = """a photo of a cat sitting on a wooden bench in the park
an astronaut riding a horse on mars, highly detailed, 8k
New York Skyline with "Deep Learning" written in fireworks on the sky
a wooden sign that says "Open 24 hours", next to 3 red apples and 12 green bottles
the quick brown fox jumps over the lazy dog; it doesn't care, and they're happy
Does this figure show the text? Please answer yes or no. I'll say: Yes! We've seen it.
a cup of coffee on the table, steam rising, morning light through the window
two dogs and one bird playing with a blue ball on the beach at sunset, 1980s style
Ein schönes Bild von München im Winter, très joli café à Paris, el niño pequeño
красная машина на улице 街道上的红色汽车 東京タワー 서울의 밤
""".splitlines()

TEXTS = [
    "", "a", " ", "  ", "\n", "\t \n", "\r\n", " a", "a ", "  a  b  ", "Hello, world!", "hello world",
    "a photo of a cat", "A photo of a CAT.", "don't can't I'll we've they're I'm he'd it's", "DON'T I'LL 'S'ſ",
    "1", "12", "123", "1234 56789", "3.14159e-10", "$1,234.56", "1½ ²³ Ⅷ ① ٣", "foo_bar-baz.qux",
    "a\nb", "a \n b\n\n\nc  ", "x\t\ty", "tabs\tand\r\nlines\r\r\n", "  three   spaces", "end   ",
    "naïve café à la crème", "cafe\u0301 e\u0301", "a\u0301\u0327b a\u0327\u0301", "ÀÉÎÕÜ àéîõü", "İstanbul ıI ß ΣΑΣ",
    "日本語のテキスト 東京タワー", "中文 text 混合", "서울의 밤 \u1100\u1161\u11a8", "русский Ёж", "العربية ١٢٣", "हिन्दी क्षि",
    "😀 👍🏽 👨‍👩‍👧 🇫🇷", "“quotes” ‘single’ — dash… ™ © ®\u200d", "ﬁ ﬂ ｆｕｌｌ ｗｉｄｔｈ ㎏ ℃ Å",
    "zero\u200bwidth\u200c\u200d\ufeff", "nbsp\u00a0thin\u2009ideo\u3000", "\u0000\u0001\u007f\u0085\u00ad", "\u2028\u2029",
    "x" + "\u0301" * 40, "a" * 130, "ab" * 60, "!?!?...,,,;;;", "(a)[b]{c}<d>", "a-b--c---d", "<s>", "</s>", "<unk>",
    "[CLS] x [SEP] [MASK]", "<|startoftext|>a<|endoftext|>", "<|endoftext|> <|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n",
    "<image> a <image>b", "x<mask>y <mask> z  <mask>  w", "wordTAGword TAG tag Tag", "lstrip   <L>  x", "x  <R>   y",
    "▁a▁b ▁", "a▁▁b", "<0x41>", "\ud7ff\ue000\uffff\U0010ffff", "\U00020000\U0002b820\u4e00", "᠎ \u1680 \u180e", "ꟊ\u1c89\U00010d50 \u0898\u1ac1",
    "New York Skyline with \"Deep Learning\" written in fireworks", "the the the the cat", "q w e r t y", "ünïcödé",
    "\u0600a \u0903a a\u0903", "e\u0301\u0301", "a\r\nb\r\n", "ＡＢＣ①②", "~`!@#$%^&*()_+-=[]{}|;':\",./<>?", "\\n\\t",
]

PAIRS = [("a photo of a cat", "Yes, it is."), ("", "b"), ("a", ""), ("the quick brown fox jumps over the lazy dog", "café 123"), ("x", "a cup of coffee on the table, steam rising")]
LIMITS = [4, 5, 6, 8, 13, 64]


def trained(model, trainer, normalizer=None, pre=None):
    """Train a tokenizer on the corpus."""
    tok = Tokenizer(model)
    if normalizer is not None:
        tok.normalizer = normalizer
    if pre is not None:
        tok.pre_tokenizer = pre
    tok.train_from_iterator(CORPUS * 3, trainer)
    return tok


def byte_level_bpe(pre, normalizer=None, size=420, specials=(), suffix=None, **model):
    """Train a byte-level BPE."""
    options = {"end_of_word_suffix": suffix} if suffix else {}
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials), show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), **options)
    return trained(models.BPE(**model, **options), trainer, normalizer, pre)


def split(expr, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(expr), behavior, invert)


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
])
POSSESSIVE = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"


def make_clip():
    pre = pre_tokenizers.Sequence([split(CLIP, "removed", True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    norm = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    tok = Tokenizer(models.BPE(unk_token="<|endoftext|>", continuing_subword_prefix="", end_of_word_suffix="</w>", fuse_unk=False))
    tok.normalizer, tok.pre_tokenizer = norm, pre
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    base = byte_level_bpe(pre, norm, 700, suffix="</w>")
    spec = json.loads(base.to_str())["model"]
    vocab = {}
    for t in alphabet + [a + "</w>" for a in alphabet]:
        vocab[t] = len(vocab)
    merges = []
    for a, b in spec["merges"]:
        if a in vocab and b in vocab:
            merges.append((a, b))
            vocab.setdefault(a + b, len(vocab))
    vocab["<|startoftext|>"] = len(vocab)
    vocab["<|endoftext|>"] = len(vocab)
    tok.model = models.BPE(vocab, merges, unk_token="<|endoftext|>", continuing_subword_prefix="", end_of_word_suffix="</w>", fuse_unk=False)
    tok.add_special_tokens([AddedToken("<|startoftext|>", normalized=True, special=True), AddedToken("<|endoftext|>", normalized=False, special=True)])
    bos, eos = tok.token_to_id("<|startoftext|>"), tok.token_to_id("<|endoftext|>")
    tok.post_processor = processors.RobertaProcessing(("<|endoftext|>", eos), ("<|startoftext|>", bos), trim_offsets=False, add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    return tok


def make_gpt2():
    tok = byte_level_bpe(pre_tokenizers.ByteLevel(add_prefix_space=True), specials=["<|endoftext|>"])
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    tok.decoder = decoders.ByteLevel()
    return tok


def make_llama3():
    pre = pre_tokenizers.Sequence([split(LLAMA3), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok = byte_level_bpe(pre, size=460)
    spec = json.loads(tok.to_str())
    # Words that no merge makes: only ignore_merges finds them.
    for word in ["Ġastronaut", "Hello", "Ġskyline"]:
        spec["model"]["vocab"].setdefault(word, len(spec["model"]["vocab"]))
    spec["model"]["ignore_merges"] = True
    tok = Tokenizer.from_str(json.dumps(spec))
    tok.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>"])
    bos = tok.token_to_id("<|begin_of_text|>")
    tok.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1", special_tokens=[("<|begin_of_text|>", bos)]),
    ])
    tok.decoder = decoders.ByteLevel()
    return tok


def make_qwen2():
    pre = pre_tokenizers.Sequence([split(QWEN2), pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    tok = byte_level_bpe(pre, normalizers.NFC())
    tok.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tok.add_tokens([AddedToken("<tool>", normalized=False)])
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    tok.decoder = decoders.ByteLevel()
    tok.enable_padding(pad_id=tok.token_to_id("<|endoftext|>"), pad_token="<|endoftext|>", direction="left", pad_to_multiple_of=8)
    tok.enable_truncation(64, strategy="only_first")
    tok.no_truncation()
    return tok


def make_smolvlm():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tok = byte_level_bpe(pre)
    tok.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<fake_token_around_image>"])
    tok.decoder = decoders.ByteLevel()
    return tok


def make_expr(expr):
    return byte_level_bpe(pre_tokenizers.Sequence([split(expr), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]))


def make_llama2():
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)], show_progress=False, max_token_length=12)
    norm = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok = trained(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True), trainer, norm, pre_tokenizers.Metaspace())
    spec = json.loads(tok.to_str())
    spec["pre_tokenizer"] = None
    spec["added_tokens"] = [t for t in spec["added_tokens"] if not t["content"].startswith("<0x")]
    tok = Tokenizer.from_str(json.dumps(spec))
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tok


def make_bpe_words():
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["[UNK]"], continuing_subword_prefix="##", end_of_word_suffix="</w>", show_progress=False)
    tok = trained(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##", end_of_word_suffix="</w>"), trainer, normalizers.Lowercase(), pre_tokenizers.Whitespace())
    tok.decoder = decoders.BPEDecoder("</w>")
    return tok


def make_bpe_some_bytes(fuse):
    vocab = {"<unk>": 0}
    for t in [f"<0x{b:02X}>" for b in range(0x80, 0xD0)] + list("abcdefghijklmnop ") + ["ab", "abc"]:
        vocab[t] = len(vocab)
    return Tokenizer(models.BPE(vocab, [("a", "b"), ("ab", "c")], unk_token="<unk>", byte_fallback=True, fuse_unk=fuse))


def make_bpe_no_unk():
    vocab = {c: i for i, c in enumerate("abcdefghijklmnop ")}
    vocab["ab"] = len(vocab)
    return Tokenizer(models.BPE(vocab, [("a", "b")]))


def make_bert(cased):
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False)
    norm = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=False if cased else None, lowercase=not cased)
    tok = trained(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20 if cased else 100), trainer, norm, pre_tokenizers.BertPreTokenizer())
    cls, sep = tok.token_to_id("[CLS]"), tok.token_to_id("[SEP]")
    if cased:
        tok.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))
    else:
        tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    tok.decoder = decoders.WordPiece(cleanup=not cased)
    tok.enable_truncation(32, stride=2, strategy="longest_first")
    return tok


def charsmap(table):
    """Build a sentencepiece charsmap: a double array over UTF-8 bytes and the replacements."""
    blob, places = b"", {}
    for value in sorted(set(table.values())):
        places[value] = len(blob)
        blob += value.encode() + b"\0"
    tree = {}
    for key, value in table.items():
        node = tree
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = places[value]
    units, used = [0] * 256, {0}

    def place(node, at):
        """Find a base for the node's children and write its offset into the unit at `at`."""
        base = 1
        while True:
            base += 1
            slots = [base ^ label for label in node]
            if not used.intersection(slots) and (base ^ at) < 1 << 21:
                break
        used.update(slots)
        while len(units) <= max(slots) + 256:
            units.append(0)
        units[at] |= (base ^ at) << 10 | (0x100 if 0 in node else 0)
        for label, child in node.items():
            if label == 0:
                units[base] = 1 << 31 | child
            else:
                units[base ^ label] = label
        for label, child in node.items():
            if label:
                place(child, base ^ label)

    place(tree, 0)
    return struct.pack("<I", 4 * len(units)) + b"".join(struct.pack("<I", u) for u in units) + blob


def make_charsmap():
    table = {"\r\n": " ", "\n": " ", "\t": " ", "\u00a0": " ", "\u3000": " ", "ﬁ": "fi", "ﬂ": "fl", "①": "1", "②": "2", "℃": "°C", "Å": "Å",
             "e\u0301": "é", "a\u0301": "á", "\u00ad": "", "\u200b": "", "㎏": "kg", "\u0001": "", "™": "TM", "x": "x", "©": "(c)", "\u0600": "N"}
    for i in range(94):
        table[chr(0xFF01 + i)] = chr(0x21 + i)
    return charsmap(table)


def make_unigram(first):
    trainer = trainers.UnigramTrainer(vocab_size=330, special_tokens=["<pad>", "</s>", "<unk>"] + ([f"<0x{b:02X}>" for b in range(256)] if first else []),
                                      unk_token="<unk>", show_progress=False, shrinking_factor=0.7)
    pre = pre_tokenizers.Metaspace(prepend_scheme="first" if first else "always", split=not first)
    if first:
        norm = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.StripAccents()])
    else:
        norm = normalizers.Sequence([normalizers.Precompiled(make_charsmap()), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")])
    tok = trained(models.Unigram(), trainer, norm, pre)
    spec = json.loads(tok.to_str())
    spec["model"]["vocab"] = [[t, round(s, 6)] for t, s in spec["model"]["vocab"]]
    spec["model"]["byte_fallback"] = first
    spec["added_tokens"] = [t for t in spec["added_tokens"] if not t["content"].startswith("<0x")]
    tok = Tokenizer.from_str(json.dumps(spec))
    tok.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", tok.token_to_id("</s>"))])
    tok.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")]) if first else decoders.Metaspace()
    if first:
        tok.enable_padding(pad_id=0, pad_token="<pad>", length=16)
        tok.no_padding()
    return tok


def make_wordlevel():
    trainer = trainers.WordLevelTrainer(vocab_size=120, special_tokens=["[UNK]"], show_progress=False)
    pre = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous")])
    return trained(models.WordLevel(unk_token="[UNK]"), trainer, normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]), pre)


TOKENIZERS = {
    "clip": make_clip, "gpt2": make_gpt2, "llama3": make_llama3, "qwen2": make_qwen2, "smolvlm": make_smolvlm,
    "o200k": lambda: make_expr(O200K), "possessive": lambda: make_expr(POSSESSIVE), "llama2": make_llama2,
    "bpe_words": make_bpe_words, "bpe_some_bytes": lambda: make_bpe_some_bytes(False), "bpe_some_bytes_fused": lambda: make_bpe_some_bytes(True),
    "bpe_no_unk": make_bpe_no_unk, "bert_uncased": lambda: make_bert(False), "bert_cased": lambda: make_bert(True),
    "unigram_charsmap": lambda: make_unigram(False), "unigram_bytes": lambda: make_unigram(True), "wordlevel": make_wordlevel,
}


def golden(spec):
    """Ask the library for everything the tests compare."""
    tok = Tokenizer.from_str(spec)
    tok.no_padding()
    tok.no_truncation()
    out = {"plain": [], "special": [], "decoded": [], "decoded_special": [], "pairs": [], "limits": LIMITS, "max": [], "pair_max": []}
    for text in TEXTS:
        plain, special = tok.encode(text, add_special_tokens=False).ids, tok.encode(text).ids
        out["plain"].append(plain)
        out["special"].append(special)
        out["decoded"].append(tok.decode(special, skip_special_tokens=True))
        out["decoded_special"].append(tok.decode(special, skip_special_tokens=False))
    for a, b in PAIRS:
        for special in (False, True):
            e = tok.encode(a, b, add_special_tokens=special)
            out["pairs"].append({"ids": e.ids, "types": e.type_ids, "mask": e.attention_mask})
    for limit in LIMITS:
        tok.enable_truncation(limit)
        out["max"].append([tok.encode(a).ids for a, _ in PAIRS])
        out["pair_max"].append([tok.encode(a, b).ids for a, b in PAIRS])
    return out


def boundary_model(chars):
    """A BPE without merges whose ids tell each character and where pieces begin."""
    vocab = {"<unk>": 0}
    for c in sorted(chars):
        for t in (c, "##" + c):
            vocab.setdefault(t, len(vocab))
    return {"type": "BPE", "unk_token": "<unk>", "continuing_subword_prefix": "##", "vocab": vocab, "merges": []}


def added(content, **flags):
    return {"id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False, **flags}


def variants():
    """Sections of a tokenizer.json that are tried with the boundary model."""
    out = []

    def add(name, **sections):
        out.append({"name": name, **sections})

    def seq(kind, *members):
        return {"type": "Sequence", kind: list(members)}

    for b in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        add(f"punctuation {b}", pre_tokenizer={"type": "Punctuation", "behavior": b})
        for invert in (False, True):
            add(f"split string {b} {invert}", pre_tokenizer={"type": "Split", "pattern": {"String": "-"}, "behavior": b, "invert": invert})
            add(f"split regex {b} {invert}", pre_tokenizer={"type": "Split", "pattern": {"Regex": r"\s|[aeiou]+"}, "behavior": b, "invert": invert})
    for name, expr in [("empty", r"a*"), ("lines", "^.|$"), ("word", r"\w+"), ("notword", r"\W+"), ("lookbehind", r"(?<=a)b?"), ("fold", r"(?i:k|s)+"), ("classes", r"[\w']+|\p{P}|\p{S}"), ("lazy", r"a.*?b"), ("hex", "[\\x41-\\x5a]+|\\u00e9")]:
        add(f"regex {name}", pre_tokenizer={"type": "Split", "pattern": {"Regex": expr}, "behavior": "Isolated", "invert": False})
        add(f"replace regex {name}", normalizer=seq("normalizers", {"type": "Replace", "pattern": {"Regex": expr}, "content": "_"}))
    for name, expr in [("gpt2", GPT2), ("clip", CLIP), ("llama3", LLAMA3), ("qwen2", QWEN2), ("o200k", O200K), ("possessive", POSSESSIVE)]:
        add(f"expression {name}", pre_tokenizer={"type": "Split", "pattern": {"Regex": expr}, "behavior": "Isolated", "invert": False})
        add(f"expression {name} removed", pre_tokenizer={"type": "Split", "pattern": {"Regex": expr}, "behavior": "Removed", "invert": True})
    for kind in ["Whitespace", "WhitespaceSplit", "BertPreTokenizer"]:
        add(kind, pre_tokenizer={"type": kind})
    add("digits one", pre_tokenizer={"type": "Digits", "individual_digits": True})
    add("digits many", pre_tokenizer={"type": "Digits", "individual_digits": False})
    add("fixed length", pre_tokenizer={"type": "FixedLength", "length": 3})
    add("delimiter", pre_tokenizer=seq("pretokenizers", json.loads(pre_tokenizers.CharDelimiterSplit("e").__getstate__())))
    for scheme in ["first", "never", "always"]:
        for cut in (True, False):
            meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}
            tokens = [added("<mask>"), added("<s>", special=True)]
            add(f"metaspace {scheme} {cut}", pre_tokenizer=meta, added_tokens=tokens)
            add(f"metaspace {scheme} {cut} after splits", pre_tokenizer=seq("pretokenizers", {"type": "WhitespaceSplit"}, meta))
            add(f"metaspace {scheme} {cut} after strip", normalizer={"type": "Strip", "strip_left": True, "strip_right": False}, pre_tokenizer=meta)
            add(f"metaspace {scheme} {cut} after replace", normalizer={"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "_"}, pre_tokenizer=meta)
    for prefix in (True, False):
        for regex in (True, False):
            add(f"bytelevel {prefix} {regex}", pre_tokenizer={"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}, added_tokens=[added("<mask>")])
    add("bytelevel before a split", pre_tokenizer=seq("pretokenizers", {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}, {"type": "Split", "pattern": {"String": "Ġ"}, "behavior": "MergedWithNext", "invert": False}))
    for kind in ["Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Nmt", "ByteLevel"]:
        add(kind, normalizer={"type": kind})
    for left in (True, False):
        for right in (True, False):
            add(f"strip {left} {right}", normalizer={"type": "Strip", "strip_left": left, "strip_right": right})
    add("prepend", normalizer={"type": "Prepend", "prepend": "<a>"})
    add("replace string", normalizer={"type": "Replace", "pattern": {"String": "a"}, "content": "$1"})
    add("replace nothing", normalizer={"type": "Replace", "pattern": {"String": "a"}, "content": ""})
    add("charsmap", normalizer={"type": "Precompiled", "precompiled_charsmap": base64.b64encode(make_charsmap()).decode()})
    add("lower after replace", normalizer=seq("normalizers", {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, {"type": "Lowercase"}, {"type": "Prepend", "prepend": "▁"}))
    for clean in (True, False):
        for accents in (True, False, None):
            add(f"bert {clean} {accents}", normalizer={"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": clean, "strip_accents": accents, "lowercase": accents is not True})
    for flags in [{}, {"single_word": True}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}]:
        for norm in (False, True):
            for special in (False, True):
                tokens = [added(c, normalized=norm, special=special, **flags) for c in ["<mask>", "TAG", "<L>", "<R>", "word", "the", "th", "é", " "]]
                if norm:
                    tokens[1]["special"] = not special
                add(f"added {flags} {norm} {special}", added_tokens=tokens, normalizer={"type": "Lowercase"}, pre_tokenizer={"type": "WhitespaceSplit"})
    add("no parts")
    return out


def number(tokens, vocab):
    """Give added tokens the ids that the library gives them."""
    following = len(vocab)
    for t in tokens:
        if t["content"] in vocab:
            t["id"] = vocab[t["content"]]
        else:
            t["id"], following = following, following + 1
    return tokens


def components():
    """Every component with the boundary model: three digits of a hash of each text's ids."""
    tried = variants()
    chars = {c for t in TEXTS for c in t} | set("<a>_$1 ▁")
    chars |= set(pre_tokenizers.ByteLevel.alphabet())
    for form in (normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD):
        chars |= {c for t in TEXTS for c in form().normalize_str(t)}
    chars |= {c for t in TEXTS for c in normalizers.Lowercase().normalize_str(normalizers.NFD().normalize_str(t))}
    model = boundary_model(chars)
    for v in tried:
        spec = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
                "added_tokens": [], "model": model, **{k: x for k, x in v.items() if k != "name"}}
        spec["added_tokens"] = number(spec["added_tokens"], model["vocab"])
        if "added_tokens" in v:
            v["added_tokens"] = spec["added_tokens"]
        tok = Tokenizer.from_str(json.dumps(spec))
        h = [tok.encode(t).ids for t in TEXTS]
        v["ids"] = "".join(hashlib.sha256(",".join(map(str, i)).encode()).hexdigest()[:3] for i in h)
    return {"chars": "".join(sorted(chars)), "variants": tried}


def decoding():
    """Every decoder on random tokens."""
    tokens = ["a", "b", "##c", "the", "cat", ".", "!", "'", "n't", "'s", "do", "not", "▁a", "▁", "▁▁b", "x▁y", "Ġhi", "Ã", "©", "ä½", "ł", "ðŁ", "ĺĢ", "âĤ", "é", "日",
              "<0x41>", "<0xE6>", "<0x97>", "<0xA5>", "<0xFF>", "<0xZZ>", "w</w>", "</w>", "|", "<pad>", " ", "  x  ", "<s>", "hello", "-"]
    vocab = {t: i for i, t in enumerate(tokens)}
    wanted = [
        None, {"type": "BPEDecoder", "suffix": "</w>"}, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        {"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "WordPiece", "prefix": "##", "cleanup": False},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
        {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True}, {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": False},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "[]"}, {"type": "Replace", "pattern": {"Regex": "[a-e]+"}, "content": "+"},
        {"type": "Fuse"}, {"type": "ByteFallback"},
        {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": "a", "start": 2, "stop": 0}]},
        {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Replace", "pattern": {"Regex": "$"}, "content": "."}, {"type": "Strip", "content": ".", "start": 0, "stop": 2}]},
    ]
    rng = random.Random(SEED)
    lists = [[rng.randrange(len(tokens) + 1) for _ in range(rng.randrange(1, 12))] + [0] for _ in range(60)]
    cases = []
    for decoder in wanted:
        spec = {"version": "1.0", "added_tokens": number([added("<s>", special=True)], vocab), "decoder": decoder, "model": {"type": "BPE", "vocab": vocab, "merges": []}}
        tok = Tokenizer.from_str(json.dumps(spec))
        texts = [tok.decode(i, skip_special_tokens=skip) for i in lists for skip in (False, True)]
        cases.append({"decoder": decoder, "texts": texts})
    return {"vocab": vocab, "added": number([added("<s>", special=True)], vocab), "lists": lists, "cases": cases}


def ranges(codes):
    out = []
    for c in codes:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return [x for r in out for x in r]


def classes():
    """Ask the library about every code point."""
    codes = [c for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF]
    out = {}

    def dropped(name, normalize):
        """Code points that a normaliser takes away."""
        gone = []
        for i in range(0, len(codes), 4096):
            left = set(normalize("".join(map(chr, codes[i:i + 4096]))))
            gone += [c for c in codes[i:i + 4096] if chr(c) not in left]
        out[name] = ranges(gone)

    def single(name, holds):
        out[name] = ranges([c for c in codes if holds(chr(c))])

    dropped("letter", normalizers.Replace(Regex(r"\p{L}"), "").normalize_str)
    dropped("number", normalizers.Replace(Regex(r"\p{N}"), "").normalize_str)
    dropped("combining", normalizers.StripAccents().normalize_str)
    digits, white = pre_tokenizers.Digits(True), pre_tokenizers.WhitespaceSplit()
    signs, words = pre_tokenizers.Punctuation("isolated"), pre_tokenizers.Whitespace()
    single("numeric", lambda c: len(digits.pre_tokenize_str("a" + c)) == 2)
    single("space", lambda c: len(white.pre_tokenize_str("a" + c + "b")) == 2)
    single("punctuation", lambda c: len(signs.pre_tokenize_str("a" + c)) == 2)
    single("word", lambda c: [p[0] for p in words.pre_tokenize_str("a" + c)] == ["a" + c])
    accents = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    single("mark", lambda c: accents.normalize_str("x" + c) == "x")
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    single("other", lambda c: clean.normalize_str("x" + c) == "x")
    joins = normalizers.Precompiled(charsmap({"a": "X"}))
    single("extend", lambda c: joins.normalize_str("a" + c) == "X")
    forms = {"lower": normalizers.Lowercase(), "nfc": normalizers.NFC(), "nfd": normalizers.NFD(), "nfkc": normalizers.NFKC(), "nfkd": normalizers.NFKD()}
    for name, form in forms.items():
        # The marks have the classes 1, 230 and 202: what is put between them shows its own.
        h = hashlib.sha256()
        for c in codes:
            if 0x33480 <= c < 0xE0000 or c >= 0xE0200:  # nothing there has a normal form
                continue
            h.update(form.normalize_str("a" + chr(c) + "\u0334e" + "\u0301" + chr(c) + "\u0327" + chr(c)).encode() + b"\n")
        out[name + "_sha256"] = h.hexdigest()
    return out


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    print(path.name, path.stat().st_size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("--train", action="store_true", help="train the tokenizers anew")
    parser.add_argument("--no-classes", action="store_true", help="leave classes.json as it is (it takes most of the time)")
    args = parser.parse_args()
    if tokenizers.__version__ != "0.22.2":
        raise SystemExit(f"tokenizers {tokenizers.__version__} is not 0.22.2")
    write(args.out / "texts.json", {"made_with": f"tokenizers {tokenizers.__version__}", "texts": TEXTS, "pairs": PAIRS})
    for name, make in TOKENIZERS.items():
        path = args.out / f"{name}.json"
        if args.train or not path.exists():
            write(path, json.loads(make().to_str()))
        write(args.out / f"{name}.golden.json", golden(path.read_text(encoding="utf-8")))
    parts = components()
    for name, chosen in [("components", False), ("components_added", True)]:
        write(args.out / f"{name}.json", {"chars": parts["chars"], "variants": [v for v in parts["variants"] if v["name"].startswith("added") == chosen]})
    write(args.out / "decoding.json", decoding())
    if not args.no_classes:
        write(args.out / "classes.json", classes())


if __name__ == "__main__":
    main()
