"""The library's front door, for notebooks and scripts."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from gossamer.config.layers import named, resolve, stored
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError, short
from gossamer.options.sentences import as_mapping, as_path
from gossamer.results.console import RunDisplay
from gossamer.results.rundir import RunDirectory
from gossamer.results.track import find_tracker
from gossamer.training.data import DataCache
from gossamer.training.objects import Objects
from gossamer.training.plan import Plan
from gossamer.training.request import carrier, run_in
from gossamer.training.run import Outcome

__all__ = ["Outcome", "Plan", "configure", "plan", "resume", "run"]

Recipe = str | Path | Mapping[str, Any] | RunConfig
Changes = Mapping[str, Any] | None
Callback = Any  # a function of an evaluation's figures, or an object with on_round, on_evaluation


def configure(recipe: Recipe, changes: Changes = None, **objects: Any) -> RunConfig:
    """A recipe's name, a TOML file's path or a whole configuration, with changes like `{"privacy.epsilon": 1.0}`.

    `objects` are those of `run`; what `changes` say wins over what an object says of itself.
    """
    given, tables, changed = Objects(**objects), named(recipe)[1], as_mapping("changes", changes)
    counted = given.given is not None and "nodes" not in {**tables, **changed}
    config = resolve(tables, {**given.changes(counted=counted), **changed})
    given.check_nodes(config.nodes)
    return config


def plan(
    recipe: Recipe,
    changes: Changes = None,
    *,
    module: nn.Module | None = None,
    loss: Any = None,
    data: Any = None,
    algorithm: Any = None,
    clip: Any = None,
    noise: Any = None,
    topology: Any = None,
    data_dir: Path | str | None = None,
    force: bool = False,
) -> Plan:
    """What the run would cost, without training: see `.result`. The arguments are those of `run`."""
    objects = Objects(module, data, loss, algorithm, clip, noise, topology)
    config = configure(recipe, changes, **vars(objects))
    cache = DataCache(objects.given)
    return Plan.of(config, data_dir=as_path("data_dir", data_dir), module=module, cache=cache, force=force)


def run(
    recipe: Recipe = "quickstart",
    changes: Changes = None,
    *,
    module: nn.Module | None = None,
    loss: Any = None,
    data: Any = None,
    algorithm: Any = None,
    clip: Any = None,
    noise: Any = None,
    topology: Any = None,
    callbacks: Iterable[Callback] = (),
    progress: bool | None = None,
    track: str | None = None,
    out: Path | str | None = None,
    data_dir: Path | str | None = None,
    force: bool = False,
) -> Outcome:
    """Train.

    recipe: a recipe's name, a TOML file, a mapping or a configuration.
    changes: dotted keys, as of `--set`: {"privacy.epsilon": 1.0}; they win over everything else.
    module: a torch module of your own in place of the configuration's model.
    loss: any loss of one record, (outputs, targets) → one number each; or a loss by its name.
    data: records in memory: (x, y), `gossamer.Data(frame, label=…)`, a torch Dataset, or a list of these, one a node.
    algorithm: a name, a class like those in `gossamer.algorithms`, or an object of one.
    clip, noise, topology: a name, a table, or an object of a class like those of the library.
    callbacks: functions that get the figures of every evaluation, or objects with `on_round(done)` and
        `on_evaluation(figures)`. They run here and see what is marked "not_private" too.
    progress: show a bar and the figures; if not said, in a notebook only.
    track: a tracker's name, as of `--track`.
    force: try what this machine seems too small for.

    With `runtime.kind = "processes"` this is one rank of those that torchrun started; its outcome has the models of its
    own nodes.
    """
    objects = Objects(module, data, loss, algorithm, clip, noise, topology)
    config = configure(recipe, changes, **vars(objects))
    return _run(
        config,
        objects,
        callbacks,
        progress,
        track,
        out=as_path("out", out),
        data_dir=as_path("data_dir", data_dir),
        force=force,
    )


def resume(
    directory: Path | str,
    *,
    module: nn.Module | None = None,
    loss: Any = None,
    data: Any = None,
    algorithm: Any = None,
    clip: Any = None,
    noise: Any = None,
    topology: Any = None,
    callbacks: Iterable[Callback] = (),
    progress: bool | None = None,
    track: str | None = None,
    data_dir: Path | str | None = None,
    force: bool = False,
) -> Outcome:
    """Resume a run that was stopped; the objects it began with are handed over again."""
    objects = Objects(module, data, loss, algorithm, clip, noise, topology)
    objects.changes()  # their kinds are known from here on
    path = as_path("directory", directory) or Path()
    config = stored(RunDirectory.resume(path).path / "config.toml")
    objects.check_nodes(config.nodes)
    return _run(
        config,
        objects,
        callbacks,
        progress,
        track,
        resume=path,
        data_dir=as_path("data_dir", data_dir),
        force=force,
    )


def _run(
    config: RunConfig,
    objects: Objects,
    callbacks: Iterable[Callback],
    progress: bool | None,
    track: str | None,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    data_dir: Path | None = None,
    force: bool = False,
) -> Outcome:
    tracker = find_tracker(track) if track else None
    for name, value in (("progress", progress), ("force", force)):
        if not isinstance(value, bool | None):
            raise UserError(f"{name} = {short(value)} must be True or False.")
    if not isinstance(callbacks, Iterable):
        raise UserError(f"callbacks = {callbacks!r:.60} is not a list; give callbacks=[…].")
    listeners = [*map(_listener, callbacks)]
    with carrier(config) as group:
        shown = (_in_notebook() if progress is None else progress) and group.first
        return run_in(
            group,
            config,
            RunDisplay(config.name, config.rounds, quiet=False, hidden=not shown),
            announced=False,
            module=objects.module,
            cache=DataCache(objects.given),
            out=out,
            resume=resume,
            data_dir=data_dir,
            force=force,
            track=tracker,
            on_metrics=lambda row: _tell(row, [on for _, on in listeners]),
            on_round=lambda done: _tell(done, [on for on, _ in listeners]),
        )


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


def _tell(what: Any, listeners: Iterable[Callable[[Any], Any]]) -> None:
    for listener in listeners:
        listener(copy.deepcopy(what))  # what one changes is neither the next one's nor the run's


def _listener(callback: Callback) -> tuple[Callable[[int], Any], Callable[[dict[str, Any]], Any]]:
    """(after a round, after an evaluation)"""
    on_round, on_evaluation = (getattr(callback, name, None) for name in ("on_round", "on_evaluation"))
    if on_round or on_evaluation:
        return on_round or _nothing, on_evaluation or _nothing
    if callable(callback):
        return _nothing, callback
    raise UserError(
        f"callbacks has {callback!r}; give a function of an evaluation's figures, or an object with on_round or "
        "on_evaluation."
    )


def _nothing(what: Any) -> None:
    pass
