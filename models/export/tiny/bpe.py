"""Byte pair encodings of some sentences, the same on every machine."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from tokenizers import Regex, pre_tokenizers

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

# How Qwen2 cuts a text into words.
QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def qwen_words() -> pre_tokenizers.PreTokenizer:
    """Qwen2's words, and their bytes as letters."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


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
