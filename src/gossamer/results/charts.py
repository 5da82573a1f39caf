"""Charts as self-contained SVG: lines with bands or intervals, heat maps, graphs.

Every page, notebook and document draws with this module. `_tag` is the only writer of markup here and escapes every
text. Values show when the pointer rests on a mark (SVG `<title>`), so no script is needed.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from gossamer.training.privacy import PrivacyPlan

# Okabe and Ito's colours, told apart by the colour-blind, without the yellow that is hard to see on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#444444")
INK, GREY, GRID, RED, FAINT = "#1f2328", "#57606a", "#e4e7eb", "#b03030", "#c9ced6"
DASH = "6 4"
_FONT, _CHARACTER, _LINE = 12, 6.8, 17  # pixels: size, mean width of a character, height of a line
_MOST_DOTS, _MOST_HINTS = 40, 240
_SHADES = ((247, 251, 255), (158, 202, 225), (49, 130, 189), (8, 48, 107))  # told apart in grey, too

Point = tuple[float, float]
Pair = tuple[int, int]
Scale = Callable[[float], float]  # a value to its place in pixels
Hint = Callable[[int, int, float], str]  # what a square of a heat map tells: (row, column, value)


@dataclass(frozen=True)
class Axis:
    """An axis; its ends are those of the data, with some room, and its ticks round numbers, unless given."""

    title: str = ""
    low: float | None = None
    high: float | None = None
    log: bool = False
    percent: bool = False
    whole: bool = False  # ticks at whole numbers alone
    ticks: Sequence[tuple[float, str]] = ()

    def fitted(self, values: Sequence[float]) -> Axis:
        """The same axis with both ends known."""
        values = [value for value in values if value > 0] if self.log else list(values)
        least, most = min(values, default=self.low or 0.0), max(values, default=self.high or 1.0)
        if self.log:
            low, high = least / 1.25, most * 1.25
        else:
            room = 0.05 * (most - least) or 0.05 * abs(most) or 0.5
            low, high = least - room, most + room
        low = self.low if self.low is not None else low
        high = self.high if self.high is not None else high
        return replace(self, low=low, high=high if high > low else low + 1)

    def share(self, value: float) -> float:
        """Place of a value: 0 at the low end, 1 at the high one, and never beyond."""
        low, high = self.low or 0.0, self.high or 0.0
        value = min(max(value, low), high)
        if self.log:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    def marks(self) -> list[tuple[float, str]]:
        """Places and labels of the ticks."""
        low, high = self.low or 0.0, self.high or 0.0
        if self.ticks:
            return [(value, label) for value, label in self.ticks if low <= value <= high]
        if self.log:
            powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            digits = (1, 2, 5) if high < 1000 * low else (1,)
            values = [digit * 10.0**power for power in powers for digit in digits]
            values = [value for value in values if low <= value <= high]
            if len(values) > 1:
                return [(value, self.text(value)) for value in values]
        step = _round_step((high - low) / 8, self.whole)
        return [
            (step * k, self.text(step * k, step))
            for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        ]

    def text(self, value: float, step: float | None = None) -> str:
        """A value as this axis writes it."""
        if self.percent:
            whole = step is not None and round(100 * step, 6).is_integer()  # 2.5 % apart: 85.0, 87.5, 90.0
            return f"{value:.{0 if whole else 1}%}"
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


@dataclass(frozen=True)
class Series:
    """Points, joined or not, with the low and high end of each as a band or as intervals."""

    name: str
    points: Sequence[Point]
    spread: Sequence[Point] = ()
    band: bool = False
    colour: str = ""  # the next of COLOURS
    dash: str = ""
    marker: str = "dot"  # or ring, diamond, none
    joined: bool = True
    fill: str = ""  # the area "below" or "above" the line
    labels: Sequence[str] = ()  # text at the points
    group: int | None = None  # the run it belongs to, for pages that can hide one


@dataclass(frozen=True)
class Plot:
    """Series over two axes; a template shows it as SVG."""

    series: Sequence[Series]
    x: Axis = Axis()
    y: Axis = Axis()
    title: str = ""
    levels: Sequence[tuple[float, str]] = ()  # dashed lines across, with their names
    size: tuple[int, int] = (440, 270)  # without the legend
    legend: bool = True

    def svg(self) -> Markup:
        return draw([self], legend=self.legend)

    __html__ = svg  # templates show a plot as markup


def draw(plots: Sequence[Plot], *, columns: int = 1, legend: bool = True, notes: Sequence[str] = ()) -> Markup:
    """Plots of one size side by side, above one legend; nothing where there is nothing to draw."""
    plots = [plot for plot in map(_coloured, plots) if any(one.points for one in plot.series)]
    if not plots:
        return Markup()
    (wide, high), columns = plots[0].size, min(columns, len(plots))
    width, height = wide * columns, high * math.ceil(len(plots) / columns)
    places = [(wide * (i % columns), high * (i // columns)) for i in range(len(plots))]
    shifts = (f"translate({x},{y})" for x, y in places)
    parts = [_tag("g", _plot(plot), transform=shift) for plot, shift in zip(plots, shifts, strict=True)]
    keys: dict[str, tuple[str, str, str]] = {}
    for one in (one for plot in plots for one in plot.series if one.name and one.points):
        keys.setdefault(one.name, (one.name, one.colour, one.dash))
    entries = list(keys.values()) if legend else []
    rows, end = _legend([*entries, *((note, "", "") for note in notes)], width, height)
    label = ", ".join(filter(None, (plots[0].title, plots[0].y.title)))
    return _svg([*parts, *rows], width, end, label)


def heat_map(
    rows: Sequence[Sequence[float | None]], across: str, down: str, hint: Hint, dots: Sequence[Pair] = ()
) -> Markup:
    """A square for every value, darker for larger ones; `dots` marks squares by (row, column)."""
    known = [value for row in rows for value in row if value is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    side, left, top = 300 / len(rows), 56, 8
    turned = f"rotate(-90 14 {top + 150})"
    parts = [_text(left + 150, top + 340, across), _text(14, top + 150, down, transform=turned)]
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            if value is not None:
                shade = _shade((value - low) / (high - low) if high > low else 0.5)
                square = {"x": left + j * side, "y": top + i * side, "width": side, "height": side}
                parts.append(_tag("rect", _title(hint(i, j, value)), fill=shade, **square))
    for i, j in dots:
        x, y = left + (j + 0.5) * side, top + (i + 0.5) * side
        parts.append(_tag("circle", cx=x, cy=y, r=min(4, side / 4), fill=COLOURS[5]))
    for k in range(0, len(rows), math.ceil(len(rows) / 10)):
        parts.append(_text(left + (k + 0.5) * side, top + 318, str(k)))
        parts.append(_text(left - 6, top + (k + 0.5) * side + 4, str(k), text_anchor="end"))
    for k in range(6):
        at = top + 250 - 50 * k
        parts.append(_tag("rect", x=left + 316, y=at, width=14, height=50, fill=_shade(k / 5)))
        parts.append(_text(left + 336, at + 29, f"{low + (high - low) * k / 5:.3g}", text_anchor="start"))
    return _svg(parts, left + 384, 360, f"{across}, {down}")


def sparkline(values: Sequence[float | None]) -> str:
    """A curve in one line of text; blank where there is no finite value."""
    known = [None if value is None or not math.isfinite(value) else value for value in values]
    top = max(filter(None, known), default=1.0)
    return "".join(" " if value is None else "▁▂▃▄▅▆▇█"[min(7, int(8 * value / top))] for value in known)


def curve_rounds(rounds: int, points: int = 12) -> list[int]:
    """Rounds at which a curve is computed; the last one always."""
    return sorted({max(1, round(rounds * i / points)) for i in range(1, points + 1)})


def epsilon_plot(rounds: Sequence[int], curves: Mapping[str, Any], budget: float | None, title: str) -> Plot:
    """ε after each of these rounds, a curve per name, and the ε that was asked for."""
    series: list[Series] = []
    for name, values in curves.items():
        pairs = zip(rounds, values, strict=True)
        points = [(float(at), value) for at, value in pairs if value is not None and math.isfinite(value)]
        if points:
            series.append(Series(name, [(0.0, 0.0), *points]))
    levels = [(budget, f"asked for: {budget:g}")] if budget is not None else []
    x = Axis("round", low=0, high=rounds[-1], whole=True)
    return Plot(series, x, Axis("ε", low=0.0), title, levels, size=(640, 320))


def planned_epsilon_plot(plan: PrivacyPlan, rounds: int) -> Plot:
    """ε of a plan's worst node over the rounds."""
    at, worst = curve_rounds(rounds), plan.worst
    claimed, proven = zip(*plan.drawn_after(at), strict=True)
    title = f"ε over rounds (worst node; δ = {worst.delta:g}, {plan.adjacency}, {plan.unit})"
    return epsilon_plot(at, {"proven": proven, "claimed": claimed}, worst.epsilon, title)


