"""Score pictures with CLIP in Python, for `make bench-onnx` to compare with.

    compare.py FOLDER --side transformers|onnxruntime --pictures 64 --size 512 --threads 2

FOLDER holds what make.py wrote: a checkpoint for transformers, and the two towers for
ONNX Runtime. Each line on standard input starts one measurement; its answer is one line
of JSON with pictures per second and CPU milliseconds a picture. Pictures come as uint8
arrays, 16 of a prompt, and go through Pillow as PickScore's and CLIPScore's do.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
GROUP = 16


def pictures(count: int, size: int) -> list[np.ndarray]:
    """Smooth noise: JPEG-like content would not matter, the arrays are raw."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (size, size, 3), np.uint8) for _ in range(count)]


class Transformers:
    """The way flow_grpo's PickScore goes: a batch of pictures, and a prompt for each."""

    def __init__(self, folder: Path, threads: int) -> None:
        import torch
        from transformers import AutoTokenizer, CLIPImageProcessor, CLIPModel

        torch.set_num_threads(threads)
        self.torch = torch
        self.model = CLIPModel.from_pretrained(folder / "checkpoint", attn_implementation="sdpa").eval()
        self.images = CLIPImageProcessor.from_pretrained(folder / "checkpoint")
        self.tokens = AutoTokenizer.from_pretrained(folder / "checkpoint")

    def score(self, group: list[np.ndarray], prompt: str) -> np.ndarray:
        with self.torch.no_grad():
            pixels = self.images([Image.fromarray(p) for p in group], return_tensors="pt")
            ids = self.tokens([prompt] * len(group), padding=True, truncation=True, max_length=77, return_tensors="pt")
            image = self.model.get_image_features(**pixels)
            text = self.model.get_text_features(input_ids=ids["input_ids"], attention_mask=ids["attention_mask"])
            image, text = (x / x.norm(dim=-1, keepdim=True) for x in (image, text))
            return (self.model.logit_scale.exp() * text @ image.T).diag().numpy()


class ONNXRuntime:
    """The way a careful server in Python goes: Pillow, one session a tower."""

    def __init__(self, folder: Path, threads: int) -> None:
        import onnxruntime as ort
        from tokenizers import Tokenizer

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.vision = ort.InferenceSession(str(folder / "vision_model.onnx"), options)
        self.text = ort.InferenceSession(str(folder / "text_model.onnx"), options)
        self.tokens = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.scale = json.loads((folder / "scorer.json").read_text())["logit_scale"]

    @staticmethod
    def preprocess(picture: np.ndarray) -> np.ndarray:
        image = Image.fromarray(picture)
        short = min(image.size)
        image = image.resize(tuple(int(224 * side / short) for side in image.size), Image.BICUBIC)
        left, top = (image.width - 224) // 2, (image.height - 224) // 2
        crop = np.asarray(image.crop((left, top, left + 224, top + 224)), np.float32)
        return ((crop * np.float32(1 / 255) - MEAN) / STD).transpose(2, 0, 1)

    def score(self, group: list[np.ndarray], prompt: str) -> np.ndarray:
        pixels = np.stack([self.preprocess(p) for p in group])
        ids = np.array([self.tokens.encode(prompt).ids[:77]], np.int64)
        feed = {i.name: {"input_ids": ids, "attention_mask": np.ones_like(ids)}[i.name] for i in self.text.get_inputs()}
        image = self.vision.run(["image_embeds"], {"pixel_values": pixels})[0]
        text = self.text.run(["text_embeds"], feed)[0][0]
        return self.scale * image @ text / np.linalg.norm(text) / np.linalg.norm(image, axis=1)


def cpu_seconds() -> float:
    """What this process has used so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--side", choices=["transformers", "onnxruntime"], required=True)
    parser.add_argument("--pictures", type=int, default=64)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    scorer = {"transformers": Transformers, "onnxruntime": ONNXRuntime}[args.side](args.folder, args.threads)
    groups = [pictures(args.pictures, args.size)[i : i + GROUP] for i in range(0, args.pictures, GROUP)]
    scorer.score(groups[0], "warm")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        wall, cpu = time.perf_counter(), cpu_seconds()
        scores = [scorer.score(g, f"{line.strip()} {i}") for i, g in enumerate(groups)]
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
        if not np.isfinite(np.concatenate(scores)).all():
            sys.exit("a score is not a number")
        print(json.dumps({"per_s": args.pictures / wall, "cpu_ms": 1000 * cpu / args.pictures}), flush=True)


if __name__ == "__main__":
    main()
