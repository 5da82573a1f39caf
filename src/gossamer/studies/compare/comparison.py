"""What `gossamer.compare` found, as a person or a notebook wants to see it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.results.line_plot import Line, line_plot
from gossamer.results.notebook import columns, picture, shown, table
from gossamer.studies.compare.plot import Page
from gossamer.studies.compare.table import Table


@dataclass(frozen=True, repr=False)
class Comparison:
    """Rows of figures. In a notebook it shows its table, and a plot over ε or over rounds."""

    result: dict[str, Any]  # what `--json` prints
    table: Table
    page: Page

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each row: settings, means and deviations over seeds, claimed and proven ε."""
        rows: list[dict[str, Any]] = self.result["rows"]
        return rows

    @property
    def failed(self) -> dict[str, str]:
        """Why, by the label of each run that failed."""
        failed: dict[str, str] = self.result["failed"]
        return failed

    @property
    def directory(self) -> Path:
        return Path(self.result["out"])

    def __repr__(self) -> str:
        failed = [f"{label} failed: {reason}" for label, reason in self.failed.items()]
        return "\n".join([columns(self.table.header, self.table.rows), *self.table.caption, *failed])

    def _repr_html_(self) -> str:
        lines = [
            Line(
                drawn["name"],
                tuple(zip(drawn["x"], drawn["y"], strict=True)),
                drawn["line"].get("dash") == "dash",
            )
            for drawn in self.page.data
            if "name" in drawn  # not the bands
        ]
        x, y = (self.page.layout[axis] for axis in ("xaxis", "yaxis"))
        plot = line_plot(lines, x["title"]["text"], y["title"]["text"], logarithmic=x.get("type") == "log")
        failed = [f"{label} failed: {reason}" for label, reason in self.failed.items()]
        notes = [*self.page.remarks, *self.table.caption, *failed, f"in {self.directory}"]
        title = self.page.title[:1].upper() + self.page.title[1:]
        return shown(
            title, table(self.table.header, self.table.rows), picture(plot) if plot else "", notes=notes
        )
