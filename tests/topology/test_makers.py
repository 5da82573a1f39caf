"""The graphs by name are those graphs, and a matrix of one's own is used as given."""

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from tests.support.topologies import make, nx_graph

from gossamer.errors import UserError
from gossamer.topology.schedule import Topology


@pytest.mark.parametrize(
    ("topology", "oracle"),
    [
        (make("ring", 7), nx.cycle_graph(7)),
        (make("directed-ring", 7), nx.cycle_graph(7, create_using=nx.DiGraph)),
        (make("star", 7), nx.star_graph(6)),
        (make("complete", 7), nx.complete_graph(7)),
        (make("grid", 12), nx.grid_2d_graph(3, 4)),
        (make("grid", 12, rows=2), nx.grid_2d_graph(2, 6)),
        (make("torus", 15), nx.grid_2d_graph(3, 5, periodic=True)),
        (make("exponential", 6), nx.DiGraph([(i, (i + s) % 6) for i in range(6) for s in (1, 2, 4)])),
        (make("edges", 4, edges=[[0, 1], [1, 2], [3, 2]]), nx.path_graph(4)),
    ],
    ids=lambda x: x.kind if isinstance(x, Topology) else "",
)
def test_is_the_named_graph(topology: Topology, oracle: Any) -> None:
    assert nx.is_isomorphic(nx_graph(topology), oracle)
    assert topology.period == 1


def test_exponential_sends_forward() -> None:
    assert sorted(make("exponential", 10).edges(0)[:4].tolist()) == [[0, 1], [0, 2], [0, 4], [0, 8]]
    assert [0, 1] in make("directed-ring", 5).edges(3).tolist()
    assert make("directed-ring", 5).weights(0)[1, 0] == 0.5  # node 1 receives from node 0


@pytest.mark.parametrize("nodes", [2, 3, 5, 8, 20, 32])
def test_one_peer_exponential_follows_the_paper(nodes: int) -> None:
    """Node i sends to itself and to i + 2^(k mod ⌈log₂ n⌉) mod n, weight ½ each."""
    topology = make("one-peer-exponential", nodes)
    tau = int(np.ceil(np.log2(nodes)))
    assert topology.period == tau
    for k in range(2 * tau + 1):
        expected = np.zeros((nodes, nodes))
        for i in range(nodes):
            expected[i, i] += 0.5
            expected[(i + 2 ** (k % tau)) % nodes, i] += 0.5
        np.testing.assert_array_equal(topology.weights(k).toarray(), expected)
        np.testing.assert_array_equal(topology.out_degree(k), 1)


class TestMatrix:
    M = np.array([[0.5, 0.25, 0.25], [0.25, 0.75, 0.0], [0.25, 0.0, 0.75]])

    @pytest.mark.parametrize("suffix", [".npy", ".csv"])
    def test_from_a_file(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"weights{suffix}"
        np.save(path, self.M) if suffix == ".npy" else np.savetxt(path, self.M, delimiter=",")
        topology = make("matrix", 3, "doubly", matrix=path)
        np.testing.assert_array_equal(topology.weights(5).toarray(), self.M)
        assert sorted(map(tuple, topology.edges(0).tolist())) == [(0, 1), (0, 2), (1, 0), (2, 0)]
        assert topology.figures()["directed"] is False
        json.dumps(topology.to_json())

    def test_adjacency_is_its_pattern(self) -> None:
        np.testing.assert_array_equal(
            make("matrix", 3, "adjacency", matrix=self.M).weights(0).toarray(),
            [[0, 1, 1], [1, 0, 0], [1, 0, 0]],
        )

    def test_not_stochastic(self) -> None:
        column = np.array([[0.5, 0.2, 0.3], [0.5, 0.5, 0.3], [0.0, 0.3, 0.4]])
        make("matrix", 3, "column", matrix=column)
        with pytest.raises(UserError, match="rows that do not sum to 1"):
            make("matrix", 3, "doubly", matrix=column)
        with pytest.raises(UserError, match=r"columns that do not sum to 1.*transpose"):
            make("matrix", 3, "column", matrix=column.T)
        with pytest.raises(UserError, match="columns that do not sum to 1"):
            make("matrix", 3, "column", matrix=2 * column)

    @pytest.mark.parametrize(
        ("matrix", "says"),
        [
            ([[1.0]], "1 × 1 and must be 2 × 2"),
            ([[1.0, 0.0], [1.0]], "rows of one length"),
            ([[1.5, -0.5], [-0.5, 1.5]], "negative"),
            ([[float("nan"), 0.0], [0.0, 1.0]], "infinite"),
            ("nowhere.npy", "nowhere.npy' cannot be read"),
            ("weights.xlsx", r"\.npy or \.csv"),
            ([[1.0, 0.0], [0.0, 1.0]], "not strongly connected"),
        ],
    )
    def test_bad_matrices(self, matrix: Any, says: str) -> None:
        with pytest.raises(UserError, match=says):
            make("matrix", 2, "column", matrix=matrix)

    def test_bad_files(self, tmp_path: Path) -> None:
        for name in ("words.csv", "words.npy"):
            (tmp_path / name).write_text("some,words\nand,more\n")
            with pytest.raises(UserError, match=f"{name}' is not a table of numbers"):
                make("matrix", 2, "column", matrix=str(tmp_path / name))


def test_every_size_a_lattice_suggests_works() -> None:
    for kind, first in (("grid", 4), ("torus", 9)):
        for nodes in range(first, 60):
            try:
                make(kind, nodes)
            except UserError as error:
                for size in str(error).split("use nodes = ")[1].split(" or "):
                    assert make(kind, int(size)).nodes == int(size)


def test_single_node() -> None:
    for weights, value in (("column", 1.0), ("doubly", 1.0), ("adjacency", 0.0)):
        topology = make("complete", 1, weights)
        np.testing.assert_array_equal(topology.weights(0).toarray(), [[value]])
        assert topology.edges(0).shape == (0, 2)
        np.testing.assert_array_equal(topology.out_degree(0), [0])
        json.dumps(topology.to_json())
