"""Functions that score whole prompt groups, and functions in the forms of other trainers.

FORMS has a row for each form: how such a function is called with samples, and how its result is read.
The server decides whether a call contains a prompt group or a batch; a form handles both in the same way.
The module needs only the standard library; numpy or torch are imported when pictures are needed.
"""

import asyncio
import inspect
import sys
import types

import rewardloop_model as model
import rewardloop_process as process
from rewardloop_process import BadResult, BadSample, Refused, Signature, Skipped


class Group:
    """What a function of groups is told beside the samples.

    uid, run, split: str. step: int.
    size: int, the group_size that the trainer named; missing: int, how many of these are not among the samples.
    absent: dict, what is known of the missing ones: the id of a sample to "late" (it came, and was not scored
        in time) or "failed". A member that never came has no id here.
    last_mean_std: float, the mean standard deviation of the rewards within the groups of the step before; None
        before there is one.
    """

    def __init__(self, head):
        self.uid, self.run = head.get("uid") or "", head.get("run") or ""
        self.split, self.step = head.get("split") or "train", head.get("step") or 0
        self.size, self.missing = head.get("size") or 0, head.get("missing") or 0
        self.absent, spread = dict(head.get("absent") or {}), head.get("last_mean_std")
        self.last_mean_std = None if spread is None else float(spread)

    def __repr__(self):
        return f"Group({self.uid!r}, {self.size - self.missing} of {self.size})"


class Call:
    """One call of a function: the samples, their group (None of a batch) and what it logs on its way."""

    def __init__(self, samples, group):
        self.samples, self.group, self.logged, self.metrics = samples, group, {}, {}

    @property
    def last_mean_std(self):
        return self.group.last_mean_std if self.group else None


def messages(sample):
    """The sample as a conversation: that of extra_info, else its prompt and its response."""
    told = sample.extra_info.get("messages")
    if isinstance(told, list):
        return told
    return [{"role": "user", "content": sample.prompt}, {"role": "assistant", "content": sample.response}]


def columns_of(call):
    """Every key of the samples' extra_info as a list with a value for each sample, None where it has none, and
    the fields of a sample that data sets have columns for."""
    names = {name: None for sample in call.samples for name in sample.extra_info}
    columns = {name: [sample.extra_info.get(name) for sample in call.samples] for name in names}
    for name in ("ground_truth", "solution", "answer"):
        columns.setdefault(name, [sample.ground_truth for sample in call.samples])
    columns.setdefault("data_source", [sample.data_source for sample in call.samples])
    if "images" not in columns and any(sample.has("image") for sample in call.samples):
        columns["images"] = Lazy(lambda: [sample.image for sample in call.samples])
    return columns


class Lazy:
    """A value that is made only where the function takes it."""

    def __init__(self, make):
        self.make = make


def with_columns(scores, columns):
    """A value for each sample: its score with what else is said of it. A list that has one value for each
    sample is a column, a scalar is every sample's; anything else is told of the first one, in its details."""
    values = [{"score": score} if not isinstance(score, dict) else dict(score) for score in scores]
    for name, column in (columns or {}).items():
        if name == "score":
            continue
        if callable(getattr(column, "tolist", None)):
            column = column.tolist()
        if isinstance(column, (list, tuple)) and len(column) == len(values):
            for value, own in zip(values, column):
                value[str(name)] = own
        elif process.scalar(column)[0]:
            for value in values:
                value[str(name)] = column
        elif values:
            values[0][str(name)] = process.showable(column)
    return values


# --- the forms ----------------------------------------------------------------


