"""The Python process that runs Python reward functions.

The Go package in this folder starts it as ``python3 -`` with this text on
standard input and a socket as descriptor 3. It needs only the standard library;
numpy or torch are imported when a sample contains pixels.

Protocol: one frame is a little-endian uint32 length of the header, a uint32
length of the body, the header (JSON) and the body (raw tensors). Nothing is ever
unpickled. The parent sends ``load`` once, then ``call``, ``group``, ``score_group``,
``cancel`` and ``profile``. The process answers ``load`` with ``ready`` or ``refused``, every call
and group exactly once with ``result`` or ``error``, and every profile with ``profiled``. It sends
``stuck`` for a call that blocks the event loop of an async function. It answers a ``load`` with
``inspect`` with ``inspected`` or ``refused``, makes no class, and ends. A plain function runs on the
main thread, one call at a time, so that code that uses signals for its own time limits works; with
a concurrency above one it runs in that many threads. An ``async def`` runs as many calls at a time
as the parent sends.

A keeper process is between the server and the process: the server starts the keeper, which
forks the process and ends whatever the process leaves behind.
"""

import asyncio
import concurrent.futures
import contextvars
import datetime
import difflib
import functools
import importlib
import importlib.util
import inspect
import io
import json
import linecache
import math
import os
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import types

PROTOCOL = 2
MAX_ANSWER = 1 << 20  # bytes of a reply's header
MAX_TEXT = 3000  # bytes of a message; the parent cuts at 4096
MAX_OUTPUT = 2048  # characters kept of what a call printed
MAX_STEPS = 4096  # scores of single steps
OOM_SCORE = 500  # of 1000: the kernel that lacks memory ends a function before the server
KEEP_SECONDS = 5  # for processes that were killed to end
CALLS = ("call", "group", "score_group")  # frames that are answered with a result or an error

# What a function may ask for besides the keys of its own configuration.
ALWAYS = ("data_source", "ground_truth", "extra_info")
OFFERED = ALWAYS + ("solution_str", "solution_image", "prompt", "media")
ROUTER = ("reward_router_address", "reward_router_api_key", "model_name")

# The lists that a model with ``batch: true`` may ask for, and what of each sample is in them.
COLUMNS = {
    "prompts": "prompt", "responses": "response", "completions": "response", "solution_strs": "response",
    "images": "image", "videos": "video", "audios": "audio", "solution_images": "solution_image",
    "ground_truths": "ground_truth", "extra_infos": "extra_info", "data_sources": "data_source",
    "uids": "uid", "ids": "id", "steps": "step",
}
# Those of them that a function with ** gets unasked.
COLUMNS_ANY = ("prompts", "responses", "ground_truths", "extra_infos", "data_sources")


class Refused(Exception):
    """The function cannot be used; the text says why and what to do."""


class Missing(Refused):
    """The function is not on this machine."""


class BadResult(Exception):
    """The function returned something that is no score."""


class BadSample(Exception):
    """The sample lacks what the function needs."""


class Skipped(Exception):
    """The function is not for the sample; the text says why."""


# --- frames -----------------------------------------------------------------


def read_exactly(sock, size):
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        n = sock.recv_into(view[at:])
        if n == 0:
            raise EOFError
        at += n
    return data


def read_frame(sock):
    head, body = struct.unpack("<II", read_exactly(sock, 8))
    header = json.loads(read_exactly(sock, head).decode("utf-8"))
    return header, read_exactly(sock, body)


def write_frame(sock, header):
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_ANSWER:
        raise BadResult(f"an answer of {len(data)} bytes is over the limit of {MAX_ANSWER}")
    sock.sendall(struct.pack("<II", len(data), 0) + data)


# --- output -----------------------------------------------------------------

_printed = contextvars.ContextVar("printed", default=None)


