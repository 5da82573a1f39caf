"""A table of texts and figures: on the terminal, as plain text, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from gossamer.results.terminal import WIDE


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

    def show(self, console: Console, most: int | None = None) -> None:
        """Print the table, or the first `most` of its rows; proven ε stands out."""
        if not console.is_terminal:
            console.width = max(console.width, WIDE)  # a file has no edge to wrap at
        styles = ["bold" if name == "proven ε" else "" for name in self.header]
        shown = RichTable(*(Column(Text(name)) for name in self.header), box=None)
        for row in self.rows[:most]:
            shown.add_row(*map(Text, row, styles))
        console.print(shown)
        if most is not None and (more := len(self.rows) - most) > 0:
            console.print(f"and {more:,} rows more: --json has all nodes", soft_wrap=True)
        for statement in self.caption:
            console.print(Text(statement), soft_wrap=True)

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
