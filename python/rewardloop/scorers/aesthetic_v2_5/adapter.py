"""Aesthetic Predictor V2.5 (https://github.com/discus0434/aesthetic-predictor-v2-5): aesthetic quality of a picture."""


class Scorer:
    def __init__(self, device, model_path="google/siglip-so400m-patch14-384", head_path=None, dtype="float32"):
        import torch
        from aesthetic_predictor_v2_5 import convert_v2_5_from_siglip

        self.torch, self.device, self.dtype = torch, device, getattr(torch, dtype)
        model, self.processor = convert_v2_5_from_siglip(predictor_name_or_path=head_path, encoder_model_name=model_path)
        self.model = model.to(device, self.dtype).eval()

    def compute_scores(self, samples):
        pictures = self.processor(images=[s.image.convert("RGB") for s in samples], return_tensors="pt")
        with self.torch.inference_mode():
            logits = self.model(pictures["pixel_values"].to(self.device, self.dtype)).logits
        return logits.squeeze(-1).float().tolist()