class Form:
    """How functions of one form are called. Subclasses say what differs."""

    methods = ("__call__",)  # what is called of a class or an object; the first that it has
    positional = ()  # what a call begins with, in this order
    keywords = ()  # what a function may name besides
    columns = False  # it may name columns of the samples, too
    lacks = {}  # what nobody can give, and why
    constructor = ()  # what the constructor of a class may name besides device and the keys of its entry

    def __init__(self, name, options, pixels):
        self.name, self.options, self.pixels = name, options, pixels

    def ready(self, function):
        """The function itself, of what the file has under its name."""
        return function

    def faults(self, takes):
        """Why nobody can call a function with that signature."""
        own = takes.order[: len(self.positional)]
        if len(own) < len(self.positional) and not takes.rest:
            yield f"it takes ({', '.join(takes.order)}); signature: {self.name} calls it with ({', '.join(self.positional)})"
            return
        needed = takes.needed - set(own) - set(self.keywords) - set(self.options)
        for name in sorted(needed & set(self.lacks)):
            yield f"it needs {name}: {self.lacks[name]}"
        needed -= set(self.lacks)
        if takes.nameless and not self.positional:
            yield "it takes positional-only arguments; it is called by keyword"
        elif needed and not self.columns:
            offered = ", ".join(self.positional + self.keywords)
            yield (
                f"it needs {', '.join(sorted(needed))}, which nobody gives; "
                f"signature: {self.name} gives {offered} and the keys of its entry"
            )

    def leading(self, call):
        """The values of positional."""
        return ()

    def named(self, call, takes):
        """The values of keywords and columns."""
        return {}

    def call(self, function, takes, call):
        """Calls the function. The result may have to be awaited."""
        leading = self.leading(call)
        values = process.withheld({**self.named(call, takes), **self.options}, takes)
        own = set(takes.order[: len(leading)])
        values = {k: v for k, v in values.items() if k not in own and (takes.everything or k in takes.names)}
        values = {k: v.make() if isinstance(v, Lazy) else v for k, v in values.items()}
        lacking = sorted(takes.needed - own - set(values))
        if lacking:
            raise BadSample(f"the function needs {', '.join(lacking)}, which no sample's extra_info has")
        return function(*leading, **values)

    def read(self, result, call):
        """A value for each sample: what process.answer reads, or an exception in its place."""
        return model.members(result, len(call.samples))


class ScoreGroup(Form):
    """The form of this project: score_group(samples) of a class, or a function of that form."""

    methods = ("score_group",)
    positional = ("samples",)
    keywords = ("group", "last_mean_std")

    def leading(self, call):
        return (call.samples,)

    def named(self, call, takes):
        return {"group": call.group, "last_mean_std": call.last_mean_std}

    def read(self, result, call):
        return model.members(result, len(call.samples), "score_group")


class RMGallery(Form):
    """What RM-Gallery's managers call: compute_score(prompt, responses, extras, …) of its tutorial
    post_training, or compute_score(…, group_evaluation=True, all_responses, …) of its DGRRewardManager."""

    methods = ("compute_score", "__call__")
    keywords = (
        "prompt", "responses", "extras", "last_mean_std",
        "data_source", "solution_str", "ground_truth", "extra_info", "group_evaluation",
        "prompt_str", "all_responses", "all_extra_infos",
    )

    def faults(self, takes):
        yield from super().faults(takes)
        if not {"responses", "all_responses", "solution_str"} & takes.names and not takes.everything:
            yield f"it takes neither responses nor all_responses; signature: {self.name} calls it with one of them"

    def named(self, call, takes):
        first, responses = call.samples[0], [sample.response for sample in call.samples]
        if {"group_evaluation", "all_responses"} & takes.names:
            extras = [{**s.extra_info, **(s.ground_truth if isinstance(s.ground_truth, dict) else {})} for s in call.samples]
            return {
                "data_source": first.data_source, "solution_str": responses, "ground_truth": extras[0], "extra_info": extras[0],
                "group_evaluation": True, "prompt_str": first.prompt, "all_responses": list(responses), "all_extra_infos": extras,
            }
        values = {"prompt": first.prompt, "responses": responses, "extras": [dict(sample.extra_info) for sample in call.samples]}
        if call.last_mean_std is not None or "last_mean_std" in takes.names:
            values["last_mean_std"] = call.last_mean_std
        return values

    def read(self, result, call):
        scores, columns = result, {}
        if isinstance(result, dict):
            columns = {k: v for k, v in result.items() if k not in ("group_scores", "score")}
            if "group_scores" not in result and "score" not in result:
                raise BadResult(f"the dict has no 'group_scores'; its keys are {', '.join(map(str, result))[:200] or 'none'}")
            scores = result["group_scores"] if "group_scores" in result else [result["score"]] * len(call.samples)
        elif isinstance(result, tuple) and len(result) in (2, 3) and not isinstance(result[0], (int, float)):
            scores, columns = result[0], dict(result[1] or {})
            if len(result) == 3:
                columns["details"] = result[2]
        return with_columns(model.members(scores, len(call.samples), "compute_score"), columns)


