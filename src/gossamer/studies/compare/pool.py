"""Cells side by side on an engine; what is finished is not run again."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from pathlib import Path

from gossamer.errors import UserError
from gossamer.studies.compare import cells as on_disk
from gossamer.studies.compare.grid import Cell
from gossamer.studies.engine.job import Executor, Job

Report = Callable[[Cell, str | None], None]  # the cell, and what went wrong with it


def run_cells(
    cells: Sequence[Cell],
    out: Path,
    *,
    executor: Executor,
    force: bool = False,
    on_start: Callable[[Cell], None] = lambda cell: None,
    on_done: Report = lambda cell, error: None,
    on_tick: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Run what is not finished. The cells that failed, by name, with the reason in one sentence."""
    failed: dict[str, str] = {}
    started: queue.SimpleQueue[Cell] = queue.SimpleQueue()

    def submit(cell: Cell) -> Future[str | None]:
        def begun() -> None:
            on_disk.set_aside(out, cell)
            started.put(cell)

        return executor.submit(Job("run", cell.settings, on_disk.folder(out, cell), force), begun)

    try:
        waiting = {submit(cell): cell for cell in cells}
        while waiting:
            done, _ = wait(waiting, timeout=0.3, return_when=FIRST_COMPLETED)
            while not started.empty():
                on_start(started.get())
            for future in done:
                cell = waiting.pop(future)
                error = future.result()
                if error is not None:
                    failed[cell.name] = error
                on_done(cell, error)
            on_tick()
    finally:
        executor.stop()  # as long as this folder is ours alone
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