class Output:
    """The first and the last characters a call printed."""

    def __init__(self):
        self.head, self.tail, self.cut = "", "", False

    def add(self, text):
        room = MAX_OUTPUT // 2 - len(self.head)
        if room > 0:
            self.head, text = self.head + text[:room], text[room:]
        joined = self.tail + text
        self.cut = self.cut or len(joined) > MAX_OUTPUT // 2
        self.tail = joined[-(MAX_OUTPUT // 2) :]

    def text(self):
        return self.head + (" … " if self.cut else "") + self.tail


class Tee(io.TextIOBase):
    """Standard output and error: to the call that prints, and to the descriptor."""

    def __init__(self, descriptor):
        self.descriptor = descriptor

    def writable(self):
        return True

    def fileno(self):
        return self.descriptor

    def write(self, text):
        printed = _printed.get()
        if printed is not None:
            printed.add(text)
        data = text.encode("utf-8", "replace")[: 1 << 16]
        while data:
            data = data[os.write(self.descriptor, data) :]
        return len(text)


# --- profiles ---------------------------------------------------------------


class Profiles:
    """The profile of this process, while one runs. One thread begins and ends it."""

    def __init__(self):
        self.path, self.stop = "", None

    def reply(self, what):
        """Begins the profile that a frame asks for, and answers where it will be; one without a path ends it and
        answers where it is, "" where none ran. A fault is in the message."""
        said = {"op": "profiled", "path": ""}
        try:
            stop, self.stop = self.stop, None
            if stop is not None:
                said["path"] = self.path
                stop()
            if what.get("path"):
                said["path"] = self.path = f"{what['path']}.pid-{os.getpid()}.pt.trace.json.gz"
                self.stop = {"torch": self.torch, "nsys": self.cuda}[what["tool"]]()
        except Exception as error:
            said["message"] = describe(error)
        return said

    def torch(self):
        """A trace of PyTorch, of all threads where it can (2.8), on the CPU and on the card."""
        torch = imported_torch()
        from torch import profiler

        more = {}
        try:
            more["experimental_config"] = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        except (AttributeError, TypeError):
            pass
        activities = [profiler.ProfilerActivity.CPU] + [profiler.ProfilerActivity.CUDA] * torch.cuda.is_available()
        profile = profiler.profile(activities=activities, record_shapes=True, **more)
        path = self.path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        profile.start()

        def stop():
            profile.stop()
            profile.export_chrome_trace(path)

        return stop

    def cuda(self):
        """CUDA's range of capture, for the nsys under which the server was started."""
        torch = imported_torch()
        if not torch.cuda.is_available():
            raise Refused("this process has no card: nsys captures nothing of it")
        torch.cuda.profiler.start()
        return torch.cuda.profiler.stop


def imported_torch():
    torch = sys.modules.get("torch")
    if torch is None:
        raise Refused("the process has not imported torch, which makes the profile")
    return torch


# --- the keeper -------------------------------------------------------------


def keep(*descriptors):
    """Goes on as the process, in a child process. The process that was started stays behind as its keeper and
    ends as the process ends, after every process that the process has left, in whatever session. It ends them all
    on SIGTERM, which is the server's word or, by the parent-death signal, the server's end."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return  # a Python without ctypes: what leaves the process group is not ended
    process = 0

    def end(*_):
        if process == 0:
            os._exit(1)
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has just ended

    prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans become the keeper's children
    signal.signal(signal.SIGTERM, end)
    keeper, process = os.getpid(), os.fork()
    if process == 0:
        prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.getppid() != keeper:
            os._exit(1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return
    for descriptor in (3, *descriptors):
        os.close(descriptor)
    ended = 0
    while ended != process:
        ended, status = os.waitpid(-1, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_orphans()
    remove_files(process)
    if os.WIFSIGNALED(status):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [os.WTERMSIG(status)])
        if os.WTERMSIG(status) != signal.SIGKILL:
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        no_core()
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def end_orphans():
    """Kills the children of this process until there are none: the children of one that ends are next."""
    until = time.monotonic() + KEEP_SECONDS
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] != 0:
                continue
        except ChildProcessError:
            return
        for child in children_of(os.getpid()):
            try:
                os.kill(child, signal.SIGKILL)
            except OSError:
                pass  # it runs as another user
        time.sleep(0.002)


def children_of(parent):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:
                if int(stat.read().rpartition(b")")[2].split()[1]) == parent:
                    yield int(pid)
        except OSError:
            pass  # it has ended


def no_core():
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def go_first():
    """Where the machine lacks memory the kernel ends the function before the server."""
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write(str(OOM_SCORE))
    except OSError:
        pass  # a sandbox may forbid it


# --- loading ----------------------------------------------------------------


def limit(limits):
    """Sets the resource limits that the configuration names, in bytes or counts."""
    import resource

    no_core()
    for name, value in limits.items():
        which = getattr(resource, "RLIMIT_" + name)
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, hard))


def load_module(path, source=""):
    """The module of a path. Of an entry of the server's catalogue, scorer://NAME, the server sends the text."""
    if source:
        module = sys.modules["rewardloop_scorer"] = types.ModuleType("rewardloop_scorer")
        linecache.cache[path] = (len(source), None, source.splitlines(True), path)  # for tracebacks
        exec(compile(source, path, "exec"), module.__dict__)
        return module
    if path.startswith("pkg://"):
        return importlib.import_module(path[len("pkg://") :].replace("/", "."))
    path = path[len("file://") :] if path.startswith("file://") else path
    if not os.path.isfile(path):
        raise Missing(f"no file {path}")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    name = os.path.splitext(os.path.basename(path))[0]
    if not name.isidentifier() or name in sys.modules:
        name = "rewardloop_user_function"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def attribute(module, path, name):
    """What a module has under a name."""
    if hasattr(module, name):
        return getattr(module, name)
    own = [n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", None) == module.__name__]
    near = difflib.get_close_matches(name, own, 1)
    raise Refused(f"{path} has no {name!r}" + (f"; did you mean {near[0]}?" if near else ""))


def no_argument(name, missing):
    return (
        f"the constructor of {name} needs {', '.join(sorted(missing))}, which nobody gives; "
        "it may ask for device and the keys of its entry"
    )


def construct(target, name, offered):
    """An object of a class, whose constructor gets what it names of what is offered."""
    takes = Signature(target)
    missing = takes.needed - set(offered)
    if missing:
        raise Refused(no_argument(name, missing))
    return target(**{k: v for k, v in withheld(offered, takes).items() if takes.everything or k in takes.names})


def withheld(values, takes=None):
    """Values without the key of the reward router, unless a function names it: ** may be printed or sent."""
    named = takes is not None and "reward_router_api_key" in takes.names
    return values if named else {k: v for k, v in values.items() if k != "reward_router_api_key"}


def no_method(name):
    return f"post_process: {name} is not a class with a method post_process_scores"


def scores_groups(target):
    """Whether a class scores whole prompt groups and nothing else."""
    return hasattr(target, "score_group") and not hasattr(target, "compute_score") and not hasattr(target, "compute_scores")


def unsigned(name):
    return f"{name}.score_group scores whole prompt groups: write signature: score_group beside its path"


def uncalled(name):
    return (
        f"{name}.post_process_scores works on finished groups, and no component calls it: add one to "
        "reward_functions with post_process: and the key of this component, whose weight may then be 0; "
        "or remove the method and let failed samples take the group's mean (on_failure: group_mean)"
    )


class Signature:
    """What a function may be called with. The first parameter of a method that has no object yet is left out."""

    def __init__(self, target, unbound=False):
        self.names, self.needed, self.everything, self.nameless = set(), set(), True, False
        self.order, self.rest = [], True  # what may be given by its place, and whether more may
        try:
            parameters = list(inspect.signature(target).parameters.values())[int(unbound) :]
        except (TypeError, ValueError):  # built in; it gets everything
            return
        self.everything = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        self.needed = {p.name for p in parameters if p.name in self.names and p.default is p.empty}
        self.nameless = any(p.kind is p.POSITIONAL_ONLY and p.default is p.empty for p in parameters)
        self.order = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.rest = any(p.kind is p.VAR_POSITIONAL for p in parameters)

    def faults(self, options):
        """Why no sample can satisfy it."""
        if self.nameless:
            yield "the function takes positional-only arguments; it is called by keyword"
        missing = self.needed - set(OFFERED) - set(options)
        if missing:
            yield (
                f"the function needs {', '.join(sorted(missing))}, which nobody gives; "
                f"it may ask for {', '.join(OFFERED + ROUTER)} and the keys of its configuration"
            )

    def kinds(self):
        """The kinds of known sample that it is called with, by its parameters."""
        picture = {"solution_image", "media"} & self.names
        image = bool(picture) or (self.everything and "solution_str" not in self.names)
        text = "solution_str" in self.names or not image
        if "solution_image" in self.needed:  # a text alone is not enough; where it needs one, the picture has it beside
            text = False
        elif "solution_str" in self.needed:
            image = image and bool(picture)
        return ["image"] * image + ["text"] * text

    def told(self):
        return {
            "names": sorted(self.names),
            "needed": sorted(self.needed),
            "everything": self.everything,
            "kinds": self.kinds(),
            "text": "solution_str" in self.needed,
        }


def model_faults(form, takes, options):
    """Why no batch can satisfy the signature of a model."""
    if form == "single":
        yield from takes.faults(options)
        return
    if form == "samples":
        if takes.names or takes.nameless or takes.everything:
            needed = takes.needed - set(options)
            if len(needed) > 1:
                yield f"compute_scores takes a list of samples, and needs {', '.join(sorted(needed))}; what else it needs has to be a key of its entry"
            return
        yield "compute_scores takes no parameter; it is called with a list of samples"
        return
    if takes.nameless:
        yield "the function takes positional-only arguments; it is called by keyword"
    missing = takes.needed - set(COLUMNS) - set(options)
    if missing:
        yield (
            f"with batch: true the function needs {', '.join(sorted(missing))}, which nobody gives; "
            f"it may ask for {', '.join(COLUMNS)} and the keys of its configuration"
        )


class Function:
    """The user's function, or an object of the user's class, ready to be called."""

    def __init__(self, spec):
        self.options = spec.get("kwargs") or {}
        self.pixels = spec.get("pixels") or "auto"
        self.log = self.post_process = None
        self.made = False  # from a class
        target = self.find(load_module(spec["path"], spec.get("source")), spec["path"], spec["name"])
        self.check_group(spec["name"], bool(spec.get("post_process")))
        self.target = target
        self.is_async = inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(
            getattr(target, "__call__", None)
        )
        # How many calls run at a time in threads. An async function has no use for them.
        agent = (spec.get("agent_concurrency") or 1) if self.made else 1
        self.threads = 1 if self.is_async else spec.get("concurrency") or agent
        self.check()

    def find(self, module, path, name):
        target = attribute(module, path, name)
        if inspect.isclass(target):
            if scores_groups(target):
                raise Refused(unsigned(name))
            made, self.made = target(), True
            self.post_process = getattr(made, "post_process_scores", None)
            self.log = getattr(made, "log", None)
            target = getattr(made, "compute_score", made)
        if not callable(target):
            raise Refused(f"{path}: {name!r} is a {type(target).__name__}, want a function or a class")
        return target

    def check_group(self, name, asked):
        """Refuses a post_process_scores that nobody would call, and the wish for one that is not there."""
        if asked and not callable(self.post_process):
            raise Refused(no_method(name))
        if not asked and self.post_process is not None:
            raise Refused(uncalled(name))

    def check(self):
        """Refuses a signature that no sample can satisfy."""
        self.takes = takes = Signature(self.target)
        self.names, self.needed, self.everything = takes.names, takes.needed, takes.everything
        for fault in takes.faults(self.options):
            raise Refused(fault)

    def begin(self, header, body):
        """Does what a frame asks for; the result may have to be awaited."""
        if header["op"] == "group":
            return self.post_process([math.nan if s is None else float(s) for s in header["scores"]])
        return self.target(**self.arguments(header, body))

    def arguments(self, header, body):
        sample = header["sample"]
        values = {
            "data_source": sample.get("data_source", ""),
            "ground_truth": sample.get("ground_truth"),
            "extra_info": dict(sample.get("extra_info") or {}),
        }
        extra = values["extra_info"]
        tensors, names = self.tensors(header, body), list(extra.pop("rewardloop_tensors", None) or [])
        media = []
        for entry, tensor in tensors:
            media.append({**entry, "data": tensor})
            kind = entry["kind"]
            if kind == "audio":
                extra["audio"], extra["audio_sample_rate"] = tensor, entry.get("sample_rate")
            elif kind == "latent" and "solution_image" in values and names:
                extra[names.pop(0)] = tensor
            else:
                values.setdefault("solution_image", tensor)
        if sample.get("response") or not media:
            values["solution_str"] = sample.get("response", "")
        if "prompt" in self.names:
            values["prompt"] = sample.get("prompt", "")
        if "media" in self.names:
            values["media"] = media
        values.update(self.options)
        values = withheld(values, getattr(self, "takes", None))
        lacking = sorted(getattr(self, "needed", set()) - set(values))
        if lacking:
            raise BadSample(f"the function needs {', '.join(lacking)}, which the sample does not have")
        return values if self.everything else {k: v for k, v in values.items() if k in self.names}

    def tensors(self, header, body):
        entries = header.get("media") or []
        if not entries:
            return []
        make, view = self.maker(), memoryview(body)
        return [(e, make(e, view[e["at"] : e["at"] + e["size"]])) for e in entries]

    def maker(self):
        """What makes an array, a tensor or a picture of bytes."""
        if self.pixels == "pil":
            return pil_image
        if self.pixels == "path":
            return file_path
        use_torch = self.pixels == "torch" or (self.pixels == "auto" and "torch" in sys.modules)
        return torch_tensor if use_torch else numpy_array


def inspected(spec):
    """What the function takes, or the compute_score of a class, which is not made: its constructor may load a model."""
    path, name = spec["path"], spec["name"]
    if spec.get("signature"):
        return sys.modules["rewardloop_forms"].inspected(spec)
    target, unbound = attribute(load_module(path, spec.get("source")), path, name), False
    groups, faults, what = bool(spec.get("post_process")), [], kind_of(target)
    if spec.get("model"):
        return {"what": what, **inspected_model(spec, target)}
    if inspect.isclass(target):
        if scores_groups(target):
            raise Refused(unsigned(name))
        if not groups and hasattr(target, "post_process_scores"):
            faults.append(uncalled(name))
        method = next((m for m in ("compute_score", "__call__") if inspect.getattr_static(target, m, None) is not None), None)
        if method is None:  # the constructor may make one
            return {"op": "inspected", "what": what, "everything": True, "faults": faults}
        unbound = not isinstance(inspect.getattr_static(target, method), (staticmethod, classmethod))
        target = getattr(target, method)
    elif groups:
        faults.append(no_method(name))
    if not callable(target):
        raise Refused(f"{path}: {name!r} is a {type(target).__name__}, want a function or a class")
    takes = Signature(target, unbound)
    faults.extend(takes.faults(spec.get("kwargs") or {}))
    about = {"what": what, "async": inspect.iscoroutinefunction(target), "form": "single"}
    return {"op": "inspected", **about, **takes.told(), "at": place(target), "faults": faults}


def kind_of(target):
    return "class" if inspect.isclass(target) else "function"


def inspected_model(spec, target):
    """What a model takes. Its constructor, which may load it, is not called."""
    path, name, options = spec["path"], spec["name"], spec.get("kwargs") or {}
    unbound, faults = False, []
    if inspect.isclass(target):
        if scores_groups(target):
            raise Refused(unsigned(name))
        constructor = Signature(target)
        missing = constructor.needed - {"device"} - set(options)
        if missing:
            faults.append(no_argument(name, missing))
        methods = ("compute_scores", "compute_score", "__call__")
        method = next((m for m in methods if inspect.getattr_static(target, m, None) is not None), None)
        if method is None:
            return {"op": "inspected", "everything": True, "faults": faults}
        unbound = not isinstance(inspect.getattr_static(target, method), (staticmethod, classmethod))
        taken, any_option = constructor.names - {"device"}, constructor.everything
        target = getattr(target, method)
    else:
        taken, any_option = set(), False
    if not callable(target):
        raise Refused(f"{path}: {name!r} is a {type(target).__name__}, want a function or a class")
    takes = Signature(target, unbound)
    form = "columns" if spec.get("columns") else "samples" if getattr(target, "__name__", "") == "compute_scores" else "single"
    faults.extend(model_faults(form, takes, options))
    told = takes.told()
    told["names"] = sorted(set(told["names"]) | taken)  # keys of the entry that the constructor takes
    told["everything"] = told["everything"] or any_option
    about = {"async": inspect.iscoroutinefunction(target), "form": form}
    return {"op": "inspected", **about, **told, "at": place(target), "faults": faults}


def place(target):
    """The file and line where a function is defined; "" if that is not known."""
    code = getattr(inspect.unwrap(target), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


# --- tensors ----------------------------------------------------------------

# Axes of a raw picture or video to those the trainers use: CHW and TCHW.
ORDER = {"HWC": (2, 0, 1), "THWC": (0, 3, 1, 2), "CTHW": (1, 0, 2, 3)}
NUMPY = {"U8": "uint8", "I16": "<i2", "F16": "<f2", "F32": "<f4"}
TORCH = {"U8": "uint8", "I16": "int16", "F16": "float16", "BF16": "bfloat16", "F32": "float32"}


def axes(entry):
    return ORDER.get(entry.get("layout")) if entry["kind"] in ("image", "video") else None


def numpy_array(entry, data):
    import numpy

    if entry["dtype"] == "BF16":  # the upper half of a float32
        array = (numpy.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    else:
        array = numpy.frombuffer(data, NUMPY[entry["dtype"]])
    array, order = array.reshape(entry["shape"]), axes(entry)
    return numpy.ascontiguousarray(array.transpose(order)) if order else array


def torch_tensor(entry, data):
    import torch

    tensor = torch.frombuffer(data, dtype=getattr(torch, TORCH[entry["dtype"]]))
    tensor, order = tensor.reshape(entry["shape"]), axes(entry)
    return tensor.permute(order).contiguous() if order else tensor


def pil_image(entry, data):
    """A picture as PIL.Image, a video as a list of them."""
    array = numpy_array(entry, data)
    if entry["kind"] not in ("image", "video"):
        return array
    from PIL import Image

    pictures = [Image.fromarray(frame[:, :, 0] if frame.shape[2] == 1 else frame) for frame in frames_of(array, entry)]
    return pictures[0] if entry["kind"] == "image" else pictures


def waveform(entry, array):
    """The samples of audio as float32, CT, -1 to 1, and their rate in hertz, of what numpy_array or torch_tensor made."""
    import numpy

    if type(array).__module__.startswith("torch"):
        array = (array.float() if entry["dtype"] != "I16" else array).numpy()
    array = numpy.asarray(array, "float32") / (1 << 15 if entry["dtype"] == "I16" else 1)
    array = array[None] if array.ndim == 1 else array.T if entry.get("layout") == "TC" else array
    return numpy.ascontiguousarray(array), entry["sample_rate"]


def frames_of(array, entry):
    """The frames of a picture or video as uint8 HWC, of an array as numpy_array has it."""
    if array.dtype != "uint8":
        array = (array.clip(0, 1) * 255 + 0.5).astype("uint8")
    return [frame.transpose(1, 2, 0) for frame in (array[None] if entry["kind"] == "image" else array)]


# --- files ------------------------------------------------------------------

DEFAULT_FPS = 8  # of a video whose trainer gave none
FILES = "rewardloop-{}-"  # the folder of a process, in the folder for temporary files


class FilePath(str):
    """The path of a file that is removed when nothing holds this object any more: a call does as long as it runs."""


_folder = None  # of this process; made when the first file is


def file_path(entry, data):
    """The media of an entry as a file: a picture as PNG, a video as AVI of PNGs, audio as WAV of 16 bits, a
    latent as NPY. Returns its FilePath. It is whole when it is returned."""
    global _folder
    import tempfile
    import weakref

    _folder = _folder or tempfile.mkdtemp(prefix=FILES.format(os.getpid()))
    kind, array = entry["kind"], numpy_array(entry, data)
    suffix, write = {"image": (".png", write_png), "video": (".avi", write_avi), "audio": (".wav", write_wav)}.get(kind, (".npy", write_npy))
    descriptor, name = tempfile.mkstemp(suffix=suffix, dir=_folder)
    path = FilePath(name)
    weakref.finalize(path, remove, name).atexit = False  # the keeper removes the folder
    with os.fdopen(descriptor, "wb") as file:
        write(file, array, entry)
    return path


def remove(name):
    try:
        os.unlink(name)
    except OSError:
        pass  # the function has moved it


def remove_files(process):
    """Removes the folder of a process that has ended."""
    import glob
    import shutil
    import tempfile

    for folder in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), FILES.format(process) + "*")):
        if os.stat(folder, follow_symlinks=False).st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)


def png(frame, level):
    """A frame, uint8 HWC, as PNG (ISO/IEC 15948): grey, RGB or RGBA of 8 bits, rows without a filter."""
    import zlib

    height, width, channels = frame.shape
    rows = b"".join(b"\0" + row.tobytes() for row in frame)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, level)) + chunk(b"IEND", b"")


