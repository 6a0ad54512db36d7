"""ImageReward (https://github.com/THUDM/ImageReward): BLIP with a head for human preference."""


class Scorer:
    def __init__(self, device, model_path="ImageReward-v1.0", med_config=None):
        import ImageReward
        import torch

        self.torch, self.device = torch, device
        self.model = ImageReward.load(model_path, device=device, med_config=med_config).eval()

    def compute_scores(self, samples):
        # score() of the package takes one prompt a call; these are its lines for a batch.
        model, blip = self.model, self.model.blip
        pictures = self.torch.stack([model.preprocess(s.image) for s in samples]).to(self.device)
        texts = blip.tokenizer(
            [s.prompt for s in samples], padding="max_length", truncation=True, max_length=35, return_tensors="pt"
        ).to(self.device)
        with self.torch.inference_mode():
            seen = blip.visual_encoder(pictures)
            said = blip.text_encoder(
                texts.input_ids,
                attention_mask=texts.attention_mask,
                encoder_hidden_states=seen,
                encoder_attention_mask=self.torch.ones(seen.shape[:-1], dtype=self.torch.long, device=self.device),
                return_dict=True,
            )
            scores = model.mlp(said.last_hidden_state[:, 0].float())
        return ((scores - model.mean) / model.std).squeeze(-1).tolist()