class OpenJudge(Form):
    """compute_batch_scores({prompt: [RewardSample]}) -> [RewardResult] of OpenJudge's docs/integrations/verl.md."""

    methods = ("compute_batch_scores", "__call__")
    positional = ("prompt_to_samples",)

    def leading(self, call):
        prompts = {}
        for i, sample in enumerate(call.samples):
            # Two rows with one prompt are one group, as with OpenJudge's manager.
            group = list(prompts).index(sample.prompt) if sample.prompt in prompts else len(prompts)
            prompts.setdefault(sample.prompt, []).append(
                types.SimpleNamespace(
                    original_index=i, group_index=group, prompt=sample.prompt, response=sample.response,
                    messages=messages(sample), extra=dict(sample.extra_info),
                )
            )
        return (prompts,)

    def read(self, result, call):
        if not isinstance(result, (list, tuple)):
            raise BadResult(f"compute_batch_scores returned a {type(result).__name__}; want a list of RewardResult")
        found = {}
        for one in result:
            get = one.get if isinstance(one, dict) else lambda name, default=None, one=one: getattr(one, name, default)
            value = {**dict(get("reward_info") or {}), "score": get("score")}
            if get("details") is not None:
                value["details"] = process.showable(get("details"))
            found[get("original_index")] = value
        wanted = range(len(call.samples))
        if len(result) != len(wanted) or set(found) != set(wanted):
            raise BadResult(
                f"compute_batch_scores returned {len(result)} results for {len(wanted)} samples; want one for each original_index"
            )
        return [found[i] for i in wanted]


class TRL(Form):
    """f(prompts, completions, **columns) -> list of float or None, the custom reward function of TRL's GRPOTrainer.
    None says that the function is not for this sample."""

    keywords = ("prompts", "completions", "trainer_state", "log_extra", "log_metric")
    columns = True
    lacks = {
        "completion_ids": "the server has text and no token ids. A trainer may send them as extra_info.completion_ids; "
        "give the parameter a default",
        "environments": "the environments are the trainer's own",
    }

    def named(self, call, takes):
        prompts, completions = [], []
        for sample in call.samples:
            told = sample.extra_info.get("prompt")
            talk = isinstance(told, list)  # a conversational data set
            prompts.append(told if talk else sample.prompt)
            completions.append([{"role": "assistant", "content": sample.response}] if talk else sample.response)
        columns = columns_of(call)
        columns.pop("prompt", None)
        return {**columns, "prompts": prompts, "completions": completions, **self.trainer(call)}

    def trainer(self, call):
        def log_extra(column, values):
            call.logged[str(column)] = list(values)

        def log_metric(name, value):
            call.metrics[str(name)] = value

        state = types.SimpleNamespace(global_step=call.samples[0].step)
        return {"trainer_state": state, "log_extra": log_extra, "log_metric": log_metric}

    def read(self, result, call):
        scores = [
            Skipped("the function returned None: it is not for this sample") if score is None else score
            for score in model.members(result, len(call.samples))
        ]
        values = with_columns([None if isinstance(s, Skipped) else s for s in scores], call.logged)
        if call.metrics:
            values[0]["metrics"] = process.showable({k: process.plain(v) for k, v in call.metrics.items()})
        return [score if isinstance(score, Skipped) else value for score, value in zip(scores, values)]


