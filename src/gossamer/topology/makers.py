"""The graphs by name: one function each, (nodes, rng, *, options) -> Graph or a schedule of graphs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from gossamer.errors import UserError
from gossamer.topology.graph import Graph, circulant, from_arcs, pattern, strongly_connected
from gossamer.topology.rounds import Periodic
from gossamer.topology.weights import column

Rng = np.random.Generator
_TRIES = 100  # redraws of a random graph before the options are called hopeless
_FIEDLER_NODES = 2000  # the search takes dense eigenvalues


def ring(nodes: int, rng: Rng) -> Graph:
    """Each node and its two neighbours on a circle."""
    return circulant(nodes, [1], directed=False)


def directed_ring(nodes: int, rng: Rng) -> Graph:
    """Node i sends to i + 1."""
    return circulant(nodes, [1], directed=True)


def star(nodes: int, rng: Rng) -> Graph:
    """Node 0 in the middle."""
    return from_arcs(nodes, [(0, leaf) for leaf in range(1, nodes)], directed=False)


def complete(nodes: int, rng: Rng) -> Graph:
    """Everyone with everyone."""
    return from_arcs(nodes, np.stack(np.triu_indices(nodes, k=1), axis=1), directed=False)


def grid(nodes: int, rng: Rng, *, rows: int | None = None) -> Graph:
    """A rectangle of rows × columns, neighbours up, down, left and right."""
    return _lattice("grid", nodes, rows, side=2, periodic=False)


def torus(nodes: int, rng: Rng, *, rows: int | None = None) -> Graph:
    """A grid whose opposite borders touch: every node has four neighbours."""
    return _lattice("torus", nodes, rows, side=3, periodic=True)


def erdos_renyi(nodes: int, rng: Rng, *, p: float) -> Graph:
    """Each edge with probability p, drawn again until connected."""
    _check_probability(p)
    return _connected(
        lambda: _from_networkx(nx.fast_gnp_random_graph(nodes, p, seed=_seed(rng))),
        f"topology.p = {p} gave no connected graph of {nodes} nodes in {_TRIES} tries; "
        f"use p of at least {min(1.0, (np.log(nodes) + 1) / nodes):.2g}",
    )


def random_regular(nodes: int, rng: Rng, *, degree: int = 4) -> Graph:
    """A random connected graph in which every node has the same number of neighbours."""
    if not 1 <= degree < nodes:
        raise UserError(f"topology.degree = {degree} must be between 1 and {nodes - 1} for nodes = {nodes}")
    if nodes * degree % 2:
        raise UserError(f"topology.degree = {degree} must be even because nodes = {nodes} is odd")

    def draw() -> Graph:
        # The generator starts over on every clash, which is rare in sparse graphs: draw the sparser side.
        if degree <= nodes // 2:
            return _from_networkx(nx.random_regular_graph(degree, nodes, seed=_seed(rng)))
        return _from_networkx(
            nx.complement(nx.random_regular_graph(nodes - 1 - degree, nodes, seed=_seed(rng)))
        )

    return _connected(
        draw,
        f"topology.degree = {degree} gave no connected graph of {nodes} nodes in {_TRIES} tries; "
        "use at least 3",
    )


def fiedler(nodes: int, rng: Rng, *, value: float, tolerance: float = 0.05) -> Graph:
    """A random connected graph whose normalised Fiedler value λ₂(L)/n is as near to `value` as we find.

    λ₂ never falls when an edge is added, so along a random order of all edges (a random spanning tree first)
    bisection finds where it crosses the target; the best of many orders wins.
    """
    if not 0.0 < value <= 1.0:
        raise UserError(f"topology.value = {value} must be above 0 and at most 1 (1 is the complete graph)")
    if nodes > _FIEDLER_NODES:
        raise UserError(f"topology.kind = 'fiedler' takes at most {_FIEDLER_NODES} nodes (nodes = {nodes})")
    best, best_error = np.empty((0, 2), dtype=np.int64), np.inf
    found = 0.0
    for _ in range(200 if nodes <= 100 else 5):
        order = _random_edge_order(nodes, rng)
        low, high = nodes - 1, len(order)  # how many edges are taken
        while low < high:
            middle = (low + high) // 2
            if _normalised_fiedler(nodes, order[:middle]) < value:
                low = middle + 1
            else:
                high = middle
        for count in {max(low - 1, nodes - 1), low}:
            reached = _normalised_fiedler(nodes, order[:count])
            if abs(reached - value) < best_error:
                best, best_error, found = order[:count], abs(reached - value), reached
        if best_error <= 0.01 * value:
            break
    if best_error > tolerance:
        raise UserError(
            f"topology.value = {value} is out of reach for nodes = {nodes} within topology.tolerance = "
            f"{tolerance}; the nearest graph found has {found:.3g}"
        )
    return from_arcs(nodes, best, directed=False)


def exponential(nodes: int, rng: Rng) -> Graph:
    """Node i sends to i + 1, i + 2, i + 4, … (mod n), all in every round."""
    return circulant(nodes, _powers_of_two(nodes), directed=True)


def one_peer_exponential(nodes: int, rng: Rng) -> Periodic:
    """In round k node i sends to i + 2^(k mod ⌈log₂ n⌉) (mod n) only."""
    return Periodic(tuple(circulant(nodes, [step], directed=True) for step in _powers_of_two(nodes)))


def digraph(nodes: int, rng: Rng, *, p: float = 0.2) -> Graph:
    """A directed ring plus every other arc with probability p: strongly connected and irregular.

    Redrawn until its column-stochastic weights are not doubly stochastic, so that push-sum's w is not 1.
    """
    if not 0.0 < p < 1.0:
        raise UserError(f"topology.p = {p} must lie strictly between 0 and 1 for kind 'digraph'")
    base = circulant(nodes, [1], directed=True).arcs
    for _ in range(_TRIES):
        extra = nx.fast_gnp_random_graph(nodes, p, seed=_seed(rng), directed=True)
        graph = from_arcs(nodes, np.concatenate([base, _edge_array(extra)]), directed=True)
        if not np.allclose(column(graph).sum(axis=1), 1.0):
            return graph
    raise UserError(
        f"topology.p = {p} gave no irregular digraph of {nodes} nodes in {_TRIES} tries; "
        "use a p nearer to 0.5"
    )


def edges(nodes: int, rng: Rng, *, edges: Sequence[Sequence[int]], directed: bool = False) -> Graph:
    """The graph the user lists, as [sender, receiver] pairs."""
    for pair in edges:
        if len(pair) != 2 or not all(0 <= end < nodes for end in pair):
            raise UserError(
                f"topology.edges contains {list(pair)}; each entry must be two of the nodes 0 to {nodes - 1}"
            )
        if pair[0] == pair[1]:
            raise UserError(
                f"topology.edges contains {list(pair)}; leave self loops out, every node receives from itself"
            )
    return from_arcs(nodes, edges, directed=directed)


def matrix(nodes: int, rng: Rng, *, matrix: Sequence[Sequence[float]] | str) -> Graph:
    """The user's own mixing matrix (nested list, or a .npy or .csv file), used as given."""
    dense = _read_matrix(matrix)
    if dense.shape != (nodes, nodes):
        shape = " × ".join(map(str, dense.shape))
        raise UserError(f"topology.matrix is {shape} and must be {nodes} × {nodes}, as nodes = {nodes}")
    if not np.isfinite(dense).all() or (dense < 0).any():
        raise UserError("topology.matrix has negative or infinite entries; weights must be at least 0")
    receiver, sender = np.nonzero(dense)
    arcs = np.stack([sender, receiver], axis=1)
    symmetric = np.array_equal(dense > 0, dense.T > 0)
    return from_arcs(nodes, arcs, directed=not symmetric, given=csr_array(dense))


