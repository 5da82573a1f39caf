"""Topologies: the graph and the mixing matrix of every round, and how well they mix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import diags_array

from gossamer.topology.graph import (
    KEPT,
    Graph,
    Ints,
    Rounds,
    WeightsKind,
    connected,
    pattern,
    strongly_connected,
    union,
    weights_of,
)

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
        """How well this mixes, over one period, or over the first eight rounds of a random schedule.

        "spectral gap": 1 − |λ₂| of the product of these rounds' matrices; 0: does not mix.
        "spectral gap per round": 1 − |λ₂|^(1/rounds).
        "algebraic connectivity", "normalised Fiedler value" (that / n): mean over these rounds if undirected.
        "diameter": that of the union of these rounds.
        "rounds until strongly connected": B, see `rounds_until_connected`.
        None: does not exist (no weights, directed, not connected) or cannot be computed at this size.
        """
        return dict(self._figures)

    def to_json(self) -> dict[str, Any]:
        """What topology.json holds; the edges of each of the rounds in `figures`, unless many nodes follow a rule."""
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
