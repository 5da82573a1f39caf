"""Blocks of nodes side by side, as processes would host them: a thread each, which meet at every exchange."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import Exchange
from gossamer.topology.schedule import Topology

PATIENCE = 20.0  # seconds that one block waits for another


class _Meeting:
    """Everyone brings rows; who comes last mixes them all; everyone takes their own away."""

    def __init__(self, graph: Topology, blocks: int, patience: float):
        self._exchange = SimulatedExchange(graph)
        self._rows: list[tuple[Tensor, ...]] = [()] * blocks
        self._come = threading.Barrier(blocks, self._mix, timeout=patience)
        self._gone = threading.Barrier(blocks, timeout=patience)
        self._mixed: tuple[Tensor, ...] = ()
        self._t = 0

    def _mix(self) -> None:
        mixed = self._exchange(self._t, *(torch.cat(parts) for parts in zip(*self._rows, strict=True)))
        self._mixed = mixed if isinstance(mixed, tuple) else (mixed,)

    def exchange(self, place: int, nodes: range) -> Exchange:
        def mix(t: int, *tensors: Tensor) -> Any:
            self._rows[place], self._t = tensors, t
            self._come.wait()
            own = tuple(tensor[nodes.start : nodes.stop] for tensor in self._mixed)
            self._gone.wait()
            return own[0] if len(own) == 1 else own

        return mix

    def leave(self) -> None:
        self._come.abort()
        self._gone.abort()


def in_blocks(
    work: Callable[[range, Exchange], Tensor],
    graph: Topology,
    blocks: Sequence[range],
    patience: float = PATIENCE,
) -> list[Tensor]:
    """What `work(nodes, exchange)` gives for each block; the first failure of any is raised here."""
    meeting = _Meeting(graph, len(blocks), patience)

    def one(place: int, nodes: range) -> Tensor:
        try:
            return work(nodes, meeting.exchange(place, nodes))
        except BaseException:
            meeting.leave()
            raise

    with ThreadPoolExecutor(len(blocks)) as threads:
        futures = [threads.submit(one, *block) for block in enumerate(blocks)]
    failures = [error for future in futures if (error := future.exception()) is not None]
    if failures:  # a broken barrier only follows from another's failure
        raise min(failures, key=lambda failure: isinstance(failure, threading.BrokenBarrierError))
    return [future.result() for future in futures]
