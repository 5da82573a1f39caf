"""Which nodes a rank hosts: consecutive ones, every rank at least one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from gossamer.errors import UserError


def split(nodes: int, ranks: int, sizes: Sequence[int] | None = None) -> list[range]:
    """About even, the first ranks one more; or as `sizes` says."""
    if sizes is None:
        if ranks > nodes:
            raise UserError(f"runtime.ranks = {ranks} is more than nodes = {nodes}; every rank hosts a node.")
        sizes = [nodes // ranks + (rank < nodes % ranks) for rank in range(ranks)]
    if len(sizes) != ranks:
        raise UserError(f"runtime.blocks lists {len(sizes)} blocks for {ranks} ranks; give one per rank.")
    if sum(sizes) != nodes:
        raise UserError(f"runtime.blocks = {list(sizes)} adds up to {sum(sizes)} where nodes = {nodes}.")
    stops = list(accumulate(sizes))
    return [range(stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]
