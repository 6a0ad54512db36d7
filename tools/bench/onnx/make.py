"""Make a random CLIP of ViT-B/32's size for `make bench-onnx`.

    make.py FOLDER

FOLDER/checkpoint is what transformers loads, FOLDER itself the two towers and their
sidecar as models/export/clip.py writes them. Weights are random: what they say does not
matter, what they cost is what the real ones cost. A folder that is there is left alone.
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def tokenizer() -> "PreTrainedTokenizerFast":  # noqa: F821 - imported below
    """That of the tiny model of the tests, which is made like CLIP's."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_file=str(ROOT / "testdata" / "models" / "tiny-clip" / "tokenizer.json"),
        bos_token="<|startoftext|>", eos_token="<|endoftext|>", pad_token="<|endoftext|>", model_max_length=77,
    )


def checkpoint(folder: Path) -> None:
    """ViT-B/32's sizes, random."""
    import torch
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    torch.manual_seed(0)
    words = tokenizer()
    config = CLIPConfig()  # transformers' defaults are openai/clip-vit-base-patch32's
    config.text_config.bos_token_id, config.text_config.eos_token_id = words.bos_token_id, words.eos_token_id
    config.text_config.pad_token_id = words.pad_token_id
    CLIPModel(config).save_pretrained(folder)
    CLIPImageProcessor().save_pretrained(folder)
    words.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    if (folder / "scorer.json").exists():
        return
    own = folder / "checkpoint"
    checkpoint(own)
    export = ROOT / "models" / "export" / "clip.py"
    name = ["--name", "random-clip-b32", "--licence", "none"]
    subprocess.run([sys.executable, export, "--model", own, "--out", folder, *name], check=True)


if __name__ == "__main__":
    main()
