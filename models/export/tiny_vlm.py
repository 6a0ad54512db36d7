"""Makes tiny vision-language judges with random weights and the answers PyTorch gives.

    tiny-idefics3      SmolVLM's architecture, tokens, chat template and processor
    tiny-qwen2_5_vl    Qwen2.5-VL's
    exotic             decoders and encoders for tiny-idefics3 in forms that are met in
                       public exports, and in forms that must be refused

golden.json beside each model holds what transformers' slow processors and its eager
float32 model say of every case: pixels, ids, image features, logits, the first 16 tokens,
P(yes), the expected digit and the log probabilities of whole answers.

Example:
    python models/export/tiny_vlm.py testdata/models
    python models/export/tiny_vlm.py testdata/models --only tiny-idefics3
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import idefics3
import numpy as np
import onnx
import PIL
import PIL.Image
import qwen2_5_vl
import tokenizers
import torch
import transformers
import vlm
from onnx import TensorProto, helper
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

NEW_TOKENS = 16
YES = ("Yes", "yes", " Yes", " yes")
NO = ("No", "no", " No", " no")
CANDIDATES = (" Yes", "No", " a red car", "the words are crisp and 17 letters long", " Ünïcode ✓")

# An answer whose best two tokens are nearer than this says nothing about correctness.
MARGIN = 1e-2

# Seeds with which no case has so small a margin, and the answers differ.
IDEFICS3_SEED, QWEN_SEED = 29, 34

# -- tokenizers -----------------------------------------------------------------------

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

QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


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
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
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

# -- weights --------------------------------------------------------------------------

# Standard deviations by the end of a parameter's name; the first that fits. transformers'
# own 0.02 makes logits so flat that every answer is a matter of rounding.
SCALES = (
    ("embed_tokens.weight", 1.0),
    ("lm_head.weight", 0.5),
    ("position_embedding.weight", 0.5),
    ("patch_embedding.weight", 0.15),
    ("patch_embed.proj.weight", 0.06),
    ("bias", 0.1),
    ("weight", 0.22),
)


def randomise(model: nn.Module, seed: int, never: list[int]) -> nn.Module:
    """Draws every weight but those of norms, which stay 1. Tokens of never get no logit
    above 0, so that no answer holds them."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if "norm" in name or "ln_q" in name:
                continue
            scale = next(value for end, value in SCALES if name.endswith(end))
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
        model.lm_head.weight[never] = 0
    return model.eval().requires_grad_(False)


# -- what a case is, and its answers --------------------------------------------------


@dataclass
class Case:
    """One question. split and edge are Idefics3's: cut the pictures, and the length their
    longest edge is brought to first."""

    name: str
    text: str
    images: list[str] = field(default_factory=list)
    split: bool = False
    edge: int = 0
    system: str = ""
    before: str = ""

    def messages(self) -> list[dict]:
        content: list[dict] = [{"type": "text", "text": self.before}] if self.before else []
        content += [{"type": "image"} for _ in self.images]
        content.append({"type": "text", "text": self.text})
        turns = [{"role": "user", "content": content}]
        if self.system:
            turns.insert(0, {"role": "system", "content": [{"type": "text", "text": self.system}]})
        return turns


