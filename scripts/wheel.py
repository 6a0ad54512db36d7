"""Makes wheels with the program of the pure wheel that setuptools has built.

wheel.py PURE.whl --out FOLDER --program FILE --platform TAG --licences FILE

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


#: The C library that a program may ask for: that of manylinux_2_17, which trainers' images of the last ten years have.
NEWEST_GLIBC = (2, 17)


def check_symbols(program: Path) -> None:
    """Raises ValueError where a program asks for a newer C library than NEWEST_GLIBC."""
    versions = {tuple(int(part) for part in m.split(b".")) for m in re.findall(rb"\0GLIBC_(\d+(?:\.\d+)+)(?=\0)", program.read_bytes())}
    if not versions:
        raise ValueError(f"{program}: it names no version of the C library: is it a program for Linux with dynamic linking?")
    newest = max(versions)
    if newest > NEWEST_GLIBC:
        raise ValueError(f"{program}: it asks for GLIBC_{'.'.join(map(str, newest))}, and manylinux_2_17 has {'.'.join(map(str, NEWEST_GLIBC))}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pure", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--platform", required=True)
    parser.add_argument("--licences", type=Path, required=True)
    args = parser.parse_args()
    try:
        check_symbols(args.program)
        made = platform_wheel(args.pure, args.out, args.program, args.platform, args.licences)
    except (OSError, ValueError) as err:
        print(f"wheel.py: {err}", file=sys.stderr)
        return 1
    print(f"{made.name} {made.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
