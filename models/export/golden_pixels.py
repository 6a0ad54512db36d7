#!/usr/bin/env python3
"""Write the goldens of internal/imageproc: what Hugging Face's image processors make of
pictures.

The slow processors (those on PIL) of transformers, open_clip's evaluation transform and
PIL itself run on the PNGs of testdata/golden/images and on a few odd pictures that this
script draws. Everything but the normalised values is stored as bytes, before rescaling and
normalising.

Example, from the root of the repository, with the packages of requirements.txt:

    python models/export/golden_pixels.py internal/imageproc/testdata
"""

from __future__ import annotations

import argparse
import functools
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import open_clip
import PIL
import torchvision
import transformers
from open_clip.transform import image_transform
from PIL import Image
from transformers.image_transforms import get_resize_output_image_size
from transformers.models.idefics3 import image_processing_idefics3 as idefics3
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073]
CLIP_STD = [0.26862954, 0.26130258, 0.27577711]
ODD = {"odd_1x1": (1, 1), "odd_1x60": (1, 60), "odd_60x1": (60, 1), "odd_3x149": (3, 149), "odd_151x33": (151, 33)}
FILTERS = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]  # by PIL's numbers

# Configurations as preprocessor_config.json has them, by the class that reads them.
CLASSIC = {
    "clip": {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 48},
        "crop_size": {"height": 48, "width": 48},
    },
    "clip_old": {"feature_extractor_type": "CLIPFeatureExtractor", "size": 37, "crop_size": 33, "resample": 3},
    "clip_padded": {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 20},
        "crop_size": {"height": 37, "width": 30},
    },
    "clip_box": {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"height": 41, "width": 36},
        "crop_size": {"height": 32, "width": 33},
    },
    "clip_cropped": {"image_processor_type": "CLIPImageProcessor", "do_resize": False, "crop_size": {"height": 40, "width": 55}},
    "siglip": {"image_processor_type": "SiglipImageProcessor", "size": {"height": 48, "width": 48}},
    "vit": {"image_processor_type": "ViTImageProcessor", "size": {"height": 45, "width": 38}},
    "vit_lanczos": {"image_processor_type": "ViTImageProcessor", "size": 32, "resample": 1},
    "deit": {
        "image_processor_type": "DeiTImageProcessor",
        "size": {"height": 45, "width": 45},
        "crop_size": {"height": 40, "width": 40},
    },
    "blip": {"image_processor_type": "BlipImageProcessor", "size": {"height": 33, "width": 33}},
    "bit": {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 36}, "crop_size": {"height": 32, "width": 32}},
}
# They run on every picture; the others on a few.
EVERYWHERE = {"clip", "siglip", "clip_padded"}
FEW = ["img_02_97x131.png", "img_05_301x200.png", "img_09_37x500.png", "odd_1x60.png"]

IDEFICS3 = {
    "idefics3": {"size": {"longest_edge": 96}, "max_image_size": {"longest_edge": 32}, "resample": 1},
    "idefics3_uneven": {"size": {"longest_edge": 80}, "max_image_size": {"longest_edge": 36}, "resample": 1},
    "idefics3_as_is": {"do_resize": False, "size": {"longest_edge": 96}, "max_image_size": {"longest_edge": 48}, "resample": 1},
}
QWEN2VL = {
    "qwen2vl": {"min_pixels": 28 * 28 * 2, "max_pixels": 28 * 28 * 7},
    "qwen2vl_small": {
        "min_pixels": 12 * 12 * 4,
        "max_pixels": 12 * 12 * 20,
        "patch_size": 6,
        "merge_size": 2,
        "temporal_patch_size": 1,
    },
}


class Goldens:
    """The folder and what is said about each file in its index."""

    def __init__(self, out: Path, pictures: dict[str, Image.Image]) -> None:
        self.out = out
        self.pictures = pictures
        self.index: dict = {
            "made_with": {
                "transformers": transformers.__version__,
                "open_clip_torch": open_clip.__version__,
                "torchvision": torchvision.__version__,
                "pillow": PIL.__version__,
            },
            "cases": [],
        }

    def write(self, name: str, image: str, data: np.ndarray, **more: object) -> None:
        """Append one array to the case's file, and its line to the index."""
        file = f"{name}.{'f32' if data.dtype == np.float32 else 'u8'}"
        with (self.out / file).open("ab") as f:
            offset = f.tell()
            f.write(np.ascontiguousarray(data).tobytes())
        self.index["cases"].append(
            {"name": name, "image": image, "file": file, "offset": offset, "shape": list(data.shape), **more}
        )

    def some(self, name: str) -> list[str]:
        """The pictures that a case of that name runs on."""
        return list(self.pictures) if name in EVERYWHERE else [n for n in FEW if n in self.pictures]


