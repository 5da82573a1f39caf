"""The library's front door, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from gossamer import recipes
from gossamer.build import Outline, assemble, outline
from gossamer.config import RunConfig, resolve
from gossamer.experiment import Outcome, execute

__all__ = ["Outcome", "configure", "plan", "run"]


def configure(recipe: str | Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> RunConfig:
    """A recipe's name, a TOML file's path or a whole configuration, with changes like `{"privacy.epsilon": 1.0}`."""
    return resolve(recipes.read(recipe) if isinstance(recipe, str) else recipe, changes)


def plan(
    recipe: str | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    module: nn.Module | None = None,
    data_dir: Path | None = None,
) -> Outline:
    """What the run would cost, without training: see `.plan.figures()`."""
    return outline(configure(recipe, changes), data_dir=data_dir, module=module)


def run(
    recipe: str | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    module: nn.Module | None = None,
    out: Path | None = None,
    data_dir: Path | None = None,
) -> Outcome:
    """Train. `module` replaces the configuration's model by your own."""
    parts = assemble(plan(recipe, changes, module=module, data_dir=data_dir), data_dir=data_dir)
    return execute(parts, out=out)
