"""Makes wheels with the program of the pure wheel that setuptools has built, and looks at what a release has.

wheel.py wheel PURE.whl --out FOLDER --program FILE --platform TAG --licences FILE
wheel.py licences FOLDER      prints the texts below a folder, each once, below the names of all files that have it
wheel.py check DIST           looks at finished wheels: their size, what they hold, and the C library that their programs ask for

A wheel is a ZIP file: the package as it is, the program below <name>-<version>.data/scripts, from where installers put it
among the environment's programs, and a RECORD with the SHA-256 of each file. The result is the same for the same input: times
are those of SOURCE_DATE_EPOCH. Files are compressed by libdeflate (package deflate), where that is installed: the program, which is
most of the wheel, to 3 % fewer bytes than by zlib's best.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import struct
import sys
import time
import zipfile
import zlib
from pathlib import Path


def deflated(data: bytes) -> bytes:
    """data as a raw deflate stream."""
    try:
        import deflate
    except ImportError:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(data) + packer.flush()
    return bytes(deflate.deflate_compress(data, 12))


class Wheel:
    """A ZIP file in writing. Python's zipfile takes no stream that somebody else has compressed."""

    def __init__(self, path: Path, when: tuple[int, ...]) -> None:
        self.path, self.out, self.index, self.records = path, bytearray(), bytearray(), []
        self.entries = 0
        self.date = (when[0] - 1980) << 9 | when[1] << 5 | when[2]
        self.time = when[3] << 11 | when[4] << 5 | when[5] // 2

    def add(self, name: str, data: bytes, mode: int = 0o644, *, listed: bool = True) -> None:
        packed = deflated(data)
        raw = name.encode()
        common = struct.pack("<HHHHHIIIHH", 20, 0x800, 8, self.time, self.date, zlib.crc32(data), len(packed), len(data), len(raw), 0)
        attributes = (0o100000 | mode) << 16
        self.index += b"PK\1\2" + struct.pack("<H", 3 << 8 | 20) + common + struct.pack("<HHHII", 0, 0, 0, attributes, len(self.out)) + raw
        self.out += b"PK\3\4" + common + raw + packed
        self.entries += 1
        if listed:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            self.records.append(f"{name},sha256={digest},{len(data)}")

    def close(self) -> None:
        end = struct.pack("<HHHHIIH", 0, 0, self.entries, self.entries, len(self.index), len(self.out), 0)
        self.path.write_bytes(self.out + self.index + b"PK\5\6" + end)


def platform_wheel(pure: Path, out: Path, program: Path, platform: str, licences: Path) -> Path:
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "1577836800"))
    name, version = pure.name.split("-")[:2]
    tag = f"py3-none-{platform}"
    wheel = Wheel(out / f"{name}-{version}-{tag}.whl", time.gmtime(epoch)[:6])
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(pure) as source:
        for entry in sorted(source.namelist()):
            data = source.read(entry)
            if entry in (f"{info}/RECORD", f"{info}/WHEEL") or entry.endswith("/"):
                continue
            wheel.add(entry, data, source.getinfo(entry).external_attr >> 16 & 0o777 or 0o644)
    wheel.add(f"{name}-{version}.data/scripts/rewardloop", program.read_bytes(), 0o755)
    wheel.add(f"{info}/licenses/THIRD_PARTY.txt", licences.read_bytes())
    tags = "".join(f"Tag: py3-none-{p}\n" for p in platform.split("."))
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: rewardloop\nRoot-Is-Purelib: false\n{tags}\n".encode())
    record = f"{info}/RECORD"
    wheel.add(record, ("\n".join([*wheel.records, f"{record},,"]) + "\n").encode(), listed=False)
    wheel.close()
    return wheel.path


#: What a wheel may have. The installers of a cluster fetch it once for each machine.
MOST_BYTES = 20 << 20


def check_size(wheel: Path) -> None:
    """Raises ValueError where a wheel is larger than MOST_BYTES."""
    size = wheel.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"{wheel}: it has {size:,} bytes, and a wheel may have {MOST_BYTES:,}: see what the program links (go tool nm -size -sort size)")


def licences(folder: Path) -> bytes:
    """The texts below a folder. Many modules have the same, which is there once."""
    texts: dict[bytes, list[str]] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        texts.setdefault(path.read_bytes(), []).append(path.relative_to(folder).as_posix())
    return b"\n".join("".join(f"== {name}\n" for name in names).encode() + b"\n" + text for text, names in texts.items())


def check_wheels(dist: Path) -> list[str]:
    """Raises ValueError where a wheel of a release is not what it says; returns a line for each."""
    lines = []
    for path in sorted(dist.glob("*manylinux*.whl")):
        check_size(path)
        with zipfile.ZipFile(path) as wheel:
            program = next((n for n in wheel.namelist() if n.endswith(".data/scripts/rewardloop")), "")
            if not program:
                raise ValueError(f"{path}: it holds no program")
            data = wheel.read(program)
        newest = check_symbols(f"{path}: {program}", data)
        machine = {62: "x86_64", 183: "aarch64"}.get(int.from_bytes(data[18:20], "little"), "another machine")
        if not path.stem.endswith(machine):
            raise ValueError(f"{path}: its program is for {machine}")
        lines.append(f"{path.name}: {path.stat().st_size:,} bytes, {machine}, C library {newest} or newer")
    if not lines:
        raise ValueError(f"{dist} holds no wheel with a program: make release")
    return lines


#: The C library that a program may ask for: that of manylinux_2_17, which trainers' images of the last ten years have.
NEWEST_GLIBC = (2, 17)


def check_symbols(program: object, data: bytes) -> str:
    """The newest C library that a program asks for. Raises ValueError where that is newer than NEWEST_GLIBC."""
    versions = {tuple(int(part) for part in m.split(b".")) for m in re.findall(rb"\0GLIBC_(\d+(?:\.\d+)+)(?=\0)", data)}
    if not versions:
        raise ValueError(f"{program}: it names no version of the C library: is it a program for Linux with dynamic linking?")
    newest = max(versions)
    if newest > NEWEST_GLIBC:
        raise ValueError(f"{program}: it asks for GLIBC_{'.'.join(map(str, newest))}, and manylinux_2_17 has {'.'.join(map(str, NEWEST_GLIBC))}")
    return ".".join(map(str, newest))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    wheel = commands.add_parser("wheel")
    wheel.add_argument("pure", type=Path)
    wheel.add_argument("--out", type=Path, required=True)
    wheel.add_argument("--program", type=Path, required=True)
    wheel.add_argument("--platform", required=True)
    wheel.add_argument("--licences", type=Path, required=True)
    for name in ("licences", "check"):
        commands.add_parser(name).add_argument("folder", type=Path)
    args = parser.parse_args()
    try:
        if args.command == "licences":
            sys.stdout.buffer.write(licences(args.folder))
        elif args.command == "check":
            print("\n".join(check_wheels(args.folder)))
        else:
            check_symbols(args.program, args.program.read_bytes())
            made = platform_wheel(args.pure, args.out, args.program, args.platform, args.licences)
            print(f"{made.name} {made.stat().st_size / 1e6:.1f} MB")
            check_size(made)
    except (OSError, ValueError) as err:
        print(f"wheel.py: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
