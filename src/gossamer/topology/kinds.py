"""Every kind of graph, and the ways to a Topology. A new graph: one class in makers.py or random_graphs.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gossamer.topology import makers, random_graphs
from gossamer.topology.graph import from_arcs
from gossamer.topology.rounds import Periodic
from gossamer.topology.schedule import Topology
from gossamer.topology.table import SlowLinks, TopologyKind, topologies
from gossamer.topology.weights import WeightsKind

__all__ = ["SlowLinks", "TopologyKind", "build", "isolated", "makers", "random_graphs", "topologies"]


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
