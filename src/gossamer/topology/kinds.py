"""The table [topology]: every kind of graph. A new one is a subclass of `TopologyKind` with `make`, registered here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Field
from scipy.sparse import csr_array

from gossamer.errors import UserError
from gossamer.options.registry import Registry, Table
from gossamer.options.types import Count, NonNegative, Share
from gossamer.topology.schedule import (
    FITTING,
    WEIGHTS,
    Graph,
    Periodic,
    Resampled,
    Rounds,
    Topology,
    WeightsKind,
    WithDropout,
    WithSlowLinks,
    circulant,
    column,
    connected,
    edge_array,
    from_arcs,
    from_networkx,
    pattern,
    strongly_connected,
    weights_of,
)


@dataclass(frozen=True, kw_only=True)
class SlowLinks:
    """A share of the links carries only every so-many-th of its messages."""

    share: Annotated[Share, "share of the links that are slow"]
    every: Annotated[int, Field(ge=2, le=64), "a slow link carries one in so many messages"]


@dataclass(frozen=True, kw_only=True)
class TopologyKind(ABC):
    """A graph or a schedule of graphs. A new kind is a subclass with `make`, registered in `topologies`."""

    mixing: Annotated[Literal["metropolis", "uniform"] | None, "of doubly stochastic weights"] = None
    dropout: Annotated[float, Field(ge=0, lt=1), "probability that a link fails, drawn in every round"] = 0.0
    slow: Annotated[Annotated[SlowLinks, Table()] | None, "links that carry only some messages"] = None

    kind: ClassVar[str]
    fewest_nodes: ClassVar[int] = 1
    any_peer: ClassVar[bool] = False  # may a node send to any other, so that an exact mean may choose whom?
    by_rule: ClassVar[bool] = False  # the same graph for every seed: kind, nodes and options say all of it
    random: ClassVar[bool] = False  # drawn from the seed, so that `resampled` may draw it again

    @abstractmethod
    def make(self, nodes: int, rng: np.random.Generator) -> Graph | Rounds: ...

    def graph(self, nodes: int, rng: np.random.Generator) -> Graph | Rounds:
        """Check the size, then make it."""
        if nodes < self.fewest_nodes:
            what = f"topology.kind = '{self.kind}' needs at least {self.fewest_nodes}"
            raise UserError(f"nodes = {nodes}: {what}; use 'complete'")
        return self.make(nodes, rng)

    def build(self, *, nodes: int, weights: str, seed: int) -> Topology:
        """The network, checked: weights exist and information gets from everyone to everyone.

        weights: what the algorithm needs, "column", "doubly" or "adjacency".
        """
        if nodes < 1:
            raise UserError(f"nodes = {nodes} must be at least 1")
        wanted = next((w for w in WEIGHTS if w == weights), None)
        if wanted is None:
            raise UserError(f"algorithm weights '{weights}' are unknown; use one of {', '.join(WEIGHTS)}")
        if self.mixing and weights != "doubly":
            raise UserError(f"topology.mixing = {self.mixing!r} is for weights 'doubly', not {weights!r}")
        drawn = self.graph(nodes, np.random.default_rng(seed))
        rounds: Rounds = Periodic((drawn,)) if isinstance(drawn, Graph) else drawn
        for t in range(rounds.period or 1):
            graph = rounds.graph(t)
            if self.mixing and graph.given is not None:
                raise UserError(f"topology.mixing = '{self.mixing}' does not apply to a matrix; leave it out")
            matrix = weights_of(graph, wanted, kind=self.kind, mixing=self.mixing)
            if wanted == "doubly":
                self._check_lost_links(graph, matrix)
        # Without dropout: random kinds are connected by construction, so one look suffices for them.
        if not connected([rounds.graph(t) for t in range(rounds.period or 1)]):
            where = "" if rounds.period == 1 else f" over its period of {rounds.period} rounds"
            what = f"topology.kind = '{self.kind}' is not strongly connected{where}"
            raise UserError(f"{what}: some node never hears of another; add the missing links")
        if self.slow:
            rounds = WithSlowLinks(rounds, self.slow.share, self.slow.every, seed)
        if self.dropout:
            rounds = WithDropout(rounds, self.dropout, seed)
        settings = {"seed": seed, **topologies.options(self)}
        by_rule = self.by_rule and not self.dropout and not self.slow
        rule = " ".join((self.__doc__ or "").split()) if by_rule else None
        return Topology(self.kind, nodes, wanted, rounds, settings, self.mixing, rule)

    def _check_lost_links(self, graph: Graph, matrix: Any) -> None:
        """Doubly stochastic weights survive a lost link only if it is lost, and was weighted, both ways alike."""
        if not (self.dropout or self.slow):
            return
        key = f"dropout = {self.dropout}" if self.dropout else "slow"
        if graph.directed:
            raise UserError(f"topology.{key} leaves {self.kind!r}, directed, no such weights; use {FITTING}")
        if graph.given is not None and abs(matrix - matrix.T).max() > 1e-8:
            raise UserError(f"topology.{key} needs a symmetric matrix for algorithm weights 'doubly'")


topologies: Registry[TopologyKind] = Registry("topology")


Rng = np.random.Generator


@topologies.register("ring")
class Ring(TopologyKind):
    """Each node and its two neighbours on a circle."""

    fewest_nodes: ClassVar[int] = 3
    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        return circulant(nodes, [1], directed=False)


@topologies.register("directed-ring")
class DirectedRing(TopologyKind):
    """Node i sends to i + 1."""

    fewest_nodes: ClassVar[int] = 2
    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        return circulant(nodes, [1], directed=True)


@topologies.register("star")
class Star(TopologyKind):
    """Node 0 in the middle."""

    fewest_nodes: ClassVar[int] = 2
    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        return from_arcs(nodes, [(0, leaf) for leaf in range(1, nodes)], directed=False)


@topologies.register("complete")
class Complete(TopologyKind):
    """Everyone with everyone."""

    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        return from_arcs(nodes, np.stack(np.triu_indices(nodes, k=1), axis=1), directed=False)


@dataclass(frozen=True, kw_only=True)
class _Lattice(TopologyKind):
    """Rows × columns, both at least `side`; as square as possible unless `rows` is set."""

    rows: Annotated[Count | None, "rows of the rectangle; as square as possible if not set"] = None

    side: ClassVar[int]
    periodic: ClassVar[bool]
    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        import networkx as nx

        side = self.side
        fits = [r for r in range(side, nodes // side + 1) if nodes % r == 0]
        rows = self.rows or max((r for r in fits if r * r <= nodes), default=0)  # as square as possible
        if rows not in fits:
            key = f"topology.rows = {rows} of" if self.rows else "topology.kind ="
            works = f"nodes = {side * max(side, -(-nodes // side))}"
            if fits:
                works = f"rows = {' or '.join(map(str, fits))}"
            what = f"{key} '{self.kind}' needs nodes = rows × columns of at least {side} × {side}"
            raise UserError(f"{what}, and nodes = {nodes} is not; use {works}")
        lattice = nx.grid_2d_graph(rows, nodes // rows, periodic=self.periodic)
        return from_networkx(nx.convert_node_labels_to_integers(lattice))


@topologies.register("grid")
class Grid(_Lattice):
    """A rectangle of rows × columns, neighbours up, down, left and right."""

    fewest_nodes: ClassVar[int] = 4
    side: ClassVar[int] = 2
    periodic: ClassVar[bool] = False


@topologies.register("torus")
class Torus(_Lattice):
    """A grid whose opposite borders touch: every node has four neighbours."""

    fewest_nodes: ClassVar[int] = 9
    side: ClassVar[int] = 3
    periodic: ClassVar[bool] = True


@topologies.register("exponential")
class Exponential(TopologyKind):
    """Node i sends to i + 1, i + 2, i + 4, … (mod n), all in every round."""

    fewest_nodes: ClassVar[int] = 2
    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        return circulant(nodes, _powers_of_two(nodes), directed=True)


@topologies.register("one-peer-exponential")
class OnePeerExponential(TopologyKind):
    """In round k node i sends to i + 2^(k mod ⌈log₂ n⌉) (mod n) only."""

    fewest_nodes: ClassVar[int] = 2
    any_peer: ClassVar[bool] = True
    by_rule: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Periodic:
        return Periodic(tuple(circulant(nodes, [step], directed=True) for step in _powers_of_two(nodes)))


@topologies.register("edges")
class Edges(TopologyKind):
    """The graph the user lists."""

    edges: Annotated[list[list[int]], "[sender, receiver] pairs"]
    directed: Annotated[bool, "a pair is one way only"] = False

    def make(self, nodes: int, rng: Rng) -> Graph:
        for pair in self.edges:
            if len(pair) != 2 or not all(0 <= end < nodes for end in pair):
                raise UserError(f"topology.edges contains {pair}; give two of the nodes 0 to {nodes - 1}")
            if pair[0] == pair[1]:
                raise UserError(f"topology.edges contains {pair}; leave self loops out")
        return from_arcs(nodes, self.edges, directed=self.directed)


@topologies.register("matrix")
@dataclass(frozen=True, kw_only=True)  # by hand for type checkers: code makes or replaces it
class Matrix(TopologyKind):
    """The user's own mixing matrix, used as given."""

    matrix: Annotated[list[list[float]] | str, "a list, or .npy or .csv file; [i, j]: what i takes from j"]

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
        raise UserError(f"topology.matrix{where} is no table of numbers with rows of one length; give one") from None
    raise UserError(f"topology.matrix = '{matrix}' must be a nested list or a file that ends in .npy or .csv")


