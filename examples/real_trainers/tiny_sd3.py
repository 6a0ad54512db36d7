"""A Stable Diffusion 3 pipeline with random weights, small enough to train on a CPU; nothing is downloaded."""

from pathlib import Path

import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import CLIPTextConfig, CLIPTextModelWithProjection, PreTrainedTokenizerFast, T5Config, T5EncoderModel

#: Latents are [16, 16, 16] for pictures of 32 x 32: one halving by the VAE.
LATENT, WIDTH, HEADS = 16, 8, 4
WORDS = ("<pad>", "</s>", "<unk>", "a", "red", "green", "blue", "circle", "square", "triangle", "on", "white", "black")


def _tokenizer() -> PreTrainedTokenizerFast:
    """A word is a token; a prompt ends with </s>."""
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="</s>", bos_token="</s>", unk_token="<unk>", model_max_length=77
    )


def _clip() -> CLIPTextModelWithProjection:
    return CLIPTextModelWithProjection(
        CLIPTextConfig(
            vocab_size=len(WORDS),
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            projection_dim=WIDTH,
            num_hidden_layers=2,
            num_attention_heads=2,
            bos_token_id=1,
            eos_token_id=1,
            pad_token_id=0,
        )
    )


def build(folder: Path) -> Path:
    """Saves the pipeline in a folder, unless the folder already contains it; the weights are always the same."""
    if (folder / "model_index.json").exists():
        return folder
    torch.manual_seed(0)
    transformer = SD3Transformer2DModel(
        sample_size=LATENT,
        patch_size=2,
        in_channels=16,
        out_channels=16,
        num_layers=2,
        attention_head_dim=WIDTH,
        num_attention_heads=HEADS,
        joint_attention_dim=HEADS * WIDTH,
        caption_projection_dim=HEADS * WIDTH,
        pooled_projection_dim=2 * WIDTH,
        pos_embed_max_size=LATENT,
    )
    vae = AutoencoderKL(
        block_out_channels=(8, 8),
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        latent_channels=16,
        norm_num_groups=4,
        sample_size=2 * LATENT,
        shift_factor=0.0609,
        scaling_factor=1.5035,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )
    t5 = T5EncoderModel(
        T5Config(vocab_size=len(WORDS), d_model=HEADS * WIDTH, d_ff=2 * WIDTH, d_kv=WIDTH, num_layers=2, num_heads=HEADS)
    )
    StableDiffusion3Pipeline(
        transformer=transformer,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=vae,
        text_encoder=_clip(),
        tokenizer=_tokenizer(),
        text_encoder_2=_clip(),
        tokenizer_2=_tokenizer(),
        text_encoder_3=t5,
        tokenizer_3=_tokenizer(),
    ).save_pretrained(folder)
    return folder
