"""No-reference metrics of picture quality from pyiqa (https://github.com/chaofengc/IQA-PyTorch)."""


class Scorer:
    def __init__(self, device, metric="maniqa", negate="auto", options=None):
        import numpy
        import pyiqa
        import torch

        self.numpy, self.torch, self.device = numpy, torch, device
        self.metric = pyiqa.create_metric(metric, device=torch.device(device), **(options or {}))
        if self.metric.metric_mode != "NR":
            raise ValueError(f"pyiqa's {metric} compares with a reference; want a metric without a reference, such as maniqa or musiq")
        self.sign = -1.0 if negate is True or negate == "auto" and self.metric.lower_better else 1.0

    def compute_scores(self, samples):
        pictures = [self.tensor(s.image) for s in samples]
        values = [None] * len(samples)
        for size in {p.shape for p in pictures}:  # only pictures of one size are a batch
            places = [i for i, p in enumerate(pictures) if p.shape == size]
            with self.torch.inference_mode():
                out = self.metric(self.torch.stack([pictures[i] for i in places]).to(self.device))
            for i, value in zip(places, out.reshape(len(places), -1)[:, 0].float().tolist(), strict=True):
                values[i] = {"score": self.sign * value, "value": value}
        return values

    def tensor(self, picture):
        pixels = self.numpy.array(picture.convert("RGB"), dtype="float32") / 255
        return self.torch.from_numpy(pixels).permute(2, 0, 1)
