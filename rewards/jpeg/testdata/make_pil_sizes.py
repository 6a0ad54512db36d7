"""Writes pil_sizes.jsonl: what PIL's JPEG encoder makes of small pictures.

    pip install pillow && python make_pil_sizes.py > pil_sizes.jsonl

The pictures are not stored. Each is made from (kind, seed, width, height) by
integer arithmetic alone, here and in golden_test.go, so both see the same
bytes. `python make_pil_sizes.py N SEED` writes N random rows instead of the
committed choice.
"""

import io
import json
import random
import sys

from PIL import Image

KINDS = ["noise", "ramp", "checks", "blobs", "primary", "flat"]


def xorshift(seed):
    state = seed
    while True:
        state ^= (state << 13) & 0xFFFFFFFF
        state ^= state >> 17
        state ^= (state << 5) & 0xFFFFFFFF
        yield state >> 24


def picture(kind, seed, width, height):
    """Tight RGB bytes, rows from top to bottom."""
    noise = xorshift(seed)
    out = bytearray()
    for y in range(height):
        for x in range(width):
            for c in range(3):
                if kind == "noise":  # every frequency, most stuffed bytes
                    v = next(noise)
                elif kind == "ramp":  # smooth, wraps at different places per colour
                    v = (x * (c + 1) + y * 2 + seed) & 255
                elif kind == "checks":  # hard edges that do not meet the blocks
                    v = 255 * (((x // (3 + c)) + (y // 5)) & 1)
                elif kind == "blobs":  # smooth and noisy at once
                    v = ((x * x + y * y * (c + 1)) // (seed % 97 + 30) + next(noise) % 9) & 255
                elif kind == "primary":  # saturated colours, largest chroma
                    v = 255 * ((next(noise) >> c) & 1)
                else:  # flat
                    v = (seed >> (8 * c)) & 255
                out.append(v)
    return bytes(out)


def size(rgb, width, height, quality):
    file = io.BytesIO()
    Image.frombytes("RGB", (width, height), rgb).save(file, format="JPEG", quality=quality)
    return file.tell()


def rows():
    if len(sys.argv) == 3:
        draw = random.Random(int(sys.argv[2]))
        for _ in range(int(sys.argv[1])):
            kind, seed = draw.choice(KINDS), draw.randrange(1, 1 << 31)
            side = draw.choice([20, 50, 150])
            yield kind, seed, draw.randint(1, side), draw.randint(1, side), draw.randint(1, 100)
        return
    sizes = [(1, 1), (7, 9), (8, 8), (9, 1), (1, 16), (15, 17), (16, 16), (17, 33), (24, 40), (31, 2), (33, 7), (64, 47)]
    qualities = [50, 60, 75, 80, 90, 95, 98, 100]
    seed = 20251120
    for i, (width, height) in enumerate(sizes):
        for j, kind in enumerate(KINDS):
            for q in {qualities[(i + j) % 8], qualities[(i + j + 5) % 8], 95}:
                seed += 7919
                yield kind, seed, width, height, q
    for q in (1, 2, 10, 25, 49):  # the other branch of the quality rule
        yield "blobs", seed + q, 45, 29, q
    yield "noise", 3, 701, 3, 97
    yield "blobs", 5, 2, 601, 92


for kind, seed, width, height, quality in rows():
    rgb = picture(kind, seed, width, height)
    row = {"kind": kind, "seed": seed, "width": width, "height": height, "quality": quality}
    print(json.dumps(row | {"bytes": size(rgb, width, height, quality)}))