def draw(folder: Path) -> None:
    """Draw the odd pictures, noise."""
    for seed, (name, (width, height)) in enumerate(ODD.items()):
        noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{name}.png")


def processor(config: dict) -> Callable:
    """The slow processor of a configuration. It is told where the channels are, because it
    guesses wrong for pictures of one or three pixels a side."""
    config = dict(config)
    name = config.pop("image_processor_type", None) or config.pop("feature_extractor_type").replace(
        "FeatureExtractor", "ImageProcessor"
    )
    return functools.partial(getattr(transformers, name)(**config), input_data_format="channels_last")


def hwc(chw: np.ndarray) -> np.ndarray:
    """Bytes [3, H, W] as [H, W, 3]."""
    assert chw.dtype == np.uint8, chw.dtype
    return chw.transpose(1, 2, 0)


def classic(g: Goldens) -> None:
    """Resize, crop: CLIP, SigLIP, ViT and the like."""
    for name, config in CLASSIC.items():
        proc = processor(config)
        for image in g.some(name):
            out = proc(g.pictures[image], do_rescale=False, do_normalize=False)["pixel_values"][0]
            g.write(name, image, hwc(out), kind="classic", config=config)


def longest(g: Goldens) -> None:
    """open_clip's resize of the longer side, padded to a square."""
    transform = image_transform(48, is_train=False, resize_mode="longest").transforms[:-1]  # without Normalize
    for image, picture in g.pictures.items():
        tensor = picture
        for step in transform:
            tensor = step(tensor)
        g.write("longest", image, hwc(np.rint(tensor.numpy() * 255).astype(np.uint8)), kind="longest", size=48)


def filters(g: Goldens) -> None:
    """PIL's resize alone, with each filter, smaller and larger."""
    for code, name in enumerate(FILTERS):
        for image, size in [
            ("img_02_97x131.png", (40, 29)),
            ("img_05_301x200.png", (41, 200)),
            ("img_04_256x192.png", (256, 31)),
            ("img_06_512x512.png", (37, 38)),
            ("odd_3x149.png", (61, 70)),
            ("odd_1x1.png", (5, 7)),
            ("odd_151x33.png", (17, 64)),
        ]:
            out = np.asarray(g.pictures[image].resize(size, code))
            g.write(f"resize_{name}", image, out, kind="resize", filter=name)


def tiles(g: Goldens) -> None:
    """Idefics3 and SmolVLM, split and not."""
    for name, config in IDEFICS3.items():
        config = {"image_processor_type": "Idefics3ImageProcessor", **config}
        for split in (True, False):
            proc = processor({**config, "do_image_splitting": split})
            for image in g.pictures:
                if name == "idefics3_as_is" and split and image not in (FEW[0], FEW[3]):
                    continue  # large
                out = proc(g.pictures[image], do_rescale=False, do_normalize=False, return_tensors="np", return_row_col_info=True)
                assert out["pixel_attention_mask"].all()
                g.write(
                    f"{name}_{'split' if split else 'whole'}",
                    image,
                    out["pixel_values"][0],
                    kind="idefics3",
                    config=config,
                    split=split,
                    rows=out["rows"][0][0],
                    cols=out["cols"][0][0],
                )


def patches(g: Goldens) -> None:
    """Qwen2-VL and Qwen2.5-VL."""
    for name, config in QWEN2VL.items():
        config = {"image_processor_type": "Qwen2VLImageProcessor", **config}
        proc = processor(config)
        for image, picture in g.pictures.items():
            out = proc(picture, do_rescale=False, do_normalize=False)
            assert out["pixel_values"].dtype == np.uint8
            g.write(
                name, image, out["pixel_values"], kind="qwen2vl", config=config, grid=[int(n) for n in out["image_grid_thw"][0]]
            )


