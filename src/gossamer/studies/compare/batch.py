"""Rows of cells run on an engine: checked, run as far as they are missing, and read back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

import gossamer
from gossamer.errors import UserError
from gossamer.results.headline import headline, title, written
from gossamer.results.rundir import RunDirectory, lock_file
from gossamer.results.terminal import terminal
from gossamer.studies.compare.grid import Cell, Row
from gossamer.studies.jobs import Engine, Outcome, train, unpack
from gossamer.training.budget import preview, refuse_above_cap

if TYPE_CHECKING:
    from gossamer.training.plan import Plan

MARK = "comparison.json"


@dataclass(frozen=True)
class Batch:
    """The results of the cells: one list per row, without the cells that failed."""

    out: Path
    results: list[list[dict[str, Any]]]
    failed: dict[str, str]  # label of the cell → reason
    ran: int
    kept: int  # finished before
    budget: dict[str, Any] | None = None  # of all runs on the same records of the user's own

    @property
    def summary(self) -> dict[str, Any]:
        counts = {"cells_run": self.ran, "cells_kept": self.kept}
        return {"out": str(self.out), **counts, "failed": self.failed, "budget": self.budget}


def run_rows(
    rows: Sequence[Row],
    out: Path,
    *,
    jobs: int | None,
    data_dir: Path | None,
    quiet: bool,
    force: bool = False,
    engine: str = "local",
) -> Batch:
    """Run every cell that is not finished in `out`.

    A mistake in any cell raises before anything is written; a cell that fails later stops no other.
    """
    where = Engine(engine, jobs)
    refuse_foreign(out)
    unique = {cell.name: cell for row in rows for cell in row.cells}
    for cell in unique.values():
        where.refuse(cell.config)
    where.check()
    plans = check(rows, data_dir, force=force)
    before = _spent_before(rows, plans, out, data_dir)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out} cannot be made: {error.strerror}.") from None
    with alone_in(out):
        (out / "cells").mkdir(exist_ok=True)
        mark_folder(out, rows)
        todo = by_records([cell for cell in unique.values() if not cell.is_finished(out)], data_dir)
        kept = len(unique) - len(todo)
        for cell in unique.values():
            if cell not in todo:
                cell.verify(out)
        with Display(out, len(todo), quiet=quiet) as display:
            finished = f", {kept} of them finished already" if kept else ""
            display.say(f"{len(unique)} cells{finished}, {where.at_a_time(len(todo))}, in {out}")
            failed = run_cells(todo, out, where, display, data_dir=data_dir, force=force)
        results = [[cell.result(out) for cell in row.cells if cell.name not in failed] for row in rows]
    reasons = {unique[name].label: reason for name, reason in failed.items()}
    spent = preview([(plan, 0) for plan in plans.values()], data_dir)
    if spent is not None and before is not None:
        spent["epsilon_before"], spent["runs_before"] = before["epsilon_before"], before["runs_before"]
    return Batch(out, results, reasons, len(todo), kept, spent)


def check(rows: Sequence[Row], data_dir: Path | None, *, force: bool = False) -> dict[str, Plan]:
    """Load the data and plan the first cell of every row: keys, model, graph and budget fit, or an error says why."""
    from gossamer.training.data import DataCache
    from gossamer.training.plan import Plan

    cache, plans = DataCache(), dict[str, Plan]()
    firsts = {row.cells[0].name: (row.label, row.cells[0]) for row in reversed(rows) if row.cells}
    for cell in by_records([cell for _, cell in reversed(firsts.values())], data_dir):
        try:
            cache.load(cell.config, data_dir)  # are the records at hand, and may this run have them?
            plan = Plan.of(cell.config, data_dir=data_dir, cache=cache, force=force)
            # The records are not kept: those of all rows together may be too many.
            plans[cell.name] = replace(plan, dataset=None)
        except UserError as error:
            raise UserError(f"{firsts[cell.name][0]}: {error}") from None
    return plans


def by_records(cells: Sequence[Cell], data_dir: Path | None) -> list[Cell]:
    """Those that read the same records one after another, for a cache holds one data set; else in their order."""
    from gossamer.training.data import key_of

    keys = [key_of(cell.config, data_dir) for cell in cells]
    place = {key: at for at, key in reversed([*enumerate(keys)])}
    return [cells[i] for i in sorted(range(len(cells)), key=lambda i: place[keys[i]])]


def _spent_before(
    rows: Sequence[Row], plans: dict[str, Plan], out: Path, data_dir: Path | None
) -> dict[str, Any] | None:
    """What was spent on the user's records so far; raises if the cells to run would pass their cap."""
    # cell → the one of its row that was planned, of the first row that has it
    planned = {cell.name: (cell, row.cells[0].name) for row in reversed(rows) for cell in row.cells}
    counts = Counter(first for cell, first in planned.values() if not cell.is_finished(out))
    wanted = [(plan, counts[name]) for name, plan in plans.items()]
    refuse_above_cap(wanted, data_dir)
    return preview(wanted, data_dir)


