"""The figures of a report are what the runs wrote down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.certificates import by_observer, certificate

from gossamer.results.report import Figure, Run, _by_colluders, _by_pair, figures, read_runs


def of(runs: list[Run]) -> dict[str, Figure]:
    return {figure.title: figure for figure in figures(runs)}


def y(figure: Figure, line: int = 0) -> list[float]:
    return [y for _, y in figure.chart.series[line].points]


def test_figures_are_what_the_run_wrote_down(runs: dict[str, Path]) -> None:
    found = of(read_runs([runs["plain"], runs["seeded"], runs["central"]]))
    rows = [json.loads(line) for line in (runs["plain"] / "metrics.jsonl").read_text().splitlines()]
    accuracy = found["Accuracy"] if "Accuracy" in found else found["Accuracy (not private)"]
    line = accuracy.chart.series[0]
    assert y(accuracy) == [row["accuracy_mean"] for row in rows]
    assert list(line.spread) == [(row["accuracy_min"], row["accuracy_max"]) for row in rows]
    assert [line.group for line in accuracy.chart.series] == [0, 1, 2]
    assert [len(line.points) for line in found["Accuracy of every node"].chart.series] == [8, 8, 1]
    epsilon = found["ε over rounds"]
    assert y(epsilon) == [0.0, *(row["epsilon_proven"] for row in rows)]
    assert y(epsilon, 1) == [0.0, *(row["epsilon_claimed"] for row in rows)]
    assert [level for level, _ in epsilon.chart.levels] == [8.0]
    assert "δ = 0.0001, add-remove" in epsilon.note
    assert "Gradient norm (not private)" in found
    assert {title for title in found if title.startswith("Topology")} == {
        "Topology: one-peer-exponential", "Topology: ring",
    }  # fmt: skip


def test_the_axis_of_nodes_that_are_equal_stays_near_them(runs: dict[str, Path]) -> None:
    figure = of(read_runs([runs["central"]]))["Accuracy of every node"]
    (value,) = y(figure)
    assert value - 0.06 < figure.chart.y.low < value < figure.chart.y.high <= 1.0


def run(name: str, **changes: Any) -> Run:
    topology = {"edges": [[[0, 1], [1, 0]]]}
    return Run(name, Path(name), {}, {}, {}, topology, [{}], certificate(**changes))


def test_epsilon_over_colluding_nodes_is_of_each_run_that_shares_noise() -> None:
    (figure,) = _by_colluders([run("one", **by_observer()), run("two", **by_observer(3, 12))])
    assert figure.chart.series[0].points == [(q, (q + 1) / 4) for q in range(8)]
    assert figure.chart.series[1].points == [(1, 0.5)]
    assert figure.chart.series[3].labels == ["planned, ε = 1"]
    assert figure.note.endswith("δ = 1e-05, add-remove, one record of one node.")
    assert figure.chart.y.log  # from 0.25 to 3
    flat = by_observer()
    flat["epsilon_by_colluders"] = flat["epsilon_by_colluders"][3:]
    (figure,) = _by_colluders([run("flat", **flat)])
    assert (figure.chart.y.log, figure.chart.y.low) == (False, 0.0)


def test_nothing_is_drawn_where_all_observers_see_the_same_or_nothing_is_proven() -> None:
    unproven = by_observer()
    for point in unproven["epsilon_by_colluders"]:
        point["epsilon"] = None
    assert not list(_by_colluders([run("x", **unproven)]))
    assert not list(_by_colluders([]))


def test_the_maps_of_pairs_are_those_of_the_certificates() -> None:
    pairs = {"worst_pair": {}, "outsider": 1.0, "by_pair": [[None, 2.0], [1.0, None]]}
    one, two = run("one", network=pairs), run("two", network=pairs)
    (figure,) = _by_pair([run("none", network=None), run("large", network={**pairs, "by_pair": None}), one])
    assert figure.title == "ε of one node against another: one"
    assert "records of node 1, seen by node 0: ε = 2" in figure.chart
    assert "Worst pair: node 1's records against node 0, ε = 2; median 1.5." in figure.note
    assert "δ = 1e-05, add-remove, one record of one node." in figure.note
    assert len(list(_by_pair([one, two]))) == 2
