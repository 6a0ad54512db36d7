"""Tables and logs of results: one row for each result, and a step in W&B or TensorBoard under a trainer's own names.

A sample without a score is part of no mean: it is counted, but never as a 0. A number that does not exist, such as the
mean of a step without a score, is not logged.
"""

from __future__ import annotations

import importlib
import io
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .errors import InputError
from .media import Media
from .result import Result, Scalar
from .sample import Sample

if TYPE_CHECKING:
    import pandas

#: Whose names are used: those of verl-omni a1139ba, Flow-Factory a0b2bc5 or flow_grpo ac4c86e.
Style = Literal["verl-omni", "flow-factory", "flow_grpo"]

#: The most pictures of a step, pixels of a picture's longer side, and pixels of a file that is decoded.
MAX_IMAGES, MAX_SIDE, MAX_PIXELS = 256, 4096, 1 << 26

_IMPUTED = "/imputed"
_COLUMNS = ("id", "outcome", "reward_score", "fallback", "why", "worker", "attempts", "config")


class Picture(NamedTuple):
    """A picture of a step, as log_step passes it to a callable."""

    #: What it is logged under, such as train_samples.
    key: str
    #: Scores and prompt, in the form of the style.
    caption: str
    #: uint8 [H, W, 3], neither side longer than max_side.
    pixels: npt.NDArray[np.uint8]
    #: The sample's prompt, cut to its first 1,000 characters.
    prompt: str
    #: The sample's reward; None: it has none.
    score: float | None


def to_rows(results: Iterable[Result]) -> list[dict[str, Scalar]]:
    """Returns results as flat rows with the same columns, those of Result.as_row(); None where a result has no value.

    The fixed columns come first, then the others in alphabetical order: reward/<key> for each component, its extra
    columns, timing_ms/<stage> in milliseconds, group/<field>. ``why`` contains the outcome and all errors as text.
    """
    rows = [_result(r, f"results[{i}]").as_row() for i, r in enumerate(results)]
    others = sorted({k for row in rows for k in row}.difference(_COLUMNS))
    return [{k: row.get(k) for k in (*_COLUMNS, *others)} for row in rows]


def to_frame(results: Iterable[Result]) -> pandas.DataFrame:
    """Returns results as a pandas DataFrame: one row for each result, with the columns of to_rows.

    A column of numbers with missing values is float64 with NaN. In other columns, such as text and flags, a missing
    value is None. Raises InputError if pandas is not installed.
    """
    try:
        pd = importlib.import_module("pandas")
    except ImportError as e:
        raise InputError("to_frame needs pandas: pip install pandas; to_rows does without", field="results") from e
    rows = to_rows(results)
    columns: dict[str, Any] = {}
    for name in rows[0] if rows else _COLUMNS:
        values = [row[name] for row in rows]
        numbers = all(v is None or (isinstance(v, int | float) and not isinstance(v, bool)) for v in values)
        missing = any(v is None for v in values) or (not rows and name in ("reward_score", "fallback"))
        columns[name] = np.array([math.nan if v is None else v for v in values], np.float64) if numbers and missing else values
    frame: pandas.DataFrame = pd.DataFrame(columns)
    return frame


