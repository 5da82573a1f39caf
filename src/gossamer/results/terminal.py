"""The terminal: plain text without markup, and a spinner until the first of it is printed.

A `Table` of texts and figures shows there, and as plain text, Markdown and CSV.
"""

from __future__ import annotations

import csv
import io
import logging
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from gossamer.options.stage import STAGES

WIDE = 400  # columns off a terminal, where no line is cut and a table must not be cut either


class Terminal(Console):
    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print, and end the spinner."""
        if not self.quiet:
            end_spinner()
            super().print(*args, **kwargs)

    def say(self, *texts: str | Text) -> None:
        """Print each text on lines of its own: no word is broken, and off a terminal no line."""
        for text in (Text(text) if isinstance(text, str) else text for text in texts):
            if not self.is_terminal:
                self.print(text, soft_wrap=True)
                continue
            # As many characters as fit, up to the end of a word; else one long word.
            for line in re.finditer(rf"\S(?:.{{0,{self.width - 2}}}\S)?(?=\s|$)|\S+", text.plain):
                self.print(text[line.start() : line.end()], soft_wrap=True)

    def listing(self, entries: Mapping[str, str]) -> None:
        """Print names with a text each, the texts aligned."""
        if not self.is_terminal:
            margin = max(map(len, entries), default=0) + 2
            self.say(*(f"{name:<{margin}}{text}" for name, text in entries.items()))
            return
        table = RichTable(Column(no_wrap=True), Column(), box=None, show_header=False, padding=(0, 2, 0, 0))
        for name, text in entries.items():
            table.add_row(Text(name, "bold"), Text(text))
        self.print(table)


def terminal(*, to_stderr: bool = False, silent: bool = False) -> Terminal:
    """Return a console without markup: 'pip install gossamer[track]' would lose its end, file names their brackets.

    Colours are left to rich: none off a terminal, none where NO_COLOR is set.
    """
    console = Terminal(stderr=to_stderr, quiet=silent, highlight=False, markup=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    return console


class _Spinner(logging.Handler):
    """A spinner on stderr with the stage that the program logged last."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._status = Status(Text(f"{text} …"), console=Console(stderr=True, markup=False))
        self._status.start()

    def emit(self, record: logging.LogRecord) -> None:
        if text := record.getMessage():
            self._status.update(Text(f"{text} …"))
        else:  # a bar takes over
            end_spinner()

    def close(self) -> None:
        self._status.stop()
        super().close()


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """Show what is being done until the first print, on a terminal; ranks under torchrun show none."""
    if "LOCAL_RANK" in os.environ or not sys.stderr.isatty():
        yield
        return
    level, propagate = STAGES.level, STAGES.propagate
    STAGES.addHandler(_Spinner(text))
    STAGES.setLevel(logging.INFO)
    STAGES.propagate = False
    try:
        yield
    finally:
        end_spinner()
        STAGES.setLevel(level)
        STAGES.propagate = propagate


def end_spinner() -> None:
    for handler in STAGES.handlers[:]:
        if isinstance(handler, _Spinner):
            STAGES.removeHandler(handler)
            handler.close()


@dataclass(frozen=True)
class Table:
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: Sequence[str] = ()  # one statement per line
    bold: int | None = None  # the row that stands out in a notebook

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        cells = ([f"{c:<{w}}" for c, w in zip(row, widths, strict=True)] for row in (self.header, *self.rows))
        return "\n".join([*("  ".join(line).rstrip() for line in cells), *self.caption])

    def show(self, console: Terminal, most: int | None = None) -> None:
        """Print the table, or the first `most` of its rows; proven ε stands out."""
        if not console.is_terminal:
            console.width = max(console.width, WIDE)  # a file has no edge to wrap at
        styles = ["bold" if name == "proven ε" else "" for name in self.header]
        shown = RichTable(*(Column(Text(name)) for name in self.header), box=None)
        for row in self.rows[:most]:
            shown.add_row(*map(Text, row, styles))
        console.print(shown)
        if most is not None and len(self.rows) > most:
            console.say(f"and {len(self.rows) - most:,} rows more: --json has all nodes")
        console.say(*self.caption)

    def markdown(self) -> str:
        rule = ["---"] * len(self.header)
        lines = (
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
            for row in (self.header, rule, *self.rows)
        )
        # Points of a list, in lines of the length that the pages have.
        wrap = textwrap.TextWrapper(116, subsequent_indent="  ", break_long_words=False)
        wrap.break_on_hyphens = False
        points = ("- " + wrap.fill(statement) for statement in self.caption)
        return "\n".join([*lines, "", *points, ""])


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Every figure in full precision; empty where there is none."""
    text = io.StringIO()
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
