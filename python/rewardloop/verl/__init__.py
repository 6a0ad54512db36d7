"""Plug-ins for verl and verl-omni: rewards from a reward loop instead of the trainer's own workers.

From the smallest change to the best streaming; docs/verl.md contains the overrides:

- ``compute_score``: a custom reward function, per sample, without groups;
- ``RewardloopRewardManager`` / ``RewardloopVisualRewardManager``: in place of a reward manager;
- ``AgentLoopManager`` / ``DiffusionAgentLoopManager`` (``…TQ`` with TransferQueue,
  ``CompositeAgentLoopManager``): in place of verl's agent loop manager, without reward workers in between;
- ``AsyncRewardAgent``: ``compute_reward_pipeline`` and ``get`` for mini-batches and one step off.

The trainer always gets a finite float: a sample without a score gets the value that ``on_failed`` sets, and has 0 in
``rewardloop/valid``. Written for verl 0.9.0 and verl-omni of August 2026 (a1139ba); each module describes the behaviour
that it relies on. verl and torch are imported only when a name that needs them is used.
"""

from __future__ import annotations

import importlib
from typing import Any

from .pipeline import AsyncRewardAgent
from .scoring import compute_score
from .settings import Settings

#: Names whose classes derive from verl's, by module.
_LAZY = {
    "RewardloopRewardManager": "managers",
    "RewardloopVisualRewardManager": "managers",
    "AgentLoopManager": "agents",
    "AgentLoopManagerTQ": "agents",
    "DiffusionAgentLoopManager": "agents",
    "DiffusionAgentLoopManagerTQ": "agents",
    "CompositeAgentLoopManager": "agents",
}

__all__ = ["AsyncRewardAgent", "Settings", "compute_score", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value