def log_step(
    logger: Any,
    step: int,
    results: Sequence[Result],
    *,
    samples: Sequence[Sample] | None = None,
    style: Style = "verl-omni",
    split: Literal["train", "val"] = "train",
    max_images: int = 8,
    max_side: int = 512,
) -> dict[str, float]:
    """Logs the rewards and some pictures of a step, under the names that a trainer's own loop uses.

    Args:
        logger: A W&B run or the module wandb; a SummaryWriter of torch.utils.tensorboard or tensorboardX; or a
            callable, which is called once with (step, metrics, pictures): int, dict[str, float], list[Picture].
        step: The trainer's step, 0 or more.
        results: Results of the step, in any order.
        samples: Samples of the results, with samples[i] for results[i]: prompt, prompt group, data source and picture.
            Without samples there are no pictures, and the groups are those in the results.
        style: Names to use: verl-omni, flow-factory or flow_grpo.
        split: train or val.
        max_images: Maximum number of pictures, 0 to 256; the first samples with a picture are used.
        max_side: Maximum side of a picture in pixels, 16 to 4096; larger pictures are scaled down. The picture of a
            video is its first frame. Files (JPEG, PNG, WebP) need Pillow; files that cannot be decoded are left out and
            counted.

    Returns the metrics that were logged. In addition to those of the style they are, under rewardloop/<split>/:
    samples, scored, no_score, failed/<component> and pictures_left_out, all counts of this step. Means and standard
    deviations (population) of the samples and of groups include only samples with a score; those of a component include
    only its own values, not imputed ones. A group with fewer than two values has no standard deviation. A number that
    does not exist is not logged.
    """
    if isinstance(step, bool) or not isinstance(step, int | np.integer) or step < 0:
        raise InputError(f"{step!r}, want an integer, 0 or more", field="step")
    if style not in _STYLES:
        raise InputError(f"{style!r}, want one of {', '.join(_STYLES)}", field="style")
    if split not in ("train", "val"):
        raise InputError(f"{split!r}, want train or val", field="split")
    for name, value, low, high in (("max_images", max_images, 0, MAX_IMAGES), ("max_side", max_side, 16, MAX_SIDE)):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InputError(f"{value!r}, want an integer from {low} to {high}", field=name)
    log = _logger(logger)
    table = _Table(results, samples)
    known = _STYLES[style]
    metrics = {**known.metrics(table, split), **table.counts(split)}
    pictures, left_out = _pictures(table, known, split, max_images, max_side)
    if left_out:
        metrics[f"rewardloop/{split}/pictures_left_out"] = float(left_out)
    log(int(step), metrics, pictures, known)
    return metrics


class _Table:
    """The numbers of a step."""

    def __init__(self, results: Sequence[Result], samples: Sequence[Sample] | None) -> None:
        self.results = [_result(r, f"results[{i}]") for i, r in enumerate(results)]
        if samples is not None and [s.id for s in samples] != [r.id for r in self.results]:
            raise InputError(
                f"{len(samples)} samples for {len(self.results)} results, want samples[i] and results[i] to have the same id",
                field="samples",
            )
        self.samples = samples
        self.scores = [r.reward_score for r in self.results]
        columns = {k for r in self.results for k, v in r.reward_extra_info.items() if _own(r, k) is not None}
        self.columns = {k: [_own(r, k) for r in self.results] for k in sorted(columns)}
        names = {k.removeprefix("reward/") for r in self.results for k in r.reward_extra_info if k.startswith("reward/")}
        #: The components by name; a reward that has none is one by the name of score.
        self.components: dict[str, list[float | None]] = {
            n: self.columns.get(f"reward/{n}", [None] * len(self.results))
            for n in sorted(names - {"combined"})  # the reward itself
            if "/" not in n
        }
        self.single = not self.components
        if self.single:
            self.components["score"] = self.scores
        self.groups: dict[str, list[int]] = {}
        for i, r in enumerate(self.results):
            uid = samples[i].uid if samples is not None else "" if r.group is None else r.group.uid
            if uid:
                self.groups.setdefault(uid, []).append(i)

    def group_stats(self, values: Sequence[float | None]) -> tuple[list[float], list[float]]:
        """Means and population standard deviations of the groups with two values or more."""
        groups = [g for g in (_known(values[i] for i in members) for members in self.groups.values()) if len(g) > 1]
        return [float(np.mean(g)) for g in groups], [float(np.std(g)) for g in groups]

    def counts(self, split: str) -> dict[str, float]:
        scored = len(_known(self.scores))
        out = {"samples": len(self.results), "scored": scored, "no_score": len(self.results) - scored}
        failed = {e.component for r in self.results for e in r.errors if e.component}
        for name in sorted(failed if self.single else failed.union(self.components)):
            out[f"failed/{name}"] = sum(any(e.component == name for e in r.errors) for r in self.results)
        return {f"rewardloop/{split}/{k}": float(v) for k, v in out.items()}


