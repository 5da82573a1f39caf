"""A run over several processes of this machine: the job the parent hands to each, and what each does with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gossamer.config.baselines import effective
from gossamer.config.schema import RunConfig
from gossamer.models.networks import Withheld
from gossamer.results.rundir import free_path
from gossamer.results.waiting import ended
from gossamer.runtime.blocks import split
from gossamer.runtime.launch import answer, launch
from gossamer.training.request import RunRequest, run_here


def run_on_ranks(config: RunConfig, request: RunRequest) -> dict[str, Any]:
    """Run on `runtime.ranks` processes; the result, or one sentence about what went wrong."""
    ranks = how_many(config)
    split(effective(config).nodes, ranks, config.runtime.blocks)  # a mistake in it shows now
    if isinstance(config.model, Withheld):
        config.model.make(
            (), 1
        )  # refuses: the ranks get tables, which no longer say that its code is not to be run
    out = None if request.resume else request.out or free_path(config.name)
    job = {
        "config": config.model_dump(exclude_none=True),
        "out": _text(out),
        "resume": _text(request.resume),
        "data_dir": _text(request.data_dir),
        "track": request.track,
        "quiet": request.quiet,
        "force": request.force,
    }
    ended()  # the ranks speak from here on
    command = [sys.executable, "-P", "-m", "gossamer.training.ranks"]
    try:
        result: dict[str, Any] = launch(command, ranks, timeout=config.runtime.timeout, job=job)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"continue with `gossamer run --resume {request.resume or out}`") from None
    return result


def how_many(config: RunConfig) -> int:
    asked = config.runtime
    if asked.ranks is not None:
        return asked.ranks
    return len(asked.blocks) if asked.blocks else min(os.cpu_count() or 1, effective(config).nodes)


def run_rank(job: dict[str, Any], still_needed: Callable[[], None]) -> dict[str, Any] | None:
    """This process' part of the job."""
    request = RunRequest(
        recipe=None,
        overrides=[],
        out=_path(job["out"]),
        resume=_path(job["resume"]),
        data_dir=_path(job["data_dir"]),
        track=job["track"],
        quiet=job["quiet"],
        force=job["force"],
    )
    return run_here(RunConfig.model_validate(job["config"]), request, lambda done: still_needed())


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


if __name__ == "__main__":
    answer(run_rank)
