"""`gossamer run`, from the words of the command line to a finished run, on whichever runtime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gossamer import recipes
from gossamer.config import RunConfig, parse_overrides, resolve, stored
from gossamer.errors import UserError


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
    quiet: bool = False  # nothing but one JSON object on stdout


def start(request: RunRequest) -> dict[str, Any] | None:
    """Run it. What `--json` prints; None in a process that is not the first of its run."""
    from gossamer.runtime.processes import started_by_torchrun

    config = configuration(request)
    if config.runtime.kind == "simulator":
        if started_by_torchrun():
            raise UserError(
                "torchrun started several processes, but runtime.kind = 'simulator' needs one; "
                "use --runtime processes."
            )
        return run_here(config, request)
    check_processes(config)
    if not started_by_torchrun():
        from gossamer.launch import launch

        return launch(config, request)
    return as_rank(config, request)


def configuration(request: RunRequest) -> RunConfig:
    changes = parse_overrides(request.overrides)
    if request.runtime is not None:
        changes["runtime.kind"] = request.runtime
    if request.resume is None:
        return resolve(recipes.read(request.recipe or "quickstart"), changes)
    if request.recipe is not None or request.out is not None:
        raise UserError(
            f"--resume {request.resume} goes on with the run in it; leave out the recipe and --out."
        )
    fixed = next((key for key in changes if not key.startswith("runtime.")), None)
    if fixed is not None:
        raise UserError(f"--set {fixed} cannot change a run that has begun; only runtime.* may differ.")
    if not request.resume.is_dir():
        raise UserError(f"--resume {request.resume} is not a directory; name one that `gossamer run` made.")
    from gossamer.results.rundir import RunDirectory

    return stored(RunDirectory.resume(request.resume).path / "config.toml", changes)


def check_processes(config: RunConfig) -> None:
    """What cannot be spread over processes."""
    if config.evaluation.diagnostics:
        raise UserError(
            "evaluation.diagnostics = true is not private and must not travel between processes; "
            "leave it out, or use runtime.kind = 'simulator'."
        )


def without_private_hold_out(parts: Any) -> Any:
    """A hold-out that was not declared public stays where it is, and so do figures computed from it."""
    if parts.dataset.public_test:
        return parts
    x, y = parts.test
    return replace(parts, test=(x[:0], y[:0]))


def as_rank(
    config: RunConfig, request: RunRequest, on_round: Callable[[int], None] = lambda t: None
) -> dict[str, Any] | None:
    """One of several processes, in the environment that torchrun or `launch` made."""
    from gossamer.baselines import effective
    from gossamer.runtime.processes import Ranks

    asked = config.runtime
    with Ranks.meet(
        effective(config).nodes, blocks=asked.blocks, timeout=asked.timeout, device=config.device
    ) as ranks:
        result = run_here(config, request, ranks, on_round)
        return result if ranks.first else None


def run_here(
    config: RunConfig,
    request: RunRequest,
    group: Any = None,
    on_round: Callable[[int], None] = lambda t: None,
) -> dict[str, Any]:
    """The nodes of this process; all of them without a group."""
    from gossamer.baselines import effective
    from gossamer.build import assemble, outline
    from gossamer.experiment import execute
    from gossamer.results.console import RunDisplay
    from gossamer.results.track import find_tracker
    from gossamer.runtime.group import Alone, agreed

    tracker = find_tracker(request.track) if request.track else None
    group = group or Alone(effective(config).nodes)

    def parts_of_this_process() -> Any:
        o = outline(config, data_dir=request.data_dir)
        if group.size == 1:
            return assemble(o, data_dir=request.data_dir)
        return without_private_hold_out(assemble(o, data_dir=request.data_dir, nodes=group.nodes))

    parts = agreed(group, parts_of_this_process)
    with RunDisplay(config.name, config.rounds, quiet=request.quiet, hidden=not group.first) as display:
        display.plan(parts.outline)

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