class Answers:
    """Asks the eager model, and writes what it says below a model's folder."""

    def __init__(self, model: nn.Module, tokenizer, out: Path) -> None:
        self.model, self.tokenizer, self.out = model, tokenizer, out
        self.yes, self.no = self.single(YES), self.single(NO)
        self.digits = {digit: self.single((str(digit), f" {digit}")) for digit in range(1, 6)}
        eos = model.generation_config.eos_token_id
        self.stop = eos if isinstance(eos, list) else [eos]
        if len(self.yes) < 4 or len(self.no) < 4 or not all(self.digits.values()):
            raise SystemExit(f"answers are not single tokens: {self.yes}, {self.no}, {self.digits}")

    def single(self, texts: tuple[str, ...]) -> list[int]:
        ids = [self.tokenizer.encode(text, add_special_tokens=False) for text in texts]
        return sorted({one[0] for one in ids if len(one) == 1})

    def tokens(self) -> dict:
        return {"yes": self.yes, "no": self.no, "digits": self.digits, "stop": self.stop}

    def raw(self, folder: str, name: str, data: np.ndarray) -> dict:
        """Writes data as it lies in memory; says which file, type and shape."""
        kind = {"float32": "F32", "uint8": "U8", "int64": "I64"}[data.dtype.name]
        end = {"F32": "f32", "U8": "u8", "I64": "i64"}[kind]
        path = self.out / folder / f"{name}.{end}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(np.ascontiguousarray(data).tobytes())
        return {"file": f"{folder}/{path.name}", "dtype": kind, "shape": list(data.shape)}

    def scores(self, logits: torch.Tensor) -> dict:
        """Of one position's logits [V]."""
        logits = logits.double()
        total = logits.logsumexp(0)
        yes, no = logits[self.yes].logsumexp(0), logits[self.no].logsumexp(0)
        digits = torch.stack([logits[ids].logsumexp(0) for ids in self.digits.values()])
        expected = float((digits.softmax(0) * torch.arange(1, 6)).sum())
        return {
            "p_yes": float((yes - no).sigmoid()),
            "mass": float((torch.logaddexp(yes, no) - total).exp()),
            "digit": expected,
            "digit_mass": float((digits.logsumexp(0) - total).exp()),
            "digit_score": (expected - 1) / 4,
        }

    def ask(self, name: str, inputs: dict) -> dict:
        """Everything that is asked of one prompt; inputs is what the processor made."""
        ids = inputs["input_ids"]
        with torch.no_grad():
            logits = self.model(**inputs).logits[0, -1]
            made = self.model.generate(
                **inputs, do_sample=False, max_new_tokens=NEW_TOKENS, output_logits=True, return_dict_in_generate=True
            )
        tokens = made.sequences[0, ids.shape[1] :].tolist()
        steps = torch.stack(made.logits)[:, 0]
        best = steps.topk(2).values
        margin = float((best[:, 0] - best[:, 1]).min())
        if margin < MARGIN:
            raise SystemExit(f"{name}: two tokens are {margin:.1e} apart: take another seed")
        chosen = steps.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]
        stopped = tokens[-1] in self.stop
        kept = tokens[:-1] if stopped else tokens
        record = self.scores(logits)
        return {
            "input_ids": ids[0].tolist(),
            "last_logits": self.raw("logits", name, logits.numpy()),
            "greedy": kept,
            "greedy_logprobs": chosen[: len(kept)].tolist(),
            "greedy_stopped": stopped,
            "greedy_margin": margin,
            "greedy_text": self.tokenizer.decode(kept, skip_special_tokens=True),
            **record,
            "candidates": [self.candidate(text, inputs) for text in CANDIDATES],
        }

    def candidate(self, text: str, inputs: dict) -> dict:
        """log P(text | prompt): the sum over the text's own tokens."""
        tail = torch.tensor([self.tokenizer.encode(text, add_special_tokens=False)])
        longer = dict(inputs)
        longer["input_ids"] = torch.cat([inputs["input_ids"], tail], 1)
        longer["attention_mask"] = torch.ones_like(longer["input_ids"])
        count = tail.shape[1]
        with torch.no_grad():
            logits = self.model(**longer).logits[0, -count - 1 : -1].double()
        logprob = float(logits.log_softmax(-1).gather(1, tail[0][:, None]).sum())
        return {"text": text, "ids": tail[0].tolist(), "logprob": logprob}


def pictures(folder: Path, names: list[str]) -> list[PIL.Image.Image]:
    return [PIL.Image.open(folder / name).convert("RGB") for name in names]