def _powers_of_two(nodes: int) -> list[int]:
    return [1 << j for j in range((nodes - 1).bit_length())]


_TRIES = 100  # redraws of a random graph before the options are called hopeless
_FIEDLER_NODES = 2000  # the search takes dense eigenvalues
_SAME = 1e-9  # eigenvalues nearer to each other than this are equal: their last bits depend on the processor


@topologies.register("erdos-renyi")
class ErdosRenyi(TopologyKind):
    """Each edge with probability p, drawn again until connected."""

    p: Annotated[Share, "probability of an edge"]

    fewest_nodes: ClassVar[int] = 2
    random: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        import networkx as nx

        return _connected(
            lambda: from_networkx(nx.fast_gnp_random_graph(nodes, self.p, seed=_seed(rng))),
            f"topology.p = {self.p}",
            f"p of at least {min(1.0, (np.log(nodes) + 1) / nodes):.2g}",
        )


@topologies.register("fiedler")
class Fiedler(TopologyKind):
    """A random connected graph whose normalised Fiedler value λ₂(L)/n is as near to `value` as we find.

    λ₂ never falls when an edge is added, so along a random order of all edges (a random spanning tree first)
    bisection finds where it crosses the target; the best of many orders wins, of two equally near the smaller value.
    """

    value: Annotated[Share, "the Fiedler value over the number of nodes; 1 is the complete graph"]
    tolerance: Annotated[NonNegative, "how far from it the graph may be"] = 0.05

    fewest_nodes: ClassVar[int] = 2
    random: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        if nodes > _FIEDLER_NODES:
            raise UserError(f"nodes = {nodes} is more than the {_FIEDLER_NODES} of topology.kind = 'fiedler'")
        best, best_error, nearest = np.empty((0, 2), dtype=np.int64), np.inf, 0.0
        for _ in range(200 if nodes <= 100 else 5):
            order = _random_edge_order(nodes, rng)
            low, high = nodes - 1, len(order)  # how many edges are taken
            while low < high:
                middle = (low + high) // 2
                if _normalised_fiedler(nodes, order[:middle]) < self.value - _SAME:
                    low = middle + 1
                else:
                    high = middle
            for count in {max(low - 1, nodes - 1), low}:
                reached = _normalised_fiedler(nodes, order[:count])
                error = abs(reached - self.value)
                as_near = abs(error - best_error) <= _SAME
                if error < best_error - _SAME or (as_near and reached < nearest - _SAME):
                    best, best_error, nearest = order[:count], error, reached
            if best_error <= 0.01 * self.value + _SAME:
                break
        if best_error > self.tolerance + _SAME:
            what = f"topology.value = {self.value} is out of reach for nodes = {nodes}"
            within = f"within topology.tolerance = {self.tolerance}"
            raise UserError(f"{what} {within}; the nearest graph found has {nearest:.3g}")
        return from_arcs(nodes, best, directed=False)


