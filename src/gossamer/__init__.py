"""Differentially private, fully decentralized learning.

import gossamer
outcome = gossamer.run("quickstart", {"privacy.epsilon": 4.0})
outcome.result["accuracy_mean"], outcome.result["epsilon_proven"]
"""

from __future__ import annotations

import os

# Must stand before torch is loaded: spinning OpenMP threads make small products many times slower on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.data.memory import Data
    from gossamer.run.api import Outcome, plan, resume, run
    from gossamer.studies.audit.api import audit

__version__ = "0.1.0"
__all__ = ["Data", "Outcome", "audit", "plan", "resume", "run"]

_CALLABLE_PACKAGES = ("plan", "run")  # folders of the same name, which can be called: see docs/decisions


def __getattr__(name: str) -> Any:
    """These bring torch along: loaded at first use."""
    if name in _CALLABLE_PACKAGES:
        return importlib.import_module(f"gossamer.{name}")
    if name == "Data":
        return importlib.import_module("gossamer.data.memory").Data
    if name == "audit":
        return importlib.import_module("gossamer.studies.audit.api").audit
    if name in __all__:
        return getattr(importlib.import_module("gossamer.run.api"), name)
    raise AttributeError(f"module 'gossamer' has no attribute {name!r}")
