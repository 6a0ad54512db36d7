"""The columns of ``algorithm.gdpo_reward_keys``: a finite number in every row, for verl's estimator ``gdpo``.

``on_failed`` sets the value in the place of an absent number. The mean of a group is known only when the group is
complete. With ``group_mean`` and ``mask`` a row therefore contains NaN until its batch is complete; ``fill`` then
replaces the NaN.

Behaviour of verl 0.9.0 that this module relies on: ``compute_gdpo_outcome_advantage``
(verl/trainer/ppo/core_algos.py) reads each key from ``non_tensor_batch`` as float32, for every row, and
``masked_whiten`` takes the mean over all rows, so that one NaN makes all rows NaN. ``compute_advantage``
(verl/trainer/ppo/ray_trainer.py) passes ``non_tensor_batch`` to this function; the trainer with TransferQueue
(verl/trainer/ppo/v1) has no such column there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from ..result import Result
from .outcome import MAX_FLOAT32, RewardFailedError
from .settings import GDPO_KEYS, Settings


class Named(NamedTuple):
    """The columns of gdpo_reward_keys in one row."""

    values: dict[str, float]
    #: Why a number is absent that ought to be there; None: there is none, or its function is not for this sample.
    reason: str | None


def of(result: Result, settings: Settings, grouped: bool) -> Named:
    """Returns the named columns of a result; NaN for a number that the mean of its group will replace."""
    names, fallback = settings.gdpo_reward_keys, settings.fallback()
    stand_in = math.nan if fallback is None else fallback
    if not result.scored:
        return Named(dict.fromkeys(names, stand_in), None)  # the sample itself says why, and what may stand in
    found = {name: _number(result, name) for name in names}
    absent = [name for name, value in found.items() if value is None]
    failed = [name for name in absent if not _skipped(result, name)]
    if absent and fallback is None and (settings.on_failed == "raise" or failed and not grouped):
        raise RewardFailedError(
            f"sample {result.id}: {_said(result, absent)}, and no fallback is allowed: on_failed is "
            + settings.on_failed
            + ("" if settings.on_failed == "raise" else ", and the sample has no group")
        )
    if failed and settings.on_failed == "mask":
        found = dict.fromkeys(names)  # nothing of a masked row counts
    values = {name: stand_in if value is None else value for name, value in found.items()}
    return Named(values, _said(result, failed) if failed else None)


def _said(result: Result, names: list[str]) -> str:
    reasons = dict.fromkeys(str(e).partition("\n")[0] for e in result.errors)
    return f"no finite {', '.join(names)}" + (f" ({'; '.join(reasons)})" if reasons else "")


def _number(result: Result, name: str) -> float | None:
    """The number under a name; InputError where no row can have one."""
    info = result.reward_extra_info
    if name not in info and not _failed(result, name):
        given = sorted(k for k, v in info.items() if not isinstance(v, str) and not k.startswith("rewardloop/"))
        raise InputError(f"{name!r} is not a column of this reward; the columns are {', '.join(given) or 'none'}", field=GDPO_KEYS)
    value = info.get(name)
    if isinstance(value, str):
        raise InputError(f"{name!r} is text, not a number", field=GDPO_KEYS)
    return None if value is None or not abs(value) <= MAX_FLOAT32 else float(value)


def _component(name: str) -> str:
    """The reward function of a column reward/<key> or reward/<key>/<field>."""
    parts = name.split("/")
    return parts[1] if parts[0] == "reward" and len(parts) > 1 else ""


def _failed(result: Result, name: str) -> bool:
    return any(e.component and e.component == _component(name) for e in result.errors)


def _skipped(result: Result, name: str) -> bool:
    """Whether a function has no value because it is not for this sample."""
    component = _component(name)
    return bool(component) and result.reward_extra_info.get(f"reward/{component}") is None and not _failed(result, name)


def filled(column: Any, uids: Sequence[Any]) -> npt.NDArray[np.float64]:
    """Returns a column [B] with the mean of the group in place of each NaN, and 0 in a group without any number."""
    made = np.array(column, np.float64)
    groups: dict[str, list[int]] = {}
    for i, uid in enumerate(uids):
        groups.setdefault(str(uid), []).append(i)
    for members in groups.values():
        own = made[members]
        there = own[~np.isnan(own)]
        if len(there) < len(own):
            own[np.isnan(own)] = there.mean() if len(there) else 0.0
            made[members] = own
    return made


def fill(columns: dict[str, Any], names: Sequence[str], uids: Sequence[Any]) -> None:
    """Replaces the NaN in the named columns of a batch of whole groups."""
    for name in names:
        if name in columns:
            columns[name] = filled(columns[name], uids)


def fill_rows(infos: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Replaces the NaN in the named columns of the rows of one group."""
    for name in names:
        for info, value in zip(infos, filled([i[name] for i in infos], [""] * len(infos)).tolist(), strict=True):
            info[name] = value  # type: ignore[index]
