"""EditScore (https://github.com/VectorSpaceLab/EditScore): a vision-language model rates an edit of a picture."""


class Scorer:
    def __init__(
        self,
        device,
        model_path="Qwen/Qwen2.5-VL-7B-Instruct",
        lora_path="EditScore/EditScore-7B",
        backbone="qwen25vl",
        num_pass=1,
        seed=42,
    ):
        import sys

        before = list(sys.path)
        from editscore import EditScore

        sys.path[:] = before  # the package puts a relative folder in front of it
        if device == "cpu" and backbone != "openai":
            raise ValueError("EditScore runs only on a card: write devices: cuda")
        self.model = EditScore(
            backbone=backbone, model_name_or_path=model_path, lora_path=lora_path, score_range=25, num_pass=num_pass, seed=seed
        )

    def compute_scores(self, samples):
        return [self.one(s) for s in samples]  # evaluate() takes one edit a call

    def one(self, sample):
        edited, source = [m["data"].convert("RGB") for m in sample.media if m["kind"] == "image"][:2]
        rated = self.model.evaluate([source, edited], sample.prompt)
        if "guess_if_cannot_parse" in str(rated):
            return ValueError("EditScore could not read the model's answer, and gave a random number")
        columns = {k: float(rated[k]) for k in ("prompt_following", "consistency", "perceptual_quality")}
        return {"score": float(rated["overall"]), **columns}