def write_png(file, array, entry):
    file.write(png(frames_of(array, entry)[0], 1))


def write_avi(file, array, entry):
    """AVI (RIFF) with one stream of PNGs that are not compressed, MPNG, and an index: lossless, and read by FFmpeg, PyAV, OpenCV
    and decord. OpenCV 5.0 crashes on frames of bare BGR."""
    frames = frames_of(array, entry)
    height, width, _ = frames[0].shape
    rate = round(1000 * (entry.get("fps") or DEFAULT_FPS))
    largest = 256 + (4 * width + 1) * height * 1001 // 1000
    if largest * len(frames) > 1 << 31:
        raise BadSample(f"a video of {len(frames)} frames of {width} × {height} does not fit into a file of 2 GiB; ask for arrays (pixels: numpy)")

    def chunk(kind, data):
        return kind + struct.pack("<I", len(data)) + data

    main = struct.pack("<14I", round(1e9 / rate), largest * rate // 1000, 0, 0x10, len(frames), 0, 1, largest, width, height, 0, 0, 0, 0)
    stream = b"vidsMPNG" + struct.pack("<10I4H", 0, 0, 0, 1000, rate, 0, len(frames), largest, 0xFFFFFFFF, 0, 0, 0, width, height)
    form = struct.pack("<IiiHH4sIiiII", 40, width, height, 1, 24, b"MPNG", 3 * width * height, 0, 0, 0, 0)
    headers = chunk(b"LIST", b"hdrl" + chunk(b"avih", main) + chunk(b"LIST", b"strl" + chunk(b"strh", stream) + chunk(b"strf", form)))
    begin, index = 12 + len(headers) + 8, []
    file.write(b"\0" * begin + b"movi")
    for frame in frames:
        data = png(frame, 0)
        index.append(struct.pack("<4sIII", b"00dc", 0x10, file.tell() - begin, len(data)))
        file.write(b"00dc" + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2))
    end = file.tell()
    file.write(chunk(b"idx1", b"".join(index)))
    total = file.tell()
    file.seek(0)
    file.write(b"RIFF" + struct.pack("<I", total - 8) + b"AVI " + headers + b"LIST" + struct.pack("<I", end - begin))


