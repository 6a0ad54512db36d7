"""HPSv3 (https://github.com/MizzenAI/HPSv3): Qwen2-VL with a head for mean and uncertainty of human preference."""


class Scorer:
    def __init__(self, device, config_path=None, checkpoint_path=None):
        import torch
        from hpsv3 import HPSv3RewardInferencer

        self.torch = torch
        self.model = HPSv3RewardInferencer(config_path=config_path, checkpoint_path=checkpoint_path, device=device)

    def compute_scores(self, samples):
        with self.torch.inference_mode():  # the package tracks gradients
            rewards = self.model.reward([s.image.convert("RGB") for s in samples], [s.prompt for s in samples])
        return [{"score": mu, "sigma": sigma} for mu, sigma in rewards.float().tolist()]
