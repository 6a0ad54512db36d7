"""CLAP (https://github.com/LAION-AI/CLAP): the cosine similarity of a sound and its prompt."""


class Scorer:
    def __init__(self, device, model_path="laion/larger_clap_general", dtype="float32"):
        import torch
        import torchaudio
        from transformers import ClapModel, ClapProcessor

        self.torch, self.device, self.dtype = torch, device, getattr(torch, dtype)
        self.resample = torchaudio.functional.resample
        self.processor = ClapProcessor.from_pretrained(model_path)
        self.extract = self.processor.feature_extractor
        self.model = ClapModel.from_pretrained(model_path).to(device, self.dtype).eval()

    def compute_scores(self, samples):
        sounds = [self.mono(*s.waveform) for s in samples]
        audio = self.extract(sounds, sampling_rate=self.extract.sampling_rate, return_tensors="pt").to(self.device)
        audio["input_features"] = audio["input_features"].to(self.dtype)
        text = self.processor.tokenizer([s.prompt for s in samples], padding=True, truncation=True, return_tensors="pt")
        with self.torch.inference_mode():
            heard = self.unit(self.model.get_audio_features(**audio))
            asked = self.unit(self.model.get_text_features(**text.to(self.device)))
        return (heard * asked).sum(-1).float().tolist()

    def mono(self, channels, rate):
        """Returns one channel at the sample rate of the model, because the extractor does not resample.

        From a sound that is longer than the model accepts, the extractor would use a random part; this method uses the
        beginning.
        """
        sound = self.torch.from_numpy(channels).mean(0)
        if rate != self.extract.sampling_rate:
            sound = self.resample(sound, rate, self.extract.sampling_rate)
        return sound[: self.extract.nb_max_samples].numpy()

    def unit(self, features):
        features = getattr(features, "pooler_output", features)  # an object in transformers 5, a tensor in 4
        return features / features.norm(dim=-1, keepdim=True)