def topology(content: Mapping[str, Any]) -> tuple[str, Markup]:
    """Return a sentence about a run's `topology.json`, and its graph if it is small enough; three rounds stand out."""
    n, kind, rule = content["nodes"], content["kind"], content.get("rule")
    if n > 200:
        return f"{kind}: {n:,} nodes, too many to draw{f': {rule}' if rule else '.'}", Markup()
    directed = bool((content.get("figures") or {}).get("directed"))
    ordered: Any = list if directed else sorted
    edges_of: list[Any] = [map(ordered, edges) for edges in content.get("edges", [])[:64]]
    rounds = [{(a, b) for a, b in edges if a != b} for edges in edges_of]
    pairs = sorted(set().union(*rounds))
    words = f"{kind}: {n} node{'s' * (n > 1)}, {len(pairs):,} {'directed ' * directed}link{'s' * (len(pairs) != 1)}"
    if len(rounds) > 1:
        repeats = "repeats" if content.get("period") == len(rounds) else "never repeats; these are the first"
        words += f" over {len(rounds)} rounds ({repeats})"
    if len(pairs) > 3000:
        return f"{words}, too many to draw.", Markup()
    names = [f"round {i + 1}" for i in range(3)] if len(rounds) > 1 else [""]
    rest = set(pairs).difference(*rounds[:3])
    links = [(f"all {len(rounds)} rounds", sorted(rest), FAINT)] if rest else []
    drawn = zip(names, rounds, COLOURS, strict=False)
    links += [(name, sorted(arcs), colour) for name, arcs, colour in drawn]
    at = [(200 + 180 * x, 200 + 180 * y) for x, y in _places(n, pairs)]
    radius = 12 if n <= 40 else 3
    parts: list[Markup] = []
    for _, arcs, colour in links:
        arrow = radius if directed and colour != FAINT else 0
        parts += (part for a, b in arcs for part in _link(at[a], at[b], colour, arrow))
    for i, (x, y) in enumerate(at):
        parts.append(_tag("circle", _title(f"node {i}"), cx=x, cy=y, r=radius, fill="#fff", stroke="#333"))
        parts.append(_text(x, y + 4, str(i) if n <= 40 else ""))
    rows, height = _legend([(name, colour, "") for name, _, colour in links if name], 400, 400)
    return f"{words}.", _svg([*parts, *rows], 400, height, words)


