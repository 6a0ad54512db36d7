"""python -m rewardloop.check: what it says of a file, and that rewardloop config check says the same, word for word."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

from .harness import PATIENCE, REPOSITORY, binary
from .test_media import png

CHECK = REPOSITORY / "python" / "rewardloop" / "check.py"

FUNCTIONS = """import asyncio
import hashlib


def compute_score(solution_str, ground_truth, bonus=0.0):
    return {"score": float(solution_str == ground_truth) + bonus, "acc": True, "which": ["a"]}


def misspelt(soluton_str):
    return 1


def raises(solution_str):
    raise ValueError("nothing to see")


def word(solution_str):
    return "good"


def nan(solution_str):
    return float("nan")


async def waits(solution_str, **kwargs):
    await asyncio.sleep(0)
    return 0.5


def hangs(solution_str):
    while True:
        pass


def crashes(solution_str):
    import os
    os._exit(7)


def picture(solution_image):
    digest = hashlib.sha256(bytes(solution_image.tobytes())).hexdigest()
    return {"score": 1.0, "digest": digest}


def lists(prompts, responses, scale=1):
    return [scale * len(r) for r in responses]


def short(prompts):
    return [1.0]


def poisoned(prompts):
    if any("bad" in p for p in prompts):
        raise ValueError("bad")
    return [1.0 for p in prompts]


def drifts(solution_str, seen=[]):
    seen.append(1)
    print("call", len(seen))
    return len(seen)


class Agent:
    def __init__(self):
        self.ready = True

    def compute_score(self, solution_str):
        return 0.25 if self.ready else None


class Grouped(Agent):
    def post_process_scores(self, scores):
        return [0.0 if s != s else s for s in scores]


class Model:
    def __init__(self, device, checkpoint="v1"):
        self.device, self.checkpoint = device, checkpoint

    def compute_scores(self, samples):
        return [len(s.prompt) for s in samples]


class Needy:
    def __init__(self, device, tokenizer):
        self.device = device

    def compute_scores(self, samples):
        return [1 for s in samples]