def versions() -> dict:
    modules = {"transformers": transformers, "tokenizers": tokenizers, "pillow": PIL, "numpy": np, "onnx": onnx}
    return {"torch": torch.__version__.split("+")[0]} | {name: m.__version__ for name, m in modules.items()}


def report(case: dict) -> None:
    print(
        f"  {case['name']}: {len(case['input_ids'])} ids, P(yes) {case['p_yes']:.4f} mass {case['mass']:.4f} "
        f"digit {case['digit']:.3f}, {len(case['greedy'])} tokens, margin {case['greedy_margin']:.3f}"
    )


def spread(cases: list[dict]) -> None:
    """The answers must depend on what is asked."""
    for key in ("p_yes", "digit"):
        values = [case[key] for case in cases]
        if max(values) - min(values) < 0.2:
            raise SystemExit(f"{key} is between {min(values):.3f} and {max(values):.3f}: take another seed")


# -- tiny-idefics3 --------------------------------------------------------------------

QUESTION = 'Does this figure show "{}"? Please answer yes or no.'
RATE = "Rate the picture on a scale from 1 to 5, where 5 is the best."

# Whole pictures are asked with the longest edge at 64, as the judge does, and at 256, as
# the processor's own settings say.
IDEFICS3_CASES = [
    Case("whole-64x64-a", QUESTION.format("a red car"), ["img_00_64x64.png"], edge=64),
    Case("whole-64x64-b", QUESTION.format("a red car"), ["img_01_64x64.png"], edge=64),
    Case("whole-97x131", QUESTION.format("a red car"), ["img_02_97x131.png"], edge=64),
    Case("whole-97x131-edge256", QUESTION.format("a red car"), ["img_02_97x131.png"], edge=256),
    Case("whole-301x200", RATE, ["img_05_301x200.png"], edge=64),
    Case("whole-640x360", "What is written on the sign?", ["img_08_640x360.png"], edge=64),
    Case("whole-37x500", "Is the hand drawn with five fingers?", ["img_09_37x500.png"], edge=64),
    Case("split-97x131", QUESTION.format("an old street"), ["img_02_97x131.png"], True, 256),
    Case("split-37x500", RATE, ["img_09_37x500.png"], True, 256),
    Case("split-224x224-edge128", RATE, ["img_03_224x224.png"], True, 128),
    Case("split-64x64-edge64", "Are the eyes closed?", ["img_01_64x64.png"], True, 64),
    Case("two-whole", "Which is sharper?", ["img_00_64x64.png", "img_04_256x192.png"], edge=64, before="Compare: "),
    Case("two-split", "Which is sharper?", ["img_09_37x500.png", "img_03_224x224.png"], True, 128),
    Case("text-only", "Is the sky blue? Café, naïve, 東京 🙂 12345", system="You are a careful judge."),
]
IDEFICS3_BATCHES = [["whole-64x64-a", "whole-64x64-b", "whole-97x131"]]
IDEFICS3_NOTES = [
    (
        "pixels are U8 [tiles, 3, 64, 64] before (x/255 - 0.5)/0.5, tiles in the order of the prompt, each picture's "
        "smaller copy last where it is split"
    ),
    (
        "without splitting transformers 4.57 resizes twice with Lanczos: the longest edge to longest_edge, then both "
        "edges to 64; pixels is that. square is one resize of the picture to 64x64 and is not what the answers are of"
    ),
    (
        "positions of patches are those of transformers 4.57.6 in float32 (0, 0, 1, ..., 6 along a side), in the ONNX "
        "file as in the answers"
    ),
    "candidates are encoded on their own and put behind the prompt's ids",
    "greedy ends before the stop token; greedy_stopped says that there was one within 16",
]


