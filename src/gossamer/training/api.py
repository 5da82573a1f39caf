"""The ways into a run: `gossamer.run`, `plan` and `resume` for Python, `start` for the command line.

A class of the caller's own becomes a kind of its table for as long as the process lives, so that it is checked, priced
and written into config.toml by its name and options like every other; to resume such a run, hand it over again.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import nn

from gossamer import algorithms as rules
from gossamer.algorithms.base import Exponential
from gossamer.config import recipes
from gossamer.config.checks import check, effective
from gossamer.config.layers import named, parse_overrides, replaced, resolve, stored
from gossamer.config.methods import CONTEXT, algorithms
from gossamer.config.schema import RunConfig
from gossamer.data.own import Data
from gossamer.errors import UserError, short
from gossamer.mechanism.clipping import clips
from gossamer.mechanism.noise import families
from gossamer.models.losses import losses, own_loss
from gossamer.options.registry import Registry
from gossamer.options.sentences import as_mapping, as_path
from gossamer.results.console import RunDisplay
from gossamer.results.rundir import RunDirectory, free_path
from gossamer.results.terminal import end_spinner, terminal
from gossamer.results.track import OpenTracker, find_tracker
from gossamer.runtime.group import Alone, Group, agreed, prints, split, started_as_rank
from gossamer.runtime.launch import launch, launched
from gossamer.topology.kinds import topologies
from gossamer.training.assemble import Parts, assemble
from gossamer.training.budget import preview
from gossamer.training.data import DataCache
from gossamer.training.plan import Plan
from gossamer.training.run import OnMetrics, OnRound, Outcome, each, execute

__all__ = ["Outcome", "Plan", "configure", "plan", "resume", "run"]

Recipe = str | Path | Mapping[str, Any] | RunConfig
Changes = Mapping[str, Any] | None
Callback = Any  # a function of an evaluation's figures, or an object with on_round, on_evaluation


def configure(recipe: Recipe, changes: Changes = None, **objects: Any) -> RunConfig:
    """Resolve a recipe's name, a TOML file or a whole configuration, with changes like `{"privacy.epsilon": 1.0}`.

    `objects` are those of `run`; `changes` win over what an object states of itself.
    """
    given, tables, changed = Objects(**objects), named(recipe)[1], as_mapping("changes", changes)
    by_parts = given.records is not None and "nodes" not in {**tables, **changed}
    config = resolve(tables, {**given.changes(count_nodes=by_parts), **changed})
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
    """Compute what the run would cost, without training: see `.result`. The arguments are those of `run`."""
    objects = Objects(module, data, loss, algorithm, clip, noise, topology)
    config = configure(recipe, changes, **vars(objects))
    cache = DataCache(objects.records)
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
    progress: show a bar and the figures; by default in a notebook only.
    track: a tracker's name, as of `--track`.
    force: try what this machine seems too small for.

    With `runtime.kind = "processes"` this is one rank of those that torchrun started; its outcome has the models of its
    own nodes.
    """
    objects = Objects(module, data, loss, algorithm, clip, noise, topology)
    config = configure(recipe, changes, **vars(objects))
    return _run(config, objects, callbacks, progress, track, out=out, data_dir=data_dir, force=force)


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
    """Resume a run that was stopped; hand over again the objects that it began with."""
    objects = Objects(module, data, loss, algorithm, clip, noise, topology)
    objects.changes()  # their kinds are known from here on
    path = as_path("directory", directory) or Path()
    config = stored(RunDirectory.resume(path).path / "config.toml")
    objects.check_nodes(config.nodes)
    return _run(config, objects, callbacks, progress, track, resume=path, data_dir=data_dir, force=force)


def _run(
    config: RunConfig,
    objects: Objects,
    callbacks: Iterable[Callback],
    progress: bool | None,
    track: str | None,
    *,
    data_dir: Path | str | None,
    force: bool,
    out: Path | str | None = None,
    resume: Path | None = None,
) -> Outcome:
    tracker = find_tracker(track) if track else None
    for name, value in (("progress", progress), ("force", force)):
        if not isinstance(value, bool | None):
            raise UserError(f"{name} = {short(value)} must be True or False.")
    if not isinstance(callbacks, Iterable):
        raise UserError(f"callbacks = {callbacks!r:.60} is not a list; give callbacks=[…].")
    listeners = [*map(_listener, callbacks)]

    def call(name: str, value: Any) -> None:
        for listener in listeners:
            if (callback := getattr(listener, name, None)) is not None:
                callback(copy.deepcopy(value))  # what one changes is neither the next one's nor the run's

    with join_group(config) as group:
        visible = (_in_notebook() if progress is None else progress) and group.first
        return run_in(
            group,
            config,
            announced=False,
            hidden=not visible,
            module=objects.module,
            cache=DataCache(objects.records),
            out=as_path("out", out),
            resume=resume,
            data_dir=as_path("data_dir", data_dir),
            force=force,
            track=tracker,
            on_metrics=lambda row: call("on_evaluation", row),
            on_round=lambda done: call("on_round", done),
        )


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None


