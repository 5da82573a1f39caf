"""What many runs look like while they run: bars on a terminal, one plain line per finished cell elsewhere."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from gossamer.results.headline import headline, title, written
from gossamer.results.terminal import terminal
from gossamer.studies.compare import cells as on_disk
from gossamer.studies.compare.grid import Cell
from gossamer.studies.compare.table import Table


class Display:
    def __init__(self, out: Path, total: int, *, quiet: bool):
        # With --json, stdout belongs to the one object: everything else goes to stderr.
        self.console = terminal(to_stderr=quiet)
        self._out, self._total, self._done = out, total, 0
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._all = self._bars.add_task("cells", total=total)
        self._running: dict[str, tuple[Cell, Any]] = {}

    def __enter__(self) -> Display:
        self._bars.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.__exit__(kind, error, trace)

    def say(self, line: str) -> None:
        self.console.print(Text(line), soft_wrap=True)

    def started(self, cell: Cell) -> None:
        self._running[cell.name] = (cell, self._bars.add_task(cell.label, total=cell.config.rounds))

    def tick(self) -> None:
        if self.console.is_terminal:
            for cell, task in self._running.values():
                self._bars.update(task, completed=on_disk.rounds_done(self._out, cell))

    def done(self, cell: Cell, error: str | None) -> None:
        self._done += 1
        if cell.name in self._running:
            self._bars.remove_task(self._running.pop(cell.name)[1])
        self._bars.update(self._all, completed=self._done)
        self.say(f"{self._done}/{self._total}  {cell.label}: {self._outcome(cell, error)}")

    def _outcome(self, cell: Cell, error: str | None) -> str:
        if error is not None:
            return f"failed: {error}"
        found = on_disk.result(self._out, cell)
        quality = "done"
        if found.get("consensus_distance") is None:
            quality = "diverged"
        elif (name := headline(found)) is not None:
            quality = f"{title(name)} {written(name, found[f'{name}_mean'])}"
        return f"{quality}, {found['seconds']:.1f} s"


def show(table: Table, *, quiet: bool) -> None:
    console = terminal(to_stderr=quiet)
    if not console.is_terminal:
        console.width = 400  # a file has no edge to wrap at
    shown = RichTable(*(Column(Text(head)) for head in table.header), box=None)
    for row in table.rows:
        shown.add_row(*map(Text, row))
    console.print()
    console.print(shown)
    for statement in table.caption:
        console.print(Text(statement), soft_wrap=True)
