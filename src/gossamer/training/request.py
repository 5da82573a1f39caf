"""`gossamer run`, from the words of the command line to a finished run, on whichever runtime."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
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
from gossamer.results.terminal import terminal
from gossamer.results.track import OpenTracker, find_tracker
from gossamer.results.waiting import ended
from gossamer.runtime.cluster import connect, ranks_started, started_as_rank
from gossamer.runtime.group import Alone, Group, agreed, split
from gossamer.runtime.launch import launch, launched
from gossamer.training.assemble import Parts, assemble, without_private_hold_out
from gossamer.training.budget import preview
from gossamer.training.data import DataCache
from gossamer.training.plan import Plan
from gossamer.training.run import execute


@dataclass(frozen=True)
class RunRequest:
    """What was typed."""

    recipe: str | None
    overrides: list[str]
    out: Path | None = None
    resume: Path | None = None
    runtime: str | None = None
    data_dir: Path | None = None
    track: str | None = None
    force: bool = False  # try what would not fit into this machine
    quiet: bool = False  # nothing but one JSON object on stdout


def start(request: RunRequest, arguments: Sequence[str] = ()) -> dict[str, Any] | None:
    """Run it: what `--json` prints, None in a process that prints nothing.

    `arguments` are those of the command line, with which each of several processes is started.
    """
    config = configuration(request)
    if config.runtime.kind == "simulator" or started_as_rank():
        return run_here(config, request)
    check(effective(config))  # before anything is started
    if request.track:
        find_tracker(request.track)
    ranks = rank_count(config)
    split(effective(config).nodes, ranks, config.runtime.blocks)
    directory = request.resume or request.out or free_path(config.name)
    named = [] if request.resume or request.out else ["--out", str(directory)]
    ended()  # the first rank prints from here on
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


def configuration(request: RunRequest) -> RunConfig:
    changes = parse_overrides(request.overrides)
    if request.runtime is not None:
        changes["runtime.kind"] = request.runtime
    if request.resume is None:
        recipe = recipes.read(request.recipe or "quickstart")
        config = resolve(recipe, changes)
        show_replaced(recipe, changes)
        return config
    if request.recipe is not None or request.out is not None:
        raise UserError(
            f"--resume {request.resume} goes on with the run in it; leave out the recipe and --out."
        )
    fixed = next((key for key in changes if not key.startswith(("runtime.", "model.path"))), None)
    if fixed is not None:
        raise UserError(f"--set {fixed} cannot change a run that has begun; only runtime.* may differ.")
    if not request.resume.is_dir():
        raise UserError(f"--resume {request.resume} is not a directory; name one that `gossamer run` made.")
    return stored(RunDirectory.resume(request.resume).path / "config.toml", changes)


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


def parts_of(
    config: RunConfig,
    group: Group,
    *,
    data_dir: Path | None = None,
    module: Any = None,
    force: bool = False,
    cache: DataCache | None = None,
) -> Parts:
    """What this process needs for its nodes; one process' mistake is everybody's."""

    def assembled() -> Parts:
        o = Plan.of(config, data_dir=data_dir, module=module, nodes=group.nodes, force=force, cache=cache)
        parts = assemble(o)
        return parts if group.size == 1 else without_private_hold_out(parts)

    parts: Parts = agreed(group, assembled)
    return parts


def run_here(config: RunConfig, request: RunRequest) -> dict[str, Any] | None:
    """In this process: all nodes, or those of one rank."""
    tracker = find_tracker(request.track) if request.track else None
    with carrier(config) as group:
        result = run_in(group, config, request, tracker)
        return result if shows(group) else None


def shows(group: Group) -> bool:
    """One process of every machine speaks to its people; of processes on one machine, the first of all."""
    return group.first_here if group.spread else group.first


def run_in(
    group: Group,
    config: RunConfig,
    request: RunRequest,
    tracker: OpenTracker | None = None,
    on_round: Callable[[int], None] = lambda t: None,
) -> dict[str, Any]:
    parts = parts_of(config, group, data_dir=request.data_dir, force=request.force)
    with RunDisplay(config.name, config.rounds, quiet=request.quiet, hidden=not shows(group)) as display:
        planned = [
            (parts.plan, 1 if request.resume is None else 0)
        ]  # one that goes on has reserved its share
        display.plan(parts.plan, agreed(group, lambda: preview(planned, request.data_dir, group.nodes)))

        def after_round(done: int) -> None:
            display.round(done)
            on_round(done)

        outcome = execute(
            parts,
            out=request.out,
            resume=request.resume,
            group=group,
            on_metrics=display.metrics,
            on_round=after_round,
            track=tracker,
        )
    display.outcome(outcome.result, outcome.certificate)
    return outcome.result
