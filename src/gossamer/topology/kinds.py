"""From a kind's name and options to a Topology. A new graph: one function in makers.py and one line here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.errors import UserError
from gossamer.options.kinds import Option, check_options, options_of
from gossamer.topology import makers
from gossamer.topology.graph import Graph, from_arcs, strongly_connected, union
from gossamer.topology.rounds import Periodic, Resampled, Rounds, WithDropout, WithSlowLinks
from gossamer.topology.schedule import Topology
from gossamer.topology.weights import FITTING, MIXINGS, WEIGHTS, WeightsKind, weights_of


@dataclass(frozen=True)
class Kind:
    """A registered graph."""

    name: str
    make: Callable[..., Graph | Rounds]
    fewest_nodes: int
    random: bool = False  # drawn from the seed, so that `resampled` may draw it again

    @property
    def options(self) -> tuple[Option, ...]:
        """The keyword-only parameters of the maker."""
        return options_of(self.make)

    def graph(self, nodes: int, rng: np.random.Generator, options: Mapping[str, Any]) -> Graph | Rounds:
        """Check size and options, then make it."""
        if nodes < self.fewest_nodes:
            raise UserError(
                f"topology.kind = '{self.name}' needs at least {self.fewest_nodes} nodes (nodes = {nodes}); "
                "use 'complete'"
            )
        check_options("topology", self.name, self.make, options)
        return self.make(nodes, rng, **options)


def resampled(
    nodes: int, rng: np.random.Generator, *, base: str | dict[str, Any], every: int = 1
) -> Resampled:
    """A new random graph every `every` rounds; base = "digraph" or { kind = "digraph", p = 0.3 }."""
    table = {"kind": base} if isinstance(base, str) else dict(base)
    name = table.pop("kind", None)
    names = [k.name for k in kinds() if k.random]
    if name not in names:
        raise UserError(f"topology.base = {base!r} is not a random kind; use one of {', '.join(names)}")
    if every < 1:
        raise UserError(f"topology.every = {every} must be at least 1 round")
    draw = partial(_draw, str(name), nodes, table)
    draw(np.random.default_rng(0))  # wrong options of the base are reported now, not in some later round
    return Resampled(draw, every, int(rng.integers(2**62)))


_REGISTRY = {
    kind.name: kind
    for kind in (
        Kind("ring", makers.ring, 3),
        Kind("directed-ring", makers.directed_ring, 2),
        Kind("star", makers.star, 2),
        Kind("complete", makers.complete, 1),
        Kind("grid", makers.grid, 4),
        Kind("torus", makers.torus, 9),
        Kind("erdos-renyi", makers.erdos_renyi, 2, random=True),
        Kind("fiedler", makers.fiedler, 2, random=True),
        Kind("random-regular", makers.random_regular, 2, random=True),
        Kind("exponential", makers.exponential, 2),
        Kind("one-peer-exponential", makers.one_peer_exponential, 2),
        Kind("digraph", makers.digraph, 3, random=True),
        Kind("edges", makers.edges, 1),
        Kind("matrix", makers.matrix, 1),
        Kind("resampled", resampled, 2),
    )
}


def kinds() -> list[Kind]:
    """Every registered kind with its options."""
    return list(_REGISTRY.values())


def build(
    kind: str,
    *,
    nodes: int,
    weights: str,
    seed: int,
    dropout: float = 0.0,
    slow: tuple[float, int] | None = None,
    mixing: str | None = None,
    **options: Any,
) -> Topology:
    """The topology of that kind, checked: weights exist and information gets from everyone to everyone.

    weights: what the algorithm needs, "column", "doubly" or "adjacency".
    mixing: how doubly stochastic weights are made, "metropolis" (default for undirected graphs) or "uniform"
    (I − L/(1 + max degree); the only one for directed graphs, which must be balanced).
    dropout: probability that a link (undirected: an edge) fails, independently in every round.
    slow: (share, every): that share of the links carries every so-many-th of its messages only.
    """
    if kind not in _REGISTRY:
        raise UserError(f"topology.kind = '{kind}' is unknown; use one of {', '.join(_REGISTRY)}")
    if nodes < 1:
        raise UserError(f"nodes = {nodes} must be at least 1")
    wanted = next((w for w in WEIGHTS if w == weights), None)
    if wanted is None:
        raise UserError(f"algorithm weights '{weights}' are unknown; use one of {', '.join(WEIGHTS)}")
    _check_mixing(mixing, weights)
    if not 0.0 <= dropout < 1.0:
        raise UserError(f"topology.dropout = {dropout} must be at least 0 and below 1")
    options = {name: _plain(value) for name, value in options.items()}
    made = _REGISTRY[kind].graph(nodes, np.random.default_rng(seed), options)
    rounds: Rounds = Periodic((made,)) if isinstance(made, Graph) else made
    if mixing and kind == "matrix":
        raise UserError(f"topology.mixing = '{mixing}' does not apply to a topology.matrix; leave it out")
    for t in range(rounds.period or 1):
        matrix = weights_of(rounds.graph(t), wanted, kind=kind, mixing=mixing)
        if (dropout or slow) and wanted == "doubly":
            _check_lost_links(rounds.graph(t), matrix, kind, f"dropout = {dropout}" if dropout else "slow")
    _check_connected(rounds, kind)
    if slow:
        rounds = WithSlowLinks(rounds, *slow, seed)
    if dropout:
        rounds = WithDropout(rounds, dropout, seed)
    settings = {"seed": seed, "dropout": dropout, "mixing": mixing, **options}
    if slow:
        settings["slow"] = {"share": slow[0], "every": slow[1]}
    return Topology(kind, nodes, wanted, rounds, settings, mixing)


def isolated(nodes: int, weights: WeightsKind) -> Topology:
    """No links at all: mixing is the identity (sums over neighbours are zero) and nothing is ever sent."""
    return Topology("isolated", nodes, weights, Periodic((from_arcs(nodes, [], directed=False),)), {})


def _draw(name: str, nodes: int, options: Mapping[str, Any], rng: np.random.Generator) -> Graph:
    graph = _REGISTRY[name].graph(nodes, rng, options)
    assert isinstance(graph, Graph)  # every kind marked random makes one graph
    return graph


def _plain(value: Any) -> Any:
    """Arrays and paths as what a TOML file could have held."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return str(value) if isinstance(value, Path) else value