def _places(n: int, pairs: Sequence[Pair]) -> list[Point]:
    """Return where the nodes of a graph are drawn, from −1 to 1: on a ring, or apart as far as their links are long."""
    import networkx as nx

    network = nx.Graph(pairs)
    network.add_nodes_from(range(n))
    angles = [2 * math.pi * i / n for i in range(n)]
    ring = {i: (math.sin(angle), -math.cos(angle)) for i, angle in enumerate(angles)}
    if n > 60 or not pairs or not nx.is_connected(network) or nx.is_isomorphic(network, nx.cycle_graph(n)):
        return list(ring.values())
    places = nx.kamada_kawai_layout(network, pos=ring)
    widest = max(abs(c) for place in places.values() for c in place) or 1.0
    return [(float(places[i][0] / widest), float(places[i][1] / widest)) for i in range(n)]


def _link(start: Point, end: Point, colour: str, radius: float) -> Iterator[Markup]:
    """A line, with an arrow's head at the receiver's circle of this radius; 0: no arrow."""
    (x1, y1), (x2, y2) = start, end
    yield _tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke_width=1.6, stroke=colour)
    if radius:
        length = math.hypot(x2 - x1, y2 - y1) or 1.0
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        x, y = x2 - radius * dx, y2 - radius * dy
        ends = [(x - 8 * dx - side * dy, y - 8 * dy + side * dx) for side in (4, -4)]
        yield _tag("polygon", points=_path([(x, y), *ends]), fill=colour)


