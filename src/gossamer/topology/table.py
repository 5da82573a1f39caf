"""The table [topology]: what every kind of graph has, and how it becomes the network of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from gossamer.errors import UserError
from gossamer.options.registry import Registry, Table
from gossamer.options.types import Share
from gossamer.topology.graph import Graph, connected
from gossamer.topology.rounds import Periodic, Rounds, WithDropout, WithSlowLinks
from gossamer.topology.schedule import Topology
from gossamer.topology.weights import FITTING, WEIGHTS, weights_of


@dataclass(frozen=True, kw_only=True)
class SlowLinks:
    """A share of the links carries only every so-many-th of its messages."""

    share: Annotated[Share, Field(description="share of the links that are slow")]
    every: Annotated[int, Field(ge=2, le=64, description="a slow link carries one in so many messages")]


@dataclass(frozen=True, kw_only=True)
class TopologyKind(ABC):
    """A graph or a schedule of graphs. A new kind is a subclass with `make`, registered in `topologies`."""

    mixing: Annotated[
        Literal["metropolis", "uniform"] | None,
        Field(description="how doubly stochastic weights are made; metropolis where the graph is undirected"),
    ] = None
    dropout: Annotated[
        float, Field(ge=0, lt=1, description="probability that a link fails, in every round anew")
    ] = 0.0
    slow: Annotated[
        Annotated[SlowLinks, Table()] | None,
        Field(description="a share of the links carries only some of its messages"),
    ] = None

    kind: ClassVar[str]
    fewest_nodes: ClassVar[int] = 1
    any_peer: ClassVar[bool] = (
        False  # one at a time, a node may send to any other: so an exact mean may choose whom
    )
    by_rule: ClassVar[bool] = False  # the same graph for every seed: kind, nodes and options say all of it
    random: ClassVar[bool] = False  # drawn from the seed, so that `resampled` may draw it again

    @abstractmethod
    def make(self, nodes: int, rng: np.random.Generator) -> Graph | Rounds: ...

    def graph(self, nodes: int, rng: np.random.Generator) -> Graph | Rounds:
        """Check the size, then make it."""
        if nodes < self.fewest_nodes:
            raise UserError(
                f"topology.kind = '{self.kind}' needs at least {self.fewest_nodes} nodes (nodes = {nodes}); "
                "use 'complete'"
            )
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
            raise UserError(
                f"topology.mixing = '{self.mixing}' is for doubly stochastic weights, and this algorithm needs "
                f"'{weights}'; leave it out"
            )
        made = self.graph(nodes, np.random.default_rng(seed))
        rounds: Rounds = Periodic((made,)) if isinstance(made, Graph) else made
        for t in range(rounds.period or 1):
            graph = rounds.graph(t)
            if self.mixing and graph.given is not None:
                raise UserError(
                    f"topology.mixing = '{self.mixing}' does not apply to a topology.matrix; leave it out"
                )
            matrix = weights_of(graph, wanted, kind=self.kind, mixing=self.mixing)
            if wanted == "doubly":
                self._check_lost_links(graph, matrix)
        _check_connected(rounds, self.kind)
        if self.slow:
            rounds = WithSlowLinks(rounds, self.slow.share, self.slow.every, seed)
        if self.dropout:
            rounds = WithDropout(rounds, self.dropout, seed)
        settings = {"seed": seed, **topologies.options(self)}
        rule = (
            None if self.dropout or self.slow or not self.by_rule else " ".join((self.__doc__ or "").split())
        )
        return Topology(self.kind, nodes, wanted, rounds, settings, self.mixing, rule)

    def _check_lost_links(self, graph: Graph, matrix: Any) -> None:
        """Doubly stochastic weights survive a lost link only if it is lost, and was weighted, both ways alike."""
        if not (self.dropout or self.slow):
            return
        key = f"dropout = {self.dropout}" if self.dropout else "slow"
        if graph.directed:
            raise UserError(
                f"topology.{key} leaves topology.kind = '{self.kind}', which is directed, without "
                f"doubly stochastic weights; use for example {FITTING}"
            )
        if graph.given is not None and abs(matrix - matrix.T).max() > 1e-8:
            raise UserError(
                f"topology.{key} needs a symmetric topology.matrix for algorithm weights 'doubly'"
            )


topologies: Registry[TopologyKind] = Registry("topology")


def _check_connected(rounds: Rounds, kind: str) -> None:
    """Without dropout: random kinds are connected by construction, so one look suffices for them."""
    if not connected([rounds.graph(t) for t in range(rounds.period or 1)]):
        where = "" if rounds.period == 1 else f" over its period of {rounds.period} rounds"
        raise UserError(
            f"topology.kind = '{kind}' is not strongly connected{where}: some node never hears of another; "
            "add the missing links"
        )
