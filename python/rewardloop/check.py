"""Runs a reward function under the server's contract, without a server.

    python -m rewardloop.check my_reward.py --response "so it is 4." --ground-truth 4

The command first inspects the file as ``rewardloop config check`` does, with the same code, and prints what the file
contains: a function or a class, its parameters, and all errors. Then it calls the function as a server would, with the
samples of the flags or with the server's known samples, and prints score, columns and time. Each of the two stages
runs in its own process, with the Python of ``--interpreter``. This Python needs neither this package nor any other,
except numpy or torch if the function takes pixels, and Pillow if a picture is read from a file.

Exit status: 0 if every sample has a score, 1 if a sample has none, 2 if the file or the command line is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

#: Seconds for an import, for what a class loads, and for a call: those of a component.
TIMEOUT = 120.0
#: Seconds that ``rewardloop config check`` gives an import.
INSPECT_TIME = 10.0
#: The processes' own code, which is that of the server, in the order of its making: rewards/python.
SOURCES = ("process", "model", "forms")
_FOLDER = os.path.join(os.path.dirname(os.path.abspath(globals().get("__file__", ""))), "_processes")

# What the other process runs: this text, under the file name by which the processes' code tells its own frames.
_START = "import sys; sys.argv.pop(0); exec(compile(open(sys.argv[0]).read(), '<stdin>', 'exec'))"

# The sample that a server calls functions with (known.go of rewards/python).
_PROMPT = 'a sign that says "hello"'
_SIDE, _FRAMES = 64, 4


# --- here ------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser("python -m rewardloop.check", description="Checks and calls a reward function as a server does.")
    p.add_argument("path", metavar="my_reward.py[:NAME]", help="Python file, or pkg://package.module, as in the path of an entry")
    p.add_argument("--name", help="name of the function or class; default: compute_score")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="key of the entry, JSON or text; repeatable")
    p.add_argument("--batch", action="store_true", help="pass lists of arguments to the function, as with batch: true")
    p.add_argument("--post-process", action="store_true", help="call post_process_scores of the class, as another component does")
    p.add_argument("--image", action="append", default=[], metavar="FILE", help="picture file; repeatable, one sample per file")
    p.add_argument("--prompt", action="append", default=[], metavar="TEXT", help="prompt; repeatable, one sample per text")
    p.add_argument("--response", action="append", default=[], metavar="TEXT", help="response; repeatable, one sample per text")
    p.add_argument("--ground-truth", metavar="TEXT", help="ground truth: text, or JSON if the value begins with {, [ or a quote")
    p.add_argument("--extra-info", metavar="JSON", help="extra information for the function, a JSON object")
    p.add_argument("--interpreter", default=sys.executable, metavar="PYTHON", help="Python for the function; default: this one")
    p.add_argument("--timeout", type=float, default=TIMEOUT, metavar="SECONDS", help="limit per import or call; default: 120")
    return p


def main(argv: list[str] | None = None) -> int:
    p = parser()
    args = p.parse_args(argv)
    if not 0 < args.timeout <= 86400:
        p.error(f"--timeout {args.timeout:g}: want more than 0 and at most 86400 seconds")
    try:
        spec = specification(args)
        spec["samples"] = samples(args)
    except ValueError as error:
        p.error(str(error))
    done = apart(args, {**spec, "stage": "inspect"}, 1)
    return done or apart(args, {**spec, "stage": "call"}, 3)


def specification(args: argparse.Namespace) -> dict[str, Any]:
    """Returns what the server's processes are told to load, from the command line."""
    path, name = args.path, args.name
    before, colon, after = path.rpartition(":")
    if colon and (before.endswith(".py") or before.startswith("pkg://")):
        if name:
            raise ValueError(f"{args.path} names a function, and so does --name: leave one of them out")
        path, name = before, after
    if path.startswith(("scorer://", "builtin://")):
        raise ValueError(
            f"{path} names a built-in reward, not a file: name the reward in a configuration and try it with the program:  "
            "rewardloop try KEY cfg.yaml --image picture.jpg"
        )
    if not path.startswith("pkg://"):
        path = os.path.abspath(path.removeprefix("file://"))
        if not path.endswith(".py") or not os.path.isfile(path):
            raise ValueError(f"{path} is not a Python file: give a file whose name ends in .py, or pkg:// and the name of a module")
    kwargs: dict[str, Any] = {}
    for pair in args.set:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"--set {pair}: want key=value")
        kwargs[key] = parsed(value, f"--set {pair}")
    # These are the entry's, and change the call.
    keys = {key: kwargs.pop(key, None) for key in ("batch", "devices", "pixels", "signature")}
    pixels, device = keys["pixels"] or "auto", keys["devices"] or "cpu"
    if pixels not in ("auto", "numpy", "torch", "pil", "path"):
        raise ValueError(f"--set pixels={pixels}: want auto, numpy, torch, pil or path")
    columns = bool(args.batch or keys["batch"])
    name = name or "compute_score"
    signature = keys["signature"]
    if os.path.isfile(os.path.join(_FOLDER, "forms.py")):
        signature = signature or ("score_group" if name == "score_group" or has_method(path, name, "score_group") else None)
    elif signature:
        raise ValueError(f"--set signature={signature}: the check does not support signatures")
    batches = not signature and (name == "compute_scores" or has_method(path, name, "compute_scores"))
    model = columns or keys["devices"] is not None or batches
    return {
        "signature": signature or "",
        "path": path, "name": name, "kwargs": kwargs, "pixels": pixels, "model": model, "columns": columns,
        "device": device if isinstance(device, str) else device[0], "post_process": args.post_process,
    }  # fmt: skip


