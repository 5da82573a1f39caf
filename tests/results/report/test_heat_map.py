"""Every square shows its pair, and where squares are shared the worst of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from tests.support.certificates import certificate

from gossamer.results.report.heat_map import MOST_CELLS, by_pair, heat_map
from gossamer.results.report.runs import Run
from gossamer.results.verify import Verdict


def matrix(n: int) -> np.ndarray:
    made = np.random.default_rng(0).uniform(0.5, 3.0, (n, n))
    made[np.arange(n), np.arange(n)] = np.nan
    return made


def test_a_square_for_every_pair_and_none_for_a_node_and_itself() -> None:
    made = matrix(6)
    made[4, 1] = 9.0
    figure = heat_map(made, [(0, 1), (1, 2), (1, 2), (3, 3)], "δ = 1e-05, add-remove, one record of one node")
    go.Figure(data=figure.data, layout=figure.layout)
    squares, dots = figure.data
    assert squares["z"][2][3] == float(f"{made[2, 3]:.4g}")
    assert all(squares["z"][i][i] is None for i in range(6))
    assert squares["x"] == squares["y"] == ["0", "1", "2", "3", "4", "5"]
    assert (dots["x"], dots["y"]) == (["0", "1"], ["1", "2"])  # senders across, receivers down
    assert "Worst pair: node 1's records against node 4, ε = 9" in figure.note
    assert "δ = 1e-05, add-remove, one record of one node." in figure.note


def test_of_many_nodes_a_square_is_the_worst_of_several() -> None:
    n = 2 * MOST_CELLS + 1
    made = matrix(n)
    made[7, 300] = 50.0
    figure = heat_map(made, [(0, 1)], "terms")
    (squares,) = figure.data
    assert len(squares["z"]) == len(squares["x"]) <= MOST_CELLS
    assert squares["x"][0] == "0–2"
    assert squares["z"][2][100] == 50.0
    assert "A cell is the worst of 3 × 3 nodes." in figure.note


def test_two_nodes_have_two_squares() -> None:
    figure = heat_map(np.array([[np.nan, 1.0], [2.0, np.nan]]), [], "terms")
    assert figure.data[0]["z"] == [[None, 1.0], [2.0, None]]


def test_the_maps_are_those_of_the_certificates() -> None:
    def made(name: str, network: object) -> Run:
        given = certificate(network=network)
        return Run(
            name, Path(name), {}, "", {}, {"edges": [[[0, 1], [1, 0]]]}, [{}], given, Verdict(certified=True)
        )

    pairs = {"worst_pair": {}, "outsider": 1.0, "by_pair": [[None, 2.0], [1.0, None]]}
    one, two = made("one", pairs), made("two", pairs)
    (figure,) = by_pair([made("none", None), made("large", {**pairs, "by_pair": None}), one])
    assert figure.title == "ε of one node against another: one"
    assert figure.data[0]["z"] == [[None, 2.0], [1.0, None]]
    assert len(by_pair([one, two])) == 2
