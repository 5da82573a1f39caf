"""What a runtime needs to know about a network: the graph and the mixing matrix of every round."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gossamer.topology import figures
from gossamer.topology.graph import Graph, Ints
from gossamer.topology.rounds import Rounds
from gossamer.topology.weights import WeightsKind, weights_of

_WINDOW = 8  # rounds that stand for a schedule that never repeats
_KEPT = 8  # rounds kept in memory of such a schedule
_LISTED = (
    1000  # nodes up to which the edges of a graph that is a rule are listed all the same, for who draws it
)


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
    rule: str | None = (
        None  # what the graph is, in words, where kind, nodes and settings say it without the seed
    )
    _graphs: dict[int, Graph] = field(default_factory=dict, repr=False)
    _weights: dict[int, Any] = field(default_factory=dict, repr=False)
    _figures: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def period(self) -> int | None:
        """1: static; p: repeats after p rounds; None: random, never repeats."""
        return self.rounds.period

    def weights(self, t: int) -> Any:
        """Mixing matrix of round t, an n×n scipy.sparse.csr_array of float64."""
        key = self._key(t)
        if key not in self._weights:
            matrix = weights_of(self._graph(t), self.weights_kind, kind=self.kind, mixing=self.mixing)
            self._keep(self._weights, key, matrix)
            return matrix
        return self._weights[key]

    def out_degree(self, t: int) -> Ints:
        """Messages each node sends in round t, not counting itself."""
        return self._graph(t).out_degree()

    def edges(self, t: int) -> Ints:
        """(sender, receiver) pairs of round t without self loops; an undirected edge appears both ways."""
        return self._graph(t).arcs

    def figures(self) -> dict[str, Any]:
        """How well this mixes, over one period, or over the first eight rounds of a random schedule.

        "spectral gap": 1 − |λ₂| of the product of these rounds' matrices; 0: does not mix.
        "spectral gap per round": 1 − |λ₂|^(1/rounds).
        "algebraic connectivity", "normalised Fiedler value" (that / n): mean over these rounds if undirected.
        "diameter": that of the union of these rounds.
        "rounds until strongly connected": B, see `figures.rounds_until_connected`.
        None: does not exist (no weights, directed, not connected) or cannot be computed at this size.
        """
        if not self._figures:
            self._figures.update(self._compute_figures())
        return dict(self._figures)

    def to_json(self) -> dict[str, Any]:
        """What topology.json holds; the edges of each of the rounds in `figures`, unless many nodes follow a rule."""
        edges = {"edges": [self.edges(t).tolist() for t in range(self._window)]} if self._lists_edges else {}
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
    def _lists_edges(self) -> bool:
        return self.rule is None or self.nodes <= _LISTED

    @property
    def _window(self) -> int:
        return self.period or _WINDOW

    def _key(self, t: int) -> int:
        return t if self.period is None else t % self.period

    def _graph(self, t: int) -> Graph:
        key = self._key(t)
        if key not in self._graphs:
            graph = self.rounds.graph(t)
            self._keep(self._graphs, key, graph)
            return graph
        return self._graphs[key]

    def _keep(self, cache: dict[int, Any], key: int, value: Any) -> None:
        if self.period is None and len(cache) >= _KEPT:
            cache.pop(next(iter(cache)), None)
        cache[key] = value

    def _compute_figures(self) -> dict[str, Any]:
        graphs = [self._graph(t) for t in range(self._window)]
        directed = any(g.directed for g in graphs)
        gap = None
        if self.weights_kind != "adjacency":
            gap = figures.spectral_gap([self.weights(t) for t in range(self._window)])
        connectivity = None
        if not directed:
            each = [figures.algebraic_connectivity(g) for g in graphs]
            known = [value for value in each if value is not None]
            connectivity = float(np.mean(known)) if len(known) == len(each) else None
        return {
            "directed": directed,
            "rounds looked at": self._window,
            "spectral gap": gap,
            "spectral gap per round": None if gap is None else 1.0 - (1.0 - gap) ** (1.0 / self._window),
            "algebraic connectivity": connectivity,
            "normalised Fiedler value": None if connectivity is None else connectivity / self.nodes,
            "diameter": figures.diameter(graphs),
            "rounds until strongly connected": figures.rounds_until_connected(self.rounds),
            "mean out-degree": float(np.mean([len(g.arcs) / self.nodes for g in graphs])),
        }
