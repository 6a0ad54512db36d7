"""The process of a model in Python, which scores batches on one device.

The Go package in this folder starts it with a socket as descriptor 3 and shared memory as
descriptor 4, with the protocol of internal/subprocess: one frame is a little-endian uint32 length of
the header, a uint32 length of the body, the header (JSON) and the body. ``init`` contains this text
and what to load; ``do`` contains a batch as JSON, whose pictures are in the shared memory; ``ping``
requests a sign of life. Nothing is ever unpickled. The code of process.py reads samples and results.

A batch is answered with one reply for each sample: a result, or the error of the sample. If a batch
raises an exception, its samples run one by one: in this process while there is time, else as
separate requests of the server. If the device has no memory left, the server runs the halves of the batch.
"""

import asyncio
import base64
import inspect
import json
import math
import mmap
import os
import signal
import struct
import sys
import time

import rewardloop_process as process
from rewardloop_process import BadResult, BadSample, Function, Output, Refused, Signature

MAX_REPLY = 1 << 20  # bytes of one sample's reply
MAX_ANSWER = 64 << 20  # bytes of a batch's, as internal/subprocess has it
MEMORY_FD = 4


class Sample:
    """One sample of a batch, as compute_scores gets them.

    id, run, uid, split, data_source, prompt, response: str, "" where the trainer gave none.
    step, index, group_size: int; index is None where the trainer has none.
    ground_truth: any JSON value, or None. extra_info: dict.
    media: list of dicts with kind (image, video, audio, latent), layout, dtype, shape, fps,
        sample_rate and data, in the form that the entry's key pixels names.
    image, video, audio: the data of the first of that kind, or None.
    waveform: the first audio as (float32 array, channels first, -1 to 1; its rate in hertz), or None.
    solution_str, solution_image: as compute_score of verl and verl-omni has them.

    Of a member of a prompt group (score_group) there is more:
    values: dict, what the other components of the reward gave it, by their keys.
    failed: dict, the class of failure of each component that failed for it.
    is_reference: bool, whether this is the reference answer of validation, whose score is dropped.
    """

    def __init__(self, head, media):
        self._head, self._media = head, media
        for name in ("id", "run", "uid", "data_source", "prompt", "response"):
            setattr(self, name, head.get(name) or "")
        self.split = head.get("split") or "train"
        self.step, self.index, self.group_size = head.get("step") or 0, head.get("index"), head.get("group_size") or 0
        self.ground_truth, self.extra_info = head.get("ground_truth"), dict(head.get("extra_info") or {})
        self.values = {key: float(value) for key, value in (head.get("values") or {}).items()}
        self.failed = dict(head.get("failed") or {})
        self.is_reference = bool(head.get("is_reference"))

    def __repr__(self):
        return f"Sample({self.id!r}, {len(self._media.entries)} media)"

    def has(self, kind):
        """Whether there is media of that kind."""
        return any(entry["kind"] == kind for entry in self._media.entries)

    @property
    def media(self):
        return self._media.all()

    @property
    def image(self):
        return self._media.first("image")

    @property
    def video(self):
        return self._media.first("video")

    @property
    def audio(self):
        return self._media.first("audio")

    @property
    def waveform(self):
        for i, entry in enumerate(self._media.entries):
            if entry["kind"] == "audio":
                return process.waveform(entry, self._media.get(i))
        return None

    @property
    def solution_str(self):
        return self.response

    @property
    def solution_image(self):
        return self._media.first("image", "video", "latent")


class Media:
    """The media of a sample, made into arrays when they are asked for."""

    def __init__(self, entries, make):
        self.entries, self.make, self.made = entries, make, {}

    def get(self, i):
        if i not in self.made:
            self.made[i] = self.make(self.entries[i])
        return self.made[i]

    def all(self):
        return [{**entry, "data": self.get(i)} for i, entry in enumerate(self.entries)]

    def first(self, *kinds):
        return next((self.get(i) for i, entry in enumerate(self.entries) if entry["kind"] in kinds), None)


