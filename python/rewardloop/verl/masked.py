"""Advantages without failed samples: ``on_failed=mask``.

``reward.rewardloop.on_failed=mask`` needs ``algorithm.adv_estimator=rewardloop_grpo`` (verl, text) or
``rewardloop_flow_grpo`` (verl-omni), which this module registers, or verl's ``gdpo``, which this module wraps. The
trainers' own estimators take the mean and the standard deviation over all rows of a group. With ``mask`` a failed row
has advantage 0, and the other rows have the advantages of a group without it. A row that is the only one left of its
group has advantage 0 too; for a group of one row verl's grpo uses the bare score.

The failed rows are found in two ways when advantages are computed. A text row that failed has a ``response_mask`` of
zeros, so that its tokens count in no loss either. verl-omni has no such mask. There the agent loop manager, in the same
process, records how many rows of a ``uid`` failed and the value in the place of their scores, and as many rows with
this value are left out. A scored row with the same value cannot be distinguished from them, and need not be: the value
is the mean, and the advantage of the row is 0.

Behaviour that this module relies on: ``register_adv_est`` and the arguments token_level_rewards, response_mask, index
and config (verl/trainer/ppo/core_algos.py and ray_trainer.py, 0.9.0), ``register_diffusion_adv_est`` and
sample_level_rewards, index and config (verl_omni/trainer/diffusion/diffusion_algos.py, a1139ba). Both trainers compute
advantages on the driver, in the process of the agent loop manager.
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
    """Records the failed rows of a batch. valid and scores are [B]; scores are the values of rm_scores."""
    values = np.asarray(scores, np.float32).reshape(-1)
    with _lock:
        for uid, good, value in zip(map(str, uids), np.asarray(valid, np.float64) == 1, values, strict=True):
            if not good:
                rows, _ = _failed.pop(uid, (0, 0.0))
                _failed[uid] = rows + 1, float(value)
        while len(_failed) > _GROUPS_KEPT:
            _failed.popitem(last=False)


def scored_rows(uids: Sequence[Any], scores: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Returns which rows of a batch have their own scores, bool [B]; discards what remember() recorded for them."""
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
    """verl's grpo without the rows whose response_mask is empty. Rewards, mask and result are [B, L]."""
    scored = (response_mask.sum(-1) != 0).cpu().numpy()
    found = without(_numbers(token_level_rewards.sum(-1)), scored, index, epsilon, config, everybody=False)
    made = token_level_rewards.new_tensor(found).unsqueeze(-1) * response_mask
    return made, made


def flow_grpo(sample_level_rewards: Any, index: Any, epsilon: float = 1e-4, config: Any = None, **_: Any) -> tuple[Any, Any]:
    """verl-omni's flow_grpo without the failed rows. Rewards are [B, T], with the same value at each of the T steps."""
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
    """verl's gdpo without the rows whose response_mask is empty.

    Each of these rows is put in a group of its own, and its mask makes its advantages 0. If only one other row is left
    in a group, one of these rows stays in the group. It contains the same numbers, the means of the group, so the
    advantage of the other row before the normalization of the batch is 0; verl's gdpo uses the bare numbers.
    """
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
    """Makes verl call gdpo() for adv_estimator=gdpo. Only on_failed=mask needs this."""
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
    """Returns the advantages [B] of the scored rows, and 0 for the others.

    index contains the group of each row. The standard deviation is that of the group's scored rows, or that of all
    scored rows if everybody is true; there is no division by it if config.norm_adv_by_std_in_grpo is False. ddof is 1,
    as in torch. Each value counts ``copies`` times, because verl-omni has one value for each step of the sampler and
    takes the standard deviation of all of these values.
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
    """Registers the estimators with the trainers that are installed."""
    for module, decorator, name, fn in (
        ("verl.trainer.ppo.core_algos", "register_adv_est", TEXT, grpo),
        ("verl_omni.trainer.diffusion.diffusion_algos", "register_diffusion_adv_est", VISUAL, flow_grpo),
    ):
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        getattr(found, decorator)(name)(fn)