class _Style(NamedTuple):
    metrics: Callable[[_Table, str], dict[str, float]]
    #: What pictures are logged under, by split.
    pictures: dict[str, str]
    #: (result, components, prompt, split) → caption.
    caption: Callable[[Result, dict[str, float], str, str], str]
    #: In W&B the pictures of a step are the row of a table.
    as_table: bool = False


def _stats(prefix: str, values: Iterable[float | None], *names: str) -> dict[str, float]:
    known = _known(values)
    of: dict[str, Callable[[list[float]], Any]] = {"mean": np.mean, "std": np.std, "max": max, "min": min}
    return {f"{prefix}{n}": float(of[n](known)) for n in names} if known else {}


def _verl_omni(t: _Table, split: str) -> dict[str, float]:
    if split == "val":
        return _verl_validation(t)
    out = _stats("critic/rewards/", t.scores, "mean", "max", "min")
    for name, values in t.columns.items():
        out.update(_stats(f"critic/{name}/", values, "mean"))
    _, stds = t.group_stats(t.scores)
    if stds:
        out["critic/rewards/zero_std_ratio"] = float(np.mean([s == 0 for s in stds]))
        out["critic/rewards/std_mean"] = float(np.mean(stds))
    if t.groups:
        out["critic/rewards/group_size"] = sum(map(len, t.groups.values())) / len(t.groups)
    return out


def _verl_validation(t: _Table) -> dict[str, float]:
    """mean@N and std@N by data source and column, over prompts of N samples; its best@N and worst@N are drawn at random."""
    out: dict[str, float] = {}
    grouped = {i for members in t.groups.values() for i in members}
    prompts = [*t.groups.values(), *([i] for i in range(len(t.results)) if i not in grouped)]
    sources: dict[str, list[list[int]]] = {}
    for members in prompts:
        name = t.samples[members[0]].data_source if t.samples is not None else ""
        sources.setdefault(name or "unknown", []).append(members)
    for source, groups in sources.items():
        core = "acc" if "acc" in t.columns else "reward"
        most = max(map(len, groups))
        for column, values in {"reward": t.scores, **t.columns}.items():
            for n in sorted({len(g) for g in groups}):
                known = [k for k in (_known(values[i] for i in g) for g in groups if len(g) == n) if k]
                section = "val-core" if column == core and n == most else "val-aux"
                if known:
                    out[f"{section}/{source}/{column}/mean@{n}"] = float(np.mean([np.mean(k) for k in known]))
                spread = [np.std(k) for k in known if len(k) > 1]
                if spread:
                    out[f"val-aux/{source}/{column}/std@{n}"] = float(np.mean(spread))
    return out


def _flow_factory(t: _Table, split: str) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, values in t.components.items():
        out.update(_stats(f"{'train' if split == 'train' else 'eval'}/reward_{name}_", values, "mean", "std"))
    if split == "val":
        return out
    out.update(_stats("train/reward_", t.scores, "mean", "std"))
    for prefix, values in {**{f"{n}_": v for n, v in t.components.items()}, "": t.scores}.items():
        means, stds = t.group_stats(values)
        out.update(_stats(f"train/reward_{prefix}group_std_", stds, "mean", "max", *(["min"] if prefix else [])))
        out.update(_stats(f"train/reward_{prefix}group_mean_", means, "std"))
        if stds and not prefix:
            out["train/reward_zero_std_ratio"] = float(np.mean([s < 1e-6 for s in stds]))
    return out


