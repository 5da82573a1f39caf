"""The exchange of one rank with the others: rows travel along this round's edges that cross ranks, and no others.

All sends and receives of an exchange are started before the first is waited for, so a rank in round t waits only for
ranks that have not yet come to round t. That relation has no cycles, whatever the graphs: nothing can deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.kernels.mixing import MixPlan
from gossamer.runtime.simulator import PerGraph
from gossamer.topology.schedule import Topology

Indices = NDArray[np.integer[Any]]  # sorted
_LONG = 1 << 16  # bytes of a row from which a copy takes longer than a message more
Messages = Sequence[tuple[int, Tensor]]  # the other rank, and what is sent to it or received from it


class Carrier(Protocol):
    """The rank whose exchange it is."""

    rank: int
    blocks: list[range]

    def transfer(self, send: Messages, receive: Messages, meanwhile: Callable[[], None]) -> None: ...

    def refuse(self, node: int) -> Exception: ...


@dataclass(frozen=True)
class Route:
    """The way of the rows in one round, seen from one rank."""

    send: dict[int, Indices]  # rank → the rows it needs, among those hosted here
    receive: dict[int, slice]  # rank → its rows among all received
    senders: Indices  # the node of each received row
    local: MixPlan  # (hosted, hosted)
    remote: MixPlan  # (hosted, received)
    copies: int  # rows that the hosted nodes send to other nodes, on any rank


def route(topology: Topology, t: int, blocks: Sequence[range], rank: int) -> Route:
    P, own = topology.weights(t).tocsr(), blocks[rank]
    rows, columns = P[own.start : own.stop], P.tocsc()[:, own.start : own.stop].tocoo()
    owner = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    receivers = owner[columns.row]
    send = {int(r): np.unique(columns.col[receivers == r]) for r in np.unique(receivers) if r != rank}
    needed = np.unique(rows.indices)
    senders = needed[owner[needed] != rank]
    receive = {}
    for r in np.unique(owner[senders]):
        first, last = np.searchsorted(senders, [blocks[r].start, blocks[r].stop])
        receive[int(r)] = slice(int(first), int(last))
    copies = int(topology.out_degree(t)[own.start : own.stop].sum())
    local, remote = MixPlan(rows[:, own.start : own.stop]), MixPlan(rows[:, senders])
    return Route(send, receive, senders, local, remote, copies)


class RankExchange:
    """mix(t, A, B, …) = the hosted rows of P_t A, P_t B, …; hosted rows are mixed while the others travel."""

    def __init__(self, carrier: Carrier, topology: Topology, meanwhile: Callable[[], None]):
        self._carrier, self._meanwhile = carrier, meanwhile
        self._route = PerGraph(topology, lambda t: route(topology, t, carrier.blocks, carrier.rank))
        self._buffers: dict[tuple[object, ...], Tensor] = {}
        self.bytes_sent = 0  # what the hosted nodes' messages hold, as the simulator counts
        self.bytes_on_wire = 0  # what left this process: no row twice to one rank, and none to itself
        meanwhile()

    def __call__(self, t: int, *tensors: Tensor) -> Any:
        way = self._route(t)
        own = [tensor.detach().contiguous() for tensor in tensors]
        received = [self._buffer(("in", k), len(way.senders), rows) for k, rows in enumerate(own)]
        receive = [
            (r, part)
            for r, place in way.receive.items()
            for into in received
            for part in _parts(into[place], way.senders[place])
        ]
        send = [
            (r, part)
            for r, needed in way.send.items()
            for k, rows in enumerate(own)
            for part in self._sent(("out", k, r), rows, needed)
        ]
        mixed: list[Tensor] = []

        def while_travelling() -> None:
            self._meanwhile()
            mixed.extend(way.local(rows) for rows in own)

        self._carrier.transfer(send, receive, while_travelling)
        for rows, into in zip(received, mixed, strict=True):
            if not len(rows):
                continue
            bad = first_not_finite(rows)
            if bad is not None:
                raise self._carrier.refuse(int(way.senders[bad]))
            way.remote(rows, out=into, add=True)
        self.bytes_on_wire += sum(rows.nbytes for _, rows in send)
        self.bytes_sent += way.copies * sum(rows[0].nbytes for rows in own)
        return mixed[0] if len(mixed) == 1 else tuple(mixed)

    def _sent(self, name: tuple[object, ...], rows: Tensor, needed: Indices) -> list[Tensor]:
        """Messages with the needed rows: parts of `rows` itself where that is faster than to copy them together."""
        runs = _runs(needed)
        if len(runs) == 1 or rows[0].nbytes >= _LONG:
            return [rows[run[0] : run[-1] + 1] for run in runs]
        packed = self._buffer(name, len(needed), rows)
        return [torch.index_select(rows, 0, torch.from_numpy(needed).long().to(rows.device), out=packed)]

    def _buffer(self, name: tuple[object, ...], count: int, like: Tensor) -> Tensor:
        """Kept from round to round: all messages have arrived before an exchange returns."""
        key = (*name, like.dtype, like.device, like.shape[1:])
        buffer = self._buffers.get(key)
        if buffer is None or len(buffer) < count:
            buffer = self._buffers[key] = like.new_empty(count, *like.shape[1:])
        return buffer[:count]


def _parts(rows: Tensor, nodes: Indices) -> list[Tensor]:
    """The rows of these nodes as one message, or if they are long as one for each run of consecutive nodes."""
    if rows[0].nbytes < _LONG:
        return [rows]
    return list(torch.split(rows, [len(run) for run in _runs(nodes)]))


def _runs(indices: Indices) -> list[Indices]:
    """Parts of consecutive indices."""
    cuts = [0, *(np.flatnonzero(np.diff(indices) != 1) + 1).tolist(), len(indices)]
    return [indices[a:b] for a, b in pairwise(cuts)]


def first_not_finite(tensor: Tensor) -> int | None:
    """The first row with NaN or infinity in it."""
    # A sum is one pass and no memory; only where it is not finite the rows are looked at (it may just have overflowed).
    if bool(torch.isfinite(tensor.sum())):
        return None
    rows = torch.isfinite(tensor.flatten(1)).all(1)
    return None if bool(rows.all()) else int(rows.int().argmin())
