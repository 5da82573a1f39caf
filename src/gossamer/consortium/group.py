"""One site as a run sees it: its own node, and nobody to ask about the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor

from gossamer.runtime.group import CountingExchange
from gossamer.topology.schedule import Topology

T = TypeVar("T")
PLANNED = "the study's plan"  # whose word it is what other sites spend


class OneSite:
    """A `Group` without a barrier: what others would state of their nodes is None, and the plan stands in for it."""

    first = first_here = spread = True

    def __init__(self, name: str, node: int, of: int):
        self.name, self.machine, self.size = name, name, of
        self.nodes = range(node, node + 1)
        self.blocks = [self.nodes]

    def whose(self, node: int) -> str:
        return self.name if node in self.nodes else PLANNED

    def join(self, items: Sequence[T], *, per_node: bool = False) -> list[Any]:
        if not per_node:
            return list(items)
        return [items[0] if i in self.nodes else None for i in range(self.size)]

    def mean(self, points: Tensor) -> Tensor:
        return points.mean(0)

    def begin_round(self, t: int) -> None:
        pass

    def exchange(self, topology: Topology, meanwhile: Callable[[], None] | None = None) -> CountingExchange:
        raise NotImplementedError("a site's exchange needs its journal and links: see PeerExchange")