def _listener(callback: Callback) -> Any:
    """An object with on_round, on_evaluation or both, as the callback is one, or is a function of evaluations."""
    if hasattr(callback, "on_round") or hasattr(callback, "on_evaluation"):
        return callback
    if callable(callback):
        return SimpleNamespace(on_evaluation=callback)
    raise UserError(f"callbacks has {callback!r}; give a function, or an object with on_round or on_evaluation.")


def start(
    recipe: str | None,
    overrides: Sequence[str] = (),
    *,
    out: Path | None = None,
    resume: Path | None = None,
    runtime: str | None = None,
    data_dir: Path | None = None,
    track: str | None = None,
    force: bool = False,
    quiet: bool = False,
    arguments: Sequence[str] = (),
) -> dict[str, Any] | None:
    """Run `gossamer run`: returns what `--json` prints, None in a process that prints nothing.

    force: try what would not fit into this machine.
    quiet: print nothing but one JSON object on stdout.
    arguments: those of the command line, with which each of several processes is started.
    """
    config = configuration(recipe, overrides, out=out, resume=resume, runtime=runtime)
    tracker = find_tracker(track) if track else None
    if config.runtime.kind == "simulator" or started_as_rank():
        with join_group(config) as group:
            shown = prints(group)
            outcome = run_in(
                group, config, quiet=quiet, hidden=not shown, out=out, resume=resume, data_dir=data_dir, force=force,
                track=tracker,
            )  # fmt: skip
            return outcome.result if shown else None
    asked, config = config, effective(config)
    check(config)  # before anything is started
    ranks = asked.runtime.ranks or len(asked.runtime.blocks or ()) or min(os.cpu_count() or 1, config.nodes)
    split(config.nodes, ranks, asked.runtime.blocks)
    directory = resume or out or free_path(asked.name)
    named_out = [] if resume or out else ["--out", str(directory)]
    end_spinner()  # the first rank prints from here on
    try:
        launch([*arguments, *named_out], ranks, timeout=asked.runtime.timeout)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"continue with `gossamer run --resume {directory}`") from None
    return None


def configuration(
    recipe: str | None,
    overrides: Sequence[str] = (),
    *,
    out: Path | None = None,
    resume: Path | None = None,
    runtime: str | None = None,
) -> RunConfig:
    """Resolve the configuration of a new run, or read that of the run in `resume`."""
    changes = parse_overrides(overrides)
    if runtime is not None:
        changes["runtime.kind"] = runtime
    if resume is None:
        tables = recipes.read(recipe or "quickstart")
        sentence, config = replaced(tables, changes), resolve(tables, changes)
        show_replaced(sentence)
        return config
    if recipe is not None or out is not None:
        raise UserError(f"--resume {resume} continues the run in it; leave out the recipe and --out.")
    fixed = next((key for key in changes if not key.startswith(("runtime.", "model.path"))), None)
    if fixed is not None:
        raise UserError(f"--set {fixed} cannot change a run that has begun; only runtime.* may differ.")
    if not resume.is_dir():
        raise UserError(f"--resume {resume} is not a directory; name one that `gossamer run` made.")
    return stored(RunDirectory.resume(resume).path / "config.toml", changes)


def show_replaced(sentence: str | None) -> None:
    """Warn on stderr, before anything else, about settings that a new kind of data removes (see `replaced`)."""
    if sentence is not None and not launched():  # the process that starts ranks has printed it
        terminal(to_stderr=True).say(f"note: {sentence}")


def join_group(config: RunConfig) -> AbstractContextManager[Group]:
    """This process among those that carry the run: alone, or as torchrun's environment says."""
    runtime, rank = config.runtime, started_as_rank()
    nodes = 1 if config.baseline == "central" else config.nodes
    if runtime.kind == "simulator" and rank:
        raise UserError("runtime.kind = 'simulator' is one process, not torchrun's; use --runtime processes.")
    if runtime.kind == "simulator":
        return nullcontext(Alone(nodes))
    if not rank:
        raise UserError("runtime.kind = 'processes' needs processes; start this with torchrun, or use `gossamer run`.")
    from gossamer.runtime.cluster import connect, ranks_started

    blocks = split(nodes, ranks_started(), runtime.blocks)
    return connect(blocks, timeout=runtime.timeout, device=config.device)


