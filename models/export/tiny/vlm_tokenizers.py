"""The tokenizers and chat templates of the tiny judges: SmolVLM's and Qwen2.5-VL's."""

from __future__ import annotations

import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tiny.bpe import qwen_words

YES = ("Yes", "yes", " Yes", " yes")
NO = ("No", "no", " No", " no")

SENTENCES = """
Does this figure show "a red car parked beside a blue house"? Please answer yes or no.
Does this image match the caption? Answer with Yes or No. Yes, it does. No, it does not.
Rate the picture on a scale from 1 to 5, where 5 is the best. Score: 4. Score: 2.
What is written on the sign? The words on the sign are "open all day".
A photograph of an old street in the evening, wet stones, warm light in the windows.
You are a helpful assistant. The user asks a question about one or two images.
A small green bird sits on the branch of a tree; the background is out of focus.
Compare the first image with the second image and say which of them is sharper.
The text in the image is not readable because the letters overlap each other.
Three white cups and two plates stand on a wooden table next to an open window.
Is the hand drawn with five fingers? Is the face symmetric? Are the eyes closed?
The colours are bright, the lines are clean, and the composition is well balanced.
This drawing shows a castle on a hill, a river, a bridge and a flock of birds.
How well does the picture follow the prompt? Explain your answer in one sentence.
There are no people in this picture, only a dog running along the beach.
The quick brown fox jumps over the lazy dog while the cat watches from the roof.
Please describe what you see, then give a score between one and five points.
yes no yes no maybe partly almost never always often the same and the other
""".strip().split("\n")

SMOL_SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<repo_name>",
    "<reponame>",
    "<file_sep>",
    "<filename>",
    "<gh_stars>",
    "<issue_start>",
    "<issue_comment>",
    "<issue_closed>",
    "<jupyter_start>",
    "<jupyter_text>",
    "<jupyter_code>",
    "<jupyter_output>",
    "<jupyter_script>",
    "<empty_output>",
]

QWEN_SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
QWEN_PLAIN = [
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
]


def train(tokenizer: Tokenizer, size: int, special: list[str]) -> Tokenizer:
    """Byte-level BPE of the sentences, in which the answers are words of their own."""
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    answers = [word for word in (*YES, *NO) for _ in range(200)]
    tokenizer.train_from_iterator([*SENTENCES, *SENTENCES, *answers], trainer)
    return tokenizer


def special(names: list[str], is_special: bool = True) -> list[AddedToken]:
    return [AddedToken(name, special=is_special, normalized=False) for name in names]


def smol_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """SmolVLM's: digits one by one, byte-level BPE, special tokens in front and behind."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    inner.decoder = decoders.ByteLevel()
    inner.post_processor = processors.ByteLevel(trim_offsets=True)
    train(inner, 700, SMOL_SPECIAL)
    rows = [f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)]
    reserved = [f"<|reserved_special_token_{i}|>" for i in range(6)]
    inner.add_special_tokens(
        special(["<global-img>", *rows, "<fake_token_around_image>", "<image>", *reserved, "<end_of_utterance>"])
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<|im_start|>",
        eos_token="<end_of_utterance>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        additional_special_tokens=["<fake_token_around_image>", "<image>", "<end_of_utterance>"],
        clean_up_tokenization_spaces=False,
        model_max_length=8192,
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
    )


def qwen_tokenizer() -> transformers.Qwen2TokenizerFast:
    """Qwen2's: NFC, its own word expression, byte-level BPE, special tokens behind."""
    inner = Tokenizer(models.BPE())
    inner.normalizer = normalizers.NFC()
    inner.pre_tokenizer = qwen_words()
    inner.decoder = decoders.ByteLevel()
    inner.post_processor = processors.ByteLevel(trim_offsets=False)
    train(inner, 700, [])
    inner.add_special_tokens(special(QWEN_SPECIAL))
    inner.add_tokens(special(QWEN_PLAIN, False))
    return transformers.Qwen2TokenizerFast(
        tokenizer_object=inner,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=QWEN_SPECIAL[1:],
        clean_up_tokenization_spaces=False,
        model_max_length=131072,
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
    )


SMOL_TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)

QWEN_TEMPLATE = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}"
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "{% set image_count.value = image_count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}"
    "{% set video_count.value = video_count.value + 1 %}"
    "{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
