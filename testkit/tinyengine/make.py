"""Makes tiny models with random weights that vLLM and transformers serve: text, classifier and vision.

usage: python make.py FOLDER

Each is a folder below FOLDER in the form of Hugging Face, of Qwen2's and Qwen2.5-VL's architecture, with a tokenizer of
256 bytes and a few words. The weights are random but for one thing: the likeliest next tokens are always Yes, No and the
digits, so that judges that read log probabilities find them. It takes half a minute.
"""

import json
import os
import sys

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
)

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
WORDS = ["Yes", "No"]
HIDDEN, LAYERS, HEADS, VOCABULARY = 64, 2, 2, 512
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}"
    "{% else %}{% for c in m['content'] %}{% if 'image' in c or 'image_url' in c or c['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in c %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer():
    """A tokenizer of single bytes, with Yes and No as words of their own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(SPECIAL)
    t.add_tokens([AddedToken(w, normalized=False) for w in WORDS])
    return PreTrainedTokenizerFast(
        tokenizer_object=t, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE, model_max_length=4096
    )


def steer(model, tok):
    """Has the first dimension of every hidden state be large, and the head read Yes, No and digits off it."""
    inner = model.model.language_model if hasattr(model.model, "language_model") else model.model
    with torch.no_grad():
        inner.embed_tokens.weight[:, 0] = 3.0
        for layer in inner.layers:
            layer.self_attn.o_proj.weight[0].zero_()
            layer.mlp.down_proj.weight[0].zero_()
        if hasattr(model, "lm_head"):
            head = model.lm_head.weight
            head.mul_(0.02)
            head[:, 0] = 0.0
            for word, weight in [("Yes", 1.2), ("No", 1.1), *((str(d), 0.8 + 0.02 * d) for d in range(10))]:
                head[tok.convert_tokens_to_ids(word), 0] = weight


def text_config(**more):
    return dict(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=128, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=HEADS, max_position_embeddings=4096, tie_word_embeddings=False, **more
    )  # fmt: skip


def save(model, tok, folder):
    steer(model, tok)
    model.to(torch.float32).save_pretrained(folder)
    tok.save_pretrained(folder)


def main():
    folder = sys.argv[1]
    torch.manual_seed(0)
    tok = tokenizer()
    ids = {name: tok.convert_tokens_to_ids(name) for name in SPECIAL}
    ends = dict(bos_token_id=ids["<|endoftext|>"], eos_token_id=ids["<|im_end|>"], pad_token_id=ids["<|endoftext|>"])
    save(Qwen2ForCausalLM(Qwen2Config(**text_config(**ends))), tok, os.path.join(folder, "text"))
    save(
        Qwen2ForSequenceClassification(Qwen2Config(num_labels=1, **text_config(**ends))), tok, os.path.join(folder, "classifier")
    )

    vision = os.path.join(folder, "vision")
    config = Qwen2_5_VLConfig(
        text_config=dict(**text_config(**ends), rope_parameters={"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 1e6}),
        vision_config=dict(depth=2, hidden_size=32, intermediate_size=64, num_heads=2, out_hidden_size=HIDDEN, fullatt_block_indexes=[1]),
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
    )  # fmt: skip
    save(Qwen2_5_VLForConditionalGeneration(config), tok, vision)
    picture = dict(
        do_convert_rgb=True, do_normalize=True, do_rescale=True, do_resize=True, image_mean=[0.5] * 3, image_std=[0.5] * 3,
        image_processor_type="Qwen2VLImageProcessor", merge_size=2, min_pixels=3136, max_pixels=200704, patch_size=14, resample=3,
        rescale_factor=1 / 255, temporal_patch_size=2, processor_class="Qwen2_5_VLProcessor",
    )  # fmt: skip
    for name in ("preprocessor_config.json", "processor_config.json"):
        with open(os.path.join(vision, name), "w") as f:
            whole = {"processor_class": "Qwen2_5_VLProcessor", "chat_template": TEMPLATE}
            json.dump(picture if name.startswith("pre") else whole, f)
    print("made", *sorted(os.listdir(folder)))


if __name__ == "__main__":
    main()
