"""The graph of shared secrets, and how much of their cancelling noise remains to an observer who knows some of them.

Nodes i and j that share a secret add the same mask to their sums with opposite signs, of variance r s² where each
node's own noise has s². Who sees all sums, and knows everything of q nodes, sees those of the others through noise of
covariance s² (I + r L), L the Laplacian of the secrets among these others. One record moves the sum of its node u only,
so it hides behind σ_eff = s / √((I + r L)⁻¹_uu); the worst u and the worst q nodes count.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Edge = tuple[int, int]
MOST_LISTED = 1000  # nodes of a graph given edge by edge: its spectrum is computed whole
MOST_EXPONENTIAL = 10_000  # nodes of a graph by distances: its edges are listed, which takes a second
MOST_RATIO = 1e6  # of a mask's variance over that of own noise: beyond, σ_eff would be rounded the wrong way
_MOST_SETS, _MOST_WORK = 5000, 2e8  # coalitions that are tried one by one, and the additions that may take
_ROUNDING = 1 - 1e-9  # σ_eff is rounded down by more than its computation can err


@dataclass(frozen=True)
class Secrets:
    """The graph of secrets among `nodes` nodes. Without `edges` every pair has one."""

    nodes: int
    edges: tuple[Edge, ...] | None = None

    def __hash__(self) -> int:
        return hash(self.digest)  # cached: prices are looked up by their graph, and it may have 500,000 edges

    @classmethod
    def complete(cls, nodes: int) -> Secrets:
        return cls(nodes)

    @classmethod
    def exponential(cls, nodes: int) -> Secrets:
        """Node i shares one with i + 1, i + 2, i + 4, …"""
        hops = [1 << k for k in range(max(nodes - 1, 0).bit_length())]
        return cls.of(nodes, ((i, (i + hop) % nodes) for i in range(nodes) for hop in hops if hop < nodes))

    @classmethod
    def of(cls, nodes: int, edges: Iterable[Sequence[int]]) -> Secrets:
        """These pairs, each counted once whichever way round it is written."""
        pairs = sorted({(min(i, j), max(i, j)) for i, j in edges if i != j})
        return cls(nodes) if len(pairs) == nodes * (nodes - 1) // 2 else cls(nodes, tuple(pairs))

    @cached_property
    def digest(self) -> str:
        """The digest that a ledger writes: equal for equal graphs."""
        listed = "complete" if self.edges is None else ";".join(f"{i}-{j}" for i, j in self.edges)
        return hashlib.sha256(f"gossamer secrets {self.nodes}: {listed}".encode()).hexdigest()[:32]

    @property
    def listed(self) -> tuple[Edge, ...] | None:
        """The edges, where the graph does not follow from the number of nodes."""
        return None if self.edges is None or self == Secrets.exponential(self.nodes) else self.edges

    def pairs(self) -> Iterator[Edge]:
        """(i, j) with i < j, in order."""
        return iter(combinations(range(self.nodes), 2) if self.edges is None else self.edges)

    @cached_property
    def laplacian(self) -> NDArray[np.float64]:
        n = self.nodes
        if self.edges is None:
            return n * np.eye(n) - np.ones((n, n))
        i, j = np.array(self.edges, dtype=np.int64).reshape(-1, 2).T
        matrix = np.zeros((n, n))
        matrix[i, j] = matrix[j, i] = -1.0
        return matrix - np.diag(matrix.sum(1))

    def covariance_among(self, honest: NDArray[np.int64], ratio: float) -> NDArray[np.float64]:
        """Of the noise on these nodes' sums in units of s², to an observer of all secrets of the others: I + r L_H.

        L_H counts the secrets among the honest only, for one with a colluder is none.
        """
        block = self.laplacian[np.ix_(honest, honest)]
        return np.asarray(np.eye(len(honest)) + ratio * (block - np.diag(block.sum(1))))

    def _precision(self, members: Iterable[int], ratio: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(the nodes outside of a coalition, the diagonal of (I + r L_H)⁻¹ over them)."""
        honest = np.setdiff1d(np.arange(self.nodes), list(members))
        return honest, np.asarray(np.linalg.inv(self.covariance_among(honest, ratio)).diagonal(), np.float64)

    def effective_noise(self, colluders: int, ratio: float) -> float:
        """σ_eff / s, at least, for any record against any `colluders` nodes: 1 is the node's own noise alone.

        A larger coalition sees more, so coalitions of just that size are the worst. In closed form where every pair
        has a secret; over all coalitions where these are few; else by the spectrum: without its worst q nodes a graph
        keeps an algebraic connectivity of λ₂ − q (Fiedler 1973), and what is orthogonal to a constant has variance
        of at least 1 + r times that.
        """
        return _effective_noise(self, colluders, ratio)

    def effective_noise_against(self, members: Iterable[int], ratio: float, node: int | None = None) -> float:
        """The same against these nodes, for the records of `node`, or of the worst of the others."""
        honest, left = self._precision(members, ratio)
        if not len(honest) or (node is not None and node not in honest):
            return 1.0
        worst = left.max() if node is None else left[int(np.searchsorted(honest, node))]
        return _ROUNDING / math.sqrt(worst) if worst < 1 else 1.0

    def worst_coalition(self, colluders: int, ratio: float, scales: Sequence[float]) -> tuple[tuple[int, ...], int]:
        """(so many nodes, the node whose records they see best): the worst there is where all can be tried.

        Else the neighbours of a node that shares fewest secrets, which is a guess. `scales` are those of the nodes'
        own noise, over what a record moves.
        """
        n, own = self.nodes, np.asarray(scales, dtype=np.float64)
        if self.edges is None:
            node = int(own.argmin())
            return tuple(i for i in range(n) if i != node)[n - 1 - colluders :], node
        coalitions: Iterable[tuple[int, ...]] = combinations(range(n), colluders)
        if not _few(n, colluders):
            node = int(self.laplacian.diagonal().argmin())
            near = sorted((i for i in range(n) if i != node), key=lambda i: self.laplacian[node, i])
            coalitions = [tuple(sorted(near[:colluders]))]
        seen = []
        for members in coalitions:
            honest, left = self._precision(members, ratio)
            left = left / own[honest] ** 2
            seen.append((float(left.max()), members, int(honest[left.argmax()])))
        _, members, node = max(seen)
        return members, node

    def stays_connected(self, colluders: int) -> bool:
        """Are the others still connected whichever `colluders` nodes leave?"""
        # The algebraic connectivity is at most the number of nodes that must leave (Fiedler 1973).
        if self.nodes - colluders <= 1 or self.algebraic_connectivity > colluders:
            return True
        if self.least_degree <= colluders:
            return False
        import networkx as nx

        graph = nx.Graph(self.edges)
        graph.add_nodes_from(range(self.nodes))
        # In one walk; flows between many pairs of nodes take half a minute on a ring of 1000.
        if colluders < 2:
            return bool(nx.is_biconnected(graph) if colluders else nx.is_connected(graph))
        return bool(nx.node_connectivity(graph) > colluders)

    @cached_property
    def least_degree(self) -> int:
        """The number of nodes that share a secret with the node that has fewest."""
        if self.edges is None:
            return self.nodes - 1
        return int(np.bincount(np.ravel(np.array(self.edges, dtype=np.int64)), minlength=self.nodes).min())

    @cached_property
    def algebraic_connectivity(self) -> float:
        """λ₂ of the Laplacian, rounded down."""
        if self.edges is None:
            return float(self.nodes)
        if self == Secrets.exponential(self.nodes):  # a circulant: its spectrum is a Fourier transform
            row = np.zeros(self.nodes)
            for i, j in self.edges:
                if i == 0:
                    row[j] = 1.0
            spectrum = row.sum() - np.fft.fft(row).real
        else:
            spectrum = np.linalg.eigvalsh(self.laplacian)
        return float(np.sort(spectrum)[1]) * (1 - 1e-9) - 1e-9


