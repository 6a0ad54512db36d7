"""Advantages to which failed samples do not belong: ``on_failed=mask``.

``reward.rewardloop.on_failed=mask`` needs ``algorithm.adv_estimator=rewardloop_grpo`` (verl, text) or
``rewardloop_flow_grpo`` (verl-omni), which this module registers, or verl's ``gdpo``, around which it puts a function of its
own: trainers' own estimators take the mean and the standard deviation over all rows of a group. A failed row has advantage 0,
the others have those of a group without it; a row that is the only one left of its group has 0, too, where verl's grpo gives
a group of one row its bare score.

Which rows failed is known where advantages are computed in two ways. A text row that failed has a ``response_mask`` of
zeros, so that its tokens count in no loss, either. verl-omni has no such mask: the agent loop manager, in the same
process, remembers how many rows of a ``uid`` failed and what stands in for their scores, and as many rows with that score
are left out. A row that has the same score by itself is not told from them, and need not be: it is the mean, and its
advantage is 0.

Facts relied on: ``register_adv_est`` and the arguments token_level_rewards, response_mask, index and config
(verl/trainer/ppo/core_algos.py and ray_trainer.py, 0.9.0), ``register_diffusion_adv_est`` and sample_level_rewards, index
and config (verl_omni/trainer/diffusion/diffusion_algos.py, a1139ba); both trainers compute advantages on the driver, where
the agent loop manager lives.
"""

from __future__ import annotations

import importlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError
from .settings import SECTION

#: The estimators' names.
TEXT, VISUAL = "rewardloop_grpo", "rewardloop_flow_grpo"
#: verl's own estimator of named columns, which verl hands the columns to by this name alone.
COLUMNS = "gdpo"
_GROUPS_KEPT = 1 << 16

_lock = threading.Lock()
_failed: OrderedDict[str, tuple[int, float]] = OrderedDict()  # guarded by _lock; rows and what stands in for their scores, by uid


def remember(uids: Sequence[Any], valid: Any, scores: Any) -> None:
    """Notes the failed rows of a batch: valid and scores are [B], what stands in rm_scores."""
    values = np.asarray(scores, np.float32).reshape(-1)
    with _lock:
        for uid, good, value in zip(map(str, uids), np.asarray(valid, np.float64) == 1, values, strict=True):
            if not good:
                rows, _ = _failed.pop(uid, (0, 0.0))
                _failed[uid] = rows + 1, float(value)
        while len(_failed) > _GROUPS_KEPT:
            _failed.popitem(last=False)