def idefics3_model(seed: int):
    """The model, its tokenizer and its processor for whole and for split pictures."""
    tokenizer = smol_tokenizer()
    ids = tokenizer.convert_tokens_to_ids
    end = ids("<end_of_utterance>")
    config = transformers.Idefics3Config(
        image_token_id=ids("<image>"),
        scale_factor=2,
        tie_word_embeddings=False,
        pad_token_id=ids("<|im_end|>"),
        bos_token_id=ids("<|im_start|>"),
        eos_token_id=end,
        vision_config={
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "image_size": 64,
            "patch_size": 8,
        },
        text_config={
            "model_type": "llama",
            "vocab_size": len(tokenizer),
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 8192,
            "rope_theta": 100000,
            "pad_token_id": ids("<|im_end|>"),
            "bos_token_id": ids("<|im_start|>"),
            "eos_token_id": end,
            "tie_word_embeddings": False,
        },
    )
    config._attn_implementation = "eager"
    never = [i for i in [*range(len(SMOL_SPECIAL)), *range(ids("<global-img>"), len(tokenizer))] if i != end]
    model = randomise(transformers.Idefics3ForConditionalGeneration(config), seed, never)
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=ids("<|im_start|>"), eos_token_id=end, pad_token_id=ids("<|im_end|>")
    )
    return model, tokenizer


