"""PickScore v1 over evenly spaced frames of a video, as in flow_grpo; frames=1 uses the first frame, as UniRL does."""


class Scorer:
    def __init__(
        self,
        device,
        model_path="yuvalkirstain/PickScore_v1",
        processor_path="laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
        dtype="float32",
        divide=26,
        frames=8,
    ):
        import torch
        from transformers import AutoProcessor, CLIPModel

        self.torch, self.device, self.dtype, self.divide, self.frames = torch, device, getattr(torch, dtype), divide, frames
        self.processor = AutoProcessor.from_pretrained(processor_path)
        self.model = CLIPModel.from_pretrained(model_path).to(device, self.dtype).eval()

    def compute_scores(self, samples):
        chosen = [self.choose(s.video) for s in samples]
        texts = self.processor(
            text=[s.prompt for s in samples], padding=True, truncation=True, max_length=77, return_tensors="pt"
        )
        scores = []
        with self.torch.inference_mode():
            text = self.unit(self.model.get_text_features(**texts.to(self.device)))
            for frames, of in zip(chosen, text, strict=True):  # a video at a time: all frames of a batch are many
                pixels = self.processor(images=frames, return_tensors="pt")["pixel_values"].to(self.device, self.dtype)
                image = self.unit(self.model.get_image_features(pixel_values=pixels))
                scores.append((self.model.logit_scale.exp() * (image @ of)).mean() / self.divide)
        return [float(score) for score in scores]

    def choose(self, video):
        places = self.torch.linspace(0, len(video) - 1, min(self.frames, len(video))).long().tolist()
        return [video[place].convert("RGB") for place in places]

    def unit(self, features):
        features = getattr(features, "pooler_output", features)  # an object in transformers 5, a tensor in 4
        return features / features.norm(dim=-1, keepdim=True)
