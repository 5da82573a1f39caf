"""The library's front door, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from gossamer.config import recipes
from gossamer.config.layers import resolve, stored
from gossamer.config.schema import RunConfig
from gossamer.plan.outline import Outline
from gossamer.results.rundir import RunDirectory
from gossamer.run.outline import outline
from gossamer.run.request import carrier, parts_of
from gossamer.run.train import Outcome, execute

__all__ = ["Outcome", "configure", "plan", "resume", "run"]


def a_path(place: Path | str | None) -> Path | None:
    """Where something is, however it was written."""
    return None if place is None else Path(place)


def configure(recipe: str | Path | Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> RunConfig:
    """A recipe's name, a TOML file's path or a whole configuration, with changes like `{"privacy.epsilon": 1.0}`."""
    return resolve(recipes.read(str(recipe)) if isinstance(recipe, str | Path) else recipe, changes)


def plan(
    recipe: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    module: nn.Module | None = None,
    data_dir: Path | str | None = None,
    force: bool = False,
) -> Outline:
    """What the run would cost, without training: see `.plan.figures()`; `force`: also beyond this machine's means."""
    return outline(configure(recipe, changes), data_dir=a_path(data_dir), module=module, force=force)


def run(
    recipe: str | Path | Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    *,
    module: nn.Module | None = None,
    out: Path | str | None = None,
    data_dir: Path | str | None = None,
    force: bool = False,
) -> Outcome:
    """Train. `module` replaces the configuration's model by your own; `force` tries what this machine is too small for.

    With `runtime.kind = "processes"` this is one rank of those that torchrun started; its outcome has the models of its
    own nodes.
    """
    config = configure(recipe, changes)
    with carrier(config) as group:
        parts = parts_of(config, group, data_dir=a_path(data_dir), module=module, force=force)
        return execute(parts, out=a_path(out), group=group)


def resume(
    directory: Path | str,
    *,
    module: nn.Module | None = None,
    data_dir: Path | str | None = None,
    force: bool = False,
) -> Outcome:
    """Go on with a run that was stopped; `module` as at its beginning, `force` as for `run`."""
    config = stored(RunDirectory.resume(Path(directory)).path / "config.toml")
    with carrier(config) as group:
        parts = parts_of(config, group, data_dir=a_path(data_dir), module=module, force=force)
        return execute(parts, resume=Path(directory), group=group)
