"""The graphs by name: a kind is a dataclass whose fields are its options and whose `make` is the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.sparse import csr_array

from gossamer.errors import UserError
from gossamer.options.types import Count
from gossamer.topology.graph import Graph, circulant, from_arcs, from_networkx
from gossamer.topology.rounds import Periodic
from gossamer.topology.table import TopologyKind, topologies

Rng = np.random.Generator


@topologies.register("ring")
@dataclass(frozen=True, kw_only=True)
class Ring(TopologyKind):
    """Each node and its two neighbours on a circle."""

    fewest_nodes: ClassVar[int] = 3
    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        return circulant(nodes, [1], directed=False)


@topologies.register("directed-ring")
@dataclass(frozen=True, kw_only=True)
class DirectedRing(TopologyKind):
    """Node i sends to i + 1."""

    fewest_nodes: ClassVar[int] = 2
    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        return circulant(nodes, [1], directed=True)


@topologies.register("star")
@dataclass(frozen=True, kw_only=True)
class Star(TopologyKind):
    """Node 0 in the middle."""

    fewest_nodes: ClassVar[int] = 2
    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        return from_arcs(nodes, [(0, leaf) for leaf in range(1, nodes)], directed=False)


@topologies.register("complete")
@dataclass(frozen=True, kw_only=True)
class Complete(TopologyKind):
    """Everyone with everyone."""

    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        return from_arcs(nodes, np.stack(np.triu_indices(nodes, k=1), axis=1), directed=False)


@topologies.register("grid")
@dataclass(frozen=True, kw_only=True)
class Grid(TopologyKind):
    """A rectangle of rows × columns, neighbours up, down, left and right."""

    rows: Annotated[
        Count | None, Field(description="rows of the rectangle; as square as possible if not set")
    ] = None

    fewest_nodes: ClassVar[int] = 4
    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        return _lattice("grid", nodes, self.rows, side=2, periodic=False)


@topologies.register("torus")
@dataclass(frozen=True, kw_only=True)
class Torus(TopologyKind):
    """A grid whose opposite borders touch: every node has four neighbours."""

    rows: Annotated[
        Count | None, Field(description="rows of the rectangle; as square as possible if not set")
    ] = None

    fewest_nodes: ClassVar[int] = 9
    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        return _lattice("torus", nodes, self.rows, side=3, periodic=True)


@topologies.register("exponential")
@dataclass(frozen=True, kw_only=True)
class Exponential(TopologyKind):
    """Node i sends to i + 1, i + 2, i + 4, … (mod n), all in every round."""

    fewest_nodes: ClassVar[int] = 2
    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        return circulant(nodes, _powers_of_two(nodes), directed=True)


@topologies.register("one-peer-exponential")
@dataclass(frozen=True, kw_only=True)
class OnePeerExponential(TopologyKind):
    """In round k node i sends to i + 2^(k mod ⌈log₂ n⌉) (mod n) only."""

    fewest_nodes: ClassVar[int] = 2
    any_peer: ClassVar[bool] = True
    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Periodic:
        return Periodic(tuple(circulant(nodes, [step], directed=True) for step in _powers_of_two(nodes)))


@topologies.register("edges")
@dataclass(frozen=True, kw_only=True)
class Edges(TopologyKind):
    """The graph the user lists."""

    edges: Annotated[list[list[int]], Field(description="[sender, receiver] pairs")]
    directed: Annotated[bool, Field(description="a pair is one way only")] = False

    def make(self, nodes: int, rng: Rng) -> Graph:
        for pair in self.edges:
            if len(pair) != 2 or not all(0 <= end < nodes for end in pair):
                raise UserError(
                    f"topology.edges contains {list(pair)}; each entry must be two of the nodes 0 to {nodes - 1}"
                )
            if pair[0] == pair[1]:
                raise UserError(
                    f"topology.edges contains {list(pair)}; leave self loops out, every node receives from itself"
                )
        return from_arcs(nodes, self.edges, directed=self.directed)


@topologies.register("matrix")
@dataclass(frozen=True, kw_only=True)
class Matrix(TopologyKind):
    """The user's own mixing matrix, used as given."""

    matrix: Annotated[
        list[list[float]] | str,
        Field(
            description="a nested list, or a .npy or .csv file; entry [i, j] is what node i takes from node j"
        ),
    ]

    def make(self, nodes: int, rng: Rng) -> Graph:
        dense = read_matrix(self.matrix)
        if dense.shape != (nodes, nodes):
            shape = " × ".join(map(str, dense.shape))
            raise UserError(f"topology.matrix is {shape} and must be {nodes} × {nodes}, as nodes = {nodes}")
        if not np.isfinite(dense).all() or (dense < 0).any():
            raise UserError("topology.matrix has negative or infinite entries; weights must be at least 0")
        receiver, sender = np.nonzero(dense)
        arcs = np.stack([sender, receiver], axis=1)
        symmetric = np.array_equal(dense > 0, dense.T > 0)
        return from_arcs(nodes, arcs, directed=not symmetric, given=csr_array(dense))


