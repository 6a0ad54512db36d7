"""Draws the pictures that readers of text are compared on.

    python pictures.py OUT [--golden FOLDER] [--extra FOLDER] [--cjk FONT.ttc] [--count 200] [--seed N]

OUT gets PNG files and pictures.jsonl with a line for each: file, kind and
prompt, whose first span in double quotes is the text that was asked for ("" for
a picture without text). The pictures of the golden folder (samples.jsonl and
JPEG files) are decoded here, once, and written as PNG, because JPEG decoders
differ by a level here and there: both readers then see the same pixels. So are those
of the extra folder, of any format and size; nobody asked for a text in them.

Needs Pillow and numpy, and DejaVu fonts (Debian: fonts-dejavu-core). Without
--cjk (Debian: fonts-wqy-microhei) the Chinese pictures are drawn as English ones.
The same seed and the same Pillow give the same pictures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

SEED = 20260821
DEJAVU = "/usr/share/fonts/truetype/dejavu/"
FACES = ["DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf", "DejaVuSansMono.ttf"]
WORDS = (
    "harbor lantern Winter SALE coffee Morning bakery 42 Street garden open daily River station "
    "museum Night market fresh bread Ocean View hotel No. 7 library summer Festival green tea "
    "Platform 9 keep calm Welcome home Autumn leaves bookshop 2024 Royal theatre happy birthday"
).split()
CHINESE = [
    "欢迎光临", "新年快乐", "夏日清凉", "北京大学", "图书馆", "今日特价", "小心地滑", "中山路", "咖啡时光", "绿水青山",
    "学习中心", "红茶",
]  # fmt: skip
SIZES = [(512, 512)] * 8 + [(256, 256), (384, 384), (768, 768), (1024, 1024), (832, 480), (480, 832), (640, 360), (300, 200)]
KINDS = [
    *["plain"] * 3, *["scene"] * 4, *["beside"] * 2, "lines", "small", "turned", "chinese", "none", "alpha", "gray",
    "flat", "tall",
]  # fmt: skip

Colour = tuple[int, ...]


def ground(rnd: random.Random, size: tuple[int, int], textured: bool) -> tuple[Image.Image, bool]:
    """A background, and whether text on it should be light."""
    w, h = size
    dark = rnd.random() < 0.5
    low, high = (20, 90) if dark else (170, 245)
    a = np.array([rnd.randint(low, high) for _ in range(3)], dtype=np.float32)
    if not textured:
        return Image.new("RGB", size, tuple(int(v) for v in a)), dark
    b = np.array([rnd.randint(low, high) for _ in range(3)], dtype=np.float32)
    noise = np.random.default_rng(rnd.randint(0, 1 << 30))
    slope = (np.linspace(0, 1, w)[None, :, None] + np.linspace(0, 1, h)[:, None, None]) / 2
    coarse = noise.normal(0, 26, (max(h // 32, 2), max(w // 32, 2), 3))
    channels = (Image.fromarray(coarse[..., c].astype(np.float32)) for c in range(3))
    coarse = np.stack([np.asarray(c.resize(size, Image.BICUBIC)) for c in channels], -1)
    pixels = a + (b - a) * slope + coarse + noise.normal(0, 5, (h, w, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)), dark


def face(rnd: random.Random, height: int, path: str | None = None) -> ImageFont.FreeTypeFont:
    """A font of that height; by chance without a path."""
    return ImageFont.truetype(path or DEJAVU + rnd.choice(FACES), height)


def write(
    image: Image.Image, text: str, font: ImageFont.FreeTypeFont, centre: tuple[float, float], ink: Colour,
    angle: float = 0.0, stroke: int = 0,
) -> None:  # fmt: skip
    """Writes text round a centre, turned by degrees."""
    left, top, right, bottom = font.getbbox(text, stroke_width=stroke)
    pad = 6
    patch = Image.new("RGBA", (right - left + 2 * pad, bottom - top + 2 * pad), ink + (0,))
    edge = tuple(255 - v for v in ink) + (255,)
    ImageDraw.Draw(patch).text((pad - left, pad - top), text, font=font, fill=ink + (255,), stroke_width=stroke, stroke_fill=edge)
    if angle:
        patch = patch.rotate(angle, expand=True, resample=Image.BICUBIC)
    image.paste(patch, (int(centre[0] - patch.width / 2), int(centre[1] - patch.height / 2)), patch)


def fitting(rnd: random.Random, text: str, width: float, height: int, path: str | None = None) -> ImageFont.FreeTypeFont:
    """The font with which text is at most so wide and high."""
    while height > 10:
        font = face(random.Random(rnd.random()), height, path)
        box = font.getbbox(text)
        if box[2] - box[0] <= width:
            return font
        height -= 2
    return face(rnd, 10, path)


def phrase(rnd: random.Random, low: int = 1, high: int = 3) -> str:
    """Some words."""
    return " ".join(rnd.sample(WORDS, rnd.randint(low, high)))


def draw(rnd: random.Random, kind: str, cjk: str | None) -> tuple[Image.Image, str]:
    """A picture of a kind, and the text that was asked for."""
    size = rnd.choice(SIZES)
    if kind == "flat":
        size = rnd.choice([(700, 30), (900, 60), (640, 24), (1200, 80), (500, 28)])
    if kind == "tall":
        size = rnd.choice([(120, 700), (90, 500), (200, 900)])
    w, h = size
    image, dark = ground(rnd, size, kind in ("scene", "none", "beside"))

    def shade() -> Colour:
        return tuple(rnd.randint(215, 255) if dark else rnd.randint(0, 40) for _ in range(3))

    target = phrase(rnd)
    if kind == "none":
        shapes = ImageDraw.Draw(image)
        for _ in range(rnd.randint(1, 6)):
            x, y, r = rnd.randint(0, w), rnd.randint(0, h), rnd.randint(8, max(9, min(w, h) // 4))
            rnd.choice([shapes.ellipse, shapes.rectangle])((x - r, y - r, x + r, y + r), fill=shade())
        return image, ""
    if kind == "flat":
        write(image, target, fitting(rnd, target, w * 0.8, int(h * 0.7)), (w / 2, h / 2), shade())
    elif kind == "tall":
        if rnd.random() < 0.5:
            write(image, target, fitting(rnd, target, h * 0.7, w // 2), (w / 2, h / 2), shade(), 90)
        else:
            target = rnd.choice(WORDS)
            write(image, target, fitting(rnd, target, w * 0.9, 40), (w / 2, h / 3), shade())
    elif kind == "turned":
        write(image, target, fitting(rnd, target, h * 0.7, h // 8), (w * 0.3, h / 2), shade(), 90)
        write(image, phrase(rnd), fitting(rnd, "harbor lantern open", w * 0.5, h // 12), (w * 0.65, h * 0.3), shade())
    elif kind == "chinese" and cjk:
        target = "".join(rnd.sample(CHINESE, rnd.randint(1, 2)))
        write(image, target, fitting(rnd, target, w * 0.8, h // 6, cjk), (w / 2, h / 2), shade(), rnd.uniform(-4, 4))
        write(image, phrase(rnd, 1, 2), fitting(rnd, "harbor lantern", w * 0.5, h // 14), (w / 2, h * 0.8), shade())
    elif kind == "lines":
        words = [phrase(rnd) for _ in range(rnd.randint(3, 9))]
        target, step = words[0], h * 0.9 / len(words)
        for i, line in enumerate(words):
            write(image, line, fitting(rnd, line, w * 0.85, int(step * 0.7)), (w / 2, h * 0.05 + step * (i + 0.5)), shade())
    elif kind == "small":
        for _ in range(rnd.randint(2, 5)):
            at = (rnd.uniform(0.3, 0.7) * w, rnd.uniform(0.1, 0.9) * h)
            write(image, phrase(rnd), fitting(rnd, "harbor lantern open", w * 0.5, rnd.randint(10, 16)), at, shade())
        target = phrase(rnd)
        write(image, target, fitting(rnd, target, w * 0.6, 16), (w / 2, h / 2), shade())
    elif kind == "beside":
        font = fitting(rnd, target, w * 0.42, h // 9)
        write(image, target, font, (w * 0.27, h * rnd.uniform(0.3, 0.7)), shade(), rnd.uniform(-3, 3))
        for y in (0.15, 0.5, 0.85):
            other = phrase(rnd, 1, 2)
            write(image, other, fitting(rnd, other, w * 0.4, h // 12), (w * 0.75, h * y), shade())
    else:
        angle = rnd.uniform(-10, 10) if kind == "scene" else 0
        at = (w / 2, h * rnd.uniform(0.3, 0.7))
        font = fitting(rnd, target, w * 0.8, h // rnd.randint(5, 10))
        write(image, target, font, at, shade(), angle, int(kind == "scene"))
        if kind == "scene" and rnd.random() < 0.4:
            image = image.filter(ImageFilter.GaussianBlur(rnd.uniform(0.4, 1.2)))
    if kind == "gray":
        image = image.convert(rnd.choice(["L", "L", "1"]))
    if kind == "alpha":
        ink = Image.new("RGBA", size, shade() + (0,))
        write(ink, target, fitting(rnd, target, w * 0.8, h // 7), (w / 2, h / 2), shade())
        image = ink
    return image, target


def extra(folder: str, out: str) -> list[dict[str, Any]]:
    """Pictures of another folder, without what is no picture."""
    rows = []
    for name in sorted(os.listdir(folder)):
        try:
            with Image.open(os.path.join(folder, name)) as image:
                if image.mode not in ("1", "L", "RGB", "RGBA"):
                    image = image.convert("RGBA" if "transparency" in image.info or image.mode == "LA" else "RGB")
                # Made of its pixels alone: what says how to turn it stays behind.
                Image.fromarray(np.asarray(image)).save(os.path.join(out, f"x_{name}.png"))
        except (OSError, ValueError):
            continue
        rows.append({"file": f"x_{name}.png", "kind": "extra", "prompt": ""})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--golden")
    parser.add_argument("--extra")
    parser.add_argument("--cjk")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=SEED)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    rows: list[dict[str, Any]] = []
    if args.golden:
        with open(os.path.join(args.golden, "samples.jsonl"), encoding="utf-8") as samples:
            for row in map(json.loads, samples):
                file = os.path.splitext(row["image"])[0] + ".png"
                Image.open(os.path.join(args.golden, row["image"])).convert("RGB").save(os.path.join(args.out, file))
                rows.append({"file": file, "kind": "golden", "prompt": row["prompt"], "rendered": row["rendered"]})
    if args.extra:
        rows += extra(args.extra, args.out)
    for i in range(args.count):
        rnd = random.Random(args.seed + i)
        kind = KINDS[i % len(KINDS)]
        image, target = draw(rnd, kind, args.cjk)
        file = f"p{i:03d}.png"
        image.save(os.path.join(args.out, file))
        rows.append({"file": file, "kind": kind, "prompt": f'A picture with the words "{target}".'})
    with open(os.path.join(args.out, "pictures.jsonl"), "w", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


if __name__ == "__main__":
    main()
