"""Accuracy over ε, a curve for every column of a table: an SVG for a README, drawn from the table's own figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gossamer.results.charts import DASH, Axis, Plot, Series

# Okabe and Ito's colours, in the order of the table's columns.
COLOURS = ("#D55E00", "#56B4E9", "#0072B2", "#009E73", "#444444")


def accuracy_plot(title: str, figures: Sequence[dict[str, Any]]) -> str | None:
    """The rows of one experiment at two budgets or more; columns without noise are level lines."""
    budgets = sorted({figure["epsilon"] for figure in figures})
    without = {column for figure in figures for column in figure["without_noise"]}
    series: list[Series] = []
    for column in figures[0]["columns"] if figures else ():
        rows = [(f["epsilon"], *spread) for f in figures if (spread := _spread(f["columns"].get(column)))]
        if rows:
            points = [(epsilon, mean) for epsilon, mean, _ in rows]
            ends = [(mean - deviation, mean + deviation) for _, mean, deviation in rows]
            colour, dash = COLOURS[len(series) % len(COLOURS)], DASH if column in without else ""
            series.append(Series(f"{column} {points[-1][1]:.1%}", points, ends, colour=colour, dash=dash))
    if len(budgets) < 2 or not series:
        return None
    x = Axis("proven ε (log scale)", log=True, ticks=[(budget, f"{budget:g}") for budget in budgets])
    return f"{Plot(series, x, Axis('accuracy', percent=True), title, size=(760, 380)).svg()}\n"


def _spread(row: dict[str, Any] | None) -> tuple[float, float] | None:
    """Mean and deviation."""
    if row is None or row.get("accuracy_mean") is None:
        return None
    return row["accuracy_mean"], row["accuracy_std"] or 0.0
