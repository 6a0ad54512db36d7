"""Models for the tests of what goes wrong in batches."""

import os
import time

AT_IMPORT = os.environ.get("CUDA_VISIBLE_DEVICES")


class AtImport:
    """Says which card it saw when its file was imported."""

    def compute_scores(self, samples):
        time.sleep(0.02)
        return [{"score": 1.0, "card": AT_IMPORT, "pid": str(os.getpid())} for _ in samples]


class OutOfMemoryError(RuntimeError):
    """As torch has one."""


class Tight:
    """Has memory for four samples, and says which batches it was asked for; a sample "huge" fits nowhere."""

    def __init__(self, how="python"):
        self.how, self.sizes = how, []

    def compute_scores(self, samples):
        self.sizes.append(len(samples))
        if len(samples) > 4 or any(s.ground_truth == "huge" for s in samples):
            if self.how == "python":
                raise MemoryError()
            if self.how == "torch":
                raise OutOfMemoryError("Tried to allocate 2.00 GiB")
            raise RuntimeError("CUDA error: out of memory")
        return [{"score": float(s.ground_truth), "sizes": " ".join(map(str, self.sizes))} for s in samples]


class Naps:
    """Scores while it is awake, and takes time to wake up."""

    def __init__(self, faulty=""):
        self.awake, self.told, self.faulty = True, 0, faulty

    def sleep(self):
        if self.faulty == "sleep":
            raise RuntimeError("cannot sleep")
        self.awake, self.told = False, self.told + 1

    def wake(self):
        if self.faulty == "wake":
            raise RuntimeError("cannot wake")
        time.sleep(0.05)
        self.awake, self.told = True, self.told + 1

    def compute_scores(self, samples):
        if not self.awake:
            raise AssertionError("asked in its sleep")
        return [{"score": float(s.ground_truth), "told": self.told, "pid": str(os.getpid())} for s in samples]


class Waits:
    """Waits as many seconds for a batch as its slowest sample says."""

    def compute_scores(self, samples):
        time.sleep(max(float(s.ground_truth) for s in samples))
        return [{"score": float(s.ground_truth), "pid": str(os.getpid())} for s in samples]


class Warmed:
    """Says how many samples its calls have had before, and what the first of them was."""

    def __init__(self, device, fails=False):
        self.calls, self.fails = [], fails

    def compute_scores(self, samples):
        self.calls.append(len(samples))
        if self.fails and len(self.calls) == 1:
            raise MemoryError("no room for " + samples[0].id)
        return [{"score": float(self.calls[0]), "shape": str(s.image.shape if s.image is not None else None)} for s in samples]

    def score_group(self, samples):
        self.calls.append(len(samples))
        return [float(self.calls[0]) for _ in samples]


def of_avi(path):
    """The frames of an AVI of PNGs by its index, as lists of rows of RGB, and its frames per second."""
    import io
    import struct

    import numpy
    from PIL import Image

    with open(path, "rb") as file:
        data = file.read()
    assert data[:4] == b"RIFF" and data[8:16] == b"AVI LIST" and struct.unpack("<I", data[4:8])[0] == len(data) - 8, data[:16]
    scale, rate = struct.unpack("<II", data[data.index(b"strh") + 28 :][:8])
    index, movie, frames = data.rindex(b"idx1"), data.index(b"movi"), []
    assert struct.unpack("<I", data[movie - 4 : movie])[0] == index - movie
    for at in range(index + 8, len(data), 16):
        offset, size = struct.unpack("<II", data[at + 8 : at + 16])
        frames.append(numpy.asarray(Image.open(io.BytesIO(data[movie + offset + 8 : movie + offset + 8 + size]))).tolist())
    return frames, rate / scale


class Files:
    """Reads its media from files, and says whether those of the call before are still there."""

    def __init__(self, device="cpu"):
        self.before = []

    def compute_scores(self, samples):
        return [self.compute_score(s.media) for s in samples]

    def compute_score(self, media):
        import wave

        import numpy

        left = sum(os.path.exists(path) for path in self.before)
        self.before, seen = [str(m["data"]) for m in media], []
        for m in media:
            if m["kind"] == "image":
                from PIL import Image

                seen.append(numpy.asarray(Image.open(m["data"])).tolist())
            elif m["kind"] == "video":
                seen.append(of_avi(m["data"]))
            elif m["kind"] == "audio":
                with wave.open(m["data"]) as file:
                    seen.append([file.getnchannels(), file.getframerate(), list(file.readframes(99))])
            else:
                seen.append(numpy.load(m["data"]).tolist())
        return {"score": float(left), "folder": os.path.dirname(self.before[0]), "pid": str(os.getpid()), "seen": seen}


