"""Finds and loads the unmodified files of other trainers.

Their package initialisers import the whole trainer, so the packages above a module are replaced by empty ones with
the same path. Every line of the modules themselves is the trainer's own.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types
import unittest
from pathlib import Path
from typing import Any

#: scripts/test-clients.sh puts openrlhf, openrlhf-0.8 and unirl there, from PyPI.
PACKAGES = Path(os.environ.get("REWARDLOOP_TRAINERS") or "/nonexistent")

#: Checkouts of what is on no package index: flow_grpo, deepgen_rl, Flow-Factory, slime.
CHECKOUTS = Path(os.environ.get("REWARDLOOP_CHECKOUTS") or "/nonexistent")

VERL_OMNI = Path(os.environ.get("REWARDLOOP_VERL_OMNI") or "/nonexistent")


def need(*modules: str) -> None:
    """Skips, loudly, where a module is not installed."""
    if missing := [m for m in modules if importlib.util.find_spec(m) is None]:
        raise unittest.SkipTest(f"SKIPPED: this Python has no {', '.join(missing)}: name one that has in VERL_PYTHON")


def package(name: str) -> Path:
    """The folder of a package that make test-clients installs."""
    if not (PACKAGES / name).is_dir():
        raise unittest.SkipTest(f"SKIPPED: {name} is not installed: make test-clients does")
    return PACKAGES / name


def checkout(name: str) -> Path:
    """The folder of a checkout."""
    if not (CHECKOUTS / name).is_dir():
        where = "name a folder that holds a checkout of it in REWARDLOOP_CHECKOUTS"
        raise unittest.SkipTest(f"SKIPPED: {name} itself, which is on no package index: {where}")
    return CHECKOUTS / name


def verl_omni() -> Path:
    """The checkout of verl-omni."""
    if not (VERL_OMNI / "verl_omni").is_dir():
        where = "name a checkout of it in REWARDLOOP_VERL_OMNI"
        raise unittest.SkipTest(f"SKIPPED: verl-omni itself, which is on no package index: {where}")
    return VERL_OMNI


def load(root: Path, name: str, *empty: str) -> Any:
    """The module name below root. The packages above it, and those named in empty, are replaced by empty ones."""
    top = name.partition(".")[0]
    for known in [m for m in sys.modules if m == top or m.startswith(top + ".")]:
        del sys.modules[known]
    parts = name.split(".")
    for package_name in {".".join(parts[:i]) for i in range(1, len(parts))} | set(empty):
        made = types.ModuleType(package_name)
        made.__path__ = [str(root / package_name.replace(".", "/"))]
        sys.modules[package_name] = made
    importlib.invalidate_caches()
    if len(parts) > 1:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, root / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