def read_matrix(matrix: Sequence[Sequence[float]] | str) -> NDArray[np.float64]:
    try:
        if not isinstance(matrix, str):
            return np.array(matrix, dtype=np.float64)
        if Path(matrix).suffix == ".npy":
            return np.asarray(np.load(matrix, allow_pickle=False), dtype=np.float64)
        if Path(matrix).suffix == ".csv":
            return np.loadtxt(matrix, delimiter=",", ndmin=2, dtype=np.float64)
    except OSError as error:
        raise UserError(f"topology.matrix = '{matrix}' cannot be read: {error.strerror or error}") from None
    except ValueError:
        where = f" = '{matrix}'" if isinstance(matrix, str) else ""
        raise UserError(f"topology.matrix{where} is not a table of numbers with rows of one length") from None
    raise UserError(f"topology.matrix = '{matrix}' must be a nested list or a file that ends in .npy or .csv")


def _lattice(kind: str, nodes: int, rows: int | None, *, side: int, periodic: bool) -> Graph:
    """Rows × columns, both at least `side`; as square as possible unless `rows` is given."""
    if rows is not None and (rows < side or nodes % rows or nodes // rows < side):
        fits = [r for r in range(side, nodes // side + 1) if nodes % r == 0]
        works = f"use one of {', '.join(map(str, fits))}" if fits else _sizes_that_work(nodes, side)
        raise UserError(
            f"topology.rows = {rows} does not divide nodes = {nodes} into a {kind} of at least "
            f"{side} × {side}; {works}"
        )
    rows = rows or _squarest(nodes, side)
    if rows is None:
        raise UserError(
            f"topology.kind = '{kind}' needs nodes = rows × columns of at least {side} × {side}, "
            f"and nodes = {nodes} is not; {_sizes_that_work(nodes, side)}"
        )
    import networkx as nx

    lattice = nx.grid_2d_graph(rows, nodes // rows, periodic=periodic)
    return from_networkx(nx.convert_node_labels_to_integers(lattice))


def _squarest(nodes: int, side: int) -> int | None:
    """The number of rows that makes the rectangle most nearly square."""
    return next((r for r in range(int(nodes**0.5), side - 1, -1) if nodes % r == 0), None)


def _sizes_that_work(nodes: int, side: int) -> str:
    below = next((n for n in range(nodes - 1, side * side - 1, -1) if _squarest(n, side)), None)
    above = next(n for n in range(max(nodes, side * side - 1) + 1, 2 * nodes + 10) if _squarest(n, side))
    return f"use nodes = {above}" if below is None else f"use nodes = {below} or {above}"


def _powers_of_two(nodes: int) -> list[int]:
    return [1 << j for j in range((nodes - 1).bit_length())]
