"""flow_grpo's own configuration, reduced: scripts/train_sd3.py of a checkout trains it in two processes on a CPU."""

import importlib.util
import os

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """Returns config/base.py of the checkout with the changes for a CPU."""
    spec = importlib.util.spec_from_file_location("base", os.path.join(os.environ["FLOW_GRPO"], "config", "base.py"))
    base = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(base)
    config = base.get_config()
    config.pretrained.model = os.environ["FLOW_GRPO_MODEL"]
    config.dataset = os.environ["FLOW_GRPO_PROMPTS"]
    config.prompt_fn = "general_ocr"  # lines of text
    config.mixed_precision = "no"
    config.resolution = 32
    config.eval_freq = config.save_freq = 1000
    config.sample.num_steps = config.sample.eval_num_steps = 4
    config.sample.guidance_scale = 1.5
    config.sample.train_batch_size = config.sample.test_batch_size = 4
    config.sample.num_image_per_prompt = 4
    config.sample.num_batches_per_epoch = 4
    config.train.batch_size = 4
    config.train.gradient_accumulation_steps = 2  # two updates an epoch
    config.train.timestep_fraction = 0.75
    config.train.beta = 0.04
    config.train.ema = False  # what ema.py sets aside with .cpu() is no copy on a CPU: an evaluation would leave the EMA in place
    config.reward_fn = {"jpeg_compressibility": 500.0}  # minus the size in kB
    return config