def _coloured(plot: Plot) -> Plot:
    """Series without a colour get the next; after the last colour the same again, dashed."""
    series = [
        one if one.colour
        else replace(one, colour=COLOURS[i % len(COLOURS)], dash=one.dash or DASH * (i >= len(COLOURS)))
        for i, one in enumerate(plot.series)
    ]  # fmt: skip
    return replace(plot, series=series)


def _plot(plot: Plot) -> Markup:
    """Axes and series of one plot."""
    width, height = plot.size
    every = [point for one in plot.series for point in one.points]
    ends = [end for one in plot.series for pair in one.spread for end in pair]
    x_axis = plot.x.fitted([x for x, _ in every] + [tick for tick, _ in plot.x.ticks])
    y_axis = plot.y.fitted([y for _, y in every] + ends + [level for level, _ in plot.levels])
    marks = y_axis.marks()
    left = 30 + _CHARACTER * max([len(label) for _, label in marks], default=1)
    right, top = width - 12, 30 if plot.title else 10
    below = 1 + max([label.count("\n") for _, label in x_axis.ticks], default=0)
    bottom = height - 10 - _LINE * (below + bool(plot.x.title))

    def x(value: float) -> float:
        return left + (right - left) * x_axis.share(value)

    def y(value: float) -> float:
        return bottom - (bottom - top) * y_axis.share(value)

    parts = [_text(left, 18, plot.title, text_anchor="start")]
    for value, label in marks:
        parts.append(_tag("line", x1=left, x2=right, y1=y(value), y2=y(value), stroke=GRID))
        parts.append(_text(left - 6, y(value) + 4, label, text_anchor="end"))
    for value, label in x_axis.marks():
        parts.append(_tag("line", x1=x(value), x2=x(value), y1=top, y2=bottom, stroke=GRID))
        for k, words in enumerate(label.split("\n")):
            parts.append(_text(x(value), bottom + _LINE * (k + 1), words))
    parts.append(_text((left + right) / 2, height - 8, plot.x.title))
    middle = (top + bottom) / 2
    parts.append(_text(13, middle, plot.y.title, transform=f"rotate(-90 13 {middle:.0f})"))
    for level, name in plot.levels:
        at = y(level)
        parts.append(_tag("line", x1=left, x2=right, y1=at, y2=at, stroke=RED, stroke_dasharray=DASH))
        parts.append(_text(left + 6, at - 5, name, text_anchor="start", fill=RED))

    def hint(one: Series, k: int) -> str:
        (across, up), spread = one.points[k], ""
        if one.spread:
            spread = " ({} … {})".format(*map(y_axis.text, one.spread[k]))
        where = dict(x_axis.ticks).get(across, x_axis.text(across)).replace("\n", " ")
        return f"{one.name}, {plot.x.title} {where}: {y_axis.text(up)}{spread}".lstrip(", ")

    parts += [_series(one, x, y, (top, bottom), hint) for one in plot.series if one.points]
    return Markup().join(parts)


def _series(one: Series, x: Scale, y: Scale, edges: tuple[float, float], hint: Callable[[Series, int], str]) -> Markup:
    places, parts = [(x(a), y(b)) for a, b in one.points], []
    if one.band and one.spread:
        across = [px for px, _ in places]
        low, high = (list(zip(across, map(y, ends), strict=True)) for ends in zip(*one.spread, strict=True))
        band = [*high, *reversed(low)]
        parts.append(_tag("polygon", points=_path(band), fill=one.colour, fill_opacity=0.15))
    if one.fill:
        edge = edges[0] if one.fill == "above" else edges[1]
        corners = [(places[0][0], edge), *places, (places[-1][0], edge)]
        parts.append(_tag("polygon", points=_path(corners), fill=one.colour, fill_opacity=0.12))
    if one.joined and len(places) > 1:
        style = {"stroke": one.colour, "stroke_width": 2, "stroke_dasharray": one.dash or None}
        parts.append(_tag("polyline", points=_path(places), fill="none", **style))
    if one.spread and not one.band:
        for (px, _), (least, most) in zip(places, one.spread, strict=True):
            if least < most:
                parts.append(_tag("line", x1=px, x2=px, y1=y(least), y2=y(most), stroke=one.colour))
    if one.marker != "none":
        crowded = len(places) > _MOST_DOTS and one.joined
        for k in range(0, len(places), math.ceil(len(places) / _MOST_HINTS) if one.joined else 1):
            parts.append(_marker(places[k], one, crowded, hint(one, k)))
    for (px, py), label in zip(places, one.labels, strict=False):
        anchor = "end" if px > 260 else "start"
        parts.append(_text(px + (-10 if anchor == "end" else 10), py + 18, label, text_anchor=anchor))
    return _tag("g", *parts, data_run=one.group)