def write_wav(file, array, entry):
    """WAV of 16 bits; floating-point samples are -1 to 1."""
    import wave

    if entry.get("layout") == "TC":
        array = array.T
    if array.dtype != "int16":
        array = (array.astype("float32").clip(-1, 1) * 32767).round().astype("<i2")
    with wave.open(file, "wb") as out:
        out.setnchannels(1 if array.ndim == 1 else array.shape[0])
        out.setsampwidth(2)
        out.setframerate(int(entry["sample_rate"]))
        out.writeframes((array if array.ndim == 1 else array.T).astype("<i2").tobytes())


def write_npy(file, array, entry):
    import numpy

    numpy.save(file, array, allow_pickle=False)


# --- results ----------------------------------------------------------------


def plain(value):
    """A NumPy scalar or a tensor of one element as Python's own; else the value itself."""
    if hasattr(value, "item") and (getattr(value, "size", None) == 1 or getattr(value, "ndim", None) == 0):
        return value.item()
    if callable(getattr(value, "numel", None)) and value.numel() == 1:
        return value.item()
    return value


def number(value):
    value = plain(value)
    if value is None:
        raise BadResult("the function returned None; it must return a number, or raise")
    if isinstance(value, list):
        raise BadResult("the score is a list; put the scores of single steps into 'step_scores'")
    if not isinstance(value, (bool, int, float)):
        raise BadResult(f"the score is a {type(value).__name__}; want a number")
    value = float(value)
    if not math.isfinite(value):
        raise BadResult(f"the score is {value}")
    return value


