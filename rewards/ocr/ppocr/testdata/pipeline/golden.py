"""Writes the golden files of the pipeline with numpy, OpenCV and RapidOCR.

    python golden.py [--det M.onnx --rec M.onnx --pictures FOLDER]

sizes.json, tables.json, widths.json and ctc.json hold what RapidOCR's own
functions return. With models and pictures it also writes replay_<name>.json, .png
and .map.png: a picture, the detector's map of it in 256 levels, what the recogniser
answers for every crop, and what RapidOCR makes of exactly these. paddle2's sizes
and tables follow PaddleOCR 2.9's formulas (ppocr/data/imaug/operators.py).
"""

import argparse
import json
import os
import random
import zlib

import cv2
import numpy as np
from rapidocr.ch_ppocr_det.utils import DetPreProcess
from rapidocr.ch_ppocr_rec.utils import CTCLabelDecode
from rapidocr.utils.process_img import apply_vertical_padding, resize_image_within_bounds

HERE = os.path.dirname(os.path.abspath(__file__))


def dump(name, value):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
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


def replay(args):
    import logging

    from rapidocr import RapidOCR

    logging.disable(logging.WARNING)
    reader = RapidOCR(params={"Global.use_cls": False, "Det.model_path": args.det, "Rec.model_path": args.rec})
    det, rec = reader._load_det_model(), reader._load_rec_model()
    det_session, rec_session, state = det.session, rec.session, {}

    def quantised(x):
        state["map"] = np.rint(det_session(x) * 255).astype(np.uint8)
        return state["map"].astype(np.float32) / np.float32(255)

    def recorded(x):
        y = rec_session(x)
        state["rec"] += [(x.shape[3], y[i].argmax(1), y[i].max(1)) for i in range(len(y))]
        return y

    def lines(rec_input):
        state["rec"], state["crops"] = [], [list(i.shape[1::-1]) for i in rec_input.img]
        state["order"] = np.argsort(np.array([i.shape[1] / float(i.shape[0]) for i in rec_input.img]))
        return rec(rec_input)

    recorded.have_key = rec_session.have_key
    det.session, rec.session = quantised, recorded
    reader.text_rec, reader._load_rec_model = lines, lambda: lines
    for name in args.names.split(","):
        file = os.path.join(args.pictures, name + ".png")
        result = reader(file)
        reads = [None] * len(state["order"])
        used = sorted({int(v) for _, classes, _ in state["rec"] for v in classes})
        for at, (width, classes, probs) in zip(state["order"], state["rec"]):
            reads[at] = {"width": width, "classes": [used.index(int(v)) for v in classes], "probs": [float(p) for p in probs]}
        with open(file, "rb") as f, open(os.path.join(HERE, f"replay_{name}.png"), "wb") as g:
            g.write(f.read())
        cv2.imwrite(os.path.join(HERE, f"replay_{name}.map.png"), state["map"][0, 0])
        alphabet = [rec.postprocess_op.character[v] for v in used]
        boxes = [[[float(v) for v in p] for p in b] for b in result.boxes]
        dump(f"replay_{name}.json", {"alphabet": alphabet, "crops": state["crops"], "reads": reads, "boxes": boxes, "texts": list(result.txts), "scores": list(result.scores)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--det")
    parser.add_argument("--rec")
    parser.add_argument("--pictures")
    parser.add_argument("--names", default="")
    args = parser.parse_args()
    sizes(), tables(), widths(), ctc()
    if args.names:
        replay(args)
