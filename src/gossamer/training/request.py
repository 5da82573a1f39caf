"""`gossamer run`, from the words of the command line to a finished run, on whichever runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from gossamer.config import recipes
from gossamer.config.baselines import effective
from gossamer.config.checks import check
from gossamer.config.layers import parse_overrides, replaced, resolve, stored
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.results.console import RunDisplay
from gossamer.results.rundir import RunDirectory, free_path
from gossamer.results.terminal import end_spinner, terminal
from gossamer.results.track import OpenTracker, find_tracker
from gossamer.runtime.cluster import connect, ranks_started, started_as_rank
from gossamer.runtime.group import Alone, Group, agreed, split
from gossamer.runtime.launch import launch, launched
from gossamer.training.assemble import Parts, assemble, without_private_hold_out
from gossamer.training.budget import preview
from gossamer.training.data import DataCache
from gossamer.training.plan import Plan
from gossamer.training.run import OnMetrics, OnRound, Outcome, execute


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
    """Run it: what `--json` prints, None in a process that prints nothing.

    force: try what would not fit into this machine.
    quiet: print nothing but one JSON object on stdout.
    arguments: those of the command line, with which each of several processes is started.
    """
    config = configuration(recipe, overrides, out=out, resume=resume, runtime=runtime)
    tracker = find_tracker(track) if track else None
    if config.runtime.kind == "simulator" or started_as_rank():
        with carrier(config) as group:
            display = RunDisplay(config.name, config.rounds, quiet=quiet, hidden=not shows(group))
            outcome = run_in(
                group, config, display, out=out, resume=resume, data_dir=data_dir, force=force, track=tracker
            )
            return outcome.result if shows(group) else None
    check(effective(config))  # before anything is started
    ranks = rank_count(config)
    split(effective(config).nodes, ranks, config.runtime.blocks)
    directory = resume or out or free_path(config.name)
    named = [] if resume or out else ["--out", str(directory)]
    end_spinner()  # the first rank prints from here on
    try:
        launch([*arguments, *named], ranks, timeout=config.runtime.timeout)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"continue with `gossamer run --resume {directory}`") from None
    return None


def rank_count(config: RunConfig) -> int:
    runtime = config.runtime
    if runtime.ranks is not None:
        return runtime.ranks
    return len(runtime.blocks) if runtime.blocks else min(os.cpu_count() or 1, effective(config).nodes)


def configuration(
    recipe: str | None,
    overrides: Sequence[str] = (),
    *,
    out: Path | None = None,
    resume: Path | None = None,
    runtime: str | None = None,
) -> RunConfig:
    """The configuration of a new run, or that of the run in `resume`."""
    changes = parse_overrides(overrides)
    if runtime is not None:
        changes["runtime.kind"] = runtime
    if resume is None:
        tables = recipes.read(recipe or "quickstart")
        config = resolve(tables, changes)
        show_replaced(tables, changes)
        return config
    if recipe is not None or out is not None:
        raise UserError(f"--resume {resume} continues the run in it; leave out the recipe and --out.")
    fixed = next((key for key in changes if not key.startswith(("runtime.", "model.path"))), None)
    if fixed is not None:
        raise UserError(f"--set {fixed} cannot change a run that has begun; only runtime.* may differ.")
    if not resume.is_dir():
        raise UserError(f"--resume {resume} is not a directory; name one that `gossamer run` made.")
    return stored(RunDirectory.resume(resume).path / "config.toml", changes)


def show_replaced(recipe: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Warn on stderr, before anything else, about settings that a new kind of data removes."""
    # The process that starts ranks has printed it.
    if not launched() and (sentence := replaced(recipe, changes)) is not None:
        terminal(to_stderr=True).print(f"note: {sentence}", soft_wrap=True)


def carrier(config: RunConfig) -> AbstractContextManager[Group]:
    """This process among those that carry the run: alone, or as torchrun's environment says."""
    nodes, asked = effective(config).nodes, config.runtime
    if asked.kind == "simulator":
        if started_as_rank():
            raise UserError(
                "torchrun started several processes, but runtime.kind = 'simulator' needs one; "
                "use --runtime processes."
            )
        return nullcontext(Alone(nodes))
    if not started_as_rank():
        raise UserError(
            "runtime.kind = 'processes' needs processes: start this with torchrun, or use `gossamer run`."
        )
    blocks = split(nodes, ranks_started(), asked.blocks)
    return connect(blocks, timeout=asked.timeout, device=config.device)


def shows(group: Group) -> bool:
    """One process of every machine prints; of processes on one machine, the first of all."""
    return group.first_here if group.spread else group.first


def run_in(
    group: Group,
    config: RunConfig,
    display: RunDisplay,
    *,
    announced: bool = True,
    module: Any = None,
    cache: DataCache | None = None,
    out: Path | None = None,
    resume: Path | None = None,
    data_dir: Path | None = None,
    force: bool = False,
    track: OpenTracker | None = None,
    on_metrics: OnMetrics = lambda row: None,
    on_round: OnRound = lambda done: None,
) -> Outcome:
    """Plan, train and finish a run in this process: all nodes, or those of one rank.

    announced: show the plan before it and the privacy statement after it.
    """

    def assembled() -> Parts:
        plan = Plan.of(config, data_dir=data_dir, module=module, nodes=group.nodes, force=force, cache=cache)
        parts = assemble(plan)
        return parts if group.size == 1 else without_private_hold_out(parts)

    parts: Parts = agreed(group, assembled)
    with display:
        if announced:
            times = 1 if resume is None else 0  # a resumed run has reserved its share
            budget = agreed(group, lambda: preview([(parts.plan, times)], data_dir, group.nodes))
            display.plan(parts.plan, budget)
        else:
            display.begin()

        def metrics(row: dict[str, Any]) -> None:
            display.metrics(row)
            on_metrics(row)

        def after_round(done: int) -> None:
            display.round(done)
            on_round(done)

        outcome = execute(
            parts, out=out, resume=resume, group=group, on_metrics=metrics, on_round=after_round, track=track
        )
    if announced:
        display.outcome(outcome.result, outcome.certificate)
    return outcome
