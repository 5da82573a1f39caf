"""Differentially private, fully decentralized learning.

import gossamer
outcome = gossamer.run("quickstart", {"privacy.epsilon": 4.0})
outcome.result["accuracy_mean"], outcome.result["epsilon_proven"]
"""

from __future__ import annotations

import os

# Must stand before torch is loaded: spinning OpenMP threads make small products many times slower on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Nor may MKL choose instructions by where a matrix lies in memory: then a record's gradient would depend on its place.
os.environ.setdefault("MKL_CBWR", "AUTO")

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.auditing.api import audit as audit
    from gossamer.data.own import Data as Data
    from gossamer.data.texts import tokens as tokens
    from gossamer.estimators import PrivateClassifier as PrivateClassifier
    from gossamer.estimators import PrivateRegressor as PrivateRegressor
    from gossamer.models.lora import lora as lora
    from gossamer.models.lora import merge_lora as merge_lora
    from gossamer.options.plugins import plugin as plugin
    from gossamer.results.report import report as report
    from gossamer.studies.compare import compare as compare
    from gossamer.studies.tune import tune as tune
    from gossamer.training.api import Outcome as Outcome
    from gossamer.training.api import plan as plan
    from gossamer.training.api import resume as resume
    from gossamer.training.api import run as run
    from gossamer.training.load import load as load

__version__ = "0.1.0"

# Where each is: loaded at first use, since they bring torch along.
_HOMES = {
    "Data": "gossamer.data.own",
    "Outcome": "gossamer.training.api",
    "PrivateClassifier": "gossamer.estimators",
    "PrivateRegressor": "gossamer.estimators",
    "audit": "gossamer.auditing.api",
    "compare": "gossamer.studies.compare",
    "load": "gossamer.training.load",
    "lora": "gossamer.models.lora",
    "merge_lora": "gossamer.models.lora",
    "plan": "gossamer.training.api",
    "plugin": "gossamer.options.plugins",
    "report": "gossamer.results.report",
    "resume": "gossamer.training.api",
    "run": "gossamer.training.api",
    "tokens": "gossamer.data.texts",
    "tune": "gossamer.studies.tune",
}
__all__ = list(_HOMES)
_PARTS = ("accounting", "kernels", "testing", "topology")  # folders with parts to be used by themselves


def __dir__() -> list[str]:
    return sorted([*__all__, *_PARTS, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"gossamer.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gossamer' has no attribute {name!r}")