def normalised(g: Goldens) -> None:
    """The float32 values that bytes become: every byte in every channel, once."""
    ramp = np.arange(256, dtype=np.uint8).reshape(16, 16)
    image = Image.fromarray(np.stack([ramp, ramp.T, 255 - ramp], axis=-1))
    image.save(g.out / "ramp.png")
    for name, config in {
        "norm_clip": CLASSIC["clip"] | {"do_resize": False, "do_center_crop": False},
        "norm_siglip": CLASSIC["siglip"] | {"do_resize": False},
        "norm_bare": CLASSIC["vit"] | {"do_resize": False, "do_rescale": False, "image_mean": 0.25, "image_std": [2, 3, 4.5]},
        "norm_off": CLASSIC["vit"] | {"do_resize": False, "do_normalize": False, "rescale_factor": 0.00784313725490196},
    }.items():
        g.write(name, "ramp.png", np.float32(processor(config)(image)["pixel_values"][0]), kind="classic", config=config)
    config = {
        "image_processor_type": "Idefics3ImageProcessor",
        **IDEFICS3["idefics3"],
        "do_resize": False,
        "max_image_size": {"longest_edge": 16},
    }
    out = processor(config | {"do_image_splitting": False})(image, return_tensors="np")["pixel_values"][0]
    g.write("norm_idefics3", "ramp.png", np.float32(out), kind="idefics3", config=config, split=False, rows=0, cols=0)
    config = {"image_processor_type": "Qwen2VLImageProcessor", **QWEN2VL["qwen2vl_small"]}
    out = processor(config)(image)
    g.write(
        "norm_qwen2vl",
        "ramp.png",
        np.float32(out["pixel_values"]),
        kind="qwen2vl",
        config=config,
        grid=[int(n) for n in out["image_grid_thw"][0]],
    )


def max_size(height: int, width: int, size: int) -> list[int]:
    """The size that ResizeMaxSize of open_clip 2 gives, which HPSv2 carries."""
    scale = size / float(max(height, width))
    return [round(side * scale) for side in (height, width)]


def sizes(g: Goldens) -> None:
    """Sizes alone, [height, width, arguments…, height, width], 0 and 0 where they are refused."""
    rng = random.Random(9)
    sides = [(rng.randint(1, 2000), rng.randint(1, 2000)) for _ in range(150)]
    sides += [(14, 14), (42, 70), (98, 126), (70, 42), (1, 200), (1, 201), (28, 5601), (8000, 41), (1, 1), (13, 27), (10000, 50)]
    rows = []
    for height, width in sides:
        for lo, hi in ((3136, 12845056), (56 * 56, 28 * 28 * 16), (28 * 28 * 300, 28 * 28 * 301)):
            try:
                out = smart_resize(height, width, 28, lo, hi)
            except ValueError:
                out = (0, 0)
            rows.append([height, width, lo, hi, *out])
    g.index["smart_resize"] = rows

    def shaped(height: int, width: int) -> np.ndarray:
        return np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (height, width, 3), (0, 0, 0))

    narrow = sides + [(1, 4000), (3000, 2), (4001, 999)]
    g.index["idefics3"] = [
        [h, w, edge, *idefics3.get_resize_output_image_size(shaped(h, w), edge, "channels_last")]
        for h, w in narrow
        for edge in (512, 1456, 2048, 5001)
    ]
    g.index["shortest"] = [
        [
            h,
            w,
            size,
            *get_resize_output_image_size(shaped(h, w), size, default_to_square=False, input_data_format="channels_last"),
        ]
        for h, w in sides
        for size in (224, 336)
    ]
    ties = [(105, 192), (45, 320), (165, 320), (210, 384), (9, 576), (513, 576), (90, 640), (420, 768), (527, 1088)]
    g.index["longest"] = [[h, w, 224, *max_size(h, w, 224)] for h, w in sides + ties]


def main() -> None:
    """Parse the command line and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to write; files in it are removed first")
    parser.add_argument("--images", type=Path, default=Path("testdata/golden/images"), help="folder of PNGs")
    args = parser.parse_args()
    if args.out.exists():
        for old in args.out.iterdir():
            if old.is_file():
                old.unlink()
    args.out.mkdir(parents=True, exist_ok=True)
    draw(args.out)
    files = sorted(args.images.glob("*.png")) + sorted(args.out.glob("odd_*.png"))
    g = Goldens(args.out, {f.name: Image.open(f).convert("RGB") for f in files})
    for part in (classic, longest, filters, tiles, patches, normalised, sizes):
        part(g)
    lines = ",\n".join(json.dumps(case) for case in g.index.pop("cases"))
    rest = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in g.index.items())
    (args.out / "index.json").write_text(f'{{{rest},\n"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
