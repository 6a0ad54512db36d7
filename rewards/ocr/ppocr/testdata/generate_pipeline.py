#!/usr/bin/env python3
"""Golden data for the pipeline of package ppocr, from RapidOCR's own functions.

    generate_pipeline.py [--out DIR]

sizes.json, tables.json, widths.json and ctc.json hold what DetPreProcess,
resize_image_within_bounds, apply_vertical_padding and CTCLabelDecode return, and
versions.json what they ran on. paddle2's sizes and tables follow PaddleOCR 2.9's
formulas (ppocr/data/imaug/operators.py), the widths of crops those of RapidOCR's
TextRecognizer.
"""

import argparse
import importlib.metadata
import json
import os
import random
import zlib

import numpy as np
from rapidocr.ch_ppocr_det.utils import DetPreProcess
from rapidocr.ch_ppocr_rec.utils import CTCLabelDecode
from rapidocr.utils.process_img import apply_vertical_padding, resize_image_within_bounds

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pipeline")


def dump(name, value):
    with open(os.path.join(OUT, name), "w", encoding="utf-8") as f:
        f.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("],[", "],\n[").replace("},{", "},\n{") + "\n")


def sizes():
    rnd = random.Random(1)
    pairs = [(512, 512), (1024, 1024), (480, 832), (720, 1280), (1, 1), (1, 1000), (24, 640), (30, 30), (31, 247), (31, 249), (2000, 100),
             (2001, 2000), (4000, 70), (3000, 48), (784, 752), (752, 784), (20, 160), (100, 800), (100, 801), (2, 3000), (700, 30)]
    pairs += [(rnd.randint(1, 2600), rnd.randint(1, 2600)) for _ in range(120)]
    out = []
    for h, w in pairs:
        img = np.zeros((h, w), np.uint8)
        row = {"w": w, "h": h}
        try:
            page, ry, rx = resize_image_within_bounds(img, 30, 2000)
            row |= {"page_w": page.shape[1], "page_h": page.shape[0], "rx": float(np.float32(rx)), "ry": float(np.float32(ry))}
            record = {}
            wide, full = page.shape[1] / page.shape[0] > 8, None
            if page.shape[0] * page.shape[1] < 1 << 22 or not wide:
                full, record = apply_vertical_padding(page, record, 8, 30)
                row["bar"] = record["padding_1"]["top"]
                h2, w2 = full.shape[:2]
                ratio = 736 / min(h2, w2) if min(h2, w2) < 736 else 1.0
                if h2 * w2 * ratio * ratio < 1 << 23:
                    det = DetPreProcess(736, "min", [0.5] * 3, [0.5] * 3).resize(full)
                    row |= {"det_w": det.shape[1], "det_h": det.shape[0]}
        except Exception:
            row["none"] = True
        ratio = 960 / max(h, w) if max(h, w) > 960 else 1.0
        row |= {"paddle_w": max(int(round(int(w * ratio) / 32) * 32), 32), "paddle_h": max(int(round(int(h * ratio) / 32) * 32), 32)}
        out.append(row)
    dump("sizes.json", out)


def tables():
    levels = np.repeat(np.arange(256, dtype=np.uint8)[:, None, None], 3, 2)
    det = DetPreProcess(736, "min", [0.5] * 3, [0.5] * 3).normalize(levels).astype(np.float32)
    mean, std = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
    paddle = ((levels.astype("float32") * np.float32(1.0 / 255.0) - mean) / std).astype(np.float32)
    line = levels.astype("float32") / 255
    line -= 0.5
    line /= 0.5
    bits = lambda a: {"crc": zlib.crc32(np.ascontiguousarray(a.transpose(2, 0, 1)).tobytes()), "at": [[float(a[v, 0, c]) for v in (0, 1, 127, 128, 255)] for c in range(3)]}
    dump("tables.json", {"rapidocr": bits(det), "paddle2": bits(paddle), "line": bits(line)})


def widths():
    """The rule of TextRecognizer.__call__ and resize_norm_img."""
    rnd = random.Random(2)
    cases = []
    for n in [1, 2, 5, 6, 7, 12, 13, 30]:
        crops = [[rnd.randint(4, 1500), rnd.randint(4, 120)] for _ in range(n)]
        order = np.argsort(np.array([w / float(h) for w, h in crops]), kind="stable")
        width, fill = [0] * n, [0] * n
        for i in range(0, n, 6):
            batch = order[i : i + 6]
            ratio = max([320 / 48] + [crops[k][0] * 1.0 / crops[k][1] for k in batch])
            for k in batch:
                width[k] = int(48 * ratio)
                fill[k] = min(int(np.ceil(48 * (crops[k][0] / float(crops[k][1])))), width[k])
        cases.append({"crops": crops, "width": width, "fill": fill})
    dump("widths.json", cases)


def ctc():
    characters = list("abcde") + ["é", "好", "ﬁ", "👍🏽", " x"]
    decode = CTCLabelDecode(character=list(characters))
    rng = np.random.default_rng(3)
    cases = []
    for n in list(range(1, 12)) + [40, 40, 80]:
        index = rng.choice(12, n, p=[0.4] + [0.6 / 11] * 11)
        prob = rng.random(n).astype(np.float32)
        if n > 3:
            index[1] = index[0]
        (text, score), = decode.decode(index[None], prob[None], remove_duplicate=True)[0]
        cases.append({"classes": index.tolist(), "probs": [float(p) for p in prob], "text": text, "score": float(score)})
    dump("ctc.json", {"characters": characters, "cases": cases})


def versions():
    names = ["rapidocr", "opencv-python-headless", "numpy"]
    dump("versions.json", {n: importlib.metadata.version(n) for n in names})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=OUT)
    OUT = parser.parse_args().out
    os.makedirs(OUT, exist_ok=True)
    for make in (sizes, tables, widths, ctc, versions):
        make()
