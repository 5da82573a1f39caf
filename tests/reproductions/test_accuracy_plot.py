"""The picture shows what the table has: every point at its place, nothing of one budget alone."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from reproductions.accuracy_plot import accuracy_plot


def figure(epsilon: float, **accuracies: float | None) -> dict[str, Any]:
    columns = {name: {"accuracy_mean": value, "accuracy_std": 0.01} for name, value in accuracies.items()}
    return {"epsilon": epsilon, "columns": columns, "without_noise": ["open"]}


def circles(svg: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)]


def test_more_accuracy_is_higher_and_more_epsilon_further_right() -> None:
    svg = accuracy_plot("a < b", [figure(0.3, own=0.5, open=0.97), figure(3.0, own=0.9, open=0.97)])
    assert svg is not None
    ElementTree.fromstring(svg)
    (x1, y1), (x2, y2), (_, y3), (_, y4) = circles(svg)
    assert x1 < x2
    assert y1 > y2 > y3 == y4
    assert svg.count("stroke-dasharray") == 2  # the curve without noise, and its entry in the legend
    assert "a &lt; b" in svg
    assert "own 90.0%" in svg


def test_one_budget_or_no_figure_is_no_picture() -> None:
    assert accuracy_plot("t", []) is None
    assert accuracy_plot("t", [figure(1.0, own=0.5)]) is None
    assert accuracy_plot("t", [figure(1.0, own=None), figure(2.0, own=None)]) is None