def step_scores(value):
    """The scores of single steps, in their order, as a list of floats."""
    if callable(getattr(value, "tolist", None)):
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        raise BadResult(f"the step scores are a {type(value).__name__}; want a list of numbers")
    if len(value) > MAX_STEPS:
        raise BadResult(f"{len(value)} step scores, want at most {MAX_STEPS}")
    steps = []
    for i, step in enumerate(map(plain, value), 1):
        if not isinstance(step, (bool, int, float)) or not math.isfinite(step):
            shown = step if isinstance(step, float) else type(step).__name__
            raise BadResult(f"the score of step {i} of {len(value)} is {shown}; want a finite number")
        steps.append(float(step))
    return steps


def is_steps(value):
    """Whether a function returned the scores of single steps: a list, or an array or tensor with one axis."""
    value = plain(value)
    return isinstance(value, list) or (callable(getattr(value, "tolist", None)) and getattr(value, "ndim", None) == 1)


def total(steps):
    """The score of a response of which only the steps have one: their sum. RL-Factory (d0abc1db) writes the
    scores of the steps into reward_tensor (_set_reward_tensor of verl/workers/reward_manager/parallel.py), and
    verl takes the sum of its row for the response's (compute_grpo_outcome_advantage, critic/score)."""
    if not steps:
        raise BadResult("the function returned an empty list; want a score for each step")
    return sum(steps)


