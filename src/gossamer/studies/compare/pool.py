"""Cells side by side on an engine; what is finished is not run again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from pathlib import Path

import gossamer
from gossamer.errors import UserError
from gossamer.studies.compare import cells as on_disk
from gossamer.studies.compare.grid import Cell
from gossamer.studies.jobs import Engine, settled, train

Report = Callable[[Cell, str | None], None]  # the cell, and what went wrong with it


def run_cells(
    cells: Sequence[Cell],
    out: Path,
    *,
    engine: Engine,
    data_dir: Path | None = None,
    force: bool = False,
    on_start: Callable[[Cell], None] = lambda cell: None,
    on_done: Report = lambda cell, error: None,
    on_tick: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Run what is not finished. The cells that failed, by name, with the reason in one sentence.

    A process that dies takes the executor with it: cells that had not begun are submitted again to a new one.
    """
    failed: dict[str, str] = {}
    places = {cell.name: on_disk.folder(out, cell) for cell in cells}
    for cell in cells:
        on_disk.set_aside(out, cell)
    left = list(cells)
    while left:
        submitted, left = left, []
        with engine.open() as executor:
            waiting = {
                executor.submit(
                    train, cell.settings, places[cell.name] if engine.here else None, data_dir if engine.here else None,
                    force=force, version=gossamer.__version__,
                ): cell
                for cell in submitted
            }  # fmt: skip
            hidden = {cell.name: cell for cell in submitted}
            while waiting:
                done, _ = wait(waiting, timeout=0.3, return_when=FIRST_COMPLETED)
                for name in [name for name in hidden if places[name].exists()]:
                    on_start(hidden.pop(name))
                for future in done:
                    cell = waiting.pop(future)
                    outcome = settled(future, out / "errors.log", places[cell.name])
                    if outcome.died and not places[cell.name].exists() and len(submitted) > 1:
                        left.append(cell)
                        continue
                    if outcome.error is not None:
                        failed[cell.name] = outcome.error
                    on_done(cell, outcome.error)
                engine.check_workers()
                on_tick()
        if len(left) == len(submitted):
            raise UserError("the processes of the study end before they begin; see the messages above.")
    return failed


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Refuse a second comparison that would write into the same folder at the same time."""
    try:
        import fcntl
    except ImportError:  # not a Unix: no such lock
        yield
        return
    handle = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"--out {out} is in use by another comparison; wait for it.") from None
        yield
    finally:
        os.close(handle)