@cache
def _effective_noise(secrets: Secrets, colluders: int, ratio: float) -> float:
    n, m = secrets.nodes, secrets.nodes - colluders
    if m <= 1 or colluders >= secrets.least_degree:  # they may be all that share a secret with a node
        return 1.0
    if secrets.edges is None:
        return _ROUNDING / math.sqrt(1 / m + (1 - 1 / m) / (1 + m * ratio))
    if _few(n, colluders):
        coalitions = combinations(range(n), colluders)
        return min(secrets.effective_noise_against(members, ratio) for members in coalitions)
    left = max(secrets.algebraic_connectivity - colluders, 0.0)
    return _ROUNDING / math.sqrt(1 / m + (1 - 1 / m) / (1 + left * ratio))


def _few(nodes: int, colluders: int) -> bool:
    """Can all coalitions of that size be tried?"""
    sets = math.comb(nodes, colluders)
    return sets <= _MOST_SETS and sets * float(nodes - colluders) ** 3 <= _MOST_WORK


def checked_edges(listed: Any, nodes: int) -> list[Edge]:
    """Pairs of nodes as a file has them; ValueError says what is wrong with them."""
    if not isinstance(listed, list) or len(listed) > MOST_LISTED**2 or nodes > MOST_LISTED:
        raise ValueError("are no list of pairs of nodes")
    for pair in listed:
        fine = isinstance(pair, list) and len(pair) == 2 and all(type(node) is int for node in pair)
        if not fine or not all(0 <= node < nodes for node in pair) or pair[0] == pair[1]:
            raise ValueError(f"have {str(pair)[:40]}, which are no two of the nodes 0 … {nodes - 1}")
    return [(i, j) for i, j in listed]


_known: dict[str, Secrets] = {}


def remember(secrets: Secrets) -> None:
    """Keep a graph for pricing: ledgers name it by its digest."""
    _known[secrets.digest] = secrets


def known(digest: str, nodes: int) -> Secrets | None:
    """The graph of that digest: one that follows from the number of nodes, or one that was remembered.

    A digest stands for its number of nodes, too: of another number it is unknown.
    """
    if digest not in _known and Secrets.complete(nodes).digest == digest:
        remember(Secrets.complete(nodes))
    graph = _known.get(digest) or _exponential(nodes)
    return graph if graph is not None and (graph.digest, graph.nodes) == (digest, nodes) else None


@lru_cache(maxsize=32)
def _exponential(nodes: int) -> Secrets | None:
    return Secrets.exponential(nodes) if nodes <= MOST_EXPONENTIAL else None