positional = eval("lambda solution_str, /: 1")
"""


class CheckCase(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name).resolve()
        self.file = self.put("mine.py", FUNCTIONS)

    def put(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def check(self, *args: object, python: str = sys.executable, module: bool = False) -> tuple[int, str]:
        """Exit status and what it printed, errors after it."""
        start = ["-m", "rewardloop.check"] if module else [str(CHECK)]
        env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "python")} if module else {**os.environ, "PYTHONPATH": ""}
        done = subprocess.run(  # noqa: S603
            [python, *start, *map(str, args)], env=env, capture_output=True, text=True, timeout=PATIENCE, cwd=self.folder
        )
        return done.returncode, done.stdout + done.stderr


class FoundTest(CheckCase):
    def test_a_function_is_described_called_and_timed(self) -> None:
        status, said = self.check(self.file, "--response", "4", "--ground-truth", "4", "--set", "bonus=0.5", module=True)
        self.assertEqual(status, 0, said)
        for line in (
            f"found      compute_score, function, {self.file}:5",
            "called     with one sample a call",
            "gets       ground_truth, solution_str",
            "options    bonus = 0.5",
            "score      1.5",
            "column     acc = true",
            'details    {"which": ["a"]}',
        ):
            self.assertIn(line + "\n", said)
        self.assertRegex(said, r"time       load \S+ ms, first call \S+ ms, second call \S+ ms")

    def test_nothing_but_the_standard_library_is_needed(self) -> None:
        status, said = self.check(self.file, python=sys.executable)
        bare = subprocess.run(  # noqa: S603
            [sys.executable, "-S", "-E", str(CHECK), str(self.file)], capture_output=True, text=True, timeout=PATIENCE
        )
        self.assertEqual((status, bare.returncode), (0, 0), said + bare.stdout + bare.stderr)
        self.assertIn("sample     known: text", bare.stdout)

    def test_each_form_is_called_as_a_server_calls_it(self) -> None:
        for name, flags, lines in (
            ("waits", (), ["async function", "score      0.5", "and any other, by **"]),
            ("Agent", (), ["Agent, class", "score      0.25"]),
            ("Grouped", ("--post-process",), ["score      0.25", "group      [0.25, 0.0]"]),
            ("Model", ("--set", "checkpoint=v3"), ["Model, class, a model", "a list of samples", "options    checkpoint = 'v3'"]),
            ("Model", ("--prompt", "a", "--prompt", "abc"), ["score      1.0\nscore      3.0\n", "; 2 in a batch "]),
            ("lists", ("--batch", "--response", "abc", "--set", "scale=2"), ["lists of its arguments", "score      6.0"]),
            ("lists", ("--set", "batch=true"), ["gets       prompts, responses", "score      5.0"]),
            ("drifts", (), ["warning    two calls with the same sample gave 1.0 and 2.0", "warning    it prints ('call 1'"]),
        ):
            with self.subTest(name, flags=flags):
                status, said = self.check(f"{self.file}:{name}", *flags)
                self.assertEqual(status, 0, said)
                for line in lines:
                    self.assertIn(line, said)

    def test_what_has_no_score_says_why(self) -> None:
        for name, flags, line in (
            (
                "raises",
                (),
                'internal: ValueError: nothing to see\n             File "' + str(self.file) + '", line 14, in raises',
            ),
            ("word", (), "invalid_score: the score is a str; want a number"),
            ("nan", (), "invalid_score: the score is nan"),
            ("short", ("--batch", "--prompt", "a", "--prompt", "b"), "it returned 1 scores for 2 samples; want one for each"),
            ("crashes", (), "crashed: the process ended with exit status 7, while it was called"),
            (
                "hangs",
                ("--timeout", "0.5"),
                f'timeout: a call took longer than 0.5 s; it is here:\n             File "{self.file}"',
            ),
            (
                "compute_score",
                ("--image", self.put("a.png", png(2)), "--ground-truth", "a"),
                "needs solution_str, which the sample",
            ),
        ):
            with self.subTest(name):
                if "--image" in flags and not self.has("PIL"):
                    continue
                status, said = self.check(f"{self.file}:{name}", *flags)
                self.assertEqual(status, 1, said)
                self.assertIn("failed     ", said)
                self.assertIn(line, said)

    def has(self, module: str) -> bool:
        probe = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
        return subprocess.run([sys.executable, "-c", probe], timeout=PATIENCE).returncode == 0  # noqa: S603

    def test_a_bad_sample_of_a_batch_fails_alone(self) -> None:
        status, said = self.check(f"{self.file}:poisoned", "--batch", "--prompt", "a", "--prompt", "bad", "--prompt", "c")
        self.assertEqual(status, 1)
        self.assertRegex(said, r"(?s)score      1\.0\nfailed     internal: ValueError: bad.*score      1\.0\n")

    def test_what_is_no_file_or_no_flag_is_refused_before_anything_runs(self) -> None:
        for args, line in (
            (("nowhere.py",), "nowhere.py is not a Python file"),
            ((self.folder,), "is not a Python file"),
            (("scorer://clap",), "rewardloop try KEY cfg.yaml"),
            ((self.file, "--extra-info", "[1]"), "--extra-info [1]: want a JSON object"),
            ((self.file, "--ground-truth", "{x"), "begins like JSON but is not valid JSON"),
            ((self.file, "--set", "bonus"), "--set bonus: want key=value"),
            ((self.file, "--set", "pixels=jpeg"), "want auto, numpy, torch, pil or path"),
            ((self.file, "--image", "nowhere.png"), "there is no such file"),
            ((self.file, "--timeout", "0"), "--timeout 0: want more than 0"),
            ((self.file, "--interpreter", "/nowhere/python"), "--interpreter /nowhere/python: No such file"),
            (
                (self.file, "--prompt", "a", "--prompt", "b", "--response", "1", "--response", "2", "--response", "3"),
                "2 times for 3",
            ),
        ):
            with self.subTest(args):
                status, said = self.check(*args)
                self.assertEqual(status, 2, said)
                self.assertIn(line, said)
                self.assertNotIn("found", said)

    def test_nothing_that_a_function_starts_is_left(self) -> None:
        left = self.put(
            "left.py",
            "import subprocess as s\nchild = s.Popen(['sleep', '600'])\ndef compute_score(solution_str):\n    return child.pid\n",
        )
        status, said = self.check(left)
        self.assertEqual(status, 0, said)
        score = re.search(r"score      (\d+)\.0", said)
        assert score is not None
        state = Path(f"/proc/{score[1]}/stat")
        self.assertTrue(not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z")

    def test_ctrl_c_ends_it_and_the_function(self) -> None:
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        tell = f"open({str(pipe)!r}, 'w').write(str(os.getpid()))"
        text = f"import os, time\ndef compute_score(solution_str):\n    {tell}\n    time.sleep(600)\n"
        command = [sys.executable, str(CHECK), str(self.put("hangs.py", text))]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
            function = int(pipe.read_text())  # waits until it is called
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, said), (1, "interrupted\n"))
        with self.assertRaises(ProcessLookupError):
            os.kill(function, 0)


class SameTest(CheckCase):
    """The verdicts of rewardloop config check and try on the same files."""

    def faults(self, entry: dict[str, Any]) -> tuple[list[str], str]:
        config = self.put("cfg.yaml", json.dumps({"reward": {"reward_functions": {"it": {"required": True, **entry}}}}))
        said = subprocess.run(  # noqa: S603
            [binary(), "config", "check", "--json", "-c", str(config), f"pool.python.interpreter={sys.executable}"],
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        return [f["message"] for f in json.loads(said.stdout)["faults"]], said.stderr

    def test_the_faults_of_a_file_are_those_of_config_check(self) -> None:
        self.put("broken.py", "x = 1\n\ndef compute_score(:\n")
        self.put("lacking.py", "\nimport nothing_of_that_name\n")
        self.put("leaving.py", "import sys\nsys.exit(3)\n")
        self.put("failing.py", "def f():\n    raise RuntimeError('no\\nluck')\nf()\n")
        for path, entry in (
            ("mine.py", {}),
            ("mine.py", {"name": "misspelt"}),
            ("mine.py", {"name": "compute_scor"}),
            ("mine.py", {"name": "positional"}),
            ("mine.py", {"name": "Grouped"}),
            ("mine.py", {"name": "Agent"}),
            ("mine.py", {"name": "waits"}),
            ("mine.py", {"name": "Model"}),
            ("mine.py", {"name": "Needy"}),
            ("mine.py", {"name": "lists", "batch": True}),
            ("mine.py", {"name": "compute_score", "batch": True}),
            ("mine.py", {"bonnus": 1}),
            ("broken.py", {}),
            ("lacking.py", {}),
            ("leaving.py", {}),
            ("failing.py", {}),
        ):
            with self.subTest(path, entry=entry):
                theirs, _ = self.faults({"path": path, **entry})
                flags = [f for k, v in entry.items() if k != "name" for f in ("--set", f"{k}={json.dumps(v)}")]
                name = str(entry.get("name", "compute_score"))
                status, said = self.check(self.folder / path, "--name", name, *flags)
                ours = [
                    line.removeprefix("fault      ").removeprefix("bonnus: ")
                    for line in said.splitlines()
                    if line.startswith("fault")
                ]
                self.assertEqual(ours, theirs, said)
                self.assertEqual(status, 2 if theirs else 0, said)

    def test_the_known_samples_are_those_of_the_server(self) -> None:
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("SKIPPED: no numpy")
        status, said = self.check(f"{self.file}:picture")
        self.assertEqual(status, 0, said)
        server = subprocess.run(  # noqa: S603
            [binary(), "try", f"{self.file}:picture", "--json", f"pool.python.interpreter={sys.executable}"],
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        columns = json.loads(server.stdout)["reward_extra_info"]
        self.assertIn(f'digest = "{columns["reward/picture/digest"]}"', said)
        self.assertNotIn(hashlib.sha256(b"").hexdigest(), said)


class FormTest(CheckCase):
    """Functions of whole prompt groups, in the forms that rewards/python has."""

    def setUp(self) -> None:
        super().setUp()
        if not (CHECK.parent / "_processes" / "forms.py").exists():
            self.skipTest("SKIPPED: rewards/python has no forms")
        self.file = self.put(
            "groups.py",
            "class Ranks:\n    def score_group(self, samples):\n        return [float(s.index) for s in samples]\n\n\n"
            "def trl(completions, ground_truth, **kwargs):\n    return [None if c == 'skip' else 1.0 for c in completions]\n\n\n"
            "async def slime(args, samples):\n    raise ValueError(args.word)\n",
        )

    def test_a_group_is_scored_in_one_call(self) -> None:
        status, said = self.check(f"{self.file}:Ranks")
        self.assertEqual(status, 0, said)
        self.assertIn("signature: score_group", said)
        self.assertIn("sample     known: a group of two\nscore      0.0\nscore      1.0\n", said)

    def test_a_function_of_another_trainer_is_called_in_its_form(self) -> None:
        status, said = self.check(f"{self.file}:trl", "--set", "signature=trl", "--response", "a", "--response", "skip")
        self.assertEqual(status, 0, said)
        self.assertIn("score      1.0\nskipped    ", said)
        status, said = self.check(f"{self.file}:slime", "--set", "signature=slime", "--set", "word=no")
        self.assertEqual(status, 1, said)
        self.assertIn("failed     internal: ValueError: no\n", said)
        self.assertNotIn("asyncio", said)


class SourceTest(unittest.TestCase):
    def test_the_package_has_every_source_of_the_servers_processes_and_no_copy(self) -> None:
        theirs = {f.name: f for f in (REPOSITORY / "rewards" / "python").glob("*.py")}
        ours = {f.name: f for f in (CHECK.parent / "_processes").glob("*.py")}
        self.assertEqual(set(ours), set(theirs))
        for name, file in ours.items():
            self.assertTrue(file.is_symlink(), f"{file} is a copy")
            self.assertTrue(file.samefile(theirs[name]))


if __name__ == "__main__":
    unittest.main()
