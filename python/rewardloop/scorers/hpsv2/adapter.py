"""HPSv2.1 (https://github.com/tgxs002/HPSv2): a CLIP model tuned on human preferences, used through open_clip.

verl-omni uses HPSv2.1 in the same way. The published package hpsv2 lacks a file and loads the weights in every call.
"""


class Scorer:
    def __init__(self, device, checkpoint_path=None, model="ViT-H-14", precision="fp32"):
        import open_clip
        import torch

        if checkpoint_path is None:
            from huggingface_hub import hf_hub_download

            checkpoint_path = hf_hub_download("xswu/HPSv2", "HPS_v2.1_compressed.pt")
        self.torch, self.device = torch, device
        self.model, _, self.prepare = open_clip.create_model_and_transforms(model, precision=precision, device=device)
        self.model.load_state_dict(torch.load(checkpoint_path, map_location="cpu", weights_only=True)["state_dict"])
        self.model.eval()
        self.tokenize = open_clip.get_tokenizer(model)
        self.dtype = next(self.model.parameters()).dtype

    def compute_scores(self, samples):
        pictures = self.torch.stack([self.prepare(s.image.convert("RGB")) for s in samples]).to(self.device, self.dtype)
        texts = self.tokenize([s.prompt for s in samples]).to(self.device)
        with self.torch.inference_mode():
            image = self.model.encode_image(pictures, normalize=True)
            text = self.model.encode_text(texts, normalize=True)
        return (image * text).sum(-1).float().tolist()
