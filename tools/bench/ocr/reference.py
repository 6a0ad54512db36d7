"""Reads pictures with RapidOCR, when it is told to, and says what it read.

    python reference.py [--det M.onnx --rec M.onnx] [--threads N] [--own]

Without --det and --rec the models of the rapidocr package are used. --threads is
ONNX Runtime's number of threads for an operation; -1, RapidOCR's default, are as many
as there are cores. The classifier is off, as in the rewards that use OCR, unless --own
asks for RapidOCR just as it comes.

It prints {"version", "onnxruntime"} when the models are loaded. Then each line on
standard input is an order:

    {"load": [PATH, ...]}   decodes pictures, and answers {"loaded": N}
    {"read": true}          reads them, and answers with {"wall", "cpu"} in
                            milliseconds and "pages": for each picture boxes (corners
                            from the top left on, clockwise), texts, scores

so that several of them can be kept waiting and measured in turn. cpu is of all
threads. Decoding is left out of both: ours is given pixels too.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import logging
import sys
import time
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--det")
    parser.add_argument("--rec")
    parser.add_argument("--threads", type=int, default=-1)
    parser.add_argument("--own", action="store_true")
    args = parser.parse_args()

    import numpy as np
    from rapidocr import RapidOCR
    from rapidocr.utils.load_image import LoadImage

    logging.disable(logging.WARNING)
    params = {"EngineConfig.onnxruntime.intra_op_num_threads": args.threads}
    if not args.own:
        params["Global.use_cls"] = False
    if args.det:
        params["Det.model_path"] = args.det
    if args.rec:
        params["Rec.model_path"] = args.rec
    reader, load, pictures = RapidOCR(params=params), LoadImage(), []
    reader(np.full((64, 256, 3), 128, np.uint8))  # loads the models
    answer({"version": importlib.metadata.version("rapidocr"), "onnxruntime": importlib.metadata.version("onnxruntime")})
    for line in sys.stdin:
        order = json.loads(line)
        if "load" in order:
            pictures = [load(path) for path in order["load"]]
            answer({"loaded": len(pictures)})
            continue
        wall, cpu = time.perf_counter(), time.process_time()
        results = [reader(p) for p in pictures]
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        answer({"wall": wall * 1e3, "cpu": cpu * 1e3, "pages": [page(r) for r in results]})


def page(result: Any) -> dict[str, Any]:
    """What RapidOCR has read in a picture, as JSON has it."""
    boxes = [] if result.boxes is None else [[[float(v) for v in p] for p in b] for b in result.boxes]
    return {"boxes": boxes, "texts": list(result.txts or ()), "scores": [float(s) for s in result.scores or ()]}


def answer(value: Any) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