def run_in(
    group: Group,
    config: RunConfig,
    *,
    announced: bool = True,
    quiet: bool = False,
    hidden: bool = False,
    module: Any = None,
    cache: DataCache | None = None,
    out: Path | None = None,
    resume: Path | None = None,
    data_dir: Path | None = None,
    force: bool = False,
    track: OpenTracker | None = None,
    on_metrics: OnMetrics | None = None,
    on_round: OnRound | None = None,
) -> Outcome:
    """Plan, train and finish a run in this process: all nodes, or those of one rank.

    announced: show the plan before it and the privacy statement after it.
    quiet: on stderr; hidden: nothing at all.
    """

    def assembled() -> Parts:
        plan = Plan.of(config, data_dir=data_dir, module=module, nodes=group.nodes, force=force, cache=cache)
        parts = assemble(plan)
        if group.size == 1 or parts.dataset.public_test:
            return parts
        # A hold-out that was not declared public stays where it is, and so do figures computed from it.
        x, y = parts.test
        return dataclasses.replace(parts, test=(x[:0], y[:0]))

    parts: Parts = agreed(group, assembled)
    times = 1 if resume is None else 0  # a resumed run has reserved its share
    budget = agreed(group, lambda: preview([(parts.plan, times)], data_dir, group.nodes)) if announced else None
    with RunDisplay(config.name, config.rounds, quiet=quiet, hidden=hidden) as display:
        if announced:
            display.plan(parts.plan, budget)
        else:
            display.begin()
        outcome = execute(
            parts, out=out, resume=resume, group=group, track=track,
            on_metrics=each(display.metrics, on_metrics), on_round=each(display.round, on_round),
        )  # fmt: skip
    if announced:
        display.outcome(outcome.result, outcome.certificate)
    return outcome


@dataclasses.dataclass(frozen=True)
class Objects:
    """Parts of a configuration that Python hands over, each a name, a table, or an object of the caller's."""

    module: Any = None  # a torch module; stays an object
    data: Any = None  # see gossamer.Data; stays an object
    loss: Any = None  # (outputs, targets) → one number for each record
    algorithm: Any = None  # a rule's class, or one with its options
    clip: Any = None
    noise: Any = None
    topology: Any = None

    @property
    def records(self) -> Data | None:
        data = None if self.data is None else Data.of(self.data)
        if data is None or not isinstance(self.module, nn.Module):
            return data
        images = any(isinstance(layer, nn.Conv2d) for layer in self.module.modules())
        return data if images else dataclasses.replace(data, sequences=True)

    def check_nodes(self, nodes: int) -> None:
        """Refuse `data` that has each node's records apart, for another number of nodes."""
        if self.records is not None:
            self.records.check_nodes(nodes)

    def changes(self, *, count_nodes: bool = False) -> dict[str, Any]:
        """The same as changes of the configuration; `count_nodes`: there are as many nodes as a list has parts."""
        changes: dict[str, Any] = {}
        if self.module is not None:
            changes["model"] = {"kind": "own"}
        if (data := self.records) is not None:
            data.check()
            changes["data"] = data.table()
            if count_nodes and isinstance(data.records, list):
                changes["nodes"] = data.nodes
        for key, value, table in (
            ("algorithm", self.algorithm, _algorithm_table),
            ("privacy.clip", self.clip, lambda value: _table(clips, value)),
            ("privacy.noise", self.noise, lambda value: {"family": _table(families, value)}),
            ("topology", self.topology, lambda value: _table(topologies, value)),
            ("loss", self.loss, lambda value: _table(losses, _as_loss(value))),
        ):
            if isinstance(value, str | Mapping):
                changes[key] = {"kind": value} if isinstance(value, str) else dict(value)
            elif value is not None:
                changes[key] = table(value)
        return changes


def _table(registry: Registry[Any], value: Any) -> dict[str, Any]:
    """The kind and options of a part, whose class is registered if it is not."""
    if isinstance(value, type):
        try:
            value = value()
        except TypeError as error:
            raise UserError(f"{registry.table} = {value.__name__} needs options: {error}; give an object.") from None
    if type(value) is not registry.kinds.get(getattr(value, "kind", "")):
        registry.adopt(type(value))
    return {"kind": value.kind, **registry.options(value)}


def _as_loss(value: Any) -> Any:
    return own_loss(value) if callable(value) and not dataclasses.is_dataclass(value) else value


def _algorithm_table(value: Any) -> dict[str, Any]:
    cls = value if isinstance(value, type) else type(value)
    name = rules.adopt(cls)
    algorithms.forget(name)  # a class that was defined again may have other options
    if cls is value:
        return {"kind": name}
    options = {
        field.name: getattr(value, field.name)
        for field in dataclasses.fields(value)
        if field.init and field.name not in CONTEXT
    }
    lr = getattr(value, "lr", None)
    if isinstance(lr, Exponential):
        options["lr"] = {"start": lr.start, "decay": lr.decay, "power": lr.power}
    elif isinstance(lr, int | float):
        options["lr"] = float(lr)
    elif lr is not None:
        raise UserError(
            "algorithm.lr is a function, which a configuration cannot hold; give a number, or gossamer.algorithms.base."
            "Exponential(start, decay)."
        )
    return {"kind": name, **options}