def parsed(value: str, where: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        if value[:1] in ("{", "[", '"'):
            raise ValueError(f"{where}: the value begins like JSON but is not valid JSON") from None
        return value


def has_method(path: str, owner: str, method: str) -> bool:
    """Whether the source of a class in a file has a method: the server decides this before it imports anything."""
    import ast

    if path.startswith("pkg://"):
        return False
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return False  # its import says why
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(node, functions) and node.name == method for c in classes for node in c.body)


def samples(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns the samples of the flags; an empty list stands for the known samples."""
    lists = {"image": args.image, "prompt": args.prompt, "response": args.response}
    count = max(map(len, lists.values()))
    if args.ground_truth is not None or args.extra_info is not None:
        count = max(count, 1)
    for name, given in lists.items():
        if len(given) not in (0, 1, count):
            raise ValueError(f"--{name} is given {len(given)} times for {count} samples: give it once for all, or once for each")
    for path in args.image:
        if not os.path.isfile(path):
            raise ValueError(f"--image {path}: there is no such file")
    common: dict[str, Any] = {}
    if args.ground_truth is not None:
        text = args.ground_truth
        common["ground_truth"] = parsed(text, "--ground-truth") if text[:1] in ("{", "[", '"') else text
    if args.extra_info is not None:
        common["extra_info"] = parsed(args.extra_info, "--extra-info")
        if not isinstance(common["extra_info"], dict):
            raise ValueError(f"--extra-info {args.extra_info}: want a JSON object, such as '{{\"difficulty\": 3}}'")
    each = [{name: given[i % len(given)] for name, given in lists.items() if given} for i in range(count)]
    return [{"id": f"check-{i}", **common, **sample} for i, sample in enumerate(each)]


def apart(args: argparse.Namespace, spec: dict[str, Any], limits: int) -> int:
    """Runs a stage in its own process, which may crash, hang, or call sys.exit, and returns the exit status."""
    read, write = os.pipe()
    spec = {**spec, "timeout": args.timeout, "verdict": write, "folder": _FOLDER}
    command = [args.interpreter, "-u", "-c", _START, os.path.abspath(__file__), json.dumps(spec)]
    sys.stdout.flush()
    try:
        # A session of its own: what it has started is found and ended with it.
        process = subprocess.Popen(command, pass_fds=(write,), start_new_session=True)  # noqa: S603 - the user's own Python
    except OSError as error:
        os.close(read)
        print(f"--interpreter {args.interpreter}: {error.strerror}: want a Python, such as .venv/bin/python", file=sys.stderr)
        return 2
    finally:
        os.close(write)
    try:
        status = process.wait(limits * args.timeout + 10)
    except subprocess.TimeoutExpired:
        status = None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and what it has left behind
        process.wait()
        with os.fdopen(read, "rb") as verdict:
            said = verdict.read(1)
    if said:
        return int(said)
    doing = "while the file was imported" if spec["stage"] == "inspect" else "while it was called"
    if status is None:
        how = "the process did not end"
    elif status < 0:
        how = f"the process was ended by {signal.Signals(-status).name}"
    else:
        how = f"the process ended with exit status {status}"
    print(f"failed     crashed: {how}, {doing}")
    return 1


# --- there -----------------------------------------------------------------------------------


class Finding:
    """Prints the lines of the report."""

    def line(self, name: str, text: Any) -> None:
        first, *more = str(text).rstrip("\n").split("\n")
        lines = [f"{name:<10} {first}", *(f"{'':<10} {m}" for m in more)]
        print(*lines, sep="\n", file=sys.__stdout__, flush=True)  # sys.stdout is the function's while it is called


def load_sources(folder: str) -> Any:
    """Loads the code of the server's processes, under the module names that the processes use."""
    import types

    for name in SOURCES:
        file = os.path.join(folder, name + ".py")
        if not os.path.isfile(file):
            continue
        module = sys.modules["rewardloop_" + name] = types.ModuleType("rewardloop_" + name)
        with open(file, encoding="utf-8") as text:
            exec(compile(text.read(), "<stdin>", "exec"), module.__dict__)  # noqa: S102 - our own
    return sys.modules["rewardloop_process"], sys.modules["rewardloop_model"]


def there(spec: dict[str, Any]) -> None:
    """Runs a stage, in its own process."""
    if sys.version_info < (3, 10):  # noqa: UP036 - that of --interpreter
        print(f"{sys.executable} is Python {sys.version.split()[0]}: 3.10 or newer is needed", file=sys.stderr)
        verdict(spec, 2)
    process, model = load_sources(spec["folder"])
    status = inspect_file(spec, process) if spec["stage"] == "inspect" else call_function(spec, process, model)
    verdict(spec, status)


def verdict(spec: dict[str, Any], status: int) -> None:
    """Ends the process without threads or exit handlers of the user's code, and reports the status."""
    sys.stdout.flush()
    os.write(spec["verdict"], str(status).encode())
    os._exit(status)


class Deadline:
    """Ends the process after the timeout, and prints where it hangs."""

    def __init__(self, spec: dict[str, Any], what: str) -> None:
        self.spec, self.what = spec, what

    def __enter__(self) -> None:
        import faulthandler
        import threading

        self.caller = threading.get_ident()
        self.timer = threading.Timer(self.spec["timeout"], self.over)
        self.timer.daemon = True
        self.timer.start()
        # For code that is not Python and lets no other thread run.
        faulthandler.dump_traceback_later(self.spec["timeout"] + 2, exit=True)

    def over(self) -> None:
        import traceback

        frames = traceback.extract_stack(sys._current_frames()[self.caller])
        own = [f for f in frames if not f.filename.startswith("<")]
        Finding().line(
            "failed",
            f"timeout: {self.what} took longer than {self.spec['timeout']:g} s; it is here:\n"
            + "".join(traceback.format_list(own[-4:])),
        )
        verdict(self.spec, 1)

    def __exit__(self, *_: object) -> None:
        import faulthandler

        faulthandler.cancel_dump_traceback_later()
        self.timer.cancel()


def inspect_file(spec: dict[str, Any], process: Any) -> int:
    """Prints the file's contents and all its errors, as ``rewardloop config check`` does; returns the exit status."""
    out, began = Finding(), time.monotonic()
    out.line("file", spec["path"])
    found: dict[str, Any] = {"faults": []}
    try:
        with Deadline(spec, "the import"):
            found = process.inspected(spec)
    except BaseException as error:  # sys.exit as well
        said = process.refusal(error)
        found["faults"] = [said["brief"] + (f" ({said['at']})" if said.get("at") else "")]
    else:
        at = f" ({found['at']})" if found.get("at") else ""
        found["faults"] = [fault + at for fault in found["faults"]] + option_faults(spec, found, at)
        describe(spec, process, found, out)
    took = time.monotonic() - began
    if took > INSPECT_TIME:
        out.line("warning", f"the import took {took:.1f} s; after {INSPECT_TIME:g} s rewardloop config check checks no options")
    for fault in found["faults"]:
        out.line("fault", fault)
    return 2 if found["faults"] else 0


def option_faults(spec: dict[str, Any], found: dict[str, Any], at: str) -> list[str]:
    """Returns an error for each key of --set that the function does not take."""
    import difflib

    if found.get("everything"):
        return []
    faults, names = [], found.get("names") or []
    for key in sorted(set(spec["kwargs"]) - set(names)):
        near = difflib.get_close_matches(key, names, 1)
        faults.append(f"{key}: is not a parameter of {spec['name']}{at}" + (f"; did you mean {near[0]}?" if near else ""))
    return faults


_FORMS = {
    "single": "with one sample a call",
    "columns": "with lists of its arguments, one value for each sample of a batch",
    "samples": "with a list of samples",
}
# What inspected() says that is written out here; whatever else it says is printed as it is.
_SAID = ("op", "what", "async", "form", "names", "needed", "everything", "kinds", "text", "at", "faults")


def describe(spec: dict[str, Any], process: Any, found: dict[str, Any], out: Finding) -> None:
    nature = ("async " if found.get("async") else "") + found.get("what", "class or function")
    if spec["signature"]:
        nature += f", signature: {spec['signature']}"
    elif spec["model"]:
        nature += ", a model: it runs in batches"
    out.line("found", f"{spec['name']}, {nature}" + (f", {found['at']}" if found.get("at") else ""))
    form = found.get("form") or spec["signature"]
    if form:
        batch = "with batches, in that form" if spec["columns"] else "with whole prompt groups, in that form"
        out.line("called", batch if spec["signature"] else _FORMS.get(form, form))
    names, needed = found.get("names") or [], found.get("needed") or []
    offered = set(process.COLUMNS) if form == "columns" else {*process.OFFERED, *process.ROUTER}
    ours = [n for n in names if n in offered and form != "samples"]
    # A list of samples is one of the needed parameters; what else is needed is a key of the entry.
    own = [n for n in names if n not in ours and (form != "samples" or n in spec["kwargs"] or n not in needed)]
    if spec["signature"]:  # which of them the form gives, the form knows
        out.line("takes", ", ".join(names) or "nothing by name")
    elif ours or form in ("single", "columns"):
        out.line("gets", ", ".join(ours) or "nothing of a sample by name")
    if own and not spec["signature"]:
        values = {n: f" = {v!r}" for n, v in spec["kwargs"].items()}
        out.line("options", ", ".join(n + values.get(n, " (needed)" if n in needed else "") for n in own))
    if found.get("everything"):
        out.line("", "and any other, by **")
    for key, value in found.items():
        if key not in _SAID:
            out.line(key, value)


# --- calls -----------------------------------------------------------------------------------


def known(kind: str, text: bool) -> dict[str, Any]:
    """Returns the sample with which a server calls functions at its start: KnownSample of rewards/python."""
    sample: dict[str, Any] = {
        "id": "rewardloop-known-" + kind, "data_source": "rewardloop_known", "prompt": _PROMPT, "ground_truth": "hello",
        "extra_info": {"index": 0, "split": "test", "prompt": _PROMPT, "num_turns": 1, "rollout_reward_scores": {}},
    }  # fmt: skip
    if text or kind == "text":
        sample["response"] = "hello"
    if kind == "text":
        return sample
    frames = _FRAMES if kind == "video" else 1
    values = bytearray(frames * _SIDE * _SIDE * 3)
    for i in range(len(values)):
        pixel = i // 3
        values[i] = (32 + 64 * ((pixel // 8 + pixel // _SIDE // 8 + i % 3) % 4)) & 0xFF
    entry: dict[str, Any] = {"kind": kind, "layout": "HWC", "dtype": "U8", "shape": [_SIDE, _SIDE, 3]}
    if kind == "video":
        entry.update(layout="THWC", shape=[_FRAMES, _SIDE, _SIDE, 3], fps=8)
    sample["media"] = (entry, bytes(values))
    return sample


def read_picture(path: str) -> tuple[dict[str, Any], bytes]:
    """Returns a picture as the server decodes it: its media entry and its RGB bytes."""
    from PIL import Image

    with Image.open(path) as picture:
        rgb = picture.convert("RGB")
    return {"kind": "image", "layout": "HWC", "dtype": "U8", "shape": [rgb.height, rgb.width, 3]}, rgb.tobytes()


def packed(sample: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]], bytes]:
    """Returns a sample as a process receives it: its fields, the entries of its media, and their bytes."""
    head = {k: v for k, v in sample.items() if k not in ("media", "image")}
    if "media" not in sample:
        return head, [], b""
    entry, data = sample["media"]
    return head, [{**entry, "at": 0, "size": len(data)}], data


def call_function(spec: dict[str, Any], process: Any, model: Any) -> int:
    """Makes the function or class and calls it: twice with the first sample, and a model once with all samples."""
    out = Finding()
    try:
        with Deadline(spec, "the start"):
            began = time.monotonic()
            made = classes(spec, process, model)(spec)
            load = time.monotonic() - began
    except BaseException as error:
        said = process.refusal(error)
        out.line("fault" if said["kind"] == "refused" else "failed", said["message"])
        return 2 if said["kind"] == "refused" else 1
    try:
        given = [pictured(s) for s in spec["samples"]]
    except ImportError:
        print("Pillow is needed to read a picture here: install it for this Python, or use `rewardloop try`", file=sys.stderr)
        return 2
    except Exception as error:  # whatever a codec raises
        print(f"--image: {error}: want a picture", file=sys.stderr)
        return 2
    if not given and grouped(spec):
        given = [{**known("image", True), "id": f"rewardloop-known-{i}"} for i in range(2)]
        out.line("sample", "known: a group of two")
    elif not given:
        told = made.told() if spec["model"] else made.takes.told()
        given = [known(kind, told["text"]) for kind in told["kinds"]]
        out.line("sample", "known: " + ", ".join(told["kinds"]) + ", as a server calls it at its start")
    return Calls(spec, process, made, out, load).all(given)


def classes(spec: dict[str, Any], process: Any, model: Any) -> Any:
    """Returns the class that runs the function or the model, according to its form."""
    if spec["signature"]:
        forms = sys.modules["rewardloop_forms"]
        return forms.Model if spec["model"] else forms.Function
    return model.Model if spec["model"] else process.Function


def grouped(spec: dict[str, Any]) -> bool:
    """Whether one call scores a whole prompt group."""
    return bool(spec["signature"]) and not spec["columns"]


def pictured(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "media": read_picture(sample["image"])} if "image" in sample else sample


class Calls:
    """Calls a function and reports the results."""

    def __init__(self, spec: dict[str, Any], process: Any, made: Any, out: Finding, load: float) -> None:
        self.spec, self.process, self.made, self.out, self.load = spec, process, made, out, load
        self.printed, self.status = "", 0

    def all(self, given: list[dict[str, Any]]) -> int:
        whole = grouped(self.spec)
        one_call = given if whole else given[:1]
        first = self.timed(one_call)
        several = self.spec["model"] and len(given) > 1 and not whole
        self.tell([r for r in first[0] if not several or r["op"] == "error"])
        times = f"load {1000 * self.load:.3g} ms, first call {1000 * first[1]:.3g} ms"
        if self.status == 0:
            second = self.timed(one_call)
            times += f", second call {1000 * second[1]:.3g} ms"
            one, two = (", ".join(str(r.get("score")) for r in replies) for replies in (first[0], second[0]))
            if one != two:
                self.warn(f"two calls with the same sample gave {one} and {two}: a sample that is scored twice has two scores")
        for sample in [] if self.spec["model"] or whole else given[1:]:
            self.tell(self.timed([sample])[0])
        batch = given if len(given) > 1 else given * 4
        if self.spec["model"] and not whole and self.status == 0:
            replies, took = self.timed(batch)
            self.tell([r for r in replies if several or r["op"] == "error"])
            times += f"; {len(batch)} in a batch {1000 * took:.3g} ms, {1000 * took / len(batch):.3g} ms a sample"
        if self.spec["post_process"] and not self.spec["model"] and self.status == 0:
            self.post(first[0][0]["score"])
        self.out.line("time", times)
        if self.printed:
            self.warn(f"it prints ({self.printed.strip()[:80]!r}): of each call a server keeps 2 KiB, in details.printed")
        return self.status

    def timed(self, batch: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], float]:
        """Makes one call; returns its replies and its duration in seconds."""
        import io

        printed = io.StringIO()
        with Deadline(self.spec, "a call"), contextlib.redirect_stdout(printed):
            began = time.monotonic()
            try:
                if grouped(self.spec):
                    replies = self.group(batch)
                else:
                    replies = self.batch(batch) if self.spec["model"] else [self.one(batch[0])]
            except BaseException as error:
                replies = [self.process.failure(error)]
            took = time.monotonic() - began
        self.printed = self.printed or printed.getvalue()
        if len(replies) < len(batch) and not grouped(
            self.spec
        ):  # it is the batch's; a server finds the sample that did it in the same way
            whole, replies = replies, [self.timed([sample])[0][0] for sample in batch]
            if all(r["op"] != "error" for r in replies):
                whole[0]["message"] += f"\n(a batch of {len(batch)}; each of its samples alone has a score)"
                replies = whole
        return replies, took

    def one(self, sample: dict[str, Any]) -> dict[str, Any]:
        head, entries, data = packed(sample)
        result = self.ended(self.made.begin({"op": "call", "sample": head, "media": entries}, bytearray(data)))
        reply: dict[str, Any] = self.process.answer(result)
        return reply

    def batch(self, batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
        items, memory = [], b""
        for head, entries, data in map(packed, batch):
            items.append({"base": len(memory), "head": {**head, "media": entries}})
            memory += data
        replies: list[dict[str, Any]] = self.made.run(items, memory)
        return replies

    def group(self, samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Scores a prompt group in one call; returns the replies of its members."""
        members: list[dict[str, Any]] = []
        memory = b""
        for i, (head, entries, data) in enumerate(map(packed, samples)):
            media = [{**entry, "at": len(memory)} for entry in entries]
            members.append({**head, "uid": "check", "index": i, "group_size": len(samples), "media": media})
            memory += data
        head = {"uid": "check", "size": len(samples), "members": members}
        if self.spec["model"]:
            result = self.made.run([{"base": 0, "head": head}], memory)[0]
        else:
            result = self.ended(self.made.begin({"op": "score_group", "group": head}, bytearray(memory)))
        replies: list[dict[str, Any]] = result["members"]
        return replies

    def post(self, score: float) -> None:
        """Calls post_process_scores with the scores of a finished group, in which one member has no score."""
        try:
            with Deadline(self.spec, "post_process_scores"):
                result = self.ended(self.made.begin({"op": "group", "scores": [score, None]}, b""))
                self.out.line("group", self.process.group_answer(result, 2)["scores"])
        except BaseException as error:
            self.tell([self.process.failure(error)])

    def ended(self, result: Any) -> Any:
        import asyncio
        import inspect

        if not inspect.isawaitable(result):
            return result
        try:
            return asyncio.run(self.process.awaited(result))
        except BaseException as error:  # without asyncio's own frames
            trace, own = error.__traceback__, os.path.dirname(asyncio.__file__)
            while trace and (trace.tb_frame.f_code.co_filename == "<stdin>" or trace.tb_frame.f_code.co_filename.startswith(own)):
                trace = trace.tb_next
            raise error.with_traceback(trace) from None

    def tell(self, replies: list[dict[str, Any]]) -> None:
        for reply in replies:
            if reply["op"] == "error":
                self.status = 1
                self.out.line("failed", f"{reply['class']}: {reply['message']}")
                if "module" in reply:
                    self.out.line("  do", f"install {reply['module']} for {sys.executable}, or name another --interpreter")
                continue
            if reply["op"] == "skip":
                self.out.line("skipped", reply["message"])
                continue
            self.out.line("score", reply["score"])
            for name, value in reply["extra"].items():
                self.out.line("column", f"{name} = {json.dumps(value)}")
            if reply.get("steps"):
                self.out.line("steps", reply["steps"])
            if reply["details"]:
                self.out.line("details", json.dumps(reply["details"], ensure_ascii=False)[:2000])

    def warn(self, text: str) -> None:
        self.out.line("warning", text)


if __name__ == "__main__":
    if "__file__" in globals():
        sys.exit(main())
    there(json.loads(sys.argv[1]))