def _check_mixing(mixing: str | None, weights: str) -> None:
    if mixing is None:
        return
    if mixing not in MIXINGS:
        raise UserError(f"topology.mixing = '{mixing}' is unknown; use one of {', '.join(MIXINGS)}")
    if weights != "doubly":
        raise UserError(
            f"topology.mixing = '{mixing}' is for doubly stochastic weights, and this algorithm needs "
            f"'{weights}'; leave it out"
        )


def _check_lost_links(graph: Graph, matrix: Any, kind: str, key: str) -> None:
    """Doubly stochastic weights survive a lost link only if it is lost, and was weighted, both ways alike."""
    if graph.directed:
        raise UserError(
            f"topology.{key} leaves topology.kind = '{kind}', which is directed, without "
            f"doubly stochastic weights; use for example {FITTING}"
        )
    if graph.given is not None and abs(matrix - matrix.T).max() > 1e-8:
        raise UserError(f"topology.{key} needs a symmetric topology.matrix for algorithm weights 'doubly'")


def _check_connected(rounds: Rounds, kind: str) -> None:
    """Without dropout: random kinds are connected by construction, so one look suffices for them."""
    seen = union([rounds.graph(t) for t in range(rounds.period or 1)])
    if not strongly_connected(seen.nodes, seen.arcs):
        where = "" if rounds.period == 1 else f" over its period of {rounds.period} rounds"
        raise UserError(
            f"topology.kind = '{kind}' is not strongly connected{where}: some node never hears of another; "
            "add the missing links"
        )
