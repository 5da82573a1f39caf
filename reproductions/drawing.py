"""An item of a paper as a drawing: ours in both modes, with 95% intervals, beside what the paper prints. Plain SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from gossamer.results.epsilon_plot import round_marks
from gossamer.results.line_plot import COLOURS
from reproductions.definition import Book
from reproductions.findings import half_width, mean

AUC = "audit.auc"  # of the scores of an audit, which are what is drawn
UNITS = {
    "accuracy": "test accuracy (%)",
    "truth_rmse": "RMSE to the truth",
    "rmse": "RMSE",
    AUC: "share of trainings",
}
HEIGHT, LEFT, RIGHT, TOP, BOTTOM, LINE, KEY = (
    310,
    58,
    12,
    30,
    58,
    18,
    230,
)  # KEY: width of an entry of the legend


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    spread: float  # half of the interval


@dataclass
class Curve:
    name: str
    ours: dict[str, list[Point]] = field(default_factory=dict)  # mode → points
    printed: list[Point] = field(default_factory=list)


@dataclass
class Panel:
    title: str
    ticks: list[tuple[float, str]]
    curves: dict[str, Curve] = field(default_factory=dict)


def drawing(made: Mapping[str, Any], book: Book) -> str | None:
    """None where there is nothing to draw: a single figure, or none."""
    if _metric(made) == AUC:
        panels = _histograms(made)
    else:
        panels = _over_rounds(made, book) if book.history else _over_axis(made, book)
    panels = [p for p in panels if any(c.printed or any(c.ours.values()) for c in p.curves.values())]
    if not panels:
        return None
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    across = min(2, len(panels))
    down = -(-len(panels) // across)
    modes = [m for m in ("paper", "sound") if any(c.ours.get(m) for p in panels for c in p.curves.values())]
    keys = [(name, colours[name]) for name in names]
    notes = [f"{'filled, solid' if m == 'paper' else 'hollow, dashed'}: ours, {m} mode" for m in modes]
    if any(c.printed for p in panels for c in p.curves.values()):
        notes.append("diamond: printed in the paper")
    wide = 430 if across > 1 else 720
    width = wide * across
    columns = width // KEY
    rows = -(-len(keys) // columns) + -(-len(notes) // columns)
    height = HEIGHT * down + LINE * rows + 14
    unit = UNITS.get(_metric(made), _metric(made).rsplit(".", 1)[-1].replace("_", " "))
    drawn = []
    for i, panel in enumerate(panels):
        at = wide * (i % across), HEIGHT * (i // across)
        axis = "rounds" if book.history else book.x or ""
        drawn.append(
            f'<g transform="translate({at[0]},{at[1]})">{_panel(panel, wide, colours, axis, unit)}</g>'
        )
    drawn += _legend(keys, notes, HEIGHT * down + 10, columns)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11"><rect width="{width}" height="{height}" fill="white"/>{"".join(drawn)}</svg>\n'
    )


def _metric(made: Mapping[str, Any]) -> str:
    return next((str(f["metric"]) for cell in made["cells"] for f in cell["modes"].values()), "accuracy")


def _over_axis(made: Mapping[str, Any], book: Book) -> list[Panel]:
    """One panel per value of the axes that are neither drawn from left to right nor as curves."""
    cells = made["cells"]
    axes = list(dict.fromkeys(axis for cell in cells for axis in cell["labels"]))
    x_axis, curve_axis = (
        book.x or axes[-1],
        book.curve or next((a for a in axes if a != (book.x or axes[-1])), ""),
    )
    along: dict[str, set[str]] = {}  # curve → the places it has
    for cell in cells:
        along.setdefault(cell["labels"].get(curve_axis, ""), set()).add(cell["labels"].get(x_axis, ""))
    # A curve of one place that no longer curve has is a baseline, which the axis does not move.
    moved = set().union(*(found for found in along.values() if len(found) > 1))
    places = [p for p in dict.fromkeys(c["labels"].get(x_axis, "") for c in cells) if p in moved or not moved]
    panels: dict[str, Panel] = {}
    for cell in cells:
        labels = cell["labels"]
        rest = ", ".join(v for axis, v in labels.items() if axis not in (x_axis, curve_axis))
        panel = panels.setdefault(rest, Panel(rest, [(float(i), name) for i, name in enumerate(places)]))
        curve = panel.curves.setdefault(labels.get(curve_axis, ""), Curve(labels.get(curve_axis, "")))
        at = [float(places.index(labels.get(x_axis, "")))] if labels.get(x_axis, "") in places else []
        level = at or [0.0, float(len(places) - 1)]  # a baseline that no budget moves: a level line
        for mode, figures in cell["modes"].items():
            values = figures["values"]
            if values and None not in values:
                spread = half_width(values) or 0.0
                curve.ours.setdefault(mode, []).extend(Point(x, mean(values), spread) for x in level)
        if cell["paper_mean"] is not None:
            curve.printed += [Point(x, cell["paper_mean"], cell["paper_std"] or 0.0) for x in level]
    return list(panels.values())


def _over_rounds(made: Mapping[str, Any], book: Book) -> list[Panel]:
    panels: dict[str, Panel] = {}
    for cell in made["cells"]:
        labels = cell["labels"]
        named = book.curve or next(iter(labels))
        for mode, figures in cell["modes"].items():
            rest = ", ".join([*(v for axis, v in labels.items() if axis != named), f"{mode} mode"])
            panel = panels.setdefault(rest, Panel(rest, []))
            curve = panel.curves.setdefault(labels[named], Curve(labels[named]))
            histories = [dict(map(tuple, history)) for history in figures.get("history", [])]
            shared = sorted(set.intersection(*map(set, histories))) if histories else []
            curve.ours[mode] = [
                Point(float(at), mean(values), half_width(values) or 0.0)
                for at in shared
                if None not in (values := [history[at] for history in histories])
            ]
    for panel in panels.values():
        last = max((p.x for c in panel.curves.values() for ps in c.ours.values() for p in ps), default=1.0)
        panel.ticks = [(tick, f"{tick:g}") for tick in round_marks(last)]
    return list(panels.values())


def _histograms(made: Mapping[str, Any]) -> list[Panel]:
    """One panel per cell: the losses on the canary, which are the scores turned round, with it and without it."""
    panels = []
    for cell in made["cells"]:
        for mode, figures in cell["modes"].items():
            found = figures["histograms"][0]
            middles = [-(a + b) / 2 for a, b in pairwise(found["edges"])]
            ends = (min(middles), max(middles))
            marks = [ends[0] + (ends[1] - ends[0]) * k / 4 for k in range(5)]
            panel = Panel(", ".join(cell["labels"].values()), [(mark, f"{mark:.3g}") for mark in marks])
            for side, name in (("in", "trained with the canary"), ("out", "trained without it")):
                points = [Point(x, share, 0.0) for x, share in zip(middles, found[side], strict=True)]
                panel.curves[name] = Curve(name, {mode: points})
            panels.append(panel)
    return panels


def _panel(panel: Panel, wide: int, colours: Mapping[str, str], x_title: str, y_title: str) -> str:
    points = [p for c in panel.curves.values() for ps in (*c.ours.values(), c.printed) for p in ps]
    rise = _rise(points)
    ends = [p.x for p in points] + [tick for tick, _ in panel.ticks]
    left, right = min(ends), max(ends)

    def x(value: float) -> float:
        share = (value - left) / (right - left) if right > left else 0.5
        return LEFT + 30 + (wide - LEFT - RIGHT - 60) * share

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * rise.share(value)

    drawn = [_text(LEFT, 18, panel.title, size=12)]
    for mark in rise.marks:
        at = y(mark)
        drawn.append(f'<line x1="{LEFT}" x2="{wide - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#e4e4e4"/>')
        drawn.append(_text(LEFT - 6, at + 4, f"{mark:.4g}", anchor="end"))
    for at, name in panel.ticks:
        # A pair of settings stands in two lines: side by side they would run into each other.
        drawn += [
            _text(x(at), HEIGHT - BOTTOM + 16 + 13 * k, words, anchor="middle")
            for k, words in enumerate(name.split(", ", 1))
        ]
    drawn.append(_text((LEFT + wide) / 2, HEIGHT - 12, x_title if panel.ticks else "", anchor="middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    drawn.append(
        f'<g transform="rotate(-90 13 {middle:.0f})">{_text(13, middle, y_title, anchor="middle")}</g>'
    )
    for name, curve in panel.curves.items():
        colour = colours[name]
        for mode, ours in curve.ours.items():
            drawn += _line(sorted(ours, key=lambda p: p.x), x, y, colour, hollow=mode == "sound")
        drawn += [_diamond(x(p.x), y(p.y), colour) for p in curve.printed]
    return "".join(drawn)


@dataclass(frozen=True)
class Rise:
    """The upright axis: from where to where, and which marks it has."""

    low: float
    high: float
    logarithmic: bool
    marks: tuple[float, ...]

    def share(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def _rise(points: Sequence[Point]) -> Rise:
    """Errors that differ by a factor of more than ten stand on a logarithmic axis."""
    least, most = min(p.y for p in points), max(p.y for p in points)
    if least > 0 and most > 10 * least:
        low, high = least / 1.4, most * 1.4
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1, 2, 5) if len(decades) <= 4 else (1,)
        marks = [step * 10.0**decade for decade in decades for step in steps]
        return Rise(low, high, True, tuple(mark for mark in marks if low <= mark <= high))
    # An interval from two or three seeds can be wider than the figure: it may run out of the panel, means may not.
    reach = 0.4 * (most - least)
    low = max(min(p.y - p.spread for p in points), least - reach)
    high = min(max(p.y + p.spread for p in points), most + reach)
    room = 0.05 * (high - low) or 0.5
    low, high = low - room, high + room
    step = round_marks(high - low)[1]
    marks = [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return Rise(low, high, False, tuple(marks))


def _line(points: Sequence[Point], x: Any, y: Any, colour: str, *, hollow: bool) -> list[str]:
    dash = ' stroke-dasharray="5 4"' if hollow else ""
    path = " ".join(f"{x(p.x):.1f},{y(p.y):.1f}" for p in points)
    drawn = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>']
    for p in points:
        if p.spread:
            drawn.append(
                f'<line x1="{x(p.x):.1f}" x2="{x(p.x):.1f}" y1="{y(p.y - p.spread):.1f}" '
                f'y2="{y(p.y + p.spread):.1f}" stroke="{colour}" stroke-width="1"/>'
            )
        fill = "white" if hollow else colour
        radius = 3 if len(points) <= 12 else 1.5
        drawn.append(
            f'<circle cx="{x(p.x):.1f}" cy="{y(p.y):.1f}" r="{radius}" fill="{fill}" stroke="{colour}"/>'
        )
    return drawn


def _diamond(x: float, y: float, colour: str) -> str:
    return f'<path d="M {x:.1f} {y - 6:.1f} l 6 6 l -6 6 l -6 -6 z" fill="none" stroke="{colour}" stroke-width="2"/>'


def _legend(keys: Sequence[tuple[str, str]], notes: Sequence[str], top: float, columns: int) -> list[str]:
    drawn = []
    for i, (name, colour) in enumerate(keys):
        x, y = 14 + KEY * (i % columns), top + LINE * (i // columns)
        drawn.append(f'<line x1="{x}" x2="{x + 18}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"/>')
        drawn.append(_text(x + 24, y + 4, name or "ours"))
    below = top + LINE * -(-len(keys) // columns)
    return drawn + [
        _text(14 + KEY * (i % columns), below + LINE * (i // columns) + 4, note, colour="#666")
        for i, note in enumerate(notes)
    ]


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", colour: str = "#333", size: int = 11
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">'
        f"{html.escape(words)}</text>"
    )