def scalar(value):
    """(True, value) for what may stand in reward_extra_info."""
    value = plain(value)
    if isinstance(value, float) and not math.isfinite(value):
        return True, None
    return isinstance(value, (bool, int, float, str)) or value is None, value


def showable(value):
    """What JSON can say of a value; else how Python prints it."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return repr(value)[:MAX_TEXT]


def answer(result):
    """A number, a list with a score for each step, a dict with one or both, or (one of them, query, answer) as a reply."""
    details, extra, steps = {}, {}, []
    if isinstance(result, tuple):
        if not result:
            raise BadResult("the function returned an empty tuple")
        rest = result[1:]
        names = ("query", "answer") if len(rest) == 2 else [f"item{i}" for i in range(1, len(result))]
        details = {name: showable(v) for name, v in zip(names, rest)}
        result = result[0]
    if is_steps(result):
        steps = step_scores(result)
        result = total(steps)
    elif isinstance(result, dict):
        if result.get("step_scores") is not None:
            steps = step_scores(result["step_scores"])
            result = {"score": total(steps), **result} if steps else result
        if "score" not in result:
            raise BadResult(f"the dict has no 'score'; its keys are {', '.join(map(str, result))[:200] or 'none'}")
        for key, value in result.items():
            if key in ("score", "step_scores"):
                continue
            ok, value = scalar(value)
            (extra if ok else details)[str(key)] = value if ok else showable(value)
        result = result["score"]
    reply = {"op": "result", "score": number(result), "extra": extra, "details": details}
    return {**reply, "steps": steps} if steps else reply


def group_answer(result, members):
    """What post_process_scores made of a group: for each member a number, null for none, or what is wrong with it."""
    if callable(getattr(result, "tolist", None)):
        result = result.tolist()
    if not isinstance(result, (list, tuple)):
        raise BadResult(f"post_process_scores returned a {type(result).__name__}; want a list with a score for each member")
    if len(result) != members:
        raise BadResult(f"post_process_scores returned {len(result)} scores for {members} members")
    return {"op": "result", "scores": [member_score(value) for value in result]}


def member_score(value):
    value = plain(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    try:
        return number(value)
    except (BadResult, OverflowError) as error:
        return str(error)[:200]


# Exceptions of HTTP clients that mean "not now", by their names.
PASSING = ("ConnectionError", "ConnectError", "TimeoutException", "ServerDisconnectedError", "ClientConnectorError")


def class_of(error):
    names = [c.__name__ for c in type(error).__mro__]
    if isinstance(error, BadResult):
        return "invalid_score"
    if isinstance(error, BadSample):
        return "bad_input"
    if isinstance(error, (TimeoutError, asyncio.TimeoutError)) or any(n in PASSING for n in names):
        return "unavailable"
    return "internal" if isinstance(error, Exception) else "panic"


def describe(error):
    """The exception's name and text, then the user's part of the traceback."""
    if isinstance(error, (BadResult, BadSample, Refused)):
        return str(error)[:MAX_TEXT]
    try:
        said = str(error)
    except Exception as second:  # an exception's own __str__ is user code too
        said = f"(its text raised {type(second).__name__})"
    first = f"{type(error).__name__}: {said}"[: MAX_TEXT // 2]
    if isinstance(error, SystemExit):
        first = f"the function called sys.exit({error.code!r})"[: MAX_TEXT // 2]
    lines = where(error.__traceback__)
    return first + ("\n" + lines if lines else "")


_where = {}  # texts of tracebacks by their frames: reading the source again takes longer than a short function


def where(trace):
    """The user's part of a traceback: its last 12 frames, with their lines of source."""
    key, at = [], trace
    while at is not None and len(key) < 1000:
        key.append((at.tb_frame.f_code, at.tb_lineno))
        at = at.tb_next
    key = tuple(key)
    text = _where.get(key)
    if text is None:
        frames = [f for f in traceback.extract_tb(trace) if f.filename != "<stdin>" and not f.filename.startswith("<frozen ")]
        text = "".join(traceback.format_list(frames[-12:]))[-MAX_TEXT // 2 :]
        if len(_where) >= 64:
            _where.clear()
        _where[key] = text
    return text


def failure(error):
    if isinstance(error, Skipped):
        return {"op": "skip", "message": str(error)[:MAX_TEXT]}
    reply = {"op": "error", "class": class_of(error), "message": describe(error)}
    if isinstance(error, ImportError):
        reply["module"] = error.name or "?"
    return reply


# --- the process ---------------------------------------------------------------


class Process:
    def __init__(self, sock, function):
        self.sock, self.function = sock, function
        self.tasks = {}  # of calls, by id; only the event loop's thread changes it
        self.beat = 0
        self.profiles = Profiles()
        self.writing, self.logging = threading.Lock(), threading.Lock()

    def reply(self, call, header, printed):
        header["id"] = call
        if printed.text():
            header["output"] = printed.text()
        with self.writing:
            try:
                write_frame(self.sock, header)
            except (BadResult, ValueError, RecursionError) as error:
                write_frame(self.sock, {"id": call, **failure(BadResult(str(error)))})

    def profile(self, header):
        reply = self.profiles.reply(header)
        with self.writing:
            write_frame(self.sock, reply)

    def finish(self, header, result, began):
        """The reply to a frame that was answered with result."""
        if header["op"] == "group":
            return group_answer(result, len(header["scores"]))
        if header["op"] == "score_group":
            return result
        reply = answer(result)
        self.record(header, result, began)
        return reply

    def record(self, header, result, began):
        """Calls the class's log, if it has one; its faults are printed, not the sample's."""
        if self.function.log is None:
            return
        parts = result if isinstance(result, tuple) and len(result) == 3 else (result, "", "")
        try:
            when = datetime.datetime.now().isoformat()
            with self.logging:
                self.function.log([when], [parts[1]], [parts[2]], [time.time() - began], [header["sample"].get("uid", "")])
        except Exception as error:
            print("log:", describe(error), file=sys.stderr)

    # One call after the other on the main thread, or several in threads.

    def serve_plain(self):
        work = self.work
        if self.function.threads > 1:
            threads = concurrent.futures.ThreadPoolExecutor(self.function.threads, "rewardloop")
            work = functools.partial(threads.submit, self.work)
        while True:
            header, body = read_frame(self.sock)
            if header["op"] in CALLS:
                work(header, body)
            elif header["op"] == "profile":
                self.profile(header)
            del header, body

    def work(self, header, body):
        """Answers a call on the thread that calls it."""
        printed = Output()
        _printed.set(printed)
        began = time.time()
        try:
            result = self.function.begin(header, body)
            if inspect.isawaitable(result):
                result = asyncio.run(awaited(result))
            reply = self.finish(header, result, began)
        except BaseException as error:  # sys.exit and KeyboardInterrupt as well
            reply = failure(error)
        _printed.set(None)
        self.reply(header["id"], reply, printed)

    # As many calls at a time as the parent sends.

    async def serve_async(self, stall):
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        threading.Thread(target=self.watch, args=(loop, stall), name="rewardloop-watch", daemon=True).start()

        def read():
            try:
                while True:
                    header, body = read_frame(self.sock)
                    loop.call_soon_threadsafe(self.receive, header, body)
            except (EOFError, OSError, RuntimeError):
                pass
            try:
                loop.call_soon_threadsafe(gone.set)
            except RuntimeError:
                pass

        threading.Thread(target=read, name="rewardloop-reader", daemon=True).start()
        await gone.wait()

    def watch(self, loop, stall):
        """Names the call that blocks the event loop of all for too long. The parent ends the process."""
        seen, task, since = -1, None, time.monotonic()
        while True:
            time.sleep(stall / 8)
            now = asyncio.current_task(loop)
            if now is None or now is not task or self.beat != seen:
                seen, task, since = self.beat, now, time.monotonic()
                try:
                    loop.call_soon_threadsafe(self.tick)
                except RuntimeError:
                    return  # the loop has ended
            elif time.monotonic() - since > stall:
                call = next((i for i, t in list(self.tasks.items()) if t is task), 0)
                with self.writing:
                    write_frame(self.sock, {"op": "stuck", "id": call})
                return

    def tick(self):
        self.beat += 1

    def receive(self, header, body):
        if header["op"] in CALLS:
            printed = Output()
            task = asyncio.get_running_loop().create_task(self.one(header, body, printed))
            self.tasks[header["id"]] = task
            task.add_done_callback(lambda task: self.ended(header["id"], task, printed))
        elif header["op"] == "cancel" and header["id"] in self.tasks:
            self.tasks[header["id"]].cancel()
        elif header["op"] == "profile":
            self.profile(header)

    async def one(self, header, body, printed):
        _printed.set(printed)  # each task has a context of its own
        began = time.time()
        try:
            result = self.function.begin(header, body)
            if inspect.isawaitable(result):
                result = await result
            return self.finish(header, result, began)
        except BaseException as error:
            return failure(error)

    def ended(self, call, task, printed):
        """Answers a call, whatever ended its task: one that is cancelled before its first step never runs."""
        self.tasks.pop(call, None)
        self.reply(call, failure(asyncio.CancelledError()) if task.cancelled() else task.result(), printed)


async def awaited(value):
    return await value


def refusal(error):
    """Why there is no function: it is not on this machine, nobody can use it, or it failed to load this time."""
    kind = "failed"
    if isinstance(error, (ImportError, Missing)):
        kind = "missing"
    elif isinstance(error, (Refused, SyntaxError)):
        kind = "refused"
    reply = {"op": "refused", "kind": kind, "message": describe(error), "brief": brief(error)}
    ours = ("<stdin>", importlib.__file__)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in ours and not f.filename.startswith("<frozen ")]
    if isinstance(error, SyntaxError) and error.filename:
        reply["at"] = f"{error.filename}:{error.lineno}"
    elif frames and not isinstance(error, Refused):
        reply["at"] = f"{frames[0].filename}:{frames[0].lineno}"
    return reply