def _flow_grpo(t: _Table, split: str) -> dict[str, float]:
    prefix = "reward_" if split == "train" else "eval_reward_"
    out: dict[str, float] = {}
    for name, values in {**t.components, "avg": t.scores}.items():
        out.update({f"{prefix}{name}": v for v in _stats("", values, "mean").values()})
    _, stds = t.group_stats(t.scores)
    if split == "train" and stds:
        out["zero_std_ratio"] = float(np.mean([s == 0 for s in stds]))
        out["reward_std_mean"] = float(np.mean(stds))
    return out


def _caption_verl(r: Result, parts: dict[str, float], prompt: str, split: str) -> str:
    return f"{_score(r)} | {prompt}"


def _caption_flow_factory(r: Result, parts: dict[str, float], prompt: str, split: str) -> str:
    numbers = list(parts.values())
    said = f"{numbers[0]:.2f}" if len(numbers) == 1 else ", ".join(f"{k}: {v:.2f}" for k, v in parts.items())
    reasons = [said] if said else []
    if r.reward_score is None:
        reasons.append(_score(r))
    return " | ".join([*reasons, prompt])


def _caption_flow_grpo(r: Result, parts: dict[str, float], prompt: str, split: str) -> str:
    if split == "val":
        return " | ".join([prompt, *(f"{k}: {v:.2f}" for k, v in parts.items()), f"avg: {_score(r)}"])
    return f"{prompt:.100} | avg: {_score(r)}"


_STYLES: dict[str, _Style] = {
    "verl-omni": _Style(_verl_omni, {"train": "train/generations", "val": "val/generations"}, _caption_verl, as_table=True),
    "flow-factory": _Style(_flow_factory, {"train": "train_samples", "val": "eval_samples"}, _caption_flow_factory),
    "flow_grpo": _Style(_flow_grpo, {"train": "images", "val": "eval_images"}, _caption_flow_grpo),
}

_Log = Callable[[int, dict[str, float], list[Picture], _Style], None]


def _logger(logger: Any) -> _Log:
    """Tells a logger by what it can do, so that no package of one is imported before it is needed."""
    if callable(getattr(logger, "add_scalar", None)) and callable(getattr(logger, "add_image", None)):
        return lambda step, metrics, pictures, style: _to_tensorboard(logger, step, metrics, pictures)
    # A logger of the module logging has log(level, message).
    if callable(getattr(logger, "log", None)) and not hasattr(logger, "setLevel"):
        return lambda step, metrics, pictures, style: _to_wandb(logger, step, metrics, pictures, style)
    if callable(logger):
        return lambda step, metrics, pictures, style: logger(step, metrics, pictures)
    raise InputError(f"{type(logger).__name__}, want a W&B run, a SummaryWriter or a callable", field="logger")


def _to_tensorboard(writer: Any, step: int, metrics: dict[str, float], pictures: list[Picture]) -> None:
    for name, value in metrics.items():
        writer.add_scalar(name, value, step)
    for i, p in enumerate(pictures):
        writer.add_image(f"{p.key}/{i}", p.pixels, step, dataformats="HWC")
        writer.add_text(f"{p.key}/{i}/caption", p.caption, step)


def _to_wandb(run: Any, step: int, metrics: dict[str, float], pictures: list[Picture], style: _Style) -> None:
    data: dict[str, Any] = dict(metrics)
    if pictures:
        try:
            wandb = importlib.import_module("wandb")
        except ImportError as e:
            raise InputError("pictures need wandb: pip install wandb, or give 0", field="max_images") from e
        shown = [wandb.Image(p.pixels, caption=p.caption) for p in pictures]
        data[pictures[0].key] = shown
        if style.as_table:
            names = [f"{what}_{i + 1}" for i in range(len(shown)) for what in ("input", "output", "score")]
            row = [cell for p, image in zip(pictures, shown, strict=True) for cell in (p.prompt, image, p.score)]
            data[pictures[0].key] = wandb.Table(columns=["step", *names], data=[[step, *row]])
    run.log(data, step=step)  # once: W&B takes no more of a step when a later one has begun