def refuse_foreign(out: Path) -> None:
    """Only an empty folder or an earlier comparison may be written into."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARK).is_file())):
        raise UserError(f"--out {out} exists and holds no comparison; name a new folder or one to continue.")


def mark_folder(out: Path, rows: Sequence[Row]) -> None:
    folders = [[{"label": cell.label, "folder": f"cells/{cell.name}"} for cell in row.cells] for row in rows]
    contents = [{"label": row.label, "cells": own} for row, own in zip(rows, folders, strict=True)]
    RunDirectory(out).write_json(MARK, {"gossamer": gossamer.__version__, "rows": contents})


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Refuse a second comparison that would write into the same folder at the same time."""
    lock = lock_file(out / ".lock", f"--out {out} is in use by another comparison; wait for it.")
    try:
        yield
    finally:
        lock.release()


def run_cells(
    cells: Sequence[Cell],
    out: Path,
    engine: Engine,
    display: Display,
    *,
    data_dir: Path | None = None,
    force: bool = False,
) -> dict[str, str]:
    """Run these cells; returns those that failed, by name, with the reason in one sentence."""
    failed: dict[str, str] = {}
    by_name = {cell.name: cell for cell in cells}
    folders = {cell.name: cell.folder(out) for cell in cells}
    for cell in cells:
        cell.set_aside(out)

    def job(cell: Cell) -> partial[Outcome]:
        places = (folders[cell.name], data_dir) if engine.here else (None, None)
        return partial(train, cell.settings, *places, force=force, version=gossamer.__version__)

    queued, jobs = dict(by_name), {cell.name: job(cell) for cell in cells}
    for ended in engine.run(jobs, out / "errors.log", begun=lambda name: folders[name].exists()):
        for name in [name for name in queued if folders[name].exists()]:
            display.started(queued.pop(name))
        if ended is None:
            display.tick()
            continue
        name, outcome = ended
        queued.pop(name, None)
        if outcome.error is not None:
            failed[name] = outcome.error
        elif outcome.value is not None:
            unpack(outcome.value, folders[name])
        display.done(by_name[name], outcome.error)
    return failed


class Display(Progress):
    """The progress of a comparison: bars on a terminal, one plain line per finished cell elsewhere."""

    def __init__(self, out: Path, total: int, *, quiet: bool):
        # With --json, stdout belongs to the one object: everything else goes to stderr.
        console = terminal(to_stderr=quiet)
        bars = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        super().__init__(*bars, console=console, disable=not console.is_terminal)
        self.say = console.say
        self._out, self._total, self._done = out, total, 0
        self._all = self.add_task("cells", total=total)
        self._running: dict[str, tuple[Cell, TaskID]] = {}

    def started(self, cell: Cell) -> None:
        self._running[cell.name] = (cell, self.add_task(cell.label, total=cell.config.rounds))

    def tick(self) -> None:
        if self.console.is_terminal:
            for cell, task in self._running.values():
                self.update(task, completed=cell.rounds_done(self._out))

    def done(self, cell: Cell, error: str | None) -> None:
        self._done += 1
        if cell.name in self._running:
            self.remove_task(self._running.pop(cell.name)[1])
        self.update(self._all, completed=self._done)
        self.say(f"{self._done}/{self._total}  {cell.label}: {self._outcome(cell, error)}")

    def _outcome(self, cell: Cell, error: str | None) -> str:
        if error is not None:
            return f"failed: {error}"
        result = cell.result(self._out)
        quality = "done"
        if result.get("consensus_distance") is None:
            quality = "diverged"
        elif (name := headline(result)) is not None:
            quality = f"{title(name)} {written(name, result[f'{name}_mean'])}"
        return f"{quality}, {result['seconds']:.1f} s"