def brief(error):
    """An exception in one line."""
    text = error.msg if isinstance(error, SyntaxError) else describe(error).split("\n")[0]
    name = type(error).__name__ + ": "
    return text if isinstance(error, Refused) or text.startswith(name) else name + text


def extend(sources):
    """Makes modules of texts that the parent has sent, in their order. They import this one by its name."""
    sys.modules["rewardloop_process"] = sys.modules["__main__"]
    for name, text in sources:
        module = sys.modules[name] = types.ModuleType(name)
        exec(compile(text, "<stdin>", "exec"), module.__dict__)


def main():
    keep()
    go_first()
    sock = socket.socket(fileno=3)
    os.set_inheritable(3, False)
    sys.stdout, sys.stderr = Tee(1), Tee(2)
    try:
        spec, _ = read_frame(sock)
        if spec.get("protocol") != PROTOCOL:
            uses = f"the server uses protocol {spec.get('protocol')}, but this process uses {PROTOCOL}"
            raise Refused(f"{uses}: install the same release of both")
        limit(spec.get("limits") or {})
        extend(spec.get("sources") or [])
        if spec.get("inspect"):
            write_frame(sock, inspected(spec))
            os._exit(0)
        function = (sys.modules["rewardloop_forms"] if spec.get("signature") else sys.modules["__main__"]).Function(spec)
    except EOFError:
        return
    except BaseException as error:
        write_frame(sock, refusal(error))
        return
    about = {"async": function.is_async, "threads": function.threads, "python": sys.version.split()[0], **function.takes.told()}
    write_frame(sock, {"op": "ready", "pid": os.getpid(), **about})
    process = Process(sock, function)
    try:
        if function.is_async:
            asyncio.run(process.serve_async(spec.get("stall_seconds") or 10))
        else:
            process.serve_plain()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    os._exit(0)  # threads and exit handlers of the user's code have no say


if __name__ == "__main__":
    main()
