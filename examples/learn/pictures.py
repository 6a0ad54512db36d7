"""Pictures of four digits: how they are drawn, which are held out, and their grain, which OCR does not detect.

A picture is float32 [16, 32], from -1 for black to 1 for white.
"""

import functools
from pathlib import Path

import numpy as np

DIGITS, LENGTH = "0123456789", 4
HEIGHT, CELL = 16, 8
WIDTH = CELL * LENGTH
#: Strings that are never a prompt and never drawn for pre-training.
HELD_OUT = 256


@functools.cache
def glyphs() -> np.ndarray:
    """Returns the digits in two typefaces, float32 [2, 10, 16, 8]. matplotlib contains the typefaces."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    faces = ("DejaVuSansMono-Bold.ttf", "DejaVuSans-Bold.ttf")
    out = np.empty((len(faces), len(DIGITS), HEIGHT, CELL), np.float32)
    for f, face in enumerate(faces):
        font = ImageFont.truetype(str(folder / face), 13)
        for i, digit in enumerate(DIGITS):
            cell = Image.new("L", (CELL, HEIGHT), 255)
            draw = ImageDraw.Draw(cell)
            left, top, right, bottom = draw.textbbox((0, 0), digit, font=font)
            draw.text(((CELL - (right - left)) // 2 - left, (HEIGHT - (bottom - top)) // 2 - top), digit, 0, font=font)
            out[f, i] = np.asarray(cell, np.float32) / 127.5 - 1
    return out


def render(ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws digits [N, 4] as pictures [N, 16, 32], each in one of the typefaces and up to one row off the middle."""
    drawn = glyphs()[rng.integers(0, 2, len(ids))[:, None], ids]
    rows = drawn.transpose(0, 2, 1, 3).reshape(len(ids), HEIGHT, WIDTH)
    return np.stack([np.roll(r, s, axis=0) for r, s in zip(rows, rng.integers(-1, 2, len(ids)), strict=True)])


@functools.cache
def held_out() -> np.ndarray:
    """Returns the digits of the held-out strings, int [256, 4]."""
    chosen = np.random.default_rng(7).permutation(10**LENGTH)[:HELD_OUT]
    return np.stack([chosen // 10**place % 10 for place in reversed(range(LENGTH))], axis=1)


@functools.cache
def _held_out_set() -> frozenset[str]:
    return frozenset(map(word, held_out()))


def draw_strings(rng: np.random.Generator, n: int) -> np.ndarray:
    """Returns the digits of n random strings that are not held out, int [n, 4]."""
    out: list[np.ndarray] = []
    while len(out) < n:
        ids = rng.integers(0, len(DIGITS), LENGTH)
        if word(ids) not in _held_out_set():
            out.append(ids)
    return np.stack(out)


def word(ids: np.ndarray) -> str:
    """Returns digits [4] as a string."""
    return "".join(DIGITS[i] for i in ids)


def pixels(picture: np.ndarray) -> np.ndarray:
    """Returns a picture as it is sent and shown: uint8 [16, 32, 1]."""
    return (np.clip(picture, -1, 1) * 127.5 + 127.5).astype(np.uint8)[..., None]


@functools.cache
def _blank_cells() -> np.ndarray:
    """Pixels of each digit's cell that are white wherever render puts the digit, bool [10, 16, 8]."""
    ink = (glyphs() < 1).any(0)
    return ~np.any([np.roll(ink, shift, axis=1) for shift in (-1, 0, 1)], axis=0)


def blank(ids: np.ndarray) -> np.ndarray:
    """Returns which pixels of the digits [N, 4] never have ink, however they are drawn: bool [N, 16, 32]."""
    return _blank_cells()[ids].transpose(0, 2, 1, 3).reshape(len(ids), HEIGHT, WIDTH)


def grain(sent: np.ndarray, ids: np.ndarray) -> float:
    """Returns how far the pixels without ink are from white, 0 to 2: the mean over pictures [N, 16, 32] with 0 to 255.

    OCR does not detect grain, so a policy that is rewarded for what OCR reads may let the grain grow.
    """
    paper = blank(ids)
    return float((2 * (1 - sent / 255) * paper).sum() / paper.sum())
