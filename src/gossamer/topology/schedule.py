"""Graphs, mixing weights, the graph of every round, and how well they mix.

P[i, j] > 0: node i receives from node j; every node receives from itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from gossamer.errors import UserError

Ints = NDArray[np.int64]
_SMALL = 64  # up to here all pairs are looked at: scipy's algorithms on graphs take longer to import


@dataclass(frozen=True, eq=False)
class Graph:
    """Arcs (sender, receiver), sorted, each once, without self loops; an undirected edge is two arcs.

    `directed` is what the maker declares, not what the arcs happen to look like: it decides whether the two
    arcs between a pair of nodes fail together, and which weights fit.
    """

    nodes: int
    arcs: Ints
    directed: bool
    given: Any = None  # csr_array of weights the user prescribed; None: weights are built from the arcs
    offsets: frozenset[int] | None = None  # where everyone sends to those so far from it, and to no others

    def out_degree(self) -> Ints:
        """Number of receivers of each node, itself not counted."""
        return np.bincount(self.arcs[:, 0], minlength=self.nodes)

    def in_degree(self) -> Ints:
        """Number of senders to each node, itself not counted."""
        return np.bincount(self.arcs[:, 1], minlength=self.nodes)


def from_arcs(nodes: int, arcs: Any, *, directed: bool, given: Any = None) -> Graph:
    """Graph from any (m, 2) list of arcs; undirected edges may be named once."""
    pairs = np.asarray(arcs, dtype=np.int64).reshape(-1, 2)
    if not directed:
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    # One integer per arc: sorting those is much faster than sorting rows, or than np.unique.
    code = np.sort(pairs[:, 0] * nodes + pairs[:, 1])
    code = code[np.diff(code, prepend=-1) > 0]
    return Graph(nodes, np.stack([code // nodes, code % nodes], axis=1), directed, given)


def circulant(nodes: int, offsets: Iterable[int], *, directed: bool) -> Graph:
    """Node i sends to i + offset (mod n) for every offset."""
    shift = np.fromiter(offsets, dtype=np.int64)
    sender = np.repeat(np.arange(nodes, dtype=np.int64), len(shift))
    receiver = (sender + np.tile(shift, nodes)) % nodes
    graph = from_arcs(nodes, np.stack([sender, receiver], axis=1), directed=directed)
    return replace(graph, offsets=frozenset(shift.tolist()))


def pattern(nodes: int, arcs: Ints) -> Any:
    """0/1 csr_array A with A[receiver, sender] = 1."""
    return csr_array((np.ones(len(arcs)), (arcs[:, 1], arcs[:, 0])), shape=(nodes, nodes))


def strongly_connected(nodes: int, arcs: Ints) -> bool:
    """Can every node reach every other along the arcs?"""
    if nodes <= _SMALL:
        reached = np.eye(nodes, dtype=bool)
        reached[arcs[:, 0], arcs[:, 1]] = True
        for _ in range(nodes.bit_length()):  # paths of twice the length each time
            reached = reached @ reached
        return bool(reached.all())
    from scipy.sparse.csgraph import connected_components

    # The reversed graph has the same strong components, so the orientation of `pattern` does not matter.
    count, _ = connected_components(pattern(nodes, arcs), directed=True, connection="strong")
    return bool(count == 1)


def connected(graphs: Sequence[Graph]) -> bool:
    """Can every node reach every other along the arcs of all these graphs?"""
    offsets = [graph.offsets for graph in graphs]
    if all(own is not None for own in offsets):
        # Steps round a circle reach everyone if they and the number of nodes have no common divisor.
        return math.gcd(graphs[0].nodes, *(step for own in offsets if own is not None for step in own)) == 1
    seen = union(graphs)
    return strongly_connected(seen.nodes, seen.arcs)


def union(graphs: Iterable[Graph]) -> Graph:
    """The graph with every arc of the given graphs."""
    parts = list(graphs)
    if len(parts) == 1:
        return parts[0]
    arcs = np.concatenate([graph.arcs for graph in parts])
    return from_arcs(parts[0].nodes, arcs, directed=any(graph.directed for graph in parts))


def thin(graph: Graph, stays: Callable[[Ints], Any]) -> Graph:
    """The graph with the links for which `stays` is true: arcs, or undirected edges, both ways together."""
    links = graph.arcs if graph.directed else graph.arcs[graph.arcs[:, 0] < graph.arcs[:, 1]]
    arcs = links[stays(links)]
    left = from_arcs(graph.nodes, arcs, directed=graph.directed)
    if graph.given is None:
        return left
    # Prescribed weights: the sender keeps what it could not send, so every column still sums to one.
    mask = pattern(graph.nodes, left.arcs)
    sent = graph.given.multiply(mask).tocsr()
    folded = sent + diags_array(1.0 - sent.sum(axis=0))
    return Graph(graph.nodes, left.arcs, graph.directed, folded.tocsr())


def edge_array(graph: Any) -> Ints:
    """The edges of a networkx graph, (m, 2)."""
    return np.array(list(graph.edges), dtype=np.int64).reshape(-1, 2)


def from_networkx(graph: Any) -> Graph:
    return from_arcs(graph.number_of_nodes(), edge_array(graph), directed=graph.is_directed())


WeightsKind = Literal["column", "doubly", "adjacency"]
WEIGHTS: tuple[WeightsKind, ...] = ("column", "doubly", "adjacency")
FITTING = "ring, torus or complete"  # kinds that give every sort of weights


def column(graph: Graph) -> Any:
    """P[i, j] = 1 / (1 + out-degree of j) for each receiver i of j and for j itself: columns sum to one."""
    share = 1.0 / (1.0 + graph.out_degree())
    return _with_diagonal(graph, share[graph.arcs[:, 0]], share)


def metropolis(graph: Graph) -> Any:
    """W[i, j] = 1 / (1 + max(d_i, d_j)), the rest stays at home: symmetric and doubly stochastic."""
    degree = graph.out_degree()
    sender, receiver = graph.arcs.T
    weight = 1.0 / (1.0 + np.maximum(degree[sender], degree[receiver]))
    return _with_diagonal(graph, weight, 1.0 - np.bincount(sender, weight, minlength=graph.nodes))


def uniform(graph: Graph) -> Any:
    """W = I − L / (1 + max degree): doubly stochastic when every node sends as often as it receives."""
    degree = graph.out_degree()
    weight = 1.0 / (1.0 + degree.max(initial=0))
    return _with_diagonal(graph, np.full(len(graph.arcs), weight), 1.0 - degree * weight)


def weights_of(graph: Graph, weights: WeightsKind, *, kind: str, mixing: str | None = None) -> Any:
    """The n×n csr_array an algorithm that declares `weights` needs, or a UserError that names what fits."""
    if weights == "adjacency":
        if graph.directed:
            raise UserError(_no_fit(kind, "no undirected neighbourhoods", weights))
        return pattern(graph.nodes, graph.arcs)
    if graph.given is not None:
        _check_given(graph.given, weights)
        return graph.given
    if weights == "column":
        return column(graph)
    if graph.directed:
        balanced = np.array_equal(graph.out_degree(), graph.in_degree())
        if mixing == "metropolis" or not balanced:
            raise UserError(_no_fit(kind, f"no {mixing or 'doubly stochastic'} weights", weights))
        return uniform(graph)
    return uniform(graph) if mixing == "uniform" else metropolis(graph)


def _no_fit(kind: str, lacks: str, weights: str) -> str:
    return (
        f"topology.kind = '{kind}' is directed and has {lacks}, which algorithm weights '{weights}' needs; "
        f"use for example {FITTING}"
    )


def _with_diagonal(graph: Graph, off: Any, diagonal: Any) -> Any:
    index: Ints = np.arange(graph.nodes)
    row = np.concatenate([graph.arcs[:, 1], index])
    col = np.concatenate([graph.arcs[:, 0], index])
    matrix = csr_array((np.concatenate([off, diagonal]), (row, col)), shape=(graph.nodes, graph.nodes))
    matrix.sort_indices()
    return matrix


def _check_given(matrix: Any, weights: WeightsKind) -> None:
    columns, rows = (np.allclose(matrix.sum(axis=axis), 1.0, rtol=0, atol=1e-8) for axis in (0, 1))
    if weights == "doubly" and not (rows and columns):
        off = "rows" if columns else "columns" if rows else "rows and columns"
        raise UserError(f"topology.matrix has {off} that do not sum to 1, as weights 'doubly' need")
    if weights == "column" and not columns:
        hint = "; its rows do, so give the transpose" if rows else ""
        what = "topology.matrix has columns that do not sum to 1, as weights 'column' need"
        raise UserError(f"{what} (entry [i, j] is what node i takes from node j){hint}")


_EPOCH, _DROPOUT = 1, 2  # keep the random streams of one seed apart
KEPT = 8  # graphs kept in memory of a schedule that never repeats


class Rounds(Protocol):
    """The graph of every round t = 0, 1, 2, …"""

    @property
    def period(self) -> int | None:
        """Rounds until the graphs repeat; None if they never do."""

    def graph(self, t: int) -> Graph:
        """The graph of round t."""


@dataclass(frozen=True)
class Periodic:
    """The given graphs in turn, for ever."""

    graphs: tuple[Graph, ...]

    @property
    def period(self) -> int:
        return len(self.graphs)

    def graph(self, t: int) -> Graph:
        return self.graphs[t % len(self.graphs)]


@dataclass(frozen=True)
class Resampled:
    """A new graph from `draw` every `every` rounds; epoch e's generator is seeded by (seed, e)."""

    draw: Callable[[np.random.Generator], Graph]
    every: int
    seed: int
    period: ClassVar[None] = None

    def graph(self, t: int) -> Graph:
        return self._drawn(t // self.every)

    @cached_property
    def _drawn(self) -> Callable[[int], Graph]:
        """The graph of an epoch; a draw may be slow, so the last ones are kept."""

        @lru_cache(KEPT)
        def drawn(epoch: int) -> Graph:
            return self.draw(np.random.default_rng([_EPOCH, epoch, self.seed]))

        return drawn


@dataclass(frozen=True)
class WithDropout:
    """Another schedule whose links fail independently in every round; round t is seeded by (seed, t)."""

    base: Rounds
    rate: float
    seed: int
    period: ClassVar[None] = None

    def graph(self, t: int) -> Graph:
        rng = np.random.default_rng([_DROPOUT, t, self.seed])
        return thin(self.base.graph(t), lambda links: rng.random(len(links)) >= self.rate)


@dataclass(frozen=True)
class WithSlowLinks:
    """Another schedule of whose links a share is slow: those carry every `every`-th of their messages only.

    In the rounds between, a slow link is not in the graph, so its sender keeps what it would have sent and the weights
    still add up: nothing is ever on its way between two rounds. Which links are slow, and when each of them is ready,
    follows from the seed and from the link itself; turns count in periods, so that every link has its turn.
    """

    base: Rounds
    share: float
    every: int
    seed: int

    @property
    def period(self) -> int | None:
        return None if self.base.period is None else self.base.period * self.every

    def graph(self, t: int) -> Graph:
        graph = self.base.graph(t)

        def ready(links: Ints) -> Any:
            bits = mixed_bits(links[:, 0] * graph.nodes + links[:, 1], self.seed)
            slow = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 < self.share
            cycle = np.uint64(t // (self.base.period or 1))
            turn = (cycle + (bits & np.uint64(0x7FF))) % np.uint64(self.every) == 0
            return ~slow | turn

        return thin(graph, ready)


def mixed_bits(numbers: Ints, seed: int) -> Any:
    """64 well-mixed bits of each number (the finaliser of SplitMix64)."""
    bits = numbers.astype(np.uint64) + np.uint64((2 * seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))


_DENSE_SYMMETRIC = 2000  # dense eigenvalues up to this many nodes: about a second
_DENSE_GENERAL = 600
_DENSE_DIAMETER = 1000
_SAME = 1e-12  # two weights that differ by rounding only


def spectral_gap(matrices: list[Any]) -> float | None:
    """1 − |λ₂| of the product of the given mixing matrices (the last one applied last).

    None where no method converges: large and neither circulant nor quick for an iterative solver.
    """
    n = matrices[0].shape[0]
    if n == 1:
        return 1.0
    spectra = [_circulant_spectrum(m) for m in matrices]
    if all(s is not None for s in spectra):
        return _gap(np.prod(np.array(spectra), axis=0))
    symmetric = len(matrices) == 1 and abs(matrices[0] - matrices[0].T).max() <= _SAME
    if n <= (_DENSE_SYMMETRIC if symmetric else _DENSE_GENERAL):
        product = matrices[0].toarray()
        for matrix in matrices[1:]:
            product = matrix @ product
        return _gap(np.linalg.eigvalsh(product) if symmetric else np.linalg.eigvals(product))

    from scipy.sparse.linalg import LinearOperator

    def apply(x: Any) -> Any:
        for matrix in matrices:
            x = matrix @ x
        return x

    values = _largest(LinearOperator((n, n), matvec=apply, dtype=np.float64), symmetric, "LM")
    return None if values is None else _gap(values)


def algebraic_connectivity(graph: Graph) -> float | None:
    """Second smallest eigenvalue of the Laplacian of an undirected graph; None if it does not converge."""
    if graph.nodes == 1 or not strongly_connected(graph.nodes, graph.arcs):
        return 0.0
    degree = graph.out_degree().astype(np.float64)
    laplacian = (diags_array(degree) - pattern(graph.nodes, graph.arcs)).tocsr()
    spectrum = _circulant_spectrum(laplacian)
    if spectrum is not None:
        return float(np.sort(spectrum.real)[1])
    if graph.nodes <= _DENSE_SYMMETRIC:
        return float(np.linalg.eigvalsh(laplacian.toarray())[1])
    # Turned over, the smallest eigenvalues become the largest, which the iteration finds fastest.
    top = 2.0 * float(degree.max())
    values = _largest(diags_array(np.full(graph.nodes, top)) - laplacian, True, "LA")
    return None if values is None else top - float(np.sort(values)[-2])


def diameter(graphs: Sequence[Graph]) -> int | None:
    """Longest shortest path in all of these together; None if not connected or too large to count every pair."""
    n = graphs[0].nodes
    if n > _DENSE_DIAMETER or not connected(graphs):
        return None
    graph = union(graphs)
    if n == 1:
        return 0
    step = (pattern(n, graph.arcs).toarray() + np.eye(n) > 0).astype(np.float32)
    # powers[k] holds who is reached within 2^k steps; then the answer's bits are found from the top.
    powers = [step]
    while not powers[-1].all():
        powers.append((powers[-1] @ powers[-1] > 0).astype(np.float32))
    reached, steps = np.eye(n, dtype=np.float32), 0
    for k in range(len(powers) - 1, -1, -1):
        further = (reached @ powers[k] > 0).astype(np.float32)
        if not further.all():
            reached, steps = further, steps + 2**k
    return steps + 1


def rounds_until_connected(rounds: Rounds, *, limit: int = 256) -> int | None:
    """B: whichever round one starts in, the union of B rounds is strongly connected.

    Over every start of a period; for random schedules over the first eight starts (an observation, no bound).
    None if the limit does not suffice.
    """
    longest = 0
    for start in range(rounds.period or 8):
        seen = [rounds.graph(start)]
        count = 1
        while not connected(seen):
            if count == (rounds.period or limit):
                return None
            # Graphs that are rules are looked at as they are; of others what was seen is put together.
            before = seen if seen[0].offsets is not None else [union(seen)]
            seen = [*before, rounds.graph(start + count)]
            count += 1
        longest = max(longest, count)
    return longest


def _circulant_spectrum(matrix: Any) -> NDArray[np.complex128] | None:
    """All eigenvalues by one Fourier transform if each column is the one before shifted down, else None.

    The order is that of the common Fourier basis, so spectra of several circulants multiply entry by entry.
    """
    n = matrix.shape[0]
    first = matrix[:, [0]].toarray()[:, 0]
    entries = matrix.tocoo()
    if entries.nnz != n * np.count_nonzero(first):
        return None
    row, col = entries.coords
    if not np.allclose(entries.data, first[(row - col) % n], rtol=0, atol=_SAME):
        return None
    return np.fft.fft(first)


def _gap(eigenvalues: Any) -> float:
    second = np.sort(np.abs(eigenvalues))[-2]
    gap = 1.0 - float(second)
    return gap if abs(gap) > 1e-14 else 0.0


def _largest(operator: Any, symmetric: bool, which: str) -> Any:
    """The two largest eigenvalues by Lanczos or Arnoldi with a fixed start, or None without convergence."""
    from scipy.sparse.linalg import ArpackError, eigs, eigsh

    n = operator.shape[0]
    start = np.random.default_rng(0).standard_normal(n)
    settings = {"k": 2, "ncv": min(n - 1, 60), "maxiter": 100, "tol": 1e-8, "v0": start}
    try:
        if symmetric:
            return eigsh(operator, which=which, return_eigenvectors=False, **settings)
        return eigs(operator, which="LM", return_eigenvectors=False, **settings)
    except ArpackError:
        return None


_WINDOW = 8  # rounds that stand for a schedule that never repeats
_LISTED = 1000  # nodes up to which the edges of a graph that is a rule are listed all the same, for plots


@dataclass(frozen=True, eq=False)
class Topology:
    """Graph and mixing matrix of round t = 0, 1, 2, …; any round, in any order, always the same answer.

    weights_kind: "column" (columns sum to one), "doubly" (rows too) or "adjacency" (0/1, no self loops).
    P[i, j] > 0 means that node i receives from node j. Arrays handed out are shared: do not write to them.
    """

    kind: str
    nodes: int
    weights_kind: WeightsKind
    rounds: Rounds
    settings: Mapping[str, Any]  # seed, dropout, mixing and the kind's options, for the record
    mixing: str | None = None
    rule: str | None = None  # the graph in words, where it follows from kind, nodes and settings alone

    @property
    def period(self) -> int | None:
        """1: static; p: repeats after p rounds; None: random, never repeats."""
        return self.rounds.period

    def weights(self, t: int) -> Any:
        """Mixing matrix of round t, an n×n scipy.sparse.csr_array of float64."""
        return self._weights(self._in_period(t))

    def out_degree(self, t: int) -> Ints:
        """Messages each node sends in round t, not counting itself."""
        return self._graph(self._in_period(t)).out_degree()

    def edges(self, t: int) -> Ints:
        """(sender, receiver) pairs of round t without self loops; an undirected edge appears both ways."""
        return self._graph(self._in_period(t)).arcs

    def figures(self) -> dict[str, Any]:
        """Measures of mixing over one period, or over the first eight rounds of a random schedule.

        "spectral gap": 1 − |λ₂| of the product of these rounds' matrices; 0: does not mix.
        "spectral gap per round": 1 − |λ₂|^(1/rounds).
        "algebraic connectivity", "normalised Fiedler value" (that / n): mean over these rounds if undirected.
        "diameter": that of the union of these rounds.
        "rounds until strongly connected": B, see `rounds_until_connected`.
        None: does not exist (no weights, directed, not connected) or cannot be computed at this size.
        """
        return dict(self._figures)

    def to_json(self) -> dict[str, Any]:
        """Return topology.json; with the edges of each of the rounds in `figures`, unless many nodes follow a rule."""
        edges = {}
        if self.rule is None or self.nodes <= _LISTED:
            edges = {"edges": [self.edges(t).tolist() for t in range(self._window)]}
        return {
            "kind": self.kind,
            "nodes": self.nodes,
            "weights": self.weights_kind,
            "options": dict(self.settings),
            "period": self.period,
            **({} if self.rule is None else {"rule": self.rule}),
            **edges,
            "figures": self.figures(),
        }

    @property
    def _window(self) -> int:
        return self.period or _WINDOW

    def _in_period(self, t: int) -> int:
        return t % self.period if self.period else t

    @cached_property
    def _graph(self) -> Callable[[int], Graph]:
        """The graph of a round; of a schedule that never repeats the last few are kept."""
        return lru_cache(None if self.period else KEPT)(self.rounds.graph)

    @cached_property
    def _weights(self) -> Callable[[int], Any]:
        @lru_cache(None if self.period else KEPT)
        def weights(t: int) -> Any:
            return weights_of(self._graph(t), self.weights_kind, kind=self.kind, mixing=self.mixing)

        return weights

    @cached_property
    def _figures(self) -> dict[str, Any]:
        graphs = [self._graph(t) for t in range(self._window)]
        directed = any(g.directed for g in graphs)
        gap = None
        if self.weights_kind != "adjacency":
            gap = spectral_gap([self.weights(t) for t in range(self._window)])
        connectivity = None
        if not directed:
            each = [algebraic_connectivity(g) for g in graphs]
            known = [value for value in each if value is not None]
            connectivity = float(np.mean(known)) if len(known) == len(each) else None
        return {
            "directed": directed,
            "rounds looked at": self._window,
            "spectral gap": gap,
            "spectral gap per round": None if gap is None else 1.0 - (1.0 - gap) ** (1.0 / self._window),
            "algebraic connectivity": connectivity,
            "normalised Fiedler value": None if connectivity is None else connectivity / self.nodes,
            "diameter": diameter(graphs),
            "rounds until strongly connected": rounds_until_connected(self.rounds),
            "mean out-degree": float(np.mean([len(g.arcs) / self.nodes for g in graphs])),
        }