def scored_rows(uids: Sequence[Any], scores: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Which rows of a batch have scores of their own; what was remembered of them is forgotten."""
    names = [str(u) for u in uids]
    with _lock:
        left = {uid: _failed.pop(uid) for uid in dict.fromkeys(names) if uid in _failed}
    scored = np.ones(len(names), np.bool_)
    for i, uid in enumerate(names):
        rows, value = left.get(uid, (0, 0.0))
        if rows and scores[i] == np.float32(value):
            scored[i], left[uid] = False, (rows - 1, value)
    missing = [uid for uid, (rows, _) in left.items() if rows]
    if missing:
        raise InputError(
            f"the failed rows of group {missing[0]!r} are not among the rows for which advantages are computed; "
            "rewards that are changed after the rollout cannot be masked",
            field=f"{SECTION}.on_failed",
        )
    return scored


def grpo(
    token_level_rewards: Any, response_mask: Any, index: Any, epsilon: float = 1e-6, config: Any = None, **_: Any
) -> tuple[Any, Any]:
    """verl's grpo without the rows whose response_mask is empty: rewards and mask are [B, L], and so is the result."""
    scored = (response_mask.sum(-1) != 0).cpu().numpy()
    found = without(_numbers(token_level_rewards.sum(-1)), scored, index, epsilon, config, everybody=False)
    made = token_level_rewards.new_tensor(found).unsqueeze(-1) * response_mask
    return made, made


def flow_grpo(sample_level_rewards: Any, index: Any, epsilon: float = 1e-4, config: Any = None, **_: Any) -> tuple[Any, Any]:
    """verl-omni's flow_grpo without the rows that failed: rewards are [B, T], the same at each of T steps."""
    scores = _numbers(sample_level_rewards[:, 0])
    scored = scored_rows(index, scores.astype(np.float32))
    found = without(
        scores,
        scored,
        index,
        epsilon,
        config,
        everybody=bool(_of(config, "global_std", True)),
        copies=sample_level_rewards.shape[1],
    )
    made = sample_level_rewards.new_tensor(found).unsqueeze(-1).expand_as(sample_level_rewards).clone()
    return made, made


def gdpo(token_level_rewards: Any, response_mask: Any, index: Any, **more: Any) -> tuple[Any, Any]:
    """verl's gdpo without the rows whose response_mask is empty: each of them is in a group of its own, where its mask
    makes 0 of it. The only row left of its group has one of them beside it, which holds the same numbers, the group's
    means: its advantage before the batch is normalised is 0, where verl's gives it its bare numbers."""
    core_algos = importlib.import_module("verl.trainer.ppo.core_algos")
    scored = (response_mask.sum(-1) != 0).cpu().numpy()
    left = Counter(str(uid) for uid, good in zip(index, scored, strict=True) if good)
    apart = np.array([str(uid) for uid in index], dtype=object)
    for i in np.flatnonzero(~scored):
        if left[apart[i]] == 1:
            left[apart[i]] = 0
        else:
            apart[i] = int(i)  # no uid, which is a text
    return core_algos.compute_gdpo_outcome_advantage(  # type: ignore[no-any-return]
        token_level_rewards=token_level_rewards, response_mask=response_mask, index=apart, **more
    )


def replace_gdpo() -> None:
    """Has verl call the function above for adv_estimator=gdpo. Only on_failed=mask asks for it."""
    importlib.import_module("verl.trainer.ppo.core_algos").ADV_ESTIMATOR_REGISTRY[COLUMNS] = gdpo


def _numbers(tensor: Any) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = tensor.detach().cpu().numpy().astype(np.float64)
    return values


def without(
    values: npt.NDArray[np.float64],
    scored: npt.NDArray[np.bool_],
    index: Any,
    epsilon: float,
    config: Any,
    *,
    everybody: bool,
    copies: int = 1,
) -> npt.NDArray[np.float64]:
    """The advantages [B] of the scored rows, 0 for the others.

    index names the group of each row. The standard deviation is that of the group's scored rows, or of everybody's;
    config.norm_adv_by_std_in_grpo False leaves it out. Its ddof is 1, as that of torch, and it is taken over copies of each
    value: verl-omni gives one for each step of the sampler, and has the standard deviation of them all.
    """
    out = np.zeros(len(values))
    groups: dict[str, list[int]] = {}
    for i in np.flatnonzero(scored):
        groups.setdefault(str(index[i]), []).append(int(i))
    scaled = bool(_of(config, "norm_adv_by_std_in_grpo", True))
    spread = _std(values[scored], copies) + epsilon if scaled and everybody else 1.0
    for members in groups.values():
        own = values[members]
        out[members] = (own - own.mean()) / (_std(own, copies) + epsilon if scaled and not everybody else spread)
    return out


def _std(values: npt.NDArray[np.float64], copies: int) -> float:
    """The standard deviation, ddof 1, of copies of values; 1 for fewer than two values, whose advantage is 0 anyhow."""
    n = len(values)
    return float(values.std() * np.sqrt(n * copies / (n * copies - 1))) if n > 1 else 1.0


def _of(config: Any, name: str, default: bool) -> Any:
    value = config.get(name) if hasattr(config, "get") else getattr(config, name, None)
    return default if value is None else value


def register() -> None:
    """Makes the estimators known to the trainers that are installed here."""
    for module, decorator, name, fn in (
        ("verl.trainer.ppo.core_algos", "register_adv_est", TEXT, grpo),
        ("verl_omni.trainer.diffusion.diffusion_algos", "register_diffusion_adv_est", VISUAL, flow_grpo),
    ):
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        getattr(found, decorator)(name)(fn)