class MSSwift(TRL):
    """An ORM or AsyncORM of ms-swift: __call__(completions, **columns) -> list of float or None."""

    positional = ("completions",)
    keywords = ("trainer_state", "prompts")
    lacks = {
        "response_token_ids": "the server has text and no token ids. A trainer may send them as extra_info.response_token_ids; "
        "give the parameter a default",
    }
    constructor = ("args",)

    def leading(self, call):
        return ([sample.response for sample in call.samples],)

    def named(self, call, takes):
        columns = columns_of(call)
        columns.setdefault("messages", [messages(sample) for sample in call.samples])
        columns.setdefault("prompts", [sample.prompt for sample in call.samples])
        return {**columns, "trainer_state": self.trainer(call)["trainer_state"]}


class Slime(Form):
    """async f(args, samples) -> list of slime's --group-rm, or f(args, sample) of a sample by itself."""

    positional = ("args", "samples")

    def call(self, function, takes, call):
        args = types.SimpleNamespace(**{"reward_key": None, **process.withheld(self.options)})
        samples = [self.sample(i, sample) for i, sample in enumerate(call.samples)]
        if takes.order[1:2] != ["sample"]:
            return function(args, samples)
        results = []
        for sample in samples:
            try:
                results.append(function(args, sample))
            except Exception as error:
                results.append(error)
        if any(inspect.isawaitable(result) for result in results):
            return self.all(results)
        return results

    async def all(self, results):
        async def one(result):
            return await result if inspect.isawaitable(result) else result

        return await asyncio.gather(*map(one, results), return_exceptions=True)

    def sample(self, place, sample):
        return types.SimpleNamespace(
            group_index=0,
            index=place if sample.index is None else sample.index,
            prompt=sample.extra_info.get("messages") or sample.prompt,
            response=sample.response,
            label=sample.ground_truth,
            metadata=dict(sample.extra_info),
            status="completed",
            **dict.fromkeys(("reward", "tokens", "response_length", "loss_mask", "multimodal_inputs", "train_metadata")),
        )

    def read(self, result, call):
        key = self.options.get("reward_key")
        return [
            {**value, "score": value.get(key or "score")} if isinstance(value, dict) else value
            for value in model.members(result, len(call.samples))
        ]


class OpenRLHF(Form):
    """reward_func(queries, prompts, labels) -> {rewards, scores, extra_logs}, a tensor or a list of OpenRLHF."""

    positional = ("queries", "prompts", "labels")

    def leading(self, call):
        return (
            [sample.prompt + sample.response for sample in call.samples],
            [sample.prompt for sample in call.samples],
            [sample.ground_truth for sample in call.samples],
        )

    def read(self, result, call):
        columns = {}
        if isinstance(result, dict):
            if "rewards" not in result:
                raise BadResult(f"the dict has no 'rewards'; its keys are {', '.join(map(str, result))[:200] or 'none'}")
            columns = dict(result.get("extra_logs") or {})
            if result.get("scores") is not None:
                columns["scores"] = result["scores"]
            result = result["rewards"]
        return with_columns(model.members(result, len(call.samples), "reward_func"), columns)


