"""Frames are the same bytes as everywhere else, and what is wrong is refused by name."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import types
import unittest
from typing import Any
from unittest import mock

import numpy as np

import rewardloop
from rewardloop import InputError, Media, Sample, TooLargeError
from rewardloop.frame import FRAGMENT_BYTES, encode

from .harness import REPOSITORY, noise

GOLDEN = REPOSITORY / "wire" / "testdata"

_DTYPES = {"U8": "u1", "I16": "<i2", "F16": "<f2", "F32": "<f4"}


def build(g: dict[str, Any]) -> Sample:
    """The sample a golden description stands for, through the public constructors where NumPy has the dtype."""
    media = []
    for m in g.get("media", ()):
        files = [base64.b64decode(f) for f in m.get("frames_b64", ())]
        data = base64.b64decode(m.get("data_b64", ""))
        if m["encoding"] == "frames":
            media.append(rewardloop.frames(files, fps=m.get("fps")))
        elif m["encoding"] == "mp4":
            media.append(rewardloop.video(data, fps=m.get("fps")))
        elif m["encoding"] == "wav":
            media.append(rewardloop.audio(data))
        elif m["encoding"] != "raw":
            media.append(rewardloop.image(data, encoding=m["encoding"]))
        elif m["dtype"] == "BF16":
            view = memoryview(data)
            media.append(Media(m["kind"], "raw", m["layout"], "BF16", tuple(m["shape"]), (view,)))
        else:
            array = np.frombuffer(data, _DTYPES[m["dtype"]]).reshape(m["shape"])
            more = {k: m[k] for k in ("fps", "sample_rate") if k in m}
            media.append(getattr(rewardloop, m["kind"])(array, layout=m["layout"], **more))
    deadline = g["deadline_ms"] / 1000 if "deadline_ms" in g else None
    return Sample(**g["sample"], media=media, deadline=deadline)


class GoldenTest(unittest.TestCase):
    def test_every_golden_frame_is_made_to_the_byte(self) -> None:
        files = sorted(GOLDEN.glob("*.json"))
        self.assertGreaterEqual(len(files), 10, f"{GOLDEN} has lost frames")
        for file in files:
            with self.subTest(file.stem):
                golden = json.loads(file.read_text(encoding="utf-8"))
                frame = encode(build(golden))
                self.assertEqual(frame.head[8:].decode(), golden["header"])
                self.assertEqual(bytes(frame), file.with_suffix(".bin").read_bytes())
                self.assertEqual(frame.size, golden["size"])

    def test_fragments_make_up_the_frame(self) -> None:
        small, large = noise(8), noise(640)
        for media in ([], [small], [large], [small, large, small], [large, large]):
            frame = encode(Sample(id="f", media=media))
            pieces = list(frame.fragments())
            self.assertEqual(b"".join(pieces), bytes(frame))
            self.assertLessEqual(max(len(p) for p in pieces), FRAGMENT_BYTES)


class MediaTest(unittest.TestCase):
    def test_large_data_is_not_copied(self) -> None:
        pixels = np.zeros((512, 512, 3), np.uint8)
        frame = encode(Sample(media=rewardloop.image(pixels, layout="HWC")))
        self.assertTrue(np.shares_memory(np.frombuffer(frame.parts[0], np.uint8), pixels))
        self.assertTrue(any(np.shares_memory(np.frombuffer(p, np.uint8), pixels) for p in frame.fragments()))
        copied = rewardloop.image(pixels, layout="HWC", copy=True)
        self.assertFalse(np.shares_memory(np.frombuffer(copied.parts[0], np.uint8), pixels))

    def test_what_is_not_in_order_is_brought_into_order(self) -> None:
        chw = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
        turned = rewardloop.image(chw.transpose(1, 2, 0), layout="HWC")
        self.assertEqual(bytes(turned.parts[0]), chw.transpose(1, 2, 0).tobytes())
        big = rewardloop.latent(np.array([[1.5, -2.0]], ">f4"), layout="LD")
        self.assertEqual(bytes(big.parts[0]), np.array([[1.5, -2.0]], "<f4").tobytes())
        self.assertEqual(
            bytes(rewardloop.latent(chw.astype("f4")[:, ::2, ::-1], layout="CHW").parts[0]),
            chw.astype("<f4")[:, ::2, ::-1].tobytes(),
        )

    def test_a_wrong_medium_is_refused_by_the_name_of_what_is_wrong(self) -> None:
        u8, f32 = np.zeros((4, 5, 3), np.uint8), np.zeros((3, 4, 5), np.float32)
        jpeg = b"\xff\xd8\xff\xe0 and so on"
        for field, make in {
            "layout: missing": lambda: rewardloop.image(u8),
            "layout: 'CHW' names": lambda: rewardloop.image(u8[0], layout="CHW"),
            "layout: 5 channels": lambda: rewardloop.image(u8.transpose(0, 2, 1), layout="HWC"),
            "layout: 'THW'": lambda: rewardloop.video(u8, layout="THW"),
            "layout: 'CHC'": lambda: rewardloop.latent(f32, layout="CHC"),
            "layout: 'CT'": lambda: rewardloop.audio(f32, layout="CT", sample_rate=1),
            "layout: 'HWC' with encoding": lambda: rewardloop.image(jpeg, layout="HWC", encoding="jpeg"),
            "dtype: float32": lambda: rewardloop.image(f32, layout="CHW"),
            "dtype: float64": lambda: rewardloop.latent(f32.astype("f8"), layout="CHW"),
            "dtype: object": lambda: rewardloop.latent(np.array([[object()]]), layout="CH"),
            "image: want a NumPy": lambda: rewardloop.image([[1]], layout="HW"),
            "image: the file is empty": lambda: rewardloop.image(b"", encoding="png"),
            "image: an axis": lambda: rewardloop.image(u8[:0], layout="HWC"),
            "encoding: 'png', but the bytes are jpeg": lambda: rewardloop.image(jpeg, encoding="png"),
            "encoding: 'gif'": lambda: rewardloop.image(b"GIF89a", encoding="gif"),
            "encoding: 'jpeg' is for": lambda: rewardloop.image(u8, layout="HWC", encoding="jpeg"),
            r"frames\[1\]: is not a JPEG": lambda: rewardloop.frames([jpeg, b"RIFF1234WAVE"]),
            "frames: want a list": lambda: rewardloop.frames(jpeg),
            "video: no data": lambda: rewardloop.frames([]),
            "fps: 0": lambda: rewardloop.frames([jpeg], fps=0),
            "fps: nan": lambda: rewardloop.frames([jpeg], fps=float("nan")),
            "fps: want a number": lambda: rewardloop.frames([jpeg], fps="8"),  # type: ignore[arg-type]
            "sample_rate: 0": lambda: rewardloop.audio(f32[0], layout="CT", sample_rate=0),
            "sample_rate: 8000.5": lambda: rewardloop.audio(f32[0], layout="CT", sample_rate=8000.5),  # type: ignore[arg-type]
        }.items():
            with self.subTest(field), self.assertRaisesRegex(InputError, "^" + field):
                make()


class SampleTest(unittest.TestCase):
    def test_a_wrong_sample_is_refused_by_the_name_of_what_is_wrong(self) -> None:
        deep: Any = 0
        for _ in range(64):
            deep = [deep]
        for words, fields in {
            "id: empty": {"id": ""},
            "id: 600 bytes": {"id": "é" * 300},
            "id: want a string": {"id": 7},
            "prompt: a lone surrogate at character 1": {"prompt": "a\ud800"},
            "prompt: want a string": {"prompt": None},
            "split: 'test'": {"split": "test"},
            "index: -1": {"index": -1},
            "step: want an integer": {"step": 1.0},
            "step: 9223372036854775808": {"step": 1 << 63},
            "group_size: 2147483648": {"group_size": 1 << 31},
            "deadline: 0": {"deadline": 0},
            "deadline: nan": {"deadline": float("nan")},
            "deadline: 700000": {"deadline": 700000},
            "ground_truth: nan": {"ground_truth": float("nan")},
            r"extra_info\['a'\]\[1\]: inf": {"extra_info": {"a": [1, float("inf")]}},
            r"extra_info\['a'\]: numpy.ndarray is not JSON; use .tolist": {"extra_info": {"a": np.zeros(2)}},
            "extra_info: the name 1 is a int": {"extra_info": {1: 2}},
            "extra_info: want a mapping": {"extra_info": [1]},
            "ground_truth: bytes": {"ground_truth": b"x"},
            "ground_truth: 18446744073709551616": {"ground_truth": 1 << 64},
            r"ground_truth(\[0\])+…: nested": {"ground_truth": deep},
            "media: want what image": {"media": np.zeros((2, 2, 3), np.uint8)},
            r"media\[0\]: want what image": {"media": [np.zeros((2, 2, 3), np.uint8)]},
            "media: 65 entries": {"media": [noise(1)] * 65},
        }.items():
            with self.subTest(words), self.assertRaisesRegex(InputError, words):
                encode(Sample(**{"id": "bad", **fields}))

    def test_what_is_too_large_is_refused_before_it_is_sent(self) -> None:
        with self.assertRaisesRegex(TooLargeError, "sample 'x': the message has"):
            encode(Sample(id="x", media=noise(64)), message_bytes=4096)
        with self.assertRaisesRegex(TooLargeError, "sample 'x': the texts make a header of"):
            encode(Sample(id="x", prompt="p" * 600_000, response="r" * 600_000))

    def test_numpy_scalars_count_as_numbers(self) -> None:
        info = {"a": np.float32(0.5), "b": np.int64(-3), "c": np.bool_(True), "d": (1, None)}
        head = encode(Sample(id="n", step=np.int32(2), extra_info=info)).head  # type: ignore[arg-type]
        self.assertIn(rb"\"step\":2,\"extra_info\":{\"a\":0.5,\"b\":-3,\"c\":true,\"d\":[1,null]}", head)

    def test_ids_are_fresh_and_deadlines_rounded_up(self) -> None:
        self.assertNotEqual(Sample().id, Sample().id)
        self.assertEqual([Sample(deadline=d).deadline_ms() for d in (None, 0.0001, 1.5, 2.0001, 90)], [0, 1, 1500, 2001, 90000])


class OptionalTest(unittest.TestCase):
    def test_torch_and_pil_are_not_imported(self) -> None:
        code = "import rewardloop, sys; sys.exit(bool({'torch', 'PIL'} & set(sys.modules)))"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY / "python", timeout=60)

    def test_tensors_are_taken_through_what_torch_offers(self) -> None:
        """With a fake of the few methods that are used: torch itself is too large for the tests."""
        with mock.patch.dict(sys.modules, {"torch": stand_in()}):
            Tensor = sys.modules["torch"].Tensor
            pixels = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
            m = rewardloop.image(Tensor(pixels, "uint8"), layout="CHW")
            self.assertTrue(np.shares_memory(np.frombuffer(m.parts[0], np.uint8), pixels), "a tensor on the CPU is not copied")
            turned = Tensor(pixels.transpose(1, 2, 0), "uint8", device="cuda")
            self.assertEqual(bytes(rewardloop.image(turned, layout="HWC").parts[0]), pixels.transpose(1, 2, 0).tobytes())
            self.assertEqual(turned.log, ["detach", "to cpu torch.contiguous_format"], "one copy, to the host and into order")
            bf16 = rewardloop.latent(Tensor(np.arange(4, dtype=np.uint16).reshape(2, 2), "bfloat16"), layout="LD")
            self.assertEqual((bf16.dtype, bytes(bf16.parts[0])), ("BF16", bytes([0, 0, 1, 0, 2, 0, 3, 0])))
            with self.assertRaisesRegex(InputError, "dtype: torch.float32 of a raw image"):
                rewardloop.image(Tensor(pixels.astype("f4"), "float32"), layout="CHW")

    def test_real_tensors(self) -> None:
        try:
            import torch
        except ImportError:
            self.skipTest("SKIPPED: torch is not installed: tensors were tried with a fake only")
        t = torch.arange(60, dtype=torch.uint8).reshape(3, 4, 5)
        self.assertEqual(bytes(rewardloop.image(t, layout="CHW").parts[0]), t.numpy().tobytes())
        self.assertEqual(
            bytes(rewardloop.image(t.permute(1, 2, 0), layout="HWC").parts[0]),
            np.ascontiguousarray(t.permute(1, 2, 0).numpy()).tobytes(),
        )
        latent = torch.randn(2, 3, requires_grad=True).to(torch.bfloat16)
        self.assertEqual(rewardloop.latent(latent, layout="LD").dtype, "BF16")
        scores = rewardloop.rm_scores([], backend="torch")
        self.assertEqual(tuple(scores.rm_scores.shape), (0, 1))

    def test_pil_images(self) -> None:
        try:
            from PIL import Image
        except ImportError:
            self.skipTest("SKIPPED: Pillow is not installed: PIL images were not tried")
        picture = Image.new("RGB", (5, 4), (1, 2, 3))
        m = rewardloop.image(picture)
        self.assertEqual((m.layout, m.shape, bytes(m.parts[0][:3])), ("HWC", (4, 5, 3), bytes([1, 2, 3])))
        self.assertEqual(rewardloop.image(Image.new("L", (5, 4))).shape, (4, 5, 1))
        self.assertEqual(rewardloop.encode(picture, quality=95).encoding, "jpeg")
        with self.assertRaisesRegex(InputError, "image: PIL mode 'P'"):
            rewardloop.image(Image.new("P", (5, 4)))


def stand_in() -> types.ModuleType:
    """What the package uses of torch, over NumPy."""
    torch: Any = types.ModuleType("torch")

    class Tensor:
        def __init__(self, array: Any, dtype: str, device: str = "cpu") -> None:
            self.array, self.dtype, self.device = array, f"torch.{dtype}", device
            self.log: list[str] = []

        def detach(self) -> Tensor:
            self.log.append("detach")
            return self

        def to(self, device: str, memory_format: str, copy: bool) -> Tensor:
            self.log.append(f"to {device} {memory_format}")
            array = np.array(self.array, order="C") if copy or self.device != device else self.array
            return Tensor(array, self.dtype.removeprefix("torch."))

        def is_contiguous(self) -> bool:
            return bool(self.array.flags.c_contiguous)

        def contiguous(self) -> Tensor:
            return Tensor(np.ascontiguousarray(self.array), self.dtype.removeprefix("torch."))

        def view(self, dtype: str) -> Tensor:
            return Tensor(self.array.view(dtype), dtype)

        def numpy(self) -> Any:
            return self.array

    torch.Tensor, torch.int16, torch.contiguous_format = Tensor, "int16", "torch.contiguous_format"
    return torch  # type: ignore[no-any-return]


if __name__ == "__main__":
    unittest.main()