class Model(Function):
    """The user's model, loaded on its device."""

    def __init__(self, spec):
        self.device, self.columns = spec["device"], bool(spec.get("columns"))
        self.loop = None
        super().__init__(spec)
        self.memory, self.capacity = None, 0

    def find(self, module, path, name):
        target = process.attribute(module, path, name)
        self.owner = None
        if inspect.isclass(target):
            self.owner = process.construct(target, name, {"device": self.device, **self.options})
            target = getattr(self.owner, "compute_scores", None) or getattr(self.owner, "compute_score", self.owner)
        if not callable(target):
            raise Refused(f"{path}: {name!r} is a {type(target).__name__}, want a function or a class")
        named = getattr(target, "__name__", "")
        self.form = "columns" if self.columns else "samples" if named == "compute_scores" else "single"
        return target

    def check_group(self, name, asked):
        """Scores of finished groups are not worked on here."""

    def check(self):
        self.takes = takes = Signature(self.target)
        self.names, self.needed, self.everything = takes.names, takes.needed, takes.everything
        for fault in process.model_faults(self.form, takes, self.options):
            raise Refused(fault)

    # A batch.

    def view(self, header):
        """The shared memory, mapped again where the server has changed its size."""
        capacity = header.get("capacity") or 0
        if capacity != self.capacity:
            self.memory, self.capacity = None, 0
            if capacity:
                self.memory, self.capacity = mmap.mmap(MEMORY_FD, capacity, access=mmap.ACCESS_READ), capacity
        return self.memory

    def sample(self, item, memory):
        base, make = item.get("base") or 0, self.maker()

        def media(entry):
            at = base + entry["at"]
            return make(entry, bytearray(memory[at : at + entry["size"]]))

        return Sample(item["head"], Media(item["head"].get("media") or [], media))

    def batch(self, items, memory, seconds):
        """The replies to a batch. One that raises is taken apart, if that takes no longer than so many seconds."""
        until = time.monotonic() + seconds
        try:
            return self.run(items, memory)
        except Exception as error:
            if len(items) == 1 or lacks_memory(error):
                raise
            said = process.failure(error)["message"]
        # The exception is gone by now, and with it what its frames held of the batch: tensors, its result.
        replies = []
        for item in items:
            if time.monotonic() > until:
                raise BadResult(said)  # the server gives each sample a time of its own
            replies.append(self.apart(item, memory))
        return replies

    def apart(self, item, memory):
        """The reply to a sample of a batch that raised."""
        printed = Output()
        process._printed.set(printed)
        try:
            reply = self.run([item], memory)[0]
        except Exception as error:
            if lacks_memory(error):
                raise
            reply = process.failure(error)
        if printed.text():
            reply["output"] = printed.text()
        return reply

    def run(self, items, memory):
        """The replies to the samples of a batch, in their order."""
        samples = [self.sample(item, memory) for item in items]
        if self.form == "single":
            return [self.alone(sample) for sample in samples]
        if self.form == "samples":
            takes = {k: v for k, v in self.options.items() if self.everything or k in self.names}
            result = self.wait(self.target(samples, **takes))
        else:
            result = self.wait(self.target(**self.column_arguments(samples)))
        return [member(value) for value in members(result, len(samples))]

    def alone(self, sample):
        """The reply to one sample, whose exception is no other's. That it lacks memory, the server is told: it makes room."""
        try:
            return self.one(sample)
        except Exception as error:
            if lacks_memory(error):
                raise
            return process.failure(error)

    def one(self, sample):
        values = self.values(sample)
        lacking = sorted(self.needed - set(values))
        if lacking:
            raise BadSample(f"the function needs {', '.join(lacking)}, which the sample does not have")
        return process.answer(self.wait(self.target(**{k: v for k, v in values.items() if self.everything or k in self.names})))

    def values(self, sample):
        """A sample by the names that compute_score has for its parts."""
        visual = any(e["kind"] in ("image", "video", "latent") for e in sample._media.entries)
        values = {"data_source": sample.data_source, "ground_truth": sample.ground_truth, "extra_info": sample.extra_info}
        if visual and (self.everything or "solution_image" in self.names):
            values["solution_image"] = sample.solution_image
        if sample.response or not sample._media.entries:
            values["solution_str"] = sample.response
        if "prompt" in self.names:
            values["prompt"] = sample.prompt
        if "media" in self.names:
            values["media"] = sample.media
        return {**values, **self.options}

    def column_arguments(self, samples):
        """The lists of the arguments that the function names; with ** also the columns of verl's names."""
        names = self.names | (set(process.COLUMNS_ANY) if self.everything else set())
        values = {}
        for name in names & set(process.COLUMNS):
            values[name] = [getattr(sample, process.COLUMNS[name]) for sample in samples]
            if process.COLUMNS[name] in ("image", "video", "audio", "solution_image"):
                if name in self.needed and any(v is None for v in values[name]):
                    raise BadSample(f"the function needs {name}, and a sample has no {process.COLUMNS[name]}")
                values[name] = stacked(values[name])
        return {**values, **{k: v for k, v in self.options.items() if self.everything or k in self.names}}

    def wait(self, value):
        """What an async function returns. All calls run in one event loop, which lives as long as the process: clients
        that belong to a loop go on working."""
        if not inspect.isawaitable(value):
            return value
        self.loop = self.loop or asyncio.new_event_loop()
        return self.loop.run_until_complete(process.awaited(value))

    # The device.

    def can_sleep(self):
        return callable(getattr(self.owner, "sleep", None)) and callable(getattr(self.owner, "wake", None))

    def device_bytes(self):
        """What the process has of its card's memory; 0: it has none, or nobody knows."""
        torch = sys.modules.get("torch")
        try:
            if torch is not None and self.device != "cpu" and torch.cuda.is_available():
                return int(torch.cuda.memory_reserved())
        except Exception:
            pass  # a torch that has no such function
        return 0

    def about(self):
        return {
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "form": self.form,
            "sleeps": self.can_sleep(),
            "bytes": self.device_bytes(),
            **self.told(),
        }

    def told(self):
        """What it takes. What a batch is asked for does not say what it may hold: a picture with a prompt and a response
        is the most."""
        most = {} if self.form == "single" else {"kinds": ["image"], "text": True}
        return {**self.takes.told(), **most}


