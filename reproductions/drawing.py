"""An item of a paper as a drawing: ours in both modes with 95% intervals, next to what the paper prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from gossamer.results.charts import COLOURS, DASH, Axis, Plot, Series, draw
from reproductions.definition import Book
from reproductions.findings import half_width, mean

AUC = "audit.auc"  # of the scores of an audit, which are what is drawn
UNITS = {
    "accuracy": "test accuracy (%)",
    "truth_rmse": "RMSE to the truth",
    "rmse": "RMSE",
    AUC: "share of trainings",
}
Point = tuple[float, float, float]  # x, y, half of the interval


@dataclass
class Curve:
    ours: dict[str, list[Point]] = field(default_factory=dict)  # by mode
    printed: list[Point] = field(default_factory=list)

    @property
    def points(self) -> list[Point]:
        return [point for points in (*self.ours.values(), self.printed) for point in points]


@dataclass
class Panel:
    title: str
    x: Axis
    curves: dict[str, Curve] = field(default_factory=dict)

    @property
    def points(self) -> list[Point]:
        return [point for curve in self.curves.values() for point in curve.points]


def drawing(item: Mapping[str, Any], book: Book) -> str | None:
    """The SVG of an item; None where there is nothing to draw: a single figure, or none."""
    metric = _metric(item)
    if metric == AUC:
        panels = _histograms(item, book)
    else:
        panels = _over_rounds(item, book) if book.history else _over_axis(item, book)
    panels = [panel for panel in panels if panel.points]
    if not panels:
        return None
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    curves = [curve for panel in panels for curve in panel.curves.values()]
    modes = [mode for mode in ("paper", "sound") if any(curve.ours.get(mode) for curve in curves)]
    notes = [f"{'filled, solid' if mode == 'paper' else 'hollow, dashed'}: ours, {mode} mode" for mode in modes]
    if any(curve.printed for curve in curves):
        notes.append("diamond: printed in the paper")
    size = (430, 310) if len(panels) > 1 else (720, 310)
    y_title = UNITS.get(metric, metric.rsplit(".", 1)[-1].replace("_", " "))
    plots = [
        Plot(
            [one for name, curve in panel.curves.items() for one in _series(name or "ours", curve, colours[name])],
            panel.x,
            _y_axis(panel.points, y_title),
            panel.title,
            size=size,
        )
        for panel in panels
    ]
    return f"{draw(plots, columns=2, notes=notes)}\n"


def _metric(item: Mapping[str, Any]) -> str:
    return next((str(f["metric"]) for cell in item["cells"] for f in cell["modes"].values()), "accuracy")


def _series(name: str, curve: Curve, colour: str) -> list[Series]:
    """Ours in each mode as a line with intervals, and the paper's figures as diamonds."""
    series = []
    for mode, points in curve.ours.items():
        ordered, hollow = sorted(points), mode == "sound"
        series.append(
            Series(
                name,
                [(x, y) for x, y, _ in ordered],
                [(y - half, y + half) for _, y, half in ordered],
                colour=colour,
                dash=DASH if hollow else "",
                marker="ring" if hollow else "dot",
            )
        )
    printed = [(x, y) for x, y, _ in curve.printed]
    return [*series, Series(name, printed, colour=colour, marker="diamond", joined=False)]


def _y_axis(points: Sequence[Point], title: str) -> Axis:
    """Errors that differ by a factor of more than ten get a logarithmic axis."""
    least, most = min(y for _, y, _ in points), max(y for _, y, _ in points)
    if least > 0 and most > 10 * least:
        return Axis(title, low=least / 1.4, high=most * 1.4, log=True)
    # An interval from two or three seeds can be wider than the figure: it may leave the panel, means may not.
    reach = 0.4 * (most - least)
    low = max(min(y - half for _, y, half in points), least - reach)
    high = min(max(y + half for _, y, half in points), most + reach)
    room = 0.05 * (high - low) or 0.5
    return Axis(title, low=low - room, high=high + room)


