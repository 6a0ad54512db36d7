"""VideoAlign (https://github.com/KwaiVGI/VideoAlign): visual quality, motion quality and text alignment of a video."""


class Scorer:
    def __init__(
        self, device, code_path, model_path, dtype="bfloat16", fps=None, num_frames=None, use_norm=True, weights=(1, 1, 1)
    ):
        import sys

        import torch

        if fps is not None and num_frames is not None:
            raise ValueError("VideoAlign takes fps or num_frames; leave one of them out")
        sys.path.insert(0, code_path)  # the repository is no package
        from inference import VideoVLMRewardInference

        self.torch, self.weights = torch, dict(zip(("VQ", "MQ", "TA"), weights, strict=True))
        self.given = {"fps": fps, "num_frames": num_frames, "use_norm": use_norm}
        self.model = VideoVLMRewardInference(model_path, device=device, dtype=getattr(torch, dtype))

    def compute_scores(self, samples):
        with self.torch.inference_mode():
            rated = self.model.reward([str(s.video) for s in samples], [s.prompt for s in samples], **self.given)
        return [
            {"score": sum(w * r[k] for k, w in self.weights.items()), "vq": r["VQ"], "mq": r["MQ"], "ta": r["TA"]} for r in rated
        ]
