"""Converts one row of verl's DataProto to a Sample.

Behaviour of verl 0.9.0 and verl-omni a1139ba that this module relies on: ``DataProto[i]`` is a ``DataProtoItem`` with
``batch`` (a TensorDict of one row), ``non_tensor_batch`` and ``meta_info`` (verl/protocol.py). Text rows have
``responses`` (token ids) and ``attention_mask`` over prompt and response. Visual rows have a uint8 CHW or TCHW
or a floating-point latent as ``responses`` (verl_omni/reward_loop/reward_manager/visual.py).
``reward_model["ground_truth"]``, ``data_source``, ``extra_info``, ``uid``, ``raw_prompt``,
``__num_turns__``, ``tool_extra_fields`` and ``reward_scores`` are in ``non_tensor_batch``
(verl/experimental/reward_loop/reward_manager/naive.py).
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import media as media_of
from ..errors import InputError
from ..media import Media
from ..sample import Sample
from .settings import Settings

_LOG = logging.getLogger("rewardloop")

#: Bytes of JSON that extra_info may have; what is largest is left out first.
MAX_EXTRA_BYTES = 64 << 10
#: Elements of a NumPy array that counts as a list; parquet files give lists as arrays.
_MAX_LIST = 4096
_MAX_DEPTH = 16
_LAYOUTS = {1: "L", 2: "LD", 3: "CHW", 4: "TCHW", 5: "NTCHW"}

_DROP = object()


def to_sample(
    item: Any, settings: Settings, *, decode: Callable[[Any], str] | None = None, sizes: tuple[int, int] = (0, 0)
) -> Sample:
    """Returns a DataProtoItem as a Sample with a new id, because validation repeats rows to fill a batch.

    decode turns token ids into text; sizes are the numbers of members of a training group and of a validation group.
    """
    row: Mapping[str, Any] = item.non_tensor_batch
    meta: Mapping[str, Any] = getattr(item, "meta_info", None) or {}
    split = str(_scalar(row.get("rewardloop_split")) or ("val" if meta.get("validate") else "train"))
    size = _scalar(row.get("rewardloop_group_size"))
    uid = row.get("uid")
    sample = Sample(
        prompt=last_user_turn(row.get("raw_prompt")),
        data_source=str(row.get("data_source") or ""),
        step=max(int(first(row.get("rewardloop_step"), meta.get("global_steps"), row.get("global_steps"), 0)), 0),
        split=split,
        index=_index(row),
        uid="" if uid is None else str(uid),
        group_size=int(size if size is not None else sizes[split == "val"]) if uid is not None else 0,
        reward=settings.profile,
        deadline=settings.deadline,
    )
    truth = row.get("reward_model")
    if isinstance(truth, Mapping):
        truth = plain(truth.get("ground_truth"))
        if truth is _DROP:
            raise InputError("the value is not JSON-serialisable; reward functions get JSON", field="reward_model.ground_truth")
        sample.ground_truth = truth
    extra = merged_extra(row)
    attached, names = attachments(extra, settings.send_tensors)
    responses = item.batch["responses"]
    if is_tokens(responses):
        if decode is None:
            raise InputError("token ids without a tokenizer", field="responses")
        ids = valid_tokens(item)
        sample.response = decode(ids)
        extra["response_length"] = len(ids)  # in tokens, which only the trainer knows; DAPO's penalty counts them
    else:
        attached.insert(0, visual(responses))
    sample.media = tuple(attached)
    sample.extra_info = json_leaves(extra, leave=set(names))
    if names:
        sample.extra_info["rewardloop_tensors"] = names
    return sample


#: Where verl-omni's composite rollouts have what the language model wrote: a text, or a list of one.
_WRITTEN = "text_encoder_responses"


def written(item: Any) -> str:
    """Returns the text that the language model of a composite rollout wrote before the picture was made."""
    found = (item.non_tensor_batch.get("tool_extra_fields") or {}).get(_WRITTEN)
    if isinstance(found, np.ndarray | list | tuple) and len(found) == 1:
        found = found[0]
    if not isinstance(found, str):
        raise InputError(f"{type(found).__name__}, want the text of the language model, or a list of one", field=_WRITTEN)
    return found


def of_step(item: Any) -> int:
    """Returns the number of rows in the step of a DataProtoItem if the agent loop manager has set it, else 0."""
    return int(first(item.non_tensor_batch.get("rewardloop_rows"), 0))


def _scalar(value: Any) -> Any:
    return value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value


def first(*values: Any) -> Any:
    """Returns the first value that is not None; None if there is none."""
    return next((_scalar(v) for v in values if v is not None), None)


def _index(row: Mapping[str, Any]) -> int | None:
    index, session = _scalar(row.get("rewardloop_index")), _scalar(row.get("session_id"))
    return None if index is None else int(index) + int(session or 0)


def is_tokens(responses: Any) -> bool:
    """Whether a response consists of token ids (int32, int64), and not of the bytes of a picture."""
    name = str(responses.dtype).removeprefix("torch.")
    return name in ("int32", "int64")


def valid_tokens(item: Any) -> Any:
    """Returns the token ids of a response without its padding, as verl's NaiveRewardManager does."""
    ids = item.batch["responses"]
    mask = item.batch["attention_mask"]
    return ids[: int(mask[-ids.shape[-1] :].sum())]


