"""The exchange of one rank with the others: rows travel along this round's edges that cross ranks, and no others.

All sends and receives of an exchange are started before the first is waited for, so a rank in round t waits only for
ranks that have not yet come to round t. That relation has no cycles, for any graphs: nothing can deadlock.
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
from gossamer.runtime.group import PerGraph
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
    needed: Indices  # the nodes whose rows are mixed here, in their order
    receive: dict[int, slice]  # rank → its rows among the needed ones
    kept: slice  # this rank's rows among the needed ones
    own: Indices  # and among those hosted here
    mix: MixPlan  # (hosted, needed)
    copies: int  # rows that the hosted nodes send to other nodes, on any rank


def route(topology: Topology, t: int, blocks: Sequence[range], rank: int) -> Route:
    P, own = topology.weights(t).tocsr(), blocks[rank]
    rows, columns = P[own.start : own.stop], P.tocsc()[:, own.start : own.stop].tocoo()
    owner = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    receivers = owner[columns.row]
    send = {int(r): np.unique(columns.col[receivers == r]) for r in np.unique(receivers) if r != rank}
    needed = np.unique(rows.indices)
    places = {}
    for r in np.unique(owner[needed]):
        first, last = np.searchsorted(needed, [blocks[r].start, blocks[r].stop])
        places[int(r)] = slice(int(first), int(last))
    kept = places.pop(rank, slice(0, 0))
    copies = int(topology.out_degree(t)[own.start : own.stop].sum())
    return Route(send, needed, places, kept, needed[kept] - own.start, MixPlan(rows[:, needed]), copies)


class RankExchange:
    """mix(t, A, B, …) = the hosted rows of P_t A, P_t B, …, to the last bit as one process of all nodes has them."""

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
        gathered = [self._buffer(("in", k), len(way.needed), rows) for k, rows in enumerate(own)]
        receive = [
            (r, part)
            for r, place in way.receive.items()
            for into in gathered
            for part in _parts(into[place], way.needed[place])
        ]
        send = [
            (r, part)
            for r, needed in way.send.items()
            for k, rows in enumerate(own)
            for part in self._sent(("out", k, r), rows, needed)
        ]

        def while_travelling() -> None:
            self._meanwhile()
            for rows, into in zip(own, gathered, strict=True):
                _take(rows, way.own, into[way.kept])

        self._carrier.transfer(send, receive, while_travelling)
        for rows in gathered:
            for place in way.receive.values():
                bad = first_not_finite(rows[place])
                if bad is not None:
                    raise self._carrier.refuse(int(way.needed[place][bad]))
        mixed = [way.mix(rows) for rows in gathered]
        self.bytes_on_wire += sum(rows.nbytes for _, rows in send)
        self.bytes_sent += way.copies * sum(rows[0].nbytes for rows in own)
        return mixed[0] if len(mixed) == 1 else tuple(mixed)

    def _sent(self, name: tuple[object, ...], rows: Tensor, needed: Indices) -> list[Tensor]:
        """Messages with the needed rows: parts of `rows` itself where that is faster than to copy them together."""
        runs = _runs(needed)
        if len(runs) == 1 or rows[0].nbytes >= _LONG:
            return [rows[run[0] : run[-1] + 1] for run in runs]
        packed = self._buffer(name, len(needed), rows)
        _take(rows, needed, packed)
        return [packed]

    def _buffer(self, name: tuple[object, ...], count: int, like: Tensor) -> Tensor:
        """Kept from round to round: all messages have arrived before an exchange returns."""
        key = (*name, like.dtype, like.device, like.shape[1:])
        buffer = self._buffers.get(key)
        if buffer is None or len(buffer) < count:
            buffer = self._buffers[key] = like.new_empty(count, *like.shape[1:])
        return buffer[:count]


def _take(rows: Tensor, places: Indices, out: Tensor) -> None:
    torch.index_select(rows, 0, torch.from_numpy(places).long().to(rows.device), out=out)


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
