"""PickScore v1 (https://github.com/yuvalkirstain/PickScore): a CLIP model tuned on human choices."""


class Scorer:
    def __init__(
        self,
        device,
        model_path="yuvalkirstain/PickScore_v1",
        processor_path="laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
        dtype="float32",
        divide=26,
    ):
        import torch
        from transformers import AutoProcessor, CLIPModel

        self.torch, self.device, self.dtype, self.divide = torch, device, getattr(torch, dtype), divide
        self.processor = AutoProcessor.from_pretrained(processor_path)
        self.model = CLIPModel.from_pretrained(model_path).to(device, self.dtype).eval()

    def compute_scores(self, samples):
        pictures = self.processor(images=[s.image.convert("RGB") for s in samples], return_tensors="pt")
        texts = self.processor(
            text=[s.prompt for s in samples], padding=True, truncation=True, max_length=77, return_tensors="pt"
        )
        with self.torch.inference_mode():
            image = self.unit(self.model.get_image_features(pixel_values=pictures["pixel_values"].to(self.device, self.dtype)))
            text = self.unit(self.model.get_text_features(**texts.to(self.device)))
            scores = self.model.logit_scale.exp() * (image * text).sum(-1) / self.divide
        return scores.float().tolist()

    def unit(self, features):
        features = getattr(features, "pooler_output", features)  # an object in transformers 5, a tensor in 4
        return features / features.norm(dim=-1, keepdim=True)