def visual(responses: Any) -> Media:
    """Returns a picture (CHW), a video (TCHW) or a latent, according to verl-omni's contract, never by sizes."""
    kind = str(responses.dtype).removeprefix("torch.")
    if kind == "uint8" and responses.ndim == 3:
        return media_of.image(responses, layout="CHW")
    if kind == "uint8" and responses.ndim == 4:
        return media_of.video(responses, layout="TCHW")
    if kind in ("float16", "bfloat16", "float32", "float64") and responses.ndim in _LAYOUTS:
        return media_of.latent(_floats(responses), layout=_LAYOUTS[responses.ndim])
    raise InputError(f"{kind} with {responses.ndim} axes; want uint8 CHW or TCHW, or a floating-point latent", field="responses")


def _floats(tensor: Any) -> Any:
    """A tensor or array in a dtype the wire has."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name in ("float16", "bfloat16", "float32"):
        return tensor
    return tensor.float() if hasattr(tensor, "float") else np.asarray(tensor, np.float32)


def last_user_turn(raw: Any) -> str:
    """Returns the text of the last user turn of a raw_prompt; a raw_prompt that is a string is returned unchanged."""
    if isinstance(raw, str):
        return raw
    if raw is None:
        return ""
    turns = [t for t in np.asarray(raw, dtype=object).reshape(-1) if isinstance(t, Mapping) and t.get("role") == "user"]
    content = turns[-1].get("content", "") if turns else ""
    if isinstance(content, str):
        return content
    parts = [p for p in content if isinstance(p, Mapping) and p.get("type", "text") == "text"]
    return "".join(str(p.get("text", "")) for p in parts)


def merged_extra(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns extra_info as verl's managers build it: with tool_extra_fields, num_turns and rollout_reward_scores."""
    extra = dict(row.get("extra_info") or {})
    extra.update(row.get("tool_extra_fields") or {})
    extra["num_turns"] = row.get("__num_turns__")
    extra["rollout_reward_scores"] = row.get("reward_scores", {})
    return extra


def attachments(extra: Mapping[str, Any], names: tuple[str, ...]) -> tuple[list[Media], list[str]]:
    """Returns the media from the tensors of extra_info to send, and the names of those that are latents, in order."""
    media, sent = [], []
    for name in names:
        tensor: Any = extra.get(name)
        if not hasattr(tensor, "dtype") or not getattr(tensor, "ndim", 0) or tensor.ndim not in _LAYOUTS:
            continue
        if str(tensor.dtype).removeprefix("torch.") == "uint8" and tensor.ndim in (3, 4):
            media.append(visual(tensor))  # such as the picture that an edit began from
            continue
        if name == "audio" and tensor.ndim <= 2:
            rate = int(first(extra.get("audio_sample_rate"), 0))
            media.append(media_of.audio(_floats(tensor), layout="T" if tensor.ndim == 1 else "CT", sample_rate=rate))
            continue
        media.append(media_of.latent(_floats(tensor), layout=_LAYOUTS[tensor.ndim]))
        sent.append(name)
    return media, sent


def plain(value: Any, depth: int = 0) -> Any:
    """Returns a value as JSON types, without the parts that JSON cannot represent; _DROP if nothing is left."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else _DROP
    if isinstance(value, float):
        return value if math.isfinite(value) else _DROP
    if depth >= _MAX_DEPTH:
        return _DROP
    if isinstance(value, Mapping):
        items = {str(k): plain(v, depth + 1) for k, v in value.items()}
        return {k: v for k, v in items.items() if v is not _DROP}
    if isinstance(value, np.ndarray):
        if value.size > _MAX_LIST:
            return _DROP
        value = value.tolist()
    if isinstance(value, list | tuple):
        made = [plain(v, depth + 1) for v in value]
        return _DROP if any(v is _DROP for v in made) else made
    return _DROP


def json_leaves(extra: Mapping[str, Any], leave: set[str]) -> dict[str, Any]:
    """Returns the JSON of extra_info, at most MAX_EXTRA_BYTES; larger values are left out first."""
    made = {str(k): plain(v) for k, v in extra.items() if k not in leave}
    made = {k: v for k, v in made.items() if v is not _DROP}
    sizes = {k: len(json.dumps(v)) + len(k) + 4 for k, v in made.items()}
    for name in sorted(made, key=lambda k: -sizes[k]):
        if sum(sizes.values()) <= MAX_EXTRA_BYTES:
            break
        _LOG.warning(
            "extra_info[%r] (%d bytes) is left out: extra_info may have %d bytes", name, sizes.pop(name), MAX_EXTRA_BYTES
        )
        del made[name]
    return made
