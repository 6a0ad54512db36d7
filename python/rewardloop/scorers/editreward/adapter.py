"""EditReward (https://github.com/TIGER-AI-Lab/EditReward): how well an edited picture follows its prompt."""


class Scorer:
    def __init__(
        self, device, code_path, config_path, checkpoint_path, reward_dim="overall_detail", rm_head_type="ranknet_multi_head"
    ):
        import sys

        import torch

        sys.path.insert(0, code_path)  # the repository is no package
        from EditReward import EditRewardInferencer

        self.torch = torch
        self.model = EditRewardInferencer(
            config_path=config_path,
            checkpoint_path=checkpoint_path,
            device=device,
            reward_dim=reward_dim,
            rm_head_type=rm_head_type,
        )

    def compute_scores(self, samples):
        pairs = [[m["data"] for m in s.media if m["kind"] == "image"][:2] for s in samples]
        with self.torch.inference_mode():
            rewards = self.model.reward(
                prompts=[s.prompt for s in samples],
                image_src=[str(source) for _, source in pairs],
                image_paths=[str(edited) for edited, _ in pairs],
            )
        rows = rewards.float().reshape(len(samples), -1).tolist()
        return [{"score": row[0], "second": row[1] if len(row) > 1 else None} for row in rows]