@topologies.register("random-regular")
class RandomRegular(TopologyKind):
    """A random connected graph in which every node has the same number of neighbours."""

    degree: Annotated[Count, "neighbours of every node"] = 4

    fewest_nodes: ClassVar[int] = 2
    random: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        degree = self.degree
        import networkx as nx

        if not 1 <= degree < nodes:
            raise UserError(f"topology.degree = {degree} must be from 1 to nodes - 1 = {nodes - 1}")
        if nodes * degree % 2:
            raise UserError(f"topology.degree = {degree} must be even because nodes = {nodes} is odd")

        def draw() -> Graph:
            # The generator starts over on every clash, which is rare in sparse graphs: draw the sparser side.
            sparse = degree <= nodes // 2
            graph = nx.random_regular_graph(degree if sparse else nodes - 1 - degree, nodes, seed=_seed(rng))
            return from_networkx(graph if sparse else nx.complement(graph))

        return _connected(draw, f"topology.degree = {degree}", "at least 3")


@topologies.register("digraph")
class Digraph(TopologyKind):
    """A directed ring plus every other arc with probability p: strongly connected and irregular.

    Redrawn until its column-stochastic weights are not doubly stochastic, so that push-sum's w is not 1.
    """

    p: Annotated[float, Field(gt=0, lt=1), "probability of every arc that is not in the ring"] = 0.2

    fewest_nodes: ClassVar[int] = 3
    random: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        import networkx as nx

        base = circulant(nodes, [1], directed=True).arcs
        for _ in range(_TRIES):
            extra = nx.fast_gnp_random_graph(nodes, self.p, seed=_seed(rng), directed=True)
            graph = from_arcs(nodes, np.concatenate([base, edge_array(extra)]), directed=True)
            if not np.allclose(column(graph).sum(axis=1), 1.0):
                return graph
        raise UserError(f"topology.p = {self.p} gave no irregular digraph of {nodes} nodes; use about 0.5")