def _over_axis(item: Mapping[str, Any], book: Book) -> list[Panel]:
    """One panel per value of the axes that are neither drawn from left to right nor as curves."""
    cells = item["cells"]
    axes = list(dict.fromkeys(axis for cell in cells for axis in cell["labels"]))
    x_axis = book.x or axes[-1]
    curve_axis = book.curve or next((axis for axis in axes if axis != x_axis), "")
    along: dict[str, set[str]] = {}  # curve → the places it has
    for cell in cells:
        along.setdefault(cell["labels"].get(curve_axis, ""), set()).add(cell["labels"].get(x_axis, ""))
    # A curve of one place that no longer curve has is a baseline, which the axis does not move.
    moved = set().union(*(places for places in along.values() if len(places) > 1))
    places = [p for p in dict.fromkeys(c["labels"].get(x_axis, "") for c in cells) if p in moved or not moved]
    # A pair of settings is written in two lines: in one they would run into each other.
    ticks = [(float(i), name.replace(", ", "\n", 1)) for i, name in enumerate(places)]
    x = Axis(book.x or "", low=-0.2, high=len(places) - 0.8, ticks=ticks)
    panels: dict[str, Panel] = {}
    for cell in cells:
        labels = cell["labels"]
        rest = ", ".join(value for axis, value in labels.items() if axis not in (x_axis, curve_axis))
        curve = panels.setdefault(rest, Panel(rest, x)).curves.setdefault(labels.get(curve_axis, ""), Curve())
        place = labels.get(x_axis, "")
        level = [float(places.index(place))] if place in places else [0.0, float(len(places) - 1)]
        for mode, figures in cell["modes"].items():
            values = figures["values"]
            if values and None not in values:
                half = half_width(values) or 0.0
                curve.ours.setdefault(mode, []).extend((at, mean(values), half) for at in level)
        if cell["paper_mean"] is not None:
            curve.printed += [(at, cell["paper_mean"], cell["paper_std"] or 0.0) for at in level]
    return list(panels.values())


def _over_rounds(item: Mapping[str, Any], book: Book) -> list[Panel]:
    panels: dict[str, Panel] = {}
    for cell in item["cells"]:
        labels = cell["labels"]
        named = book.curve or next(iter(labels))
        for mode, figures in cell["modes"].items():
            rest = ", ".join([*(v for axis, v in labels.items() if axis != named), f"{mode} mode"])
            curve = panels.setdefault(rest, Panel(rest, Axis("rounds", whole=True))).curves.setdefault(
                labels[named], Curve()
            )
            histories = [dict(map(tuple, history)) for history in figures.get("history", [])]
            shared = sorted(set.intersection(*map(set, histories))) if histories else []
            curve.ours[mode] = [
                (float(at), mean(values), half_width(values) or 0.0)
                for at in shared
                if None not in (values := [history[at] for history in histories])
            ]
    return list(panels.values())


def _histograms(item: Mapping[str, Any], book: Book) -> list[Panel]:
    """One panel per cell: the losses on the canary, which are the negated scores, with it and without it."""
    panels = []
    for cell in item["cells"]:
        for mode, figures in cell["modes"].items():
            histogram = figures["histograms"][0]
            middles = [-(a + b) / 2 for a, b in pairwise(histogram["edges"])]
            low, high = min(middles), max(middles)
            marks = [low + (high - low) * k / 4 for k in range(5)]
            x = Axis(book.x or "", ticks=[(mark, f"{mark:.3g}") for mark in marks])
            panel = Panel(", ".join(cell["labels"].values()), x)
            for side, name in (("in", "trained with the canary"), ("out", "trained without it")):
                points = [(at, share, 0.0) for at, share in zip(middles, histogram[side], strict=True)]
                panel.curves[name] = Curve({mode: points})
            panels.append(panel)
    return panels
