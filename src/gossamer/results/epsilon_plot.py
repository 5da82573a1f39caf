"""Cumulative claimed and proven ε over the rounds, as a terminal sparkline and as a small picture.

The picture is SVG written by hand: forty lines, readable by every browser, where a plotting library would bring
megabytes of script for two lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gossamer.training.privacy import PrivacyPlan


Point = float | None
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 320, 56, 44, 34
_CLAIMED, _PROVEN, _BUDGET = "#8a6d3b", "#1f5fa8", "#b03030"


def sparkline(values: Sequence[Point]) -> str:
    known = [v for v in values if v is not None and math.isfinite(v)]
    top = max(known, default=0.0) or 1.0
    return "".join(
        " " if v is None or not math.isfinite(v) else "▁▂▃▄▅▆▇█"[min(7, int(8 * v / top))] for v in values
    )


def curve_rounds(rounds: int, points: int = 24) -> list[int]:
    return sorted({max(1, round(rounds * i / points)) for i in range(1, points + 1)})


def epsilon_plot(plan: PrivacyPlan, rounds: int) -> str:
    """The SVG of a plan's worst node."""
    at = curve_rounds(rounds)
    curves = plan.drawn_after(at)
    node = plan.worst
    title = f"ε over rounds (worst node; δ = {node.delta:g}, {plan.adjacency}, {plan.unit})"
    return draw(at, [c for c, _ in curves], [p for _, p in curves], node.epsilon, title)


def draw(
    at: Sequence[int], claimed: Sequence[Point], proven: Sequence[Point], budget: float | None, title: str
) -> str:
    values = [v for v in (*claimed, *proven, budget) if v is not None and math.isfinite(v)]
    top, last = 1.08 * max(values, default=1.0), at[-1]

    def x(r: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 16) * r / last

    def y(e: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * e / top

    def line(curve: Sequence[Point], colour: str) -> str:
        points = [(0.0, 0.0), *((r, e) for r, e in zip(at, curve, strict=True) if e is not None)]
        path = " ".join(f"{x(r):.1f},{y(e):.1f}" for r, e in points)
        return (
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            if len(points) > 1
            else ""
        )

    def label(px: float, py: float, words: str, *, anchor: str = "start", colour: str = "#333") -> str:
        return f'<text x="{px:.1f}" y="{py:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'

    marks = round_marks(top)
    grid = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - 16}" y1="{y(v):.1f}" y2="{y(v):.1f}" stroke="#e4e4e4"/>'
        for v in marks
    )
    ticks = "".join(label(_LEFT - 8, y(v) + 4, f"{v:.3g}", anchor="end") for v in marks)
    ticks += "".join(
        label(x(r), _HEIGHT - _BOTTOM + 18, f"{r:g}", anchor="middle") for r in (0, last // 2, last)
    )
    budget_line = ""
    if budget is not None:
        budget_line = (
            f'<line x1="{_LEFT}" x2="{_WIDTH - 16}" y1="{y(budget):.1f}" y2="{y(budget):.1f}" stroke="{_BUDGET}" '
            f'stroke-dasharray="5 4"/>{label(_LEFT + 6, y(budget) - 5, f"asked for: {budget:g}", colour=_BUDGET)}'
        )
    legend = label(_WIDTH - 150, _HEIGHT - 8, "— proven", colour=_PROVEN) + label(
        _WIDTH - 80, _HEIGHT - 8, "— claimed", colour=_CLAIMED
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">'
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>{label(_LEFT, 20, title)}{grid}{ticks}'
        f"{label((_LEFT + _WIDTH) / 2, _HEIGHT - 8, 'round', anchor='middle')}{legend}{budget_line}"
        f"{line(claimed, _CLAIMED)}{line(proven, _PROVEN)}</svg>\n"
    )


def round_marks(top: float) -> list[float]:
    """0 and a few round numbers up to `top`."""
    rough = top / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= rough)
    return [step * i for i in range(int(top / step) + 1)]
