"""A Python process of reward functions, spoken to as the Go side does: frames over a socket, source on stdin."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

from .harness import PATIENCE, REPOSITORY

SOURCE = REPOSITORY / "rewards/python/process.py"


class Process:
    """A Python process with one function."""

    def __init__(self, test: unittest.TestCase, code: str, **spec: Any) -> None:
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        path = Path(folder.name) / "function.py"
        path.write_text(code)
        self.sock, theirs = socket.socketpair()
        self.sock.settimeout(PATIENCE)
        # Descriptor 3, as Go's ExtraFiles makes it.
        start = f"import os; os.dup2({theirs.fileno()}, 3); os.execv({sys.executable!r}, [{sys.executable!r}, '-u', '-'])"
        self.process = subprocess.Popen(
            [sys.executable, "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=(theirs.fileno(),),
        )  # fmt: skip
        theirs.close()
        test.addCleanup(self.close)
        assert self.process.stdin is not None
        self.process.stdin.write(SOURCE.read_bytes())
        self.process.stdin.close()
        self.send(protocol=2, path=str(path), name="compute_score", limits={"CORE": 0}, **spec)
        self.ready = self.read()

    def send(self, **header: Any) -> None:
        text = json.dumps(header).encode()
        self.sock.sendall(struct.pack("<II", len(text), 0) + text)

    def call(self, call: int, **sample: Any) -> None:
        self.send(op="call", id=call, sample=sample)

    def read(self) -> Any:
        length, body = struct.unpack("<II", self.exactly(8))
        assert body == 0
        return json.loads(self.exactly(length))

    def exactly(self, n: int) -> bytes:
        data = b""
        while len(data) < n:
            more = self.sock.recv(n - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def close(self) -> None:
        self.sock.close()
        self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()


class ProcessTest(unittest.TestCase):
    def test_it_scores_and_ends_when_its_parent_is_gone(self) -> None:
        child = Process(self, "def compute_score(solution_str, factor): return len(solution_str) * factor", kwargs={"factor": 2})
        self.assertEqual(("ready", False), (child.ready["op"], child.ready["async"]))
        child.call(5, response="four")
        self.assertEqual({"op": "result", "score": 8.0, "extra": {}, "details": {}, "id": 5}, child.read())
        child.sock.shutdown(socket.SHUT_WR)
        self.assertEqual(0, child.process.wait(PATIENCE))

    def test_exceptions_come_by_name_with_the_users_frames_only(self) -> None:
        child = Process(self, "def compute_score(solution_str):\n    raise ZeroDivisionError('no')")
        child.call(1, response="x")
        said = child.read()
        self.assertEqual(("error", "internal"), (said["op"], said["class"]))
        self.assertTrue(said["message"].startswith("ZeroDivisionError: no\n"))
        self.assertIn("function.py", said["message"])
        self.assertNotIn("<stdin>", said["message"])
        child.call(2, response="x")
        self.assertEqual({**said, "id": 2}, child.read())

    def test_async_calls_answer_in_the_order_they_end_and_can_be_cancelled(self) -> None:
        child = Process(
            self,
            "import asyncio\n"
            "async def compute_score(solution_str):\n"
            "    print(solution_str)\n"
            "    await asyncio.sleep(float(solution_str))\n"
            "    return 1\n",
        )
        self.assertTrue(child.ready["async"])
        child.call(1, response="600")
        child.call(2, response="0")
        second = child.read()
        self.assertEqual((2, "0\n"), (second["id"], second["output"]))
        child.send(op="cancel", id=1)
        first = child.read()
        self.assertEqual((1, "error", "600\n"), (first["id"], first["op"], first["output"]))

    def test_a_call_that_blocks_the_loop_is_named(self) -> None:
        child = Process(
            self,
            "import asyncio, time\n"
            "async def compute_score(solution_str):\n"
            "    time.sleep(600) if solution_str else await asyncio.sleep(0)\n"
            "    return 1\n",
            stall_seconds=0.4,
        )
        child.call(1, response="blocks")
        self.assertEqual({"op": "stuck", "id": 1}, child.read())
        child.process.kill()  # as the parent does then

    def test_it_refuses_what_it_cannot_use(self) -> None:
        for code, says in (
            ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
            ("compute_score = 3", "want a function or a class"),
            ("def compute_score(tokens): ...", "needs tokens, which nobody gives"),
            ("raise SystemExit(3)", "sys.exit(3)"),
            ("def compute_score(:", "SyntaxError"),
        ):
            with self.subTest(code):
                said = Process(self, code).ready
                self.assertEqual("refused", said["op"])
                self.assertIn(says, said["message"])


if __name__ == "__main__":
    unittest.main()
