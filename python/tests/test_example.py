"""The example runs as its README says."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest

from .harness import PATIENCE, REPOSITORY, serve


class ExampleTest(unittest.TestCase):
    def test_python_streaming(self) -> None:
        with serve() as server:
            done = subprocess.run(
                [sys.executable, REPOSITORY / "examples" / "python_streaming" / "train.py", server.url, "2"],
                env={**os.environ, "PYTHONPATH": str(REPOSITORY / "python")},
                capture_output=True, text=True, timeout=PATIENCE, check=False,
            )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^step 1: 32 of 32 scored, mean -0\.\d+, largest advantage \d\.\d+\nstep 2: 32 of 32 scored")


if __name__ == "__main__":
    unittest.main()
