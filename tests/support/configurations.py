"""Configurations of tests: a recipe, or settings in its place, with changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.config.schema import RunConfig
from gossamer.training.plan import Plan


def dotted(changes: Mapping[str, Any]) -> dict[str, Any]:
    """privacy__epsilon=1 is "privacy.epsilon": 1."""
    return {key.replace("__", "."): value for key, value in changes.items()}


def configured(base: str | Mapping[str, Any] = "quickstart", **changes: Any) -> RunConfig:
    return resolve(recipes.read(base) if isinstance(base, str) else base, dotted(changes))


def outlined(base: str | Mapping[str, Any] = "quickstart", **changes: Any) -> Plan:
    return Plan.of(configured(base, **changes))
