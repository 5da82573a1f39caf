"""accuracy over ε, a curve for every column of a table: plain SVG for a README, drawn from the table's own figures."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 380, 56, 170, 40, 48
# Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = ("#D55E00", "#56B4E9", "#0072B2", "#009E73", "#444444")


def accuracy_plot(title: str, figures: Sequence[dict[str, Any]]) -> str | None:
    """The rows of one experiment at two budgets or more; columns without noise are level lines."""
    budgets = [figure["epsilon"] for figure in figures]
    curves = {}
    for column in figures[0]["columns"] if figures else ():
        known = [(f["epsilon"], *spread) for f in figures if (spread := _spread(f["columns"].get(column)))]
        if known:
            curves[column] = known
    if len(set(budgets)) < 2 or not curves:
        return None
    values = [edge for points in curves.values() for _, mean, d in points for edge in (mean - d, mean + d)]
    low, high = max(0.0, min(values) - 2), min(100.0, max(values) + 2)

    def x(epsilon: float) -> float:
        share = math.log(epsilon / min(budgets)) / math.log(max(budgets) / min(budgets))
        return LEFT + 14 + (WIDTH - LEFT - RIGHT - 28) * share

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (value - low) / (high - low)

    parts = [_text(LEFT, 22, title, size=14)]
    for mark in _marks(low, high):
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" stroke="#e4e4e4"/>'
        )
        parts.append(_text(LEFT - 8, y(mark) + 4, f"{mark:g}%", anchor="end"))
    for epsilon in budgets:
        parts.append(_text(x(epsilon), HEIGHT - BOTTOM + 20, f"{epsilon:g}", anchor="middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "proven ε (log scale)", anchor="middle"))
    without = {column for figure in figures for column in figure["without_noise"]}
    heights = _apart([(column, y(points[-1][1])) for column, points in curves.items()])
    for i, (column, points) in enumerate(curves.items()):
        colour, dash = COLOURS[i % len(COLOURS)], ' stroke-dasharray="6 4"' if column in without else ""
        path = " ".join(f"{x(e):.1f},{y(mean):.1f}" for e, mean, _ in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"{dash}/>')
        for e, mean, d in points:
            parts.append(
                f'<line x1="{x(e):.1f}" x2="{x(e):.1f}" y1="{y(mean - d):.1f}" y2="{y(mean + d):.1f}" '
                f'stroke="{colour}" stroke-width="1.5"/><circle cx="{x(e):.1f}" cy="{y(mean):.1f}" r="3.5" '
                f'fill="{colour}"/>'
            )
        parts.append(
            _text(WIDTH - RIGHT + 8, heights[column] + 4, f"{column} {points[-1][1]:.1f}%", colour=colour)
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _spread(row: dict[str, Any] | None) -> tuple[float, float] | None:
    """Mean and deviation in per cent."""
    if row is None or row.get("accuracy_mean") is None:
        return None
    return 100 * row["accuracy_mean"], 100 * (row["accuracy_std"] or 0.0)


def _marks(low: float, high: float) -> list[float]:
    step = next(s for s in (1, 2, 5, 10, 20, 50) if (high - low) / s <= 7)
    return [float(m) for m in range(math.ceil(low / step) * step, math.floor(high) + 1, step)]


def _apart(places: Sequence[tuple[str, float]], gap: float = 16) -> dict[str, float]:
    """Labels from the top down, none on another."""
    found: dict[str, float] = {}
    last = -math.inf
    for column, place in sorted(places, key=lambda item: item[1]):
        last = found[column] = max(place, last + gap)
    return found


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", colour: str = "#333", size: int = 12
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">'
        f"{html.escape(words)}</text>"
    )