def _pictures(t: _Table, style: _Style, split: str, most: int, side: int) -> tuple[list[Picture], int]:
    """The first pictures of a step, and how many before the last of them could not be shown."""
    out: list[Picture] = []
    left_out = 0
    for i, sample in enumerate(t.samples or ()):
        if len(out) == most:
            break
        medium = next((m for m in _media(sample) if m.kind in ("image", "video")), None)
        if medium is None:
            continue
        pixels = _pixels(medium, side)
        if pixels is None:
            left_out += 1
            continue
        result, prompt = t.results[i], sample.prompt[:1000]
        parts = {n: v for n, values in t.components.items() if (v := values[i]) is not None}
        caption = style.caption(result, parts, prompt, split)
        out.append(Picture(style.pictures[split], caption, pixels, prompt, result.reward_score))
    return out, left_out


def _media(sample: Sample) -> Iterable[Media]:
    given = sample.media
    return [m for m in ((given,) if isinstance(given, Media) else given) if isinstance(m, Media)]  # type: ignore[union-attr]


def _pixels(m: Media, side: int) -> npt.NDArray[np.uint8] | None:
    """A picture as uint8 [H, W, 3] with sides of at most so many pixels; None: it cannot be decoded."""
    if m.encoding != "raw":
        return _decoded(m.parts[0], side)
    a: npt.NDArray[np.uint8] = np.frombuffer(m.parts[0], np.uint8).reshape(m.shape)
    layout = m.layout
    if "T" in layout:
        a, layout = np.moveaxis(a, layout.index("T"), 0)[0], layout.replace("T", "")
    if layout == "CHW":
        a = a.transpose(1, 2, 0)
    a = a[..., :3] if a.shape[2] >= 3 else np.repeat(a[..., :1], 3, axis=2)
    factor = math.ceil(max(a.shape[:2]) / side)
    fh, fw = min(factor, a.shape[0]), min(factor, a.shape[1])
    if factor > 1:
        h, w = a.shape[0] // fh, a.shape[1] // fw
        means = a[: h * fh, : w * fw].reshape(h, fh, w, fw, 3).mean(axis=(1, 3))
        a = np.asarray(np.rint(means), np.uint8)
    return np.ascontiguousarray(a)


def _decoded(data: memoryview, side: int) -> npt.NDArray[np.uint8] | None:
    try:
        pil = importlib.import_module("PIL.Image")
    except ImportError as e:
        raise InputError("pictures that are files need Pillow: pip install pillow, or give 0", field="max_images") from e
    try:
        with pil.open(io.BytesIO(data)) as image:
            if image.width * image.height > MAX_PIXELS:
                return None
            image.draft("RGB", (side, side))  # a large JPEG is decoded smaller
            small = image.convert("RGB")
            small.thumbnail((side, side))
            return np.asarray(small, np.uint8)
    except (OSError, ValueError, SyntaxError, pil.DecompressionBombError):
        return None


def _result(r: Any, field: str) -> Result:
    if not isinstance(r, Result):
        raise InputError(f"want a Result, not {type(r).__name__}", field=field)
    return r


def _own(r: Result, column: str) -> float | None:
    """The number that a scorer gave for a column, flags as 0 or 1; None: it gave none, or it was imputed."""
    value = r.reward_extra_info.get(column)
    if column.startswith("rewardloop/") or column.endswith(_IMPUTED) or not isinstance(value, int | float):
        return None
    flag = column + _IMPUTED if column.startswith("reward/") else "rewardloop" + _IMPUTED
    return None if r.reward_extra_info.get(flag) is True or not math.isfinite(value) else float(value)


def _known(values: Iterable[float | None]) -> list[float]:
    return [v for v in values if v is not None]


def _score(r: Result) -> str:
    """The reward in a caption; of a sample without one, what became of it."""
    return f"no score ({r.outcome})" if r.reward_score is None else f"{r.reward_score:.2f}"