def _as_table(base: Any) -> Any:
    """The name alone stands for a table with it."""
    return {"kind": base} if isinstance(base, str) else base


def _drawn_again(base: TopologyKind) -> TopologyKind:
    if not base.random:
        names = ", ".join(name for name, kind in topologies.kinds.items() if kind.random)
        raise ValueError(f"'{base.kind}' is not a random kind; use one of {names}")
    if base.mixing or base.dropout or base.slow:
        raise ValueError("mixing, dropout and slow belong next to base, not in it")
    return base


@topologies.register("resampled")
class ResampledKind(TopologyKind):
    """A new random graph every so many rounds; base = "digraph" or { kind = "digraph", p = 0.3 }."""

    base: Annotated[
        TopologyKind,
        topologies,
        BeforeValidator(_as_table),
        AfterValidator(_drawn_again),
        "the random kind to draw: its name, or a table with its options",
    ]
    every: Annotated[Count, "rounds until the next graph"] = 1
    fewest_nodes: ClassVar[int] = 2

    def make(self, nodes: int, rng: Rng) -> Resampled:
        # A random kind makes one graph. Options that do not fit the nodes are reported now, not in a later round.
        draw = partial(cast(Callable[[int, Rng], Graph], self.base.graph), nodes)
        draw(np.random.default_rng(0))
        return Resampled(draw, self.every, int(rng.integers(2**62)))


def _seed(rng: Rng) -> int:
    return int(rng.integers(2**31))


def _connected(draw: Callable[[], Graph], key: str, remedy: str) -> Graph:
    for _ in range(_TRIES):
        graph = draw()
        if strongly_connected(graph.nodes, graph.arcs):
            return graph
    raise UserError(f"{key} gave no connected graph of {graph.nodes} nodes in {_TRIES} tries; use {remedy}")


def _random_edge_order(nodes: int, rng: Rng) -> NDArray[np.int64]:
    """All edges in random order, after a random spanning tree that keeps every prefix connected."""
    label = rng.permutation(nodes)
    parent = rng.integers(np.arange(1, nodes))  # each joins one of those before it
    tree = np.sort(np.stack([label[parent], label[1:]], axis=1), axis=1)
    every = np.stack(np.triu_indices(nodes, k=1), axis=1)
    rest = every[~np.isin(every @ [nodes, 1], tree @ [nodes, 1])]
    return np.concatenate([tree, rng.permutation(rest)])


def _normalised_fiedler(nodes: int, edges: NDArray[np.int64]) -> float:
    adjacency = pattern(nodes, from_arcs(nodes, edges, directed=False).arcs).toarray()
    laplacian = np.diag(adjacency.sum(axis=1)) - adjacency
    return float(np.linalg.eigvalsh(laplacian)[1]) / nodes


def build(kind: str, *, nodes: int, weights: str, seed: int, **options: Any) -> Topology:
    """The topology of that kind with these options of the table [topology]."""
    table = {"kind": kind, **{name: _plain(value) for name, value in options.items()}}
    return topologies.parse(table).build(nodes=nodes, weights=weights, seed=seed)


def isolated(nodes: int, weights: WeightsKind) -> Topology:
    """No links at all: mixing is the identity (sums over neighbours are zero) and nothing is ever sent."""
    return Topology("isolated", nodes, weights, Periodic((from_arcs(nodes, [], directed=False),)), {})


def _plain(value: Any) -> Any:
    """Arrays and paths as what a TOML file could have held."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return str(value) if isinstance(value, Path) else value
