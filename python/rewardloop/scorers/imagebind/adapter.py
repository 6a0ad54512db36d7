"""ImageBind (https://github.com/facebookresearch/ImageBind): cosine similarities of sound, video and text."""

WEIGHTS = {"audio_text": {"at": 1.0}, "audio_video": {"av": 1.0}, "all": {"av": 0.5, "at": 0.25, "vt": 0.25}}


class Scorer:
    def __init__(self, device, code_path, checkpoint_path=None, mode="audio_text"):
        import sys

        import torch

        sys.path.insert(0, code_path)
        from imagebind import data
        from imagebind.models import imagebind_model

        self.torch, self.data, self.device, self.pairs = torch, data, device, WEIGHTS[mode]
        # imagebind_huge(pretrained=True) would download into .checkpoints of the working directory.
        if checkpoint_path is None:
            url = "https://dl.fbaipublicfiles.com/imagebind/imagebind_huge.pth"
            state = torch.hub.load_state_dict_from_url(url, map_location="cpu", weights_only=True)
        else:
            state = torch.load(checkpoint_path, map_location="cpu", weights_only=True)
        self.model = imagebind_model.imagebind_huge(pretrained=False)
        self.model.load_state_dict(state)
        self.model.eval().to(device)

    def compute_scores(self, samples):
        used = "".join(self.pairs)
        lacking = [s for s in samples if "v" in used and s.video is None or "t" in used and not s.prompt]
        if lacking:
            raise ValueError(f"ImageBind needs a video or a prompt that sample {lacking[0].id!r} does not have")
        inputs = {"audio": self.data.load_and_transform_audio_data([str(s.audio) for s in samples], self.device)}
        if "v" in used:
            inputs["vision"] = self.data.load_and_transform_video_data([str(s.video) for s in samples], self.device)
        if "t" in used:
            inputs["text"] = self.data.load_and_transform_text([s.prompt for s in samples], self.device)
        with self.torch.inference_mode():
            found = self.model(inputs)
        unit = {k[0]: v.float() / v.float().norm(dim=-1, keepdim=True) for k, v in found.items()}
        columns = {p: (unit[p[0]] * unit[p[1]]).sum(-1).tolist() for p in self.pairs}
        return [
            {"score": sum(w * columns[p][i] for p, w in self.pairs.items()), **{p: columns[p][i] for p in self.pairs}}
            for i in range(len(samples))
        ]