def stacked(arrays):
    """Arrays of one shape and type as one with an axis in front; else the list."""
    first = arrays[0]
    if not hasattr(first, "shape") or not hasattr(first, "dtype"):
        return arrays
    if any(getattr(a, "shape", None) != first.shape or getattr(a, "dtype", None) != first.dtype for a in arrays):
        return arrays
    return sys.modules["torch" if type(first).__module__.startswith("torch") else "numpy"].stack(arrays)


def members(result, samples, what="it"):
    """What a model returned for a batch, as a list with a value for each sample."""
    array = callable(getattr(result, "tolist", None)) and getattr(result, "ndim", 0) > 0
    if not array and not isinstance(result, (list, tuple)):
        raise BadResult(f"{what} returned a {type(result).__name__} for {samples} samples; want a list with a score for each")
    if array:
        numbers = math.prod(result.shape)
        if numbers > samples * process.MAX_STEPS:
            raise BadResult(f"{what} returned {numbers} numbers for {samples} samples; want a score for each, or for each of its steps")
        result = result.tolist()
    if len(result) != samples:
        raise BadResult(f"{what} returned {len(result)} scores for {samples} samples; want one for each")
    return result


def member(value):
    """The reply to one sample. An exception in its place is this sample's failure."""
    try:
        if isinstance(value, BaseException):
            return process.failure(value)
        reply = process.answer(value)
        if len(json.dumps(reply, allow_nan=False)) > MAX_REPLY:
            raise BadResult(f"its answer is over the limit of {MAX_REPLY} bytes")
        return reply
    except (BadResult, ValueError, TypeError, OverflowError, RecursionError) as error:
        return process.failure(BadResult(str(error)))


def lacks_memory(error):
    """Whether an exception says that the device, or the machine, had no memory."""
    if isinstance(error, MemoryError) or "OutOfMemoryError" in [c.__name__ for c in type(error).__mro__]:
        return True
    try:
        return "out of memory" in str(error)[:2000].lower()
    except Exception:  # an exception's own __str__ is user code too
        return False