def _read_matrix(matrix: Sequence[Sequence[float]] | str) -> NDArray[np.float64]:
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
    lattice = nx.grid_2d_graph(rows, nodes // rows, periodic=periodic)
    return _from_networkx(nx.convert_node_labels_to_integers(lattice))


def _squarest(nodes: int, side: int) -> int | None:
    """The number of rows that makes the rectangle most nearly square."""
    return next((r for r in range(int(nodes**0.5), side - 1, -1) if nodes % r == 0), None)


def _sizes_that_work(nodes: int, side: int) -> str:
    below = next((n for n in range(nodes - 1, side * side - 1, -1) if _squarest(n, side)), None)
    above = next(n for n in range(max(nodes, side * side - 1) + 1, 2 * nodes + 10) if _squarest(n, side))
    return f"use nodes = {above}" if below is None else f"use nodes = {below} or {above}"


def _powers_of_two(nodes: int) -> list[int]:
    return [1 << j for j in range((nodes - 1).bit_length())]


def _check_probability(p: float) -> None:
    if not 0.0 < p <= 1.0:
        raise UserError(f"topology.p = {p} must be above 0 and at most 1")


def _seed(rng: Rng) -> int:
    return int(rng.integers(2**31))


def _edge_array(graph: Any) -> NDArray[np.int64]:
    return np.array(list(graph.edges), dtype=np.int64).reshape(-1, 2)


def _from_networkx(graph: Any) -> Graph:
    return from_arcs(graph.number_of_nodes(), _edge_array(graph), directed=graph.is_directed())


def _connected(draw: Callable[[], Graph], otherwise: str) -> Graph:
    for _ in range(_TRIES):
        graph = draw()
        if strongly_connected(graph.nodes, graph.arcs):
            return graph
    raise UserError(otherwise)


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
