"""ε over colluding nodes is what the certificates say, with the planned number marked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import plotly.graph_objects as go
import pytest
from tests.support.certificates import by_observer, certificate

from gossamer.results.report.observers import by_colluders, ticks
from gossamer.results.report.runs import Run
from gossamer.results.verify import Verdict


def run(name: str, **changes: object) -> Run:
    return Run(name, Path(name), {}, "", {}, {}, [{}], certificate(**changes), Verdict(certified=True))


def test_the_curve_of_each_run_that_shares_noise() -> None:
    own, one, two = run("own"), run("one", **by_observer()), run("two", **by_observer(3, 12))
    (figure,) = by_colluders([own, one, two])
    go.Figure(data=figure.data, layout=figure.layout)
    assert [trace["meta"] for trace in figure.data] == [1, 1, 2, 2]
    assert figure.data[0]["x"] == list(range(8))
    assert figure.data[0]["y"] == [(q + 1) / 4 for q in range(8)]
    assert (figure.data[1]["x"], figure.data[1]["y"]) == ([1], [0.5])
    assert (figure.data[3]["x"], figure.data[3]["text"]) == ([3], ["planned, ε = 1"])
    assert figure.note.endswith("δ = 1e-05, add-remove, one record of one node.")
    assert figure.layout["yaxis"]["type"] == "log"  # from 0.25 to 3


def test_nothing_is_drawn_where_all_observers_see_the_same_or_nothing_is_proven() -> None:
    unproven = by_observer()
    for point in unproven["epsilon_by_colluders"]:
        point["epsilon"] = None
    assert by_colluders([run("own"), replace(run("going on"), certificate=None), run("x", **unproven)]) == []


def test_a_flat_curve_starts_at_zero() -> None:
    flat = by_observer()
    flat["epsilon_by_colluders"] = flat["epsilon_by_colluders"][3:]
    (figure,) = by_colluders([run("flat", **flat)])
    assert figure.layout["yaxis"]["range"][0] == 0


@pytest.mark.parametrize(
    ("low", "high", "found"), [(0.9, 3.1, [1, 2]), (0.25, 3, [0.5, 1, 2]), (0.04, 0.2, [0.05, 0.1, 0.2])]
)
def test_ticks_are_round_numbers(low: float, high: float, found: list[float]) -> None:
    assert [tick for tick in ticks(low, high) if low <= tick <= high] == pytest.approx(found)
