"""Loads single modules of verl-omni without vllm-omni, which needs a GPU to be installed.

verl-omni is on no package index. REWARDLOOP_VERL_OMNI names a checkout of it; its package initialisers, which
import every pipeline, are replaced by empty packages, and its configuration classes by empty ones.
Every line of the modules themselves is verl-omni's own.
"""

from __future__ import annotations

import importlib
import os
import sys
import types
from pathlib import Path
from typing import Any

CHECKOUT = Path(os.environ.get("REWARDLOOP_VERL_OMNI") or "/nonexistent")
PACKAGES = (
    "verl_omni", "verl_omni.agent_loop", "verl_omni.reward_loop", "verl_omni.reward_loop.reward_manager", "verl_omni.trainer",
    "verl_omni.trainer.diffusion", "verl_omni.workers", "verl_omni.utils", "verl_omni.pipelines",
)  # fmt: skip


def available() -> bool:
    """Whether there is a checkout."""
    return (CHECKOUT / "verl_omni/agent_loop/diffusion_agent_loop.py").is_file()


def load(name: str) -> Any:
    """A module of verl-omni by its dotted name."""
    for package in PACKAGES:
        if package not in sys.modules:
            made = types.ModuleType(package)
            made.__path__ = [str(CHECKOUT / package.replace(".", "/"))]
            sys.modules[package] = made
    if "verl_omni.workers.config" not in sys.modules:
        config = types.ModuleType("verl_omni.workers.config")
        for known in ("DiffusionModelConfig", "DiffusionRolloutConfig", "DiffusionActorConfig", "DiffusionLossConfig"):
            setattr(config, known, type(known, (), {}))
        sys.modules[config.__name__] = config
    return importlib.import_module(name)