class DDPO(Form):
    """f(images, prompts, metadata) -> (scores, columns) of DDPO and flow_grpo, or a function without them, which
    is called once and returns such a one. images is float NCHW, 0 to 1, where torch is imported; without torch
    it is an array of uint8, NHWC, which DDPO's functions take as well."""

    positional = ("images", "prompts", "metadata")

    def factory(self, takes):
        return not takes.rest and len(takes.order) < len(self.positional) and takes.needed <= {"device", *self.options}

    def faults(self, takes):
        if self.pixels in ("pil", "path"):
            yield f"pixels: {self.pixels} has no effect with signature: {self.name}, which gives arrays; leave it out"
        if not self.factory(takes):
            yield from super().faults(takes)

    def ready(self, function):
        takes = Signature(function)
        if not self.factory(takes):
            return function
        offered = {"device": "cpu", **self.options}
        made = function(**{k: v for k, v in offered.items() if k in takes.names})
        if not callable(made):
            name = getattr(function, "__name__", function)
            raise Refused(f"{name}() returned a {type(made).__name__}; want a function of (images, prompts, metadata)")
        return made

    def leading(self, call):
        arrays = [sample.solution_image for sample in call.samples]
        for sample, array in zip(call.samples, arrays):
            if array is None:
                raise BadSample(f"the function needs images, and sample {sample.id!r} has none")
        if len({tuple(array.shape) for array in arrays}) > 1:
            raise BadSample("the function gets its images as one array, and they have several sizes")
        return (
            pictures(model.stacked(arrays)),
            [sample.prompt for sample in call.samples],
            [dict(sample.extra_info) for sample in call.samples],
        )

    def read(self, result, call):
        scores, columns = result, {}
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
            scores, columns = result
        return with_columns(model.members(scores, len(call.samples)), columns)


def pictures(stack):
    """A stack of pictures as DDPO has it: torch float 0 to 1 with the channels first, or NumPy uint8 with them last."""
    if type(stack).__module__.startswith("torch"):
        return stack.float() / 255 if str(stack.dtype) == "torch.uint8" else stack.float()
    if stack.dtype != "uint8":
        stack = (stack.clip(0, 1) * 255).round().astype("uint8")
    return stack.swapaxes(-3, -2).swapaxes(-2, -1)


FORMS = {
    "score_group": ScoreGroup,
    "rm_gallery": RMGallery,
    "openjudge": OpenJudge,
    "trl": TRL,
    "slime": Slime,
    "ms_swift": MSSwift,
    "openrlhf": OpenRLHF,
    "ddpo": DDPO,
}


def form_of(spec):
    return FORMS[spec["signature"]](spec["signature"], spec.get("kwargs") or {}, spec.get("pixels") or "auto")


# --- the reference of validation ---------------------------------------------


def rubrics(value):
    """What a value says for comparison: its comparison_score, a number or one for each rubric, else its score."""
    if isinstance(value, tuple) and value:
        value = value[0]
    if isinstance(value, dict):
        value = value["comparison_score"] if value.get("comparison_score") is not None else value.get("score")
    if callable(getattr(value, "tolist", None)):
        value = value.tolist()
    return [process.number(v) for v in (value if isinstance(value, (list, tuple)) else [value])]


def against(value, reference):
    """RM-Gallery's win and win_and: 1.0 for better than the reference, and for at least as good in every rubric. None
    where it is not known."""
    try:
        own, other = rubrics(value), rubrics(reference)
    except (BadResult, OverflowError):
        return None, None
    if len(own) != len(other):
        return None, None
    return float(sum(own) > sum(other)), float(all(o >= r for o, r in zip(own, other)))


# --- in a process --------------------------------------------------------------


