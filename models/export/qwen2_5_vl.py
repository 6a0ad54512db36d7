"""Exports a Qwen2.5-VL or Qwen2-VL checkpoint as a judge's three ONNX files.

The vision encoder takes pixel_values [P, 3·2·14·14], the patches of one or more pictures
one after the other, and image_grid_thw [n, 3] (grid_thw for Qwen2-VL), and gives
image_features [P/4, D]. Every grid works, and several at once: which patches see each
other is computed in the graph. That is a mask of P x P in place of transformers' walk
over the windows, so the time and memory of attention grow with the square of all patches
in one call: at 504x504 (1,296 patches, 324 tokens) it is 15 % of the encoder's sums of
products, reckoned for 1,280 channels, and one head's scores are 7 MB; above some 4,000
patches cut max_pixels or ask picture by picture. position_ids of the decoder are [3, B, L]: time, row, column.

Example, with a folder that was downloaded before:
    python models/export/qwen2_5_vl.py ~/Qwen2.5-VL-3B-Instruct ~/models/qwen2.5-vl-3b
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

import vlm

KINDS = ("qwen2_5_vl", "qwen2_vl")


class Vision(nn.Module):
    """pixel_values [P, patch], grid_thw [n, 3] -> image_features [P/merge², D].

    transformers sorts the patches by window and attends within each. Attention does not
    depend on the order of its keys, so the patches stay where they are and a mask says
    which of them share a window; their places come from the grid by arithmetic.
    """

    def __init__(self, visual: nn.Module) -> None:
        super().__init__()
        self.visual = visual
        config = visual.config
        self.merge = config.spatial_merge_size
        self.full = getattr(config, "fullatt_block_indexes", range(len(visual.blocks)))
        # A window's side, in merged patches.
        self.window = getattr(config, "window_size", 0) // self.merge // config.patch_size

    def forward(self, pixel_values: torch.Tensor, grid_thw: torch.Tensor) -> torch.Tensor:
        weight = self.visual.patch_embed.proj.weight.flatten(1)
        hidden = nn.functional.linear(pixel_values, weight)
        frame, row, column = self.places(pixel_values.shape[0], grid_thw)
        frequency = self.visual.rotary_pos_emb.inv_freq
        angle = torch.cat((row[:, None] * frequency, column[:, None] * frequency), 1)
        angle = torch.cat((angle, angle), 1)[:, None, :]
        turn = angle.cos(), angle.sin()
        whole = frame[:, None] == frame[None, :]
        within, side = whole, self.window * self.merge
        if side:
            down, across = row // side, column // side
            within = whole & (down[:, None] == down[None, :]) & (across[:, None] == across[None, :])
        masks = {True: hide(whole), False: hide(within)}
        for number, block in enumerate(self.visual.blocks):
            hidden = hidden + attend(block.attn, block.norm1(hidden), turn, masks[number in self.full])
            hidden = hidden + block.mlp(block.norm2(hidden))
        return self.visual.merger(hidden)

    def places(self, count: int, grid_thw: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """[P] each: a number of the patch's frame, that no other picture has, its row and
        its column. Patches come frame by frame, in squares of merge x merge."""
        merge = self.merge
        size = grid_thw.prod(1)
        end = size.cumsum(0)
        patch = torch.arange(count)
        picture = (patch[:, None] >= end[None, :]).sum(1)
        at = patch - (end - size)[picture]
        area, across = (grid_thw[:, 1] * grid_thw[:, 2])[picture], grid_thw[:, 2][picture] // merge
        before = (grid_thw[:, 0].cumsum(0) - grid_thw[:, 0])[picture]
        frame, at = before + at // area, at % area
        square, inner = at // (merge * merge), at % (merge * merge)
        row = square // across * merge + inner // merge
        column = square % across * merge + inner % merge
        return frame, row, column


def hide(same: torch.Tensor) -> torch.Tensor:
    """0 where true, the lowest float where not."""
    return torch.where(same, torch.zeros(()), torch.full((), torch.finfo(torch.float32).min))[None]


def attend(
    attention: nn.Module, hidden: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor
) -> torch.Tensor:
    """[P, D] -> [P, D] with rotary positions, plain."""
    count, heads = hidden.shape[0], attention.num_heads
    query, key, value = attention.qkv(hidden).reshape(count, 3, heads, -1).permute(1, 2, 0, 3).unbind(0)
    cos, sin = (part.transpose(0, 1) for part in turn)
    query, key = query * cos + half(query) * sin, key * cos + half(key) * sin
    scores = query @ key.transpose(1, 2) * attention.scaling + mask
    mixed = scores.softmax(-1) @ value
    return attention.proj(mixed.transpose(0, 1).reshape(count, -1))


def half(tensor: torch.Tensor) -> torch.Tensor:
    first, second = tensor.chunk(2, dim=-1)
    return torch.cat((-second, first), -1)


def grid_name(model: nn.Module) -> str:
    return "grid_thw" if model.config.model_type == "qwen2_vl" else "image_grid_thw"


def patch_width(config) -> int:
    return config.in_channels * config.temporal_patch_size * config.patch_size**2


def export_vision(model: nn.Module, path: Path) -> None:
    visual, name = model.model.visual, grid_name(model)
    grid = torch.tensor([[1, 4, 6], [1, 10, 4]])
    pixels = torch.randn(int(grid.prod(1).sum()), patch_width(visual.config))
    axes = {"pixel_values": {0: "num_patches"}, name: {0: "num_images"}, "image_features": {0: "num_image_tokens"}}
    vlm.export(Vision(visual), (pixels, grid), path, ["pixel_values", name], ["image_features"], axes)


# One picture, narrow ones, ones that end within a window, several at once, and a video.
GRIDS = (
    [[1, 4, 4]],
    [[1, 2, 18]],
    [[1, 8, 8]],
    [[1, 10, 14]],
    [[1, 24, 10]],
    [[1, 4, 6], [1, 12, 8], [1, 2, 2]],
    [[1, 16, 16], [1, 16, 16], [1, 16, 16]],
    [[3, 6, 10], [1, 8, 4]],
)


def verify_vision(model: nn.Module, path: Path) -> None:
    """Compares with transformers' own tower, its windows and its rotary table."""
    visual, run, name = model.model.visual, vlm.session(path), grid_name(model)
    generator = torch.Generator().manual_seed(5)
    for rows in GRIDS:
        grid = torch.tensor(rows)
        pixels = torch.randn(int(grid.prod(1).sum()), patch_width(visual.config), generator=generator)
        with torch.no_grad():
            want = visual(pixels, grid_thw=grid)
        got = run.run(None, {"pixel_values": pixels.numpy(), name: grid.numpy()})[0]
        vlm.compare(f"vision_encoder {rows}", got, want, 1e-4)


def convert(model: nn.Module, out: Path, *, keep: bool = True) -> None:
    """Writes and checks the three files of a model."""
    folder, text = out / "onnx", model.model.language_model
    export_vision(model, folder / "vision_encoder.onnx")
    verify_vision(model, folder / "vision_encoder.onnx")
    table = text.get_input_embeddings()
    vlm.export_embed(table, folder / "embed_tokens.onnx")
    vlm.verify_embed(table, folder / "embed_tokens.onnx", table.num_embeddings)
    vlm.export_decoder(text, model.lm_head, folder / "decoder_model_merged.onnx", axes3=True, keep=keep)
    vlm.verify_decoder(text, model.lm_head, folder / "decoder_model_merged.onnx", axes3=True)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-pixels",
        type=int,
        default=512 * 28 * 28,
        help="written to judge.json: larger pictures are shrunk to so many pixels (default: %(default)s, 512 tokens)",
    )


def run(model: nn.Module, out: Path, args: argparse.Namespace) -> None:
    convert(model, out, keep=not args.all_logits)
    vlm.write_judge(out, max_pixels=args.max_pixels)


if __name__ == "__main__":
    vlm.main(__doc__, KINDS, options, run)
