"""Exports an Idefics3 or SmolVLM checkpoint as a judge's three ONNX files.

The vision encoder takes pixel_values [B, N, 3, S, S] and gives image_features
[B·N, tokens, D]. It takes square tiles that are all real: a tile of zeros is encoded
like any other. With --pixel-mask it is the graph that transformers computes: tiles of
zeros are left out, and pixel_attention_mask [B, N, S, S] hides what is padding.

Example, with a folder that was downloaded before:
    python models/export/idefics3.py ~/SmolVLM-256M-Instruct ~/models/smolvlm-256m
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

import vlm

KINDS = ("idefics3", "smolvlm")


class Vision(nn.Module):
    """pixel_values [B, N, 3, S, S] -> image_features [B·N, tokens, D], every tile whole."""

    def __init__(self, model: nn.Module, positions: str) -> None:
        super().__init__()
        self.tower, self.connector = model.vision_model, model.connector
        self.register_buffer("places", places(model, positions), persistent=False)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        embeddings = self.tower.embeddings
        patches = embeddings.patch_embedding(pixel_values.flatten(0, 1)).flatten(2).transpose(1, 2)
        hidden = patches + embeddings.position_embedding(self.places)
        hidden = self.tower.encoder(inputs_embeds=hidden, attention_mask=None).last_hidden_state
        return self.connector(self.tower.post_layernorm(hidden))


def places(model: nn.Module, positions: str) -> torch.Tensor:
    """The position of each patch of a whole tile, [1, patches].

    "grid" is 0, 1, …, n-1 along each side: what checkpoints were trained with, and what
    public exports have. "transformers" asks the library that is installed: from 4.55.1
    it says 0, 0, 1, …, n-2 in float32 (and "grid" in half precision), because i/n·(1-1e-6)
    falls below the boundary i/n (huggingface/transformers issue 41190).
    """
    embeddings = model.vision_model.embeddings
    side = embeddings.num_patches_per_side
    if positions == "grid":
        return torch.arange(side * side)[None]
    seen: list[torch.Tensor] = []
    hook = embeddings.position_embedding.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        size = embeddings.image_size
        embeddings(torch.zeros(1, 3, size, size), torch.ones((1, side, side), dtype=torch.bool))
    hook.remove()
    return seen[0]


class MaskedVision(nn.Module):
    """pixel_values [B, N, 3, S, S], pixel_attention_mask bool [B, N, S, S] ->
    image_features [tiles that are not all zero, tokens, D].

    Along a side of which n patches are shown, patch i lies at i/n, and its position is
    the number of boundaries k/side at or below that, k from 1 to side-1; for
    "transformers" positions the place is i/n·(1-1e-6), see places.
    """

    def __init__(self, model: nn.Module, positions: str) -> None:
        super().__init__()
        self.positions = positions
        self.tower, self.connector = model.vision_model, model.connector
        side = self.tower.embeddings.num_patches_per_side
        self.register_buffer("boundaries", torch.arange(1 / side, 1.0, 1 / side), persistent=False)

    def forward(self, pixel_values: torch.Tensor, pixel_attention_mask: torch.Tensor) -> torch.Tensor:
        embeddings = self.tower.embeddings
        side, size = embeddings.num_patches_per_side, embeddings.patch_size
        tiles = pixel_values.flatten(0, 1)
        real = (tiles != 0).flatten(1).any(1)
        tiles, mask = tiles[real], pixel_attention_mask.flatten(0, 1)[real]
        shown = mask.reshape(-1, side, size, side, size).permute(0, 1, 3, 2, 4).flatten(3).any(3)
        rows, columns = self.places(shown[:, :, 0].sum(1)), self.places(shown[:, 0].sum(1))
        ids = (rows[:, :, None] * side + columns[:, None, :]).flatten(1)
        shown = shown.flatten(1)
        ids = torch.where(shown, ids, torch.zeros_like(ids))
        patches = embeddings.patch_embedding(tiles).flatten(2).transpose(1, 2)
        hidden = patches + embeddings.position_embedding(ids)
        lowest = torch.full((), torch.finfo(hidden.dtype).min, dtype=hidden.dtype)
        hide = torch.where(shown, torch.zeros((), dtype=hidden.dtype), lowest)[:, None, None, :]
        hide = hide.expand(-1, 1, side * side, side * side)
        hidden = self.tower.encoder(inputs_embeds=hidden, attention_mask=hide).last_hidden_state
        return self.connector(self.tower.post_layernorm(hidden))

    def places(self, count: torch.Tensor) -> torch.Tensor:
        """[tiles] patches shown along a side -> [tiles, side] positions."""
        side = self.tower.embeddings.num_patches_per_side
        if self.positions == "grid":
            return (torch.arange(side)[None, :] * side // count[:, None]).clamp(max=side - 1)
        places = torch.arange(side, dtype=torch.float32)[None, :] / count[:, None] * (1 - 1e-6)
        return (places[..., None] >= self.boundaries).sum(-1)


def export_vision(model: nn.Module, path: Path, positions: str, masked: bool) -> None:
    size = model.vision_model.embeddings.image_size
    pixels = torch.randn(2, 2, 3, size, size)
    axes = {"pixel_values": {0: "batch_size", 1: "num_images"}, "image_features": {0: "num_tiles"}}
    if not masked:
        vlm.export(Vision(model, positions), (pixels,), path, ["pixel_values"], ["image_features"], axes)
        return
    axes["pixel_attention_mask"] = axes["pixel_values"]
    mask = torch.ones((2, 2, size, size), dtype=torch.bool)
    names = ["pixel_values", "pixel_attention_mask"]
    vlm.export(MaskedVision(model, positions), (pixels, mask), path, names, ["image_features"], axes)


def verify_vision(model: nn.Module, path: Path, positions: str, masked: bool) -> None:
    """Compares with get_image_features; for "grid" positions, which the library does not
    compute, with its tower once those are put in."""
    run = vlm.session(path)
    size = model.vision_model.embeddings.image_size
    generator = torch.Generator().manual_seed(5)
    for batch, count in ((1, 1), (1, 5), (3, 2)):
        pixels = torch.rand(batch, count, 3, size, size, generator=generator) * 2 - 1
        mask = torch.ones((batch, count, size, size), dtype=torch.bool)
        if masked and count > 1:
            pixels[0, -1] = 0
            if positions == "transformers":
                mask[0, 0, :, size // 2 :] = False
                mask[0, 0, -size // 4 :] = False
        feeds = {"pixel_values": pixels.numpy()}
        if masked:
            feeds["pixel_attention_mask"] = mask.numpy()
        with torch.no_grad():
            want = reference(model, pixels, mask, positions)
        vlm.compare(f"vision_encoder {batch}x{count} tiles", run.run(None, feeds)[0], want, 1e-4)


def reference(model: nn.Module, pixels: torch.Tensor, mask: torch.Tensor, positions: str) -> torch.Tensor:
    if positions == "transformers":
        return model.get_image_features(pixels, mask)
    whole = places(model, positions)
    table = model.vision_model.embeddings.position_embedding
    hook = table.register_forward_pre_hook(lambda _, args: (whole.expand(args[0].shape[0], -1),))
    try:
        return model.get_image_features(pixels, mask)
    finally:
        hook.remove()


def convert(model: nn.Module, out: Path, *, positions: str = "grid", masked: bool = False, keep: bool = True) -> None:
    """Writes and checks the three files of a model."""
    inner, folder = model.model, out / "onnx"
    export_vision(inner, folder / "vision_encoder.onnx", positions, masked)
    verify_vision(inner, folder / "vision_encoder.onnx", positions, masked)
    table = inner.get_input_embeddings()
    vlm.export_embed(table, folder / "embed_tokens.onnx")
    vlm.verify_embed(table, folder / "embed_tokens.onnx", table.num_embeddings)
    vlm.export_decoder(inner.text_model, model.lm_head, folder / "decoder_model_merged.onnx", keep=keep)
    vlm.verify_decoder(inner.text_model, model.lm_head, folder / "decoder_model_merged.onnx")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pixel-mask", action="store_true", help="take pixel_attention_mask, drop tiles of zeros")
    parser.add_argument(
        "--positions",
        choices=("transformers", "grid"),
        default="grid",
        help="positions of a tile's patches: 0, 1, …, n-1 along a side, as the checkpoints were trained "
        "(default), or as the installed transformers says in float32: one less from 4.55.1 on",
    )


def run(model: nn.Module, out: Path, args: argparse.Namespace) -> None:
    convert(model, out, positions=args.positions, masked=args.pixel_mask, keep=not args.all_logits)
    vlm.write_judge(out, split=False, longest_edge=model.config.vision_config.image_size)


if __name__ == "__main__":
    vlm.main(__doc__, KINDS, options, run)