def _marker(place: Point, one: Series, crowded: bool, hint: str) -> Markup:
    """A mark that tells its value; of a crowded line only the hint, on a place that is not painted."""
    x, y = place
    style = {"r": 3, "fill": one.colour, "stroke": "transparent", "stroke_width": 8}
    if one.marker == "diamond":
        corners = f"M {x:.1f} {y - 6:.1f} l 6 6 l -6 6 l -6 -6 z"
        outline = {"fill": "#fff", "fill_opacity": 0, "stroke": one.colour, "stroke_width": 2}
        return _tag("path", _title(hint), d=corners, **outline)
    if crowded:
        style = {"r": 7, "fill": "transparent"}
    elif one.marker == "ring":
        style = {"r": 4, "fill": "#fff", "stroke": one.colour, "stroke_width": 2}
    return _tag("circle", _title(hint), cx=x, cy=y, **style)


def _legend(entries: Sequence[tuple[str, str, str]], width: float, top: float) -> tuple[list[Markup], float]:
    """Names with a piece of their line, in as many columns as they fit into; and where the drawing ends."""
    if not entries:
        return [], top
    longest = 44 + _CHARACTER * max(len(name) for name, _, _ in entries)
    columns = max(1, int(width // max(longest, 90)))
    letters = int((width / columns - 44) / _CHARACTER)
    parts: list[Markup] = []
    top += 6
    for first in range(0, len(entries), columns):
        height = 0
        for k, (name, colour, dash) in enumerate(entries[first : first + columns]):
            x, y = 12 + width / columns * k, top + 8
            if colour:
                style = {"stroke": colour, "stroke_width": 3, "stroke_dasharray": dash or None}
                parts.append(_tag("line", x1=x, x2=x + 22, y1=y, y2=y, **style))
            lines = textwrap.wrap(name, letters) or [""]
            for row, words in enumerate(lines):
                at = x + 28 if colour else x
                look = {"text_anchor": "start", "fill": INK if colour else GREY}
                parts.append(_text(at, y + 4 + _LINE * row, words, **look))
            height = max(height, len(lines))
        top += _LINE * height
    return parts, top + 6


def _round_step(rough: float, whole: bool) -> float:
    """The least round number that is not smaller."""
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * digit for digit in (1, 2, 2.5, 5, 10) if unit * digit >= rough * 0.999)
    return max(1.0, float(math.ceil(step))) if whole else step


def _shade(share: float) -> str:
    """A colour of the heat map's scale."""
    place = share * (len(_SHADES) - 1)
    k = min(int(place), len(_SHADES) - 2)
    mixed = (round(a + (b - a) * (place - k)) for a, b in zip(_SHADES[k], _SHADES[k + 1], strict=True))
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def _path(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _title(words: str) -> Markup:
    return _tag("title", escape(words))


def _text(x: float, y: float, words: str, **attributes: Any) -> Markup:
    if not words:
        return Markup()
    return _tag("text", escape(words), **{"x": x, "y": y, "text_anchor": "middle", "fill": INK, **attributes})


def _svg(parts: Sequence[Markup], width: float, height: float, label: str) -> Markup:
    paper = _tag("rect", width=width, height=height, fill="#fff")
    return _tag(
        "svg", paper, *parts, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:.0f} {height:.0f}", role="img",
        aria_label=label, font_family="system-ui, sans-serif", font_size=_FONT,
    )  # fmt: skip


def _tag(name: str, *children: Markup, **attributes: Any) -> Markup:
    """An element; attributes without a value are left out, floats have one decimal, and text is escaped."""
    written = Markup().join(
        Markup(' {}="{}"').format(key.replace("_", "-"), f"{value:.1f}" if type(value) is float else value)
        for key, value in attributes.items()
        if value is not None
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, written, Markup().join(children))
