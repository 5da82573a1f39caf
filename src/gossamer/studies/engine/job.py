"""The one seam between studies and what carries out their runs: a job goes in, files come out.

A study knows neither processes nor clusters. It opens an engine, submits jobs, and finds in each job's `place` what a
run leaves there; the future says what went wrong, in a sentence, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gossamer.config.schema import RunConfig


@dataclass(frozen=True)
class Job:
    """What is to be done, all of it JSON: no object of Python's travels."""

    task: str  # one of those that child.py knows
    config: dict[str, Any]
    place: Path  # the folder that it leaves; not there before
    force: bool = False
    options: dict[str, Any] = field(default_factory=dict)  # the task's own


OnStart = Callable[[], None]


class Executor(Protocol):
    """Like `concurrent.futures.Executor`, of jobs in place of functions."""

    def submit(self, job: Job, on_start: OnStart) -> Future[str | None]:
        """The error in one sentence, or None.

        `on_start` is called before anything is written to `job.place`; again if what had begun was lost and the job
        begins anew. A job that is finished does not begin again.
        """
        ...

    def at_a_time(self, jobs: int) -> str:
        """How many of so many are done at once, for people."""
        ...

    def stop(self) -> None:
        """Give up what is not finished; afterwards nothing is written to any job's place."""
        ...


class Engine(Protocol):
    here: bool  # on this machine: a study that needs no process of its own for a job may do it itself

    def refuse(self, config: RunConfig) -> None:
        """Raises a sentence where such a run may not be carried out here."""
        ...

    def open(self, log: Path, data_dir: Path | None) -> AbstractContextManager[Executor]:
        """Ready to take jobs; `log` gets what they say beside their results."""
        ...
