"""Charts are well-formed SVG with every point at its place and every text as text."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.configurations import outlined

from gossamer.results.charts import (
    Axis,
    Plot,
    Series,
    curve_rounds,
    draw,
    heat_map,
    planned_epsilon_plot,
    sparkline,
    topology,
)

SVG = "{http://www.w3.org/2000/svg}"


def parsed(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(str(markup))


def points(line: ElementTree.Element) -> list[tuple[float, float]]:
    return [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]  # type: ignore[misc]


def texts(root: ElementTree.Element) -> list[str | None]:
    return [text.text for text in root.iter(f"{SVG}text")]


def hints(root: ElementTree.Element) -> list[str | None]:
    return [title.text for title in root.iter(f"{SVG}title")]


def test_lines_have_names_axes_ticks_and_hints() -> None:
    lines = [
        Series("a <b> & c", ((1.0, 0.1), (3.0, 0.5)), [(0.0, 0.2), (0.4, 0.6)], band=True, group=4),
        Series("level", ((1.0, 0.9), (3.0, 0.9)), dash="6 4"),
    ]
    root = parsed(Plot(lines, Axis("round", whole=True), Axis("accuracy", percent=True)).svg())
    assert {"a <b> & c", "level", "round", "accuracy", "1", "2", "3", "20%", "80%"} <= set(texts(root))
    first, second = (points(line) for line in root.iter(f"{SVG}polyline"))
    assert first[0][0] < first[1][0]
    assert first[0][1] > first[1][1] > second[0][1] == second[1][1]  # higher is further up
    assert "a <b> & c, round 3: 50.0% (40.0% … 60.0%)" in hints(root)
    assert len(points(next(root.iter(f"{SVG}polygon")))) == 4  # the band
    assert [g.attrib["data-run"] for g in root.iter(f"{SVG}g") if "data-run" in g.attrib] == ["4"]


def test_a_logarithmic_axis_has_equal_steps_for_equal_ratios() -> None:
    line = Series("a", ((1, 1), (10, 2), (100, 3)), [(0.5, 1.5), (2, 2), (2, 4)])
    root = parsed(Plot([line], Axis("ε", log=True)).svg())
    x = [x for x, _ in points(next(root.iter(f"{SVG}polyline")))]
    assert abs((x[1] - x[0]) - (x[2] - x[1])) < 0.2
    assert {"1", "10", "100"} <= set(texts(root))


def test_a_fixed_axis_ends_where_it_is_told_and_nothing_leaves_it() -> None:
    line = Series("a", ((0.0, -5.0), (1.0, 5.0)))
    root = parsed(Plot([line], Axis(low=0.0, high=1.0), Axis(low=0.0, high=1.0), size=(400, 240)).svg())
    assert all(0 <= x <= 400 and 0 <= y <= 240 for x, y in points(next(root.iter(f"{SVG}polyline"))))


def test_nothing_and_one_point_are_drawn_too() -> None:
    assert Plot([Series("a", ())]).svg() == draw([]) == ""
    for point in ((2.0, 2.0), (0.0, 0.0), (1e-99, -1e99)):
        parsed(Plot([Series("a", (point,))]).svg())


def test_plots_side_by_side_share_one_legend() -> None:
    plots = [Plot([Series("a", ((0, 1), (1, 2))), Series("b", ((0, 1), (1, 2)))], title=str(i)) for i in range(3)]
    root = parsed(draw(plots, columns=2, notes=["a note"]))
    assert texts(root).count("a") == texts(root).count("a note") == 1
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    assert (width, height > 2 * 270) == (880, True)


def test_heights_of_a_sparkline_are_eighths_of_the_highest_and_gaps_are_blank() -> None:
    assert sparkline([0.0, 1.0, 2.0, 4.0, 8.0]) == "▁▂▃▅█"
    assert sparkline([None, 1.0, float("inf")]) == " █ "
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""


@given(rounds=st.integers(1, 10_000))
def test_rounds_of_a_curve_end_with_the_last_and_have_no_zero(rounds: int) -> None:
    at = curve_rounds(rounds)
    assert at[-1] == rounds
    assert at == sorted(set(at))
    assert at[0] >= 1
    assert len(at) == min(rounds, 12)


def test_a_plans_epsilon_starts_at_nothing_rises_and_ends_at_what_is_asked_for() -> None:
    plan = outlined(rounds=40, privacy__sampling={"kind": "full"}).privacy
    plot = planned_epsilon_plot(plan, 40)
    assert [line.name for line in plot.series] == ["proven", "claimed"]
    for line in plot.series:
        assert line.points[0] == (0.0, 0.0)
        assert line.points[-1][0] == 40
        assert [y for _, y in line.points] == sorted(y for _, y in line.points)
    assert plot.series[0].points[-1][1] == pytest.approx(8.0, rel=0.01)  # proven: all of the budget, no more
    words = str(plot.svg())
    assert "δ = 0.0001, add-remove" in words
    assert "asked for: 8" in words


def test_a_square_for_every_value_and_none_for_a_gap() -> None:
    root = parsed(heat_map([[None, 1.0], [2.0, None]], "across", "down", lambda i, j, v: f"{i} {j} <{v}>", [(0, 1)]))
    assert hints(root) == ["0 1 <1.0>", "1 0 <2.0>"]
    low, high = (rect.attrib["fill"] for rect in root.iter(f"{SVG}rect") if list(rect))
    assert low != high
    assert len(list(root.iter(f"{SVG}circle"))) == 1


TWO_ROUNDS = {
    "kind": "changing",
    "nodes": 4,
    "period": 2,
    "edges": [[[0, 1], [1, 0]], [[2, 3], [3, 0]]],
    "figures": {"directed": True},
}


def test_links_of_the_first_rounds_have_arrows() -> None:
    words, chart = topology(TWO_ROUNDS)
    root = parsed(chart)
    assert len(list(root.iter(f"{SVG}polygon"))) == 4
    assert texts(root) == ["0", "1", "2", "3", "round 1", "round 2"]
    assert words == "changing: 4 nodes, 4 directed links over 2 rounds (repeats)."
    first = next(line for line in root.iter(f"{SVG}line") if line.attrib["stroke"] == "#0072b2")
    assert first.attrib["x1"] == next(root.iter(f"{SVG}circle")).attrib["cx"]  # from node 0
    assert "never repeats" in topology({**TWO_ROUNDS, "period": None})[0]


def test_undirected_links_are_drawn_once_and_without_arrows() -> None:
    both = {
        "kind": "ring",
        "nodes": 3,
        "period": 1,
        "edges": [[[0, 1], [1, 0], [1, 2], [2, 1], [0, 2], [2, 0]]],
    }
    words, chart = topology(both)
    assert len(re.findall("<line", chart)) == 3
    assert "<polygon" not in chart
    assert words == "ring: 3 nodes, 3 links."


def test_a_large_graph_is_words() -> None:
    assert topology({"nodes": 10**9, "kind": "ring", "rule": "i to i + 1"}) == (
        "ring: 1,000,000,000 nodes, too many to draw: i to i + 1", "",
    )  # fmt: skip
    every = [[a, b] for a in range(150) for b in range(150)]
    words, chart = topology({"nodes": 150, "kind": "<script>", "edges": [every]})
    assert (words, chart) == ("<script>: 150 nodes, 11,175 links, too many to draw.", "")