class Formed:
    """What functions and models share whose entry has a signature."""

    def __init__(self, spec):
        self.signature, self.reference = form_of(spec), bool(spec.get("reference"))
        super().__init__(spec)

    def find(self, module, path, name):
        target, self.owner, self.form = process.attribute(module, path, name), None, self.signature.name
        if inspect.isclass(target):
            offered = {"device": getattr(self, "device", "cpu"), **self.options}
            if "args" in self.signature.constructor:
                offered.setdefault("args", types.SimpleNamespace(**process.withheld(self.options)))
            target = process.construct(target, name, offered)
        if inspect.isroutine(target):
            return self.signature.ready(target)
        self.owner = target
        for method in self.signature.methods:
            if callable(getattr(target, method, None)):
                return getattr(target, method)
        raise Refused(no_method(path, name, target, self.signature))

    def check_group(self, name, asked):
        if asked:
            raise Refused(process.no_method(name))

    def check(self):
        self.takes = takes = Signature(self.target)
        self.names, self.needed, self.everything = takes.names, takes.needed, takes.everything
        for fault in self.signature.faults(takes):
            raise Refused(f"{self.signature.name}: {fault}")

    def scored(self, head, sample):
        """The replies to the members of a group, or what has to be awaited for them. sample makes a Sample of a head."""
        samples = [sample(member) for member in head["members"]]
        call = Call(list(samples), Group(head))
        if head.get("reference") is not None:
            first = {**head["members"][0], "id": "reference", "response": head["reference"], "media": []}
            first.update(index=None, values={}, failed={}, is_reference=True)
            call.samples.append(sample(first))
        return then(self.signature.call(self.target, self.takes, call), lambda result: self.replies(result, call, len(samples)))

    def replies(self, result, call, members):
        values = self.signature.read(result, call)
        replies = [model.member(value) for value in values[:members]]
        for value, reply in zip(values, replies):
            if self.reference and reply["op"] == "result":
                win = against(value, values[members]) if len(values) > members else (None, None)
                reply["extra"].update(zip(("win", "win_and"), win))
        return {"op": "result", "members": replies}


def then(result, do):
    """do(result), or what has to be awaited for it."""
    if not inspect.isawaitable(result):
        return do(result)

    async def later():
        return do(await result)

    return later()


class Function(Formed, process.Function):
    """A function of groups in a process that runs functions."""

    def begin(self, header, body):
        make, view = self.maker(), memoryview(body)

        def media(entry):
            return make(entry, view[entry["at"] : entry["at"] + entry["size"]])

        return self.scored(header["group"], lambda head: model.Sample(head, model.Media(head.get("media") or [], media)))


class Model(Formed, model.Model):
    """A function of groups, or of batches in a trainer's form, on a device."""

    def run(self, items, memory):
        if "members" in items[0]["head"]:
            return [self.group(item, memory) for item in items]
        call = Call([self.sample(item, memory) for item in items], None)
        result = self.wait(self.signature.call(self.target, self.takes, call))
        return [model.member(value) for value in self.signature.read(result, call)]

    def group(self, item, memory):
        return self.wait(self.scored(item["head"], lambda head: self.sample({**item, "head": head}, memory)))


def no_method(path, name, target, form):
    what = f"a class without {' or '.join(form.methods)}" if inspect.isclass(target) else f"a {type(target).__name__}"
    return f"{path}: {name!r} is {what}; signature: {form.name} calls a function, or the {form.methods[0]} of a class"


def inspected(spec):
    """What a function takes. The constructor of a class, which may load something, is not called."""
    path, name, form = spec["path"], spec["name"], form_of(spec)
    target = process.attribute(process.load_module(path), path, name)
    faults, unbound, taken, anything = [], False, set(), False
    if inspect.isclass(target):
        offered = {"device", *form.constructor}
        constructor = Signature(target)
        missing = constructor.needed - offered - set(form.options)
        if missing:
            faults.append(process.no_argument(name, missing))
        taken, anything = constructor.names - offered, constructor.everything
        method = next((m for m in form.methods if any(m in c.__dict__ for c in target.__mro__)), None)
        if method is None:
            raise Refused(no_method(path, name, target, form))
        unbound = not isinstance(inspect.getattr_static(target, method), (staticmethod, classmethod))
        target = getattr(target, method)
    elif not inspect.isroutine(target):
        method = next((m for m in form.methods if callable(getattr(target, m, None))), None)
        if method is None:
            raise Refused(no_method(path, name, target, form))
        target = getattr(target, method)
    takes = Signature(target, unbound)
    faults.extend(f"{form.name}: {fault}" for fault in form.faults(takes))
    told = takes.told()
    told["names"] = sorted(set(told["names"]) - set(takes.order[: len(form.positional)]) | taken)
    # The keys of the entry are the attributes of slime's and ms-swift's args.
    told["everything"] = told["everything"] or anything or isinstance(form, (Slime, MSSwift))
    return {"op": "inspected", **told, "at": process.place(target), "faults": faults}