def free_cache():
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()
    except Exception:
        pass  # a device that is lost says so at the next batch


profiles = process.Profiles()


def do(model, header, body):
    """The header and body of the answer to a batch."""
    what, printed = json.loads(body), Output()
    process._printed.set(printed)
    try:
        if what["op"] == "profile":
            return {"op": "ok"}, profiles.reply(what)
        if what["op"] in ("sleep", "wake"):
            model.wait(getattr(model.owner, what["op"])())
            return {"op": "ok"}, {"bytes": model.device_bytes()}
        items = what["items"]
        replies = model.batch(items, model.view(header), what.get("seconds") or 0)
        for reply in replies:
            if printed.text() and "output" not in reply and (len(replies) == 1 or reply["op"] == "error"):
                reply["output"] = printed.text()
        return {"op": "ok"}, {"replies": replies}
    except BaseException as error:
        reply = process.failure(error)
        if lacks_memory(error):
            reply["class"] = "memory"
            del error
            free_cache()
        if printed.text():
            reply["message"] += "\nit printed: " + printed.text()
        # The class is a word; what module is missing goes before the message.
        return {"op": "error", "class": reply["class"], "message": json.dumps([reply.get("module", ""), reply["message"]])}, None
    finally:
        process._printed.set(None)


def warm(model, what):
    """Scores a batch of known samples, so that no sample of a run pays for a first call. Returns why that failed, or ""."""
    kinds = what and (what["kinds"] if what["kinds"] is not None else model.told()["kinds"])
    if not kinds:
        return ""
    known = what["known"][kinds[0]]
    heads = [known["head"]] * what["samples"]
    if what.get("grouped"):
        first = known["head"]
        heads = [{"uid": "rewardloop_known", "run": "", "split": "train", "size": len(heads), "members": [{**first, "index": i} for i in range(len(heads))]}]
    try:
        replies = model.run([{"head": head} for head in heads], base64.b64decode(known["body"]))
        wrong = [one for reply in replies for one in reply.get("members") or [reply] if one["op"] == "error"]
        return wrong[0]["message"][: process.MAX_TEXT] if wrong else ""
    except Exception as error:
        said = process.failure(error)["message"]
    free_cache()  # here, where the exception holds nothing any more
    return said


def send(sock, header, body=None):
    data = b"" if body is None else json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")
    if len(data) > MAX_ANSWER:  # its halves may fit
        header, data = {"op": "error", "seq": header["seq"], "class": "answer_too_long", "message": f"an answer of {len(data)} bytes"}, b""
    head = json.dumps(header).encode()
    sock.sendall(struct.pack("<II", len(head), len(data)) + head)
    sock.sendall(data)


def main(sock, header, spec):
    process.keep(MEMORY_FD)
    process.go_first()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C; the server decides
    for descriptor in (3, MEMORY_FD):
        os.set_inheritable(descriptor, False)
    sys.stdout, sys.stderr = process.Tee(1), process.Tee(2)
    try:
        if spec.get("protocol") != process.PROTOCOL:
            uses = f"the server uses protocol {spec.get('protocol')}, but this process uses {process.PROTOCOL}"
            raise Refused(f"{uses}: install the same release of both")
        process.limit(spec.get("limits") or {})
        if spec["device"] == "cpu":
            os.nice(5)  # what models compute yields to the server's own work
        model = (sys.modules["rewardloop_forms"] if spec.get("signature") else sys.modules[__name__]).Model(spec)
        failed = warm(model, spec.get("warmup"))
        about = {**model.about(), "warmup": failed}
    except BaseException as error:
        said = process.refusal(error)
        kind = "memory" if said["kind"] == "failed" and lacks_memory(error) else said["kind"]
        send(sock, {"op": "error", "seq": header["seq"], "class": kind, "message": said["message"]})
        os._exit(1)
    send(sock, {"op": "ok", "seq": header["seq"]}, about)
    try:
        while True:
            header, body = process.read_frame(sock)
            answer, reply = {"op": "ok"}, None
            if header["op"] == "do":
                answer, reply = do(model, header, body)
            send(sock, {**answer, "seq": header["seq"]}, reply)
            del header, body, reply
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    os._exit(0)
