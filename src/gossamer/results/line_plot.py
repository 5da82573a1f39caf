"""Lines with names over one axis, as SVG written by hand: a notebook should not grow by megabytes of script."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from gossamer.results.epsilon_plot import round_marks

# Okabe and Ito's colours, which the colour-blind can tell apart, without the yellow that white swallows.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM, _LINE = 640, 340, 60, 16, 14, 44, 16


@dataclass(frozen=True)
class Line:
    name: str
    points: tuple[tuple[float, float], ...]
    dashed: bool = False


def line_plot(
    lines: Sequence[Line],
    x_title: str,
    y_title: str,
    *,
    logarithmic: bool = False,
    size: tuple[int, int] = (_WIDTH, _HEIGHT),
    dots: bool = True,
) -> str:
    """`logarithmic`: the axis to the right, whose values must be positive. "" if there is nothing to draw.

    `size`: width, and height without the names of the lines; `dots`: a dot at every point.
    """
    known = [line for line in lines if line.points]
    if not known:
        return ""
    xs = [_placed(x, logarithmic) for line in known for x, _ in line.points]
    ys = [y for line in known for _, y in line.points]
    left, right, low, high = *_span(xs), *_span(ys)
    across, up = size
    height = up + _LINE * len(known)

    def x(value: float) -> float:
        return _LEFT + (across - _LEFT - _RIGHT) * (_placed(value, logarithmic) - left) / (right - left)

    def y(value: float) -> float:
        return up - _BOTTOM - (up - _BOTTOM - _TOP) * (value - low) / (high - low)

    def text(px: float, py: float, words: str, anchor: str = "middle", more: str = "") -> str:
        return f'<text x="{px:.1f}" y="{py:.1f}" text-anchor="{anchor}" fill="#333"{more}>{html.escape(words)}</text>'

    drawn = []
    for mark in _marks(low, high):
        drawn.append(
            f'<line x1="{_LEFT}" x2="{across - _RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}" stroke="#e4e4e4"/>'
            + text(_LEFT - 8, y(mark) + 4, f"{mark:.4g}", "end")
        )
    for tick in sorted({x for line in known for x, _ in line.points})[:: max(1, len(set(xs)) // 6)]:
        drawn.append(text(x(tick), up - _BOTTOM + 18, f"{tick:.4g}"))
    for i, line in enumerate(known):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in sorted(line.points))
        dash = ' stroke-dasharray="6 4"' if line.dashed or i >= len(COLOURS) else ""
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if dots:
            drawn += [
                f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="3" fill="{colour}"/>' for a, b in line.points
            ]
        at = up + _LINE * i
        drawn.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + 22}" y1="{at}" y2="{at}" stroke="{colour}" stroke-width="2"{dash}/>'
        )
        drawn.append(text(_LEFT + 30, at + 4, line.name, "start"))
    middle = (_TOP + up - _BOTTOM) / 2
    upright = f' transform="rotate(-90 14 {middle:.0f})"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {height}" font-family="sans-serif" font-size="12">'
        f'<rect width="{across}" height="{height}" fill="white"/>{"".join(drawn)}'
        f"{text((_LEFT + across) / 2, up - 8, x_title)}"
        f"{text(14, middle, y_title, more=upright)}</svg>"
    )


def _marks(low: float, high: float) -> list[float]:
    """Round numbers between the two."""
    step = round_marks(high - low)[1]
    return [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _placed(value: float, logarithmic: bool) -> float:
    return math.log(value) if logarithmic else value


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis, with some room."""
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.5 * abs(high) or 0.5
    return low - room, high + room
