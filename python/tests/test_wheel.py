"""What scripts/wheel.py makes is a wheel: pip installs it, and the program runs."""

import csv
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "wheel.py"


def program(newest: str) -> bytes:
    """A program in sh that carries the names of versions of the C library, as a linked one does."""
    return b"#!/bin/sh\necho \"program got $*\"\nexit 0\n\0GLIBC_2.2.5\0GLIBC_" + newest.encode() + b"\0"


@unittest.skipUnless(SCRIPT.exists(), "SKIPPED: this package stands alone, without the scripts of its repository")
class WheelTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "licences").write_text("== a\n\nMIT\n")
        self.pure = self.folder / "rewardloop-1.2.3-py3-none-any.whl"
        with zipfile.ZipFile(self.pure, "w") as wheel:
            for path in sorted((ROOT / "python" / "rewardloop").glob("*.py")):
                wheel.writestr(f"rewardloop/{path.name}", path.read_bytes())
            wheel.writestr("rewardloop-1.2.3.dist-info/METADATA", "Metadata-Version: 2.1\nName: rewardloop\nVersion: 1.2.3\n")
            wheel.writestr("rewardloop-1.2.3.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr("rewardloop-1.2.3.dist-info/RECORD", "old,,\n")

    def make(self, newest: str = "2.17", platform: str = "manylinux_2_17_x86_64.manylinux2014_x86_64") -> "subprocess.CompletedProcess[str]":
        (self.folder / "program").write_bytes(program(newest))
        out = self.folder / "out"
        out.mkdir(exist_ok=True)
        return subprocess.run(
            [sys.executable, SCRIPT, "wheel", self.pure, "--out", out, "--program", self.folder / "program", "--platform", platform, "--licences", self.folder / "licences"],
            capture_output=True, text=True, check=False, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        )  # fmt: skip

    def test_record_lists_each_file_and_the_tags_are_those_of_the_platform(self) -> None:
        done = self.make()
        self.assertEqual(done.returncode, 0, done.stderr)
        [made] = (self.folder / "out").iterdir()
        self.assertEqual(made.name, "rewardloop-1.2.3-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl")
        first = made.read_bytes()
        with zipfile.ZipFile(made) as wheel:
            self.assertIsNone(wheel.testzip())
            record = {row[0]: row[1:] for row in csv.reader(wheel.read("rewardloop-1.2.3.dist-info/RECORD").decode().splitlines())}
            self.assertEqual(set(record), set(wheel.namelist()))
            self.assertEqual(record["rewardloop-1.2.3.dist-info/RECORD"], ["", ""])
            self.assertEqual(wheel.getinfo("rewardloop-1.2.3.data/scripts/rewardloop").external_attr >> 16, 0o100755)
            said = wheel.read("rewardloop-1.2.3.dist-info/WHEEL").decode()
        self.assertIn("Root-Is-Purelib: false\n", said)
        self.assertIn("Tag: py3-none-manylinux_2_17_x86_64\nTag: py3-none-manylinux2014_x86_64\n", said)
        self.make()
        self.assertEqual(made.read_bytes(), first, "the same input makes the same file")

    def test_a_program_that_asks_for_a_newer_c_library_is_refused(self) -> None:
        done = self.make("2.34")
        self.assertEqual(done.returncode, 1)
        self.assertIn("it asks for GLIBC_2.34, and manylinux_2_17 has 2.17", done.stderr)
        self.assertEqual(list((self.folder / "out").iterdir()), [])

    def test_a_wheel_that_is_too_large_ends_a_release(self) -> None:
        (self.folder / "licences").write_bytes(os.urandom(20_972_000))  # which nothing makes smaller
        done = self.make()
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"it has \d\d,\d\d\d,\d\d\d bytes, and a wheel may have 20,971,520: see what the program links")

    def check(self) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, SCRIPT, "check", self.folder / "out"], capture_output=True, text=True, check=False)

    def test_finished_wheels_are_looked_at(self) -> None:
        header = bytearray(64)
        header[:4], header[18] = b"\x7fELF", 183
        for machine, newest, words in (
            ("aarch64", "2.17", ""),
            ("x86_64", "2.17", "its program is for aarch64"),
            ("aarch64", "2.18", "asks for GLIBC_2.18"),
        ):
            with self.subTest(machine=machine, newest=newest):
                out = self.folder / "out"
                out.mkdir(exist_ok=True)
                path = out / f"rewardloop-1.2.3-py3-none-manylinux_2_17_{machine}.manylinux2014_{machine}.whl"
                with zipfile.ZipFile(path, "w") as wheel:
                    wheel.writestr("rewardloop-1.2.3.data/scripts/rewardloop", bytes(header) + program(newest))
                done = self.check()
                self.assertEqual(done.returncode, 1 if words else 0, done.stderr)
                self.assertIn(words or "aarch64, C library 2.17 or newer", done.stdout + done.stderr)
                path.unlink()
        self.assertIn("holds no wheel with a program", self.check().stderr)

    def test_a_text_of_a_licence_that_many_have_is_there_once(self) -> None:
        texts = self.folder / "texts"
        for name, text in (("a@v1/LICENSE", "MIT, of A"), ("b@v1/LICENSE", "Apache"), ("c@v2/sub/NOTICE", "Apache")):
            (texts / name).parent.mkdir(parents=True)
            (texts / name).write_text(text)
        done = subprocess.run([sys.executable, SCRIPT, "licences", texts], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "== a@v1/LICENSE\n\nMIT, of A\n== b@v1/LICENSE\n== c@v2/sub/NOTICE\n\nApache")

    def test_pip_installs_it_and_python_m_rewardloop_runs_its_program(self) -> None:
        if sys.platform != "linux" or importlib.util.find_spec("pip") is None:
            self.skipTest("SKIPPED: pip installs such a wheel on Linux")
        self.assertEqual(self.make(platform="linux_" + os.uname().machine).returncode, 0)
        [made] = (self.folder / "out").iterdir()
        env = self.folder / "env"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
        python = env / "bin" / "python"
        subprocess.run(
            [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check", made], check=True
        )
        clean = {k: v for k, v in os.environ.items() if k not in ("REWARDLOOP_BIN", "PYTHONPATH")}
        run = subprocess.run([python, "-m", "rewardloop", "serve", "a b"], capture_output=True, text=True, check=False, cwd=self.folder, env=clean)
        self.assertEqual((run.returncode, run.stdout), (0, "program got serve a b\n"), run.stderr)
        named = subprocess.run(
            [python, "-m", "rewardloop", "version"], capture_output=True, text=True, check=False, cwd=self.folder, env={**clean, "REWARDLOOP_BIN": "/nowhere"}
        )
        self.assertEqual(named.returncode, 2)
        self.assertIn("REWARDLOOP_BIN names '/nowhere', which is not a program", named.stderr)


if __name__ == "__main__":
    unittest.main()
