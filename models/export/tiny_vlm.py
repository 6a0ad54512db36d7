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
from pathlib import Path

import numpy as np
import PIL.Image
import torch
import transformers
from torch import nn
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

import idefics3
import qwen2_5_vl
import vlm
from tiny.vlm_answers import Answers, Case, check_batch, pictures, write_golden
from tiny.vlm_exotic import exotic
from tiny.vlm_tokenizers import QWEN_TEMPLATE, SMOL_SPECIAL, SMOL_TEMPLATE, qwen_tokenizer, smol_tokenizer

# Seeds with which no case has so small a margin, and the answers differ.
IDEFICS3_SEED, QWEN_SEED = 29, 34

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


# -- command line ---------------------------------------------------------------------


def exotic_of_idefics3(out: Path, _: Path) -> None:
    model, _ = idefics3_model(IDEFICS3_SEED)
    exotic(model, out)


MAKERS = {"tiny-idefics3": tiny_idefics3, "tiny-qwen2_5_vl": tiny_qwen, "exotic": exotic_of_idefics3}


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