class Heavy:
    """Holds 300 MB while it scores, and raises for more samples than one."""

    def compute_scores(self, samples):
        held = b"x" * 300_000_000
        time.sleep(0.25)  # long enough to be seen by who watches its memory
        if len(samples) > 1:
            raise ValueError(f"{len(samples)} samples beside {len(held)} bytes")
        return [float(s.ground_truth) for s in samples]


class Slowly:
    """Takes as many seconds for any batch as it is told to, and raises for one with a sample "alone" and others."""

    def __init__(self, seconds):
        self.seconds = seconds

    def compute_scores(self, samples):
        if any(s.extra_info.get("alone") for s in samples):
            time.sleep(self.seconds)
            if len(samples) > 1:
                raise ValueError("one at a time")
        return [float(s.ground_truth) for s in samples]


def nested():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    return deep


class Odd:
    """Returns for a whole batch, or for one sample, what is no score. The ground truth names it; a number is one."""

    ONE = {
        "text": lambda: "0.5",
        "texts": lambda: ["a", "b"],
        "nested": lambda: [[1.0, 2.0], [3.0]],
        "deep": nested,
        "infinite": lambda: 1e400,
        "huge": lambda: 10**400,
        "complex": lambda: 1j,
        "class": lambda: Odd,
        "generator": lambda: (x for x in range(3)),
        "endless": lambda: iter(int, 1),
        "long text": lambda: {"score": 1.0, "why": "x" * (64 << 20)},
        "many steps": lambda: [0.0] * 1_000_000,
        "object": lambda: __import__("numpy").array(["a", None], dtype=object),
        "wide": lambda: __import__("numpy").zeros(100_000_000, dtype="uint8"),
    }
    ALL = {
        "a generator": lambda n: (1.0 for _ in range(n)),
        "a dict": lambda n: {i: 1.0 for i in range(n)},
        "a text": lambda n: "1" * n,
        "nothing": lambda n: None,
        "too many": lambda n: [1.0] * (n + 1),
        "1 GiB": lambda n: [0.0] * (1 << 27),
        "1 GB of numbers": lambda n: __import__("numpy").zeros((n, 1_000_000_000 // n), dtype="uint8"),
    }

    def compute_scores(self, samples):
        truths = [s.ground_truth for s in samples]
        for truth in truths:
            if truth in self.ALL:
                return self.ALL[truth](len(samples))
        return [self.ONE[truth]() if truth in self.ONE else float(truth) for truth in truths]


class Wordy:
    """Says half a megabyte of each sample."""

    def compute_scores(self, samples):
        return [{"score": float(s.ground_truth), "why": ["x" * (1 << 19)]} for s in samples]


class Tower:
    """A tiny CLIP with random weights: the cosine of picture and prompt, for a sample, a list of them, or tensors."""

    def __init__(self, device):
        import torch
        from transformers import CLIPConfig, CLIPModel

        torch.manual_seed(7)
        self.torch, self.device = torch, device
        small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "projection_dim": 16}
        config = CLIPConfig(
            text_config={**small, "vocab_size": 300, "max_position_embeddings": 16, "bos_token_id": 0, "eos_token_id": 299},
            vision_config={**small, "image_size": 32, "patch_size": 8},
            projection_dim=16,
        )
        self.model = CLIPModel(config).eval().to(device)

    def direct(self, image, prompt):
        """The score of one picture, uint8 [3, 32, 32], and one text, without a batch."""
        return self.cosines(image[None], [prompt])[0]

    def cosines(self, images, prompts):
        torch = self.torch
        ids = torch.full((len(prompts), 16), 299)
        for i, prompt in enumerate(prompts):
            letters = list(prompt.encode())[:14]
            ids[i, 0], ids[i, 1 : 1 + len(letters)] = 0, torch.tensor(letters) + 1
        with torch.inference_mode():
            out = self.model(input_ids=ids.to(self.device), pixel_values=images.to(self.device).float() / 127.5 - 1)
            return (out.image_embeds * out.text_embeds).sum(-1).tolist()

    def compute_scores(self, samples):
        torch = self.torch
        images = [s.image for s in samples]
        kinds = {f"{type(i).__module__}.{type(i).__name__} {i.dtype} {tuple(i.shape)}" for i in images}
        scores = self.cosines(torch.stack(images), [s.prompt for s in samples])
        alone = [self.direct(s.image, s.prompt) for s in samples]
        about = {"batch": len(samples), "pid": str(os.getpid()), "pixels": ", ".join(sorted(kinds)), "threads": torch.get_num_threads()}
        return [{"score": v, "direct": d, **about} for v, d in zip(scores, alone)]
