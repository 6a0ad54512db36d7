"""Pictures from files: what is read, and what is refused by name."""

from __future__ import annotations

import os
import struct
import tempfile
import unittest
import zlib
from pathlib import Path
from typing import Any

import numpy as np

import rewardloop
from rewardloop import InputError, Sample, media
from rewardloop.frame import encode

JPEG = b"\xff\xd8\xff\xe0 and so on"


def png(side: int, grey: int = 51) -> bytes:
    """A grey picture of side x side pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes([grey] * 3 * side) for _ in range(side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class FileTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def put(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path

    def test_a_path_is_its_file_wherever_a_picture_is(self) -> None:
        a, b = self.put("a.png", png(2)), self.put("no_suffix", JPEG)
        for made in (
            rewardloop.image(a),
            rewardloop.image(str(a)),
            rewardloop.image(png(2)),
            rewardloop.image(png(2), encoding="png"),
        ):
            self.assertEqual((made.kind, made.encoding, bytes(made.parts[0])), ("image", "png", png(2)))
        self.assertEqual(rewardloop.image(b).encoding, "jpeg")
        self.assertEqual(rewardloop.image(b"RIFF0000WEBP").encoding, "webp")
        array = rewardloop.image(np.zeros((2, 2, 3), np.uint8), layout="HWC")
        sample = Sample(id="s", media=[a, str(b), array])
        assert isinstance(sample.media, tuple)
        self.assertEqual([m.encoding for m in sample.media if isinstance(m, rewardloop.Media)], ["png", "jpeg", "raw"])
        one = Sample(id="s", media=str(a))
        self.assertEqual(bytes(encode(one).parts[-1]), bytes(encode(Sample(id="s", media=rewardloop.image(a))).parts[-1]))
        a.unlink()  # it was read when the sample was made
        encode(one)

    def test_the_frames_of_a_video_may_be_paths(self) -> None:
        files = [self.put(f"{i}.png", png(2, i)) for i in range(3)]
        for made in (
            rewardloop.frames(files, fps=8),
            rewardloop.video(files, fps=8),
            rewardloop.video([str(files[0]), *map(Path.read_bytes, files[1:])], fps=8),
        ):
            self.assertEqual((made.kind, made.encoding, made.fps), ("video", "frames", 8.0))
            self.assertEqual([bytes(p) for p in made.parts], [png(2, i) for i in range(3)])

    def test_what_is_no_picture_is_refused_by_its_name(self) -> None:
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        large = self.put("large.png", png(2))
        with large.open("r+b") as file:
            file.truncate(media.MAX_FILE + 1)  # a hole: it takes no room
        text, gif, film = self.put("a.txt", b"no picture"), self.put("a.gif", b"GIF89a"), self.put("a.mp4", b"\0\0\0 ftypisom")
        cases: dict[str, Any] = {
            r"image: '.*nowhere.png' cannot be read: .*No such file": self.folder / "nowhere.png",
            r"image: '.*' is a folder; to send its files as a video: rewardloop.frames": self.folder,
            r"image: '.*pipe' is not a file": pipe,
            r"image: '.*large.png' has 1073741825 bytes, and no sample more than 1073741824": large,
            r"image: '.*a.txt' is not a JPEG, PNG or WebP file$": text,
            r"image: '.*a.gif' is .* but a GIF: rewardloop.video takes it$": gif,
            r"image: '.*a.mp4' is .* but an MP4 video: rewardloop.video takes it$": film,
            r"image: '.*empty' is empty": self.put("empty", b""),
            r"image: 'a.x00' cannot be read: .*null": "a\0",
            r"image: '' cannot be read": "",
            r"image: not a JPEG, PNG or WebP file$": b"no picture",
        }
        for pattern, given in cases.items():
            with self.subTest(pattern), self.assertRaisesRegex(InputError, "^" + pattern):
                rewardloop.image(given)
        for name, data, encoding in (("v.mp4", b"\0\0\0 ftypisom", "mp4"), ("v.webm", b"\x1a\x45\xdf\xa3", "webm"), ("v.gif", b"GIF89a", "gif")):
            for given in (self.put(name, data), data):
                made = rewardloop.video(given, fps=8)
                self.assertEqual((made.kind, made.encoding, made.fps, bytes(made.parts[0])), ("video", encoding, 8.0, data))
        for name, data, encoding in (("s.wav", b"RIFF\4\0\0\0WAVE", "wav"), ("s.flac", b"fLaC", "flac")):
            made = rewardloop.audio(self.put(name, data))
            self.assertEqual((made.kind, made.encoding, made.sample_rate), ("audio", encoding, None))
        for pattern, make in {
            "video: '.*a.txt' is not an MP4, WebM or GIF file": lambda: rewardloop.video(text),
            "video: the data is not an MP4": lambda: rewardloop.video(b"fLaC"),
            "audio: '.*a.gif' is not a WAV or FLAC file": lambda: rewardloop.audio(gif),
            "layout: 'THWC' of a file": lambda: rewardloop.video(film, layout="THWC"),
            "sample_rate: leave the argument out: a WAV or FLAC file contains its sample rate": lambda: rewardloop.audio(
                b"fLaC", sample_rate=16000
            ),
            "layout: 'HWC' with encoding 'png'": lambda: rewardloop.image(self.put("b.png", png(2)), layout="HWC"),
            "encoding: 'jpeg', but the bytes are png": lambda: rewardloop.image(self.put("b.png", png(2)), encoding="jpeg"),
            r"frames\[1\]: '.*a.gif' is not a JPEG": lambda: rewardloop.frames([JPEG, gif]),
            "layout: 'THWC' of a list of files": lambda: rewardloop.video([gif], layout="THWC"),
            "layout: missing": lambda: Sample(media=[rewardloop.video(np.zeros((1, 2, 2, 3), np.uint8))]),
            "image: '.*a.txt' is not a JPEG": lambda: Sample(media=[text]),
        }.items():
            with self.subTest(pattern), self.assertRaisesRegex(InputError, "^" + pattern):
                make()

    def test_what_was_wrong_in_a_sample_is_wrong_still(self) -> None:
        for wrong in (3, {"a": 1}, [[self.put("a.png", png(2))]], [None]):
            with self.subTest(wrong), self.assertRaisesRegex(InputError, "want what image"):
                encode(Sample(media=wrong))  # type: ignore[arg-type]
