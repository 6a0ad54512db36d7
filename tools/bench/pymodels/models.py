"""The models of make bench-pymodels, and each of them alone: models.py NAME.

Alone, a model reads lines "BATCH SAMPLES" and scores so many samples in batches of that size, one batch
after the other, in this process. Every line is answered with samples and milliseconds of CPU:
{"per_s": 11.2, "cpu_ms": 170.1, "threads": 2}.
"""

import json
import os
import sys
import time

FIXED, EACH = 0.040, 0.002  # seconds: of a batch, and of each of its samples
SIZE = 224  # pixels: height and width of the pictures


class Sleeping:
    """Costs 40 ms a batch and 2 ms a sample, and computes nothing."""

    threads = 0

    def __init__(self, device="cpu"):
        self.batches = 0

    def compute_scores(self, samples):
        """The score is the number in the sample's extra_info; batch is the size of the batch, batches their number so far."""
        self.batches += 1
        time.sleep(FIXED + EACH * len(samples))
        return [{"score": float(s.extra_info.get("n", 0)), "batch": len(samples), "batches": self.batches} for s in samples]


class Vision:
    """CLIP ViT-B/32's vision tower (87.5 million parameters) with random weights, on pictures of 224 × 224, uint8 [3, 224, 224]."""

    def __init__(self, device="cpu"):
        import torch
        from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

        torch.manual_seed(0)
        self.torch, self.device, self.threads = torch, device, torch.get_num_threads()
        # The defaults of the configuration are those of openai/clip-vit-base-patch32.
        self.model = CLIPVisionModelWithProjection(CLIPVisionConfig()).eval().to(device)
        self.mean = torch.tensor([0.48145466, 0.4578275, 0.40821073], device=device).view(3, 1, 1)
        self.std = torch.tensor([0.26862954, 0.26130258, 0.27577711], device=device).view(3, 1, 1)

    def compute_scores(self, samples):
        """The first number of the embedding; batch is the size of the batch, threads how many torch computes with."""
        with self.torch.inference_mode():
            pixels = self.torch.stack([s.image for s in samples]).to(self.device)
            out = self.model(pixel_values=(pixels.float() / 255 - self.mean) / self.std)
        return [{"score": v, "batch": len(samples), "threads": self.threads} for v in out.image_embeds[:, 0].tolist()]


class Alone:
    """A sample with nothing around it."""

    def __init__(self, n, image=None):
        self.extra_info, self.image = {"n": n}, image


def main():
    model = {"Sleeping": Sleeping, "Vision": Vision}[sys.argv[1]]()
    image = None
    if model.threads:
        image = model.torch.randint(0, 256, (3, SIZE, SIZE), dtype=model.torch.uint8)
    print("ready", flush=True)
    for line in sys.stdin:
        batch, samples = (int(word) for word in line.split())
        cpu, start = time.process_time(), time.perf_counter()
        for begin in range(0, samples, batch):
            model.compute_scores([Alone(n, image) for n in range(begin, min(begin + batch, samples))])
        took = time.perf_counter() - start
        said = {"per_s": samples / took, "cpu_ms": 1000 * (time.process_time() - cpu) / samples, "threads": model.threads}
        print(json.dumps(said), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
