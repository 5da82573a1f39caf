"""The figures of a report are what the runs wrote down."""

from __future__ import annotations

import json
from pathlib import Path

from gossamer.results.report.figures import curves, topologies
from gossamer.results.report.runs import read_runs


def test_figures_are_what_the_run_wrote_down(runs: dict[str, Path]) -> None:
    import plotly.graph_objects as go

    read = read_runs([runs["plain"], runs["seeded"], runs["central"]])
    figures = curves(read) + topologies(read)
    for figure in figures:
        go.Figure(data=figure.data, layout=figure.layout)  # plotly refuses what it does not know
    rows = [json.loads(line) for line in (runs["plain"] / "metrics.jsonl").read_text().splitlines()]
    accuracy = figures[0].data[:3]
    assert [trace["y"] for trace in accuracy] == [
        [r[f"accuracy_{k}"] for r in rows] for k in ("max", "min", "mean")
    ]
    by_title = {figure.title: figure for figure in figures}
    assert [len(trace["y"]) for trace in by_title["Accuracy of every node"].data] == [8, 8, 1]
    epsilon = by_title["ε over rounds"]
    assert epsilon.data[0]["y"] == [0.0, *(r["epsilon_proven"] for r in rows)]
    assert epsilon.data[1]["y"] == [0.0, *(r["epsilon_claimed"] for r in rows)]
    assert [shape["y0"] for shape in epsilon.layout["shapes"]] == [8.0]
    assert "δ = 0.0001, add-remove" in epsilon.note
    assert "Gradient norm (not private)" in by_title
    assert {title for title in by_title if title.startswith("Topology")} == {
        "Topology: one-peer-exponential", "Topology: ring",
    }  # fmt: skip


def test_rounds_of_a_changing_graph_can_be_told_apart(runs: dict[str, Path]) -> None:
    changing, ring = topologies(read_runs([runs["plain"], runs["seeded"]]))
    names = [trace.get("name") for trace in changing.data]
    assert names == ["all of 3 rounds", "round 1", "round 2", "round 3", None]
    assert len({trace["line"]["color"] for trace in changing.data[:4]}) == 4
    assert changing.data[1]["marker"]["symbol"] == "arrow"  # directed
    assert "24 directed links" in changing.note
    assert len(ring.data[0]["x"]) == 3 * 8  # each undirected link once
    assert "marker" not in ring.data[0]


def test_the_axis_of_nodes_that_are_equal_stays_near_them(runs: dict[str, Path]) -> None:
    (alone,) = read_runs([runs["central"]])
    figure = next(f for f in curves([alone]) if f.title == "Accuracy of every node")
    low, high = figure.layout["yaxis"]["range"]
    (value,) = figure.data[0]["y"]
    assert value - 0.06 < low < value < high <= 1.0