def idefics3_processor(tokenizer, split: bool, edge: int):
    images = transformers.Idefics3ImageProcessor(
        size={"longest_edge": edge},
        max_image_size={"longest_edge": 64},
        do_image_splitting=split,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    return transformers.Idefics3Processor(images, tokenizer, image_seq_len=16, chat_template=SMOL_TEMPLATE)


def idefics3_case(case: Case, answers: Answers, images: Path) -> tuple[dict, dict]:
    processor = idefics3_processor(answers.tokenizer, case.split, case.edge or 64)
    prompt = processor.apply_chat_template(case.messages(), add_generation_prompt=True)
    record = {"name": case.name, "images": case.images, "messages": case.messages(), "split": case.split}
    if not case.images:
        inputs = dict(processor(text=prompt, return_tensors="pt"))
        return record | {"prompt": prompt} | answers.ask(case.name, inputs), inputs
    loaded = pictures(images, case.images)
    inputs = dict(processor(text=prompt, images=[loaded], return_tensors="pt"))
    plain = processor.image_processor(
        [loaded], do_rescale=False, do_normalize=False, return_row_col_info=True, return_tensors="np"
    )
    tiles = plain["pixel_values"][0].astype(np.uint8)
    again = (torch.from_numpy(tiles).double() / 255 - 0.5) / 0.5
    vlm.compare(case.name + " pixels", again.float().numpy(), inputs["pixel_values"][0], 1e-6)
    with torch.no_grad():
        features = answers.model.get_image_features(inputs["pixel_values"], inputs["pixel_attention_mask"])
    record |= {
        "longest_edge": case.edge,
        "rows": plain["rows"][0],
        "cols": plain["cols"][0],
        "prompt": prompt,
        "pixels": answers.raw("pixels", case.name, tiles),
        "image_features": answers.raw("features", case.name, features.numpy()),
    }
    if not case.split:
        square = [np.asarray(one.resize((64, 64), PIL.Image.Resampling.LANCZOS)) for one in loaded]
        record["square"] = answers.raw("pixels", case.name + ".square", np.stack(square).transpose(0, 3, 1, 2))
    return record | answers.ask(case.name, inputs), inputs


def tiny_idefics3(out: Path, images: Path) -> None:
    model, tokenizer = idefics3_model(IDEFICS3_SEED)
    model.save_pretrained(out / "checkpoint")
    idefics3_processor(tokenizer, True, 256).save_pretrained(out / "checkpoint")
    vlm.copy_files(out / "checkpoint", out)
    shutil.rmtree(out / "checkpoint")
    # The answers are the installed library's, so the graph has its positions.
    idefics3.convert(model, out, positions="transformers", keep=False)
    vlm.write_judge(out, split=False, longest_edge=64)

    answers = Answers(model, tokenizer, out)
    made = {case.name: idefics3_case(case, answers, images) for case in IDEFICS3_CASES}
    for names in IDEFICS3_BATCHES:
        check_batch(model, names, made, ("input_ids", "attention_mask", "pixel_values", "pixel_attention_mask"))
    write_golden(out, answers, [record for record, _ in made.values()], IDEFICS3_BATCHES, IDEFICS3_NOTES)


def check_batch(model: nn.Module, names: list[str], made: dict, keys: tuple[str, ...]) -> None:
    """Prompts of one length, asked together, get the answers they get alone."""
    inputs = {key: torch.cat([made[name][1][key] for name in names]) for key in keys}
    with torch.no_grad():
        logits = model(**inputs).logits[:, -1]
        alone = torch.cat([model(**made[name][1]).logits[:, -1] for name in names])
    vlm.compare("batch of " + ", ".join(names), logits.numpy(), alone, 1e-5)


def write_golden(out: Path, answers: Answers, cases: list[dict], batches: list, notes: list[str]) -> None:
    for case in cases:
        report(case)
    spread(cases)
    golden = {
        "made_with": versions(),
        "notes": notes,
        "tokens": answers.tokens(),
        "batches": batches,
        "cases": cases,
    }
    vlm.write_json(out / "golden.json", golden)


# -- tiny-qwen2_5_vl ------------------------------------------------------------------

MIN_PIXELS, MAX_PIXELS = 56 * 56, 36 * 28 * 28

QWEN_CASES = [
    Case("64x64-a", QUESTION.format("a red car"), ["img_00_64x64.png"]),
    Case("64x64-b", QUESTION.format("a red car"), ["img_01_64x64.png"]),
    Case("224x224", RATE, ["img_03_224x224.png"]),
    Case("512x512-a", RATE, ["img_06_512x512.png"]),
    Case("512x512-b", RATE, ["img_07_512x512.png"]),
    Case("97x131", RATE, ["img_02_97x131.png"]),
    Case("301x200", "What is written on the sign?", ["img_05_301x200.png"]),
    Case("37x500", "Is the hand drawn with five fingers?", ["img_09_37x500.png"], system="You are a careful judge."),
    Case("two", "Which is sharper?", ["img_00_64x64.png", "img_02_97x131.png"], before="Compare: "),
    Case("text-only", "Is the sky blue? Café, naïve, 東京 🙂 12345"),
]
QWEN_BATCHES = [["224x224", "512x512-a", "512x512-b"], ["64x64-a", "64x64-b"]]
QWEN_NOTES = [
    (
        "pixels are U8 [patches, 1176] before (x/255 - mean)/std, channel by channel: a patch is 3 channels x 2 equal "
        "frames x 14 x 14, patches in squares of 2 x 2; pictures one after the other"
    ),
    "grids are [t, h, w] in patches; a picture has h*w/4 tokens",
    "position_ids are [3, L]: time, row, column; the token behind the prompt is at L + rope_delta on all three",
    "candidates are encoded on their own and put behind the prompt's ids, their positions from L + rope_delta on",
    "greedy ends before the stop token; greedy_stopped says that there was one within 16",
]


def qwen_model(seed: int):
    tokenizer = qwen_tokenizer()
    ids = tokenizer.convert_tokens_to_ids
    end, pad = ids("<|im_end|>"), ids("<|endoftext|>")
    config = transformers.Qwen2_5_VLConfig(
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=False,
        vision_config={
            "depth": 3,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 4,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "window_size": 112,
            "fullatt_block_indexes": [1],
            "out_hidden_size": 32,
        },
        text_config={
            "vocab_size": len(tokenizer) + 3,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 32768,
            "rope_theta": 1000000.0,
            "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]},
            "bos_token_id": pad,
            "eos_token_id": end,
            "pad_token_id": pad,
            "tie_word_embeddings": False,
        },
    )
    config._attn_implementation = "eager"
    # The vocabulary is padded, as the real one is: there is no token for its last ids.
    never = [i for i in range(pad, len(tokenizer) + 3) if i not in (end, pad)]
    model = randomise(transformers.Qwen2_5_VLForConditionalGeneration(config), seed, never)
    model.generation_config = transformers.GenerationConfig(bos_token_id=pad, pad_token_id=pad, eos_token_id=[end, pad])
    return model, tokenizer


def qwen_processor(tokenizer):
    images = transformers.Qwen2VLImageProcessor(min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS)
    video = transformers.Qwen2VLVideoProcessor()
    return transformers.Qwen2_5_VLProcessor(images, tokenizer, video, chat_template=QWEN_TEMPLATE)


def qwen_case(case: Case, answers: Answers, images: Path) -> tuple[dict, dict]:
    processor, model = qwen_processor(answers.tokenizer), answers.model
    prompt = processor.apply_chat_template(case.messages(), add_generation_prompt=True)
    record = {"name": case.name, "images": case.images, "messages": case.messages(), "split": False, "prompt": prompt}
    loaded = pictures(images, case.images) or None
    inputs = dict(processor(text=[prompt], images=loaded, return_tensors="pt"))
    if loaded:
        plain = processor.image_processor(loaded, do_rescale=False, do_normalize=False, return_tensors="np")
        patches = plain["pixel_values"].astype(np.uint8)
        mean, std = (np.repeat(np.array(v), 392) for v in (OPENAI_CLIP_MEAN, OPENAI_CLIP_STD))
        again = ((patches / 255.0 - mean) / std).astype(np.float32)
        vlm.compare(case.name + " pixels", again, inputs["pixel_values"], 1e-6)
        with torch.no_grad():
            features = torch.cat(model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"]))
        record |= {
            "grids": inputs["image_grid_thw"].tolist(),
            "pixels": answers.raw("pixels", case.name, patches),
            "image_features": answers.raw("features", case.name, features.numpy()),
        }
    places, delta = model.model.get_rope_index(
        inputs["input_ids"], inputs.get("image_grid_thw"), attention_mask=inputs["attention_mask"]
    )
    record |= {"position_ids": places[:, 0].tolist(), "rope_delta": int(delta[0, 0])}
    return record | answers.ask(case.name, inputs), inputs


def tiny_qwen(out: Path, images: Path) -> None:
    model, tokenizer = qwen_model(QWEN_SEED)
    model.save_pretrained(out / "checkpoint")
    qwen_processor(tokenizer).save_pretrained(out / "checkpoint")
    vlm.copy_files(out / "checkpoint", out)
    shutil.rmtree(out / "checkpoint")
    qwen2_5_vl.convert(model, out)
    vlm.write_judge(out, max_pixels=MAX_PIXELS)

    answers = Answers(model, tokenizer, out)
    made = {case.name: qwen_case(case, answers, images) for case in QWEN_CASES}
    for names in QWEN_BATCHES:
        check_batch(model, names, made, ("input_ids", "attention_mask", "pixel_values", "image_grid_thw"))
    write_golden(out, answers, [record for record, _ in made.values()], QWEN_BATCHES, QWEN_NOTES)


# -- exotic ---------------------------------------------------------------------------


@dataclass
class Exotic:
    """A file of exotic/: whether it must work in tiny-idefics3's place, and if not, what
    the refusal must name."""

    file: str
    works: bool
    names: str = ""


EXOTIC = [
    Exotic("no_position_ids.onnx", True),
    Exotic("use_cache_branch.onnx", True),
    Exotic("num_logits_to_keep.onnx", True),
    Exotic("vision_pixel_mask.onnx", True),
    Exotic("fp16_kv.onnx", False, "past_key_values.0.key"),
    Exotic("unknown_input.onnx", False, "cross_attention_mask"),
    Exotic("missing_attention_mask.onnx", False, "attention_mask"),
    Exotic("no_past.onnx", False, "past_key_values"),
    Exotic("small_vocab.onnx", False, "logits"),
]


def exotic(out: Path, _: Path) -> None:
    model, _ = idefics3_model(IDEFICS3_SEED)
    text, head = model.model.text_model, model.lm_head
    base = out / "base.onnx"
    vlm.export_decoder(text, head, base, keep=False)
    vlm.export_decoder(text, head, out / "no_position_ids.onnx", positions="cumsum", keep=False)
    vlm.export_decoder(text, head, out / "num_logits_to_keep.onnx")
    idefics3.export_vision(model.model, out / "vision_pixel_mask.onnx", "transformers", True)
    operate(base, out / "use_cache_branch.onnx", use_cache_branch)
    operate(base, out / "fp16_kv.onnx", fp16_kv)
    operate(base, out / "unknown_input.onnx", unknown_input)
    operate(base, out / "missing_attention_mask.onnx", missing_attention_mask)
    operate(base, out / "no_past.onnx", no_past)
    operate(base, out / "small_vocab.onnx", small_vocab)

    for name in ("no_position_ids.onnx", "num_logits_to_keep.onnx"):
        vlm.verify_decoder(text, head, out / name)
    vlm.verify_decoder(text, head, out / "use_cache_branch.onnx")
    idefics3.verify_vision(model.model, out / "vision_pixel_mask.onnx", "transformers", True)
    base.unlink()
    for one in EXOTIC:
        vlm.session(out / one.file)
    listed = [{"file": one.file, "works": one.works} | ({"names": one.names} if one.names else {}) for one in EXOTIC]
    vlm.write_json(out / "index.json", {"of": "tiny-idefics3", "files": listed})


def operate(base: Path, path: Path, change) -> None:
    model = onnx.load(base)
    change(model.graph)
    vlm.save(model, path)


def caches(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    return [value for value in graph.input if value.name.startswith("past_key_values.")]


def feed_instead(graph: onnx.GraphProto, name: str, nodes: list[onnx.NodeProto]) -> None:
    """Lets nodes, the last of which gives "new", stand for what name gave so far."""
    new = f"inner.{name}"
    for node in graph.node:
        node.input[:] = [new if one == name else one for one in node.input]
    nodes[-1].output[0] = new
    for at, node in enumerate(nodes):
        graph.node.insert(at, node)


def constant(graph: onnx.GraphProto, name: str, values: list[int]) -> str:
    if name not in [one.name for one in graph.initializer]:
        graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
    return name


def drop_input(graph: onnx.GraphProto, name: str) -> None:
    graph.input.remove(next(value for value in graph.input if value.name == name))


def use_cache_branch(graph: onnx.GraphProto) -> None:
    """As in merged graphs of old: the past counts only where use_cache_branch says so."""
    zero, axis = constant(graph, "c.zero", [0]), constant(graph, "c.axis", [2])
    for value in caches(graph):
        kind = helper.make_tensor_value_info("taken", TensorProto.FLOAT, None)
        then = helper.make_graph([helper.make_node("Identity", [value.name], ["taken"])], "past", [], [kind])
        cut = helper.make_node("Slice", [value.name, zero, zero, axis], ["taken"])
        other = helper.make_graph([cut], "none", [], [kind])
        node = helper.make_node("If", ["use_cache_branch"], ["new"], then_branch=then, else_branch=other)
        feed_instead(graph, value.name, [node])
    graph.input.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))


def fp16_kv(graph: onnx.GraphProto) -> None:
    for value in caches(graph):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
        feed_instead(graph, value.name, [helper.make_node("Cast", [value.name], ["new"], to=TensorProto.FLOAT)])
    for value in graph.output[1:]:
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
        give_instead(graph, value.name, lambda inner, name: helper.make_node("Cast", [inner], [name], to=10))


def give_instead(graph: onnx.GraphProto, name: str, make) -> None:
    """Puts a node between an output and what gave it."""
    inner = f"inner.{name}"
    for node in graph.node:
        node.output[:] = [inner if one == name else one for one in node.output]
        node.input[:] = [inner if one == name else one for one in node.input]
    graph.node.append(make(inner, name))


def unknown_input(graph: onnx.GraphProto) -> None:
    """An input that nobody knows how to feed."""
    node = helper.make_node("Mul", ["inputs_embeds", "cross_attention_mask"], ["new"])
    feed_instead(graph, "inputs_embeds", [node])
    graph.input.append(helper.make_tensor_value_info("cross_attention_mask", TensorProto.FLOAT, ["batch_size", 1, 1]))


def missing_attention_mask(graph: onnx.GraphProto) -> None:
    """Every position is taken as real."""
    axes = {"c.batch": [0], "c.length": [1], "c.past": [2]}
    for name, values in axes.items():
        constant(graph, name, values)
    nodes = [
        helper.make_node("Shape", ["inputs_embeds"], ["m.shape"]),
        helper.make_node("Shape", ["past_key_values.0.key"], ["m.past"]),
        helper.make_node("Gather", ["m.shape", "c.batch"], ["m.b"]),
        helper.make_node("Gather", ["m.shape", "c.length"], ["m.l"]),
        helper.make_node("Gather", ["m.past", "c.past"], ["m.p"]),
        helper.make_node("Add", ["m.l", "m.p"], ["m.total"]),
        helper.make_node("Concat", ["m.b", "m.total"], ["m.size"], axis=0),
        helper.make_node("ConstantOfShape", ["m.size"], ["new"], value=helper.make_tensor("one", 7, [1], [1])),
    ]
    feed_instead(graph, "attention_mask", nodes)
    drop_input(graph, "attention_mask")


def no_past(graph: onnx.GraphProto) -> None:
    """A decoder without a cache, which can be asked only with the whole text."""
    for number, value in enumerate(caches(graph)):
        heads, size = (value.type.tensor_type.shape.dim[axis].dim_value for axis in (1, 3))
        rest = constant(graph, "c.rest", [heads, 0, size])
        names = [f"n{number}.{part}" for part in ("shape", "batch", "size")]
        nodes = [
            helper.make_node("Shape", ["inputs_embeds"], [names[0]]),
            helper.make_node("Gather", [names[0], constant(graph, "c.first", [0])], [names[1]]),
            helper.make_node("Concat", [names[1], rest], [names[2]], axis=0),
            helper.make_node("ConstantOfShape", [names[2]], ["new"]),
        ]
        feed_instead(graph, value.name, nodes)
        drop_input(graph, value.name)
    del graph.output[1:]


def small_vocab(graph: onnx.GraphProto) -> None:
    """Logits of fewer tokens than the tokenizer has."""
    size = graph.output[0].type.tensor_type.shape.dim[2]
    size.dim_value -= 46
    slices = [constant(graph, "c.from", [0]), constant(graph, "c.to", [size.dim_value]), constant(graph, "c.axis", [2])]
    give_instead(graph, "logits", lambda inner, name: helper.make_node("Slice", [inner, *slices], [name]))


# -- command line ---------------------------------------------------------------------

MAKERS = {"tiny-idefics3": tiny_idefics3, "tiny-qwen2_5_vl": tiny_qwen, "exotic": exotic}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder below which every model gets its own")
    parser.add_argument("--only", choices=sorted(MAKERS), help="make one of them")
    parser.add_argument("--images", type=Path, help="folder of the pictures (default: testdata/golden/images)")
    args = parser.parse_args()
    images = args.images or Path(__file__).resolve().parents[2] / "testdata" / "golden" / "images"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name, make in MAKERS.items():
        if args.only in (None, name):
            shutil.rmtree(args.out / name, ignore_errors=True)
            print(name)
            make(args.out / name, images)


if __name__ == "__main__":
    main()
