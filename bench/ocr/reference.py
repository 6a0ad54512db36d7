"""Reads pictures with RapidOCR and writes what it read, a JSON line for each.

    python reference.py PICTURES OUT.jsonl [--det M.onnx --rec M.onnx] [--threads N] [--kind K] [--shard I/N]

Needs rapidocr 3.9 or later and onnxruntime; without --det and --rec the models
of the rapidocr package are used. The classifier is off, as in the rewards that
use OCR. A line has file, boxes (corners from the top left on, clockwise), texts,
scores, and wall and cpu in milliseconds. The last line is the sum:
{"pictures", "wall", "cpu", "version", "threads"}.
"""

import argparse
import json
import logging
import os
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures")
    parser.add_argument("out")
    parser.add_argument("--det")
    parser.add_argument("--rec")
    parser.add_argument("--threads", type=int, default=-1)
    parser.add_argument("--kind", default="", help="only pictures of this kind")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th picture from the i-th on")
    args = parser.parse_args()

    import importlib.metadata

    from rapidocr import RapidOCR

    logging.disable(logging.WARNING)
    params = {"Global.use_cls": False, "EngineConfig.onnxruntime.intra_op_num_threads": args.threads}
    if args.det:
        params["Det.model_path"] = args.det
    if args.rec:
        params["Rec.model_path"] = args.rec
    reader = RapidOCR(params=params)

    with open(os.path.join(args.pictures, "pictures.jsonl"), encoding="utf-8") as lines:
        rows = [r for r in map(json.loads, lines) if args.kind in ("", r["kind"])]
    shard, shards = map(int, args.shard.split("/"))
    rows = rows[shard::shards]
    reader(os.path.join(args.pictures, rows[0]["file"]))  # loads the models
    wall = cpu = 0.0
    with open(args.out, "w", encoding="utf-8") as out:
        for row in rows:
            t, c = time.perf_counter(), time.process_time()
            result = reader(os.path.join(args.pictures, row["file"]))
            t, c = (time.perf_counter() - t) * 1e3, (time.process_time() - c) * 1e3
            wall, cpu = wall + t, cpu + c
            boxes = [] if result.boxes is None else [[[float(v) for v in p] for p in b] for b in result.boxes]
            line = {"file": row["file"], "boxes": boxes, "texts": list(result.txts or ()), "scores": [float(s) for s in result.scores or ()]}
            out.write(json.dumps(line | {"wall": t, "cpu": c}, ensure_ascii=False) + "\n")
        total = {"pictures": len(rows), "wall": wall, "cpu": cpu, "threads": args.threads}
        out.write(json.dumps(total | {"version": importlib.metadata.version("rapidocr")}) + "\n")


if __name__ == "__main__":
    main()
