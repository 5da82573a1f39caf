"""The library's front door, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from gossamer.config.layers import named, resolve, stored
from gossamer.config.schema import RunConfig
from gossamer.results.rundir import RunDirectory
from gossamer.run.outline import outline
from gossamer.run.planned import Plan
from gossamer.run.request import carrier, parts_of
from gossamer.run.train import Outcome, execute

__all__ = ["Outcome", "Plan", "configure", "plan", "resume", "run"]


def configure(
    recipe: str | Mapping[str, Any] | RunConfig, changes: Mapping[str, Any] | None = None
) -> RunConfig:
    """A recipe's name, a TOML file's path or a whole configuration, with changes like `{"privacy.epsilon": 1.0}`."""
    return resolve(named(recipe)[1], changes)


def plan(
    recipe: str | Mapping[str, Any] | RunConfig,
    changes: Mapping[str, Any] | None = None,
    *,
    module: nn.Module | None = None,
    data_dir: Path | None = None,
    force: bool = False,
) -> Plan:
    """What the run would cost, without training: see `.result`; `force`: also beyond this machine's means."""
    return Plan.of(outline(configure(recipe, changes), data_dir=data_dir, module=module, force=force))


def run(
    recipe: str | Mapping[str, Any] | RunConfig,
    changes: Mapping[str, Any] | None = None,
    *,
    module: nn.Module | None = None,
    out: Path | None = None,
    data_dir: Path | None = None,
    force: bool = False,
) -> Outcome:
    """Train. `module` replaces the configuration's model by your own; `force` tries what this machine is too small for.

    With `runtime.kind = "processes"` this is one rank of those that torchrun started; its outcome has the models of its
    own nodes.
    """
    config = configure(recipe, changes)
    with carrier(config) as group:
        parts = parts_of(config, group, data_dir=data_dir, module=module, force=force)
        return execute(parts, out=out, group=group)


def resume(
    directory: Path | str,
    *,
    module: nn.Module | None = None,
    data_dir: Path | None = None,
    force: bool = False,
) -> Outcome:
    """Go on with a run that was stopped; `module` as at its beginning, `force` as for `run`."""
    config = stored(RunDirectory.resume(Path(directory)).path / "config.toml")
    with carrier(config) as group:
        parts = parts_of(config, group, data_dir=data_dir, module=module, force=force)
        return execute(parts, resume=Path(directory), group=group)
