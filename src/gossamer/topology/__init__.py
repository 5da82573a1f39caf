"""Graphs, mixing weights, time-varying schedules and their spectral figures.

>>> from gossamer.topology import build
>>> ring = build("ring", nodes=6, weights="doubly", seed=0)
>>> ring.edges(0)[:2].tolist()  # (sender, receiver) of round 0
[[0, 1], [0, 5]]
>>> ring.weights(0).toarray().sum(axis=0).round(6).tolist()
[1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
>>> ring.figures()["diameter"]
3
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.topology.kinds import build
    from gossamer.topology.schedule import Topology

# The modules that others may import; the rest is private to this folder.
__all__ = ["Topology", "build", "exact", "kinds", "schedule"]

_HOMES = {"Topology": "schedule", "build": "kinds"}


def __getattr__(name: str) -> Any:
    """Loaded at first use, like all that needs scipy."""
    if name in _HOMES:
        return getattr(import_module(f"gossamer.topology.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'gossamer.topology' has no attribute {name!r}")
