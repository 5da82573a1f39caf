"""Rows → results: check everything, make or continue the folder, run what is missing, read it back."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gossamer
from gossamer.errors import UserError
from gossamer.results.rundir import RunDirectory
from gossamer.studies.compare import cells as on_disk
from gossamer.studies.compare.grid import Cell, Row
from gossamer.studies.compare.pool import alone_in, run_cells
from gossamer.studies.compare.progress import Display
from gossamer.studies.jobs import Engine
from gossamer.training.budget import preview, refuse_above_cap

if TYPE_CHECKING:
    from gossamer.training.plan import Plan

MARK = "comparison.json"


@dataclass(frozen=True)
class Batch:
    """What came of the cells. `results` has one list per row, without the cells that failed."""

    out: Path
    results: list[list[dict[str, Any]]]
    failed: dict[str, str]  # label of the cell → reason
    ran: int
    kept: int  # finished before
    budget: dict[str, Any] | None = (
        None  # all runs on the same records of the user's own; None for public ones
    )

    unsigned: int = 0  # of those, without a signature of their run

    @property
    def summary(self) -> dict[str, Any]:
        return {
            "out": str(self.out),
            "cells_run": self.ran,
            "cells_kept": self.kept,
            "cells_unsigned": self.unsigned,
            "failed": self.failed,
            "budget": self.budget,
        }


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
    """A mistake in any cell raises before anything is written; a cell that fails later stops no other."""
    where = Engine(engine, jobs)
    refuse_foreign(out)
    for row in rows:
        for cell in row.cells:
            where.refuse(cell.config)
    where.check()
    return _run_rows(rows, out, where, data_dir=data_dir, quiet=quiet, force=force)


def _run_rows(
    rows: Sequence[Row], out: Path, engine: Engine, *, data_dir: Path | None, quiet: bool, force: bool
) -> Batch:
    outlines = check(rows, data_dir, force=force)
    unique = {cell.name: cell for row in rows for cell in row.cells}
    before = _before(rows, outlines, out, data_dir)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out} cannot be made: {error.strerror}.") from None
    with alone_in(out):
        (out / "cells").mkdir(exist_ok=True)
        mark_folder(out, rows)
        todo = by_records([cell for cell in unique.values() if not on_disk.finished(out, cell)], data_dir)
        kept = len(unique) - len(todo)
        unsigned = sum(not on_disk.verify(out, cell) for cell in unique.values() if cell not in todo)
        with Display(out, len(todo), quiet=quiet) as display:
            finished = f", {kept} of them finished already" if kept else ""
            if unsigned:
                display.say(f"{unsigned} finished cells are not signed and could have been changed since")
            display.say(f"{len(unique)} cells{finished}, {engine.at_a_time(len(todo))}, in {out}")
            failed = run_cells(
                todo,
                out,
                engine=engine,
                data_dir=data_dir,
                force=force,
                on_start=display.started,
                on_done=display.done,
                on_tick=display.tick,
            )
        results = [
            [on_disk.result(out, cell) for cell in row.cells if cell.name not in failed] for row in rows
        ]
    reasons = {unique[name].label: reason for name, reason in failed.items()}
    spent = preview([(o, 0) for o in outlines.values()], data_dir)
    if spent is not None and before is not None:
        spent["epsilon_before"], spent["runs_before"] = before["epsilon_before"], before["runs_before"]
    return Batch(out, results, reasons, len(todo), kept, spent, unsigned)


def _before(
    rows: Sequence[Row], outlines: dict[str, Plan], out: Path, data_dir: Path | None
) -> dict[str, Any] | None:
    """What was spent on the user's records so far; raises if what is left to run would pass their cap."""
    todo: dict[str, str] = {}  # cell → the one of its row that was outlined
    for row in rows:
        for cell in row.cells:
            if not on_disk.finished(out, cell):
                todo.setdefault(cell.name, row.cells[0].name)
    counts = Counter(todo.values())
    wanted = [(o, counts[name]) for name, o in outlines.items()]
    refuse_above_cap(wanted, data_dir)
    return preview(wanted, data_dir)


def finished_rows(rows: Sequence[Row], out: Path) -> Batch:
    """What is there already; nothing is run."""
    if not (out / MARK).is_file():
        raise UserError(
            f"--as-is: {out} holds no comparison; name its folder with --out, or leave --as-is out."
        )
    done = [[cell for cell in row.cells if on_disk.finished(out, cell)] for row in rows]
    unsigned = len({cell.name for row in done for cell in row if not on_disk.verify(out, cell)})
    results = [[on_disk.result(out, cell) for cell in row] for row in done]
    return Batch(out, results, {}, 0, sum(map(len, done)), unsigned=unsigned)


def check(rows: Sequence[Row], data_dir: Path | None, *, force: bool = False) -> dict[str, Plan]:
    """Load and outline the first cell of every row: keys, data, model, graph and budget fit, or a sentence says why."""
    from gossamer.training.data import DataCache
    from gossamer.training.plan import Plan

    quiet_libraries()
    cache = DataCache()
    seen: dict[str, Plan] = {}
    label_of = {row.cells[0].name: row.label for row in reversed(rows) if row.cells}
    firsts = {row.cells[0].name: row.cells[0] for row in rows if row.cells}
    for cell in by_records([*firsts.values()], data_dir):
        try:
            cache.load(cell.config, data_dir)  # are the records at hand, and may this run have them?
            # The records are not kept: those of all rows together may be too many.
            o = Plan.of(cell.config, data_dir=data_dir, cache=cache, force=force)
            seen[cell.name] = replace(o, dataset=None)
        except UserError as error:
            raise UserError(f"{label_of[cell.name]}: {error}") from None
    return seen


def by_records(cells: Sequence[Cell], data_dir: Path | None) -> list[Cell]:
    """Those that read the same records one after another, for a cache holds one data set; else in their order."""
    from gossamer.training.data import key_of

    keys = [key_of(cell.config, data_dir) for cell in cells]
    place = {key: at for at, key in reversed([*enumerate(keys)])}
    return [cells[i] for i in sorted(range(len(cells)), key=lambda i: place[keys[i]])]


def quiet_libraries() -> None:
    """The Rényi accountant warns of every order it leaves out, by the hundred; leaving orders out is harmless."""
    logging.getLogger("absl").setLevel(logging.ERROR)


def refuse_foreign(out: Path) -> None:
    """Only an empty folder or an earlier comparison may be written into."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MARK).is_file())):
        raise UserError(f"--out {out} exists and holds no comparison; name a new folder or one to continue.")


def mark_folder(out: Path, rows: Sequence[Row]) -> None:
    RunDirectory(out).write_json(MARK, _contents(rows))


def _contents(rows: Sequence[Row]) -> dict[str, Any]:
    def entry(cell: Cell) -> dict[str, str]:
        return {"label": cell.label, "folder": f"cells/{cell.name}"}

    return {
        "gossamer": gossamer.__version__,
        "rows": [{"label": row.label, "cells": [entry(cell) for cell in row.cells]} for row in rows],
    }
