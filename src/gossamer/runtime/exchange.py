"""The exchange of several ranks, each with a block of nodes, over any transport.

An exchange sends, to every rank with a neighbour of a node hosted here, one contiguous message with the rows it needs,
and nothing to anyone else. All receives and sends of an exchange are started before the first is waited for, so a rank
in round t waits only for ranks that have not yet come to round t. "Has come less far" has no cycles: whatever the
graphs of the rounds look like, some rank can always go on, and nothing can deadlock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.kernels.mixing import MixPlan
from gossamer.runtime.messenger import Messenger
from gossamer.runtime.wire import Label, Layout
from gossamer.topology.schedule import Topology


@dataclass(frozen=True)
class Route:
    """One round's way of the rows, as far as this rank is concerned."""

    send: dict[int, Tensor]  # rank → places of the rows it needs among those hosted here
    receive: dict[int, list[int]]  # rank → the nodes whose rows come from there
    places: dict[int, slice]  # rank, this one too → where its rows stand among those mixed
    plan: MixPlan  # (hosted, mixed)
    copies: int  # rows that the hosted nodes send to other nodes, on whatever rank


def route(topology: Topology, t: int, blocks: Sequence[range], rank: int) -> Route:
    P, own = topology.weights(t).tocsr(), blocks[rank]
    rows, columns = P[own.start : own.stop], P.tocsc()[:, own.start : own.stop]
    owner = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    needed = np.union1d(rows.indices, np.arange(own.start, own.stop))
    receivers, senders = columns.tocoo().row, columns.tocoo().col  # senders counted from own.start
    apart = owner[receivers] != rank
    send = {
        int(r): torch.from_numpy(np.unique(senders[apart][owner[receivers[apart]] == r]).astype(np.int64))
        for r in np.unique(owner[receivers[apart]])
    }
    places = {}
    for r in np.unique(owner[needed]):
        first = int(np.searchsorted(needed, blocks[r].start))
        places[int(r)] = slice(first, int(np.searchsorted(needed, blocks[r].stop)))
    receive = {r: needed[place].tolist() for r, place in places.items() if r != rank}
    copies = int(topology.out_degree(t)[own.start : own.stop].sum())
    return Route(send, receive, places, MixPlan(rows[:, needed]), copies)


class MessageExchange:
    """mix(t, A, B, …) = the hosted rows of P_t A, P_t B, …, by messages along the edges of round t."""

    def __init__(self, messenger: Messenger, topology: Topology, run: str, meanwhile: Callable[[], None]):
        self._messenger, self._topology, self._run, self._meanwhile = messenger, topology, run, meanwhile
        self._routes: dict[int, Route] = {}
        self._buffers: dict[tuple[str, int], Tensor] = {}
        self._round, self._call = -1, 0
        self.bytes_sent = 0  # what the hosted nodes' messages hold, as the simulator counts
        # What left this process: headers too, but no row twice to one rank, and none to itself.
        self.bytes_on_wire = 0
        meanwhile()

    def __call__(self, t: int, *tensors: Tensor) -> Any:
        self._call = self._call + 1 if t == self._round else 0
        self._round = t
        way, layout, messenger = self._route(t), Layout.of(tensors), self._messenger
        messenger.watch.computing(t)
        incoming = {r: self._buffer("in", r, layout, len(nodes)) for r, nodes in way.receive.items()}
        outgoing = {r: self._pack(r, rows, tensors, layout) for r, rows in way.send.items()}
        self.bytes_on_wire += sum(map(len, outgoing.values()))
        arriving, leaving = messenger.start(incoming, outgoing, t * 16 + self._call)
        self._meanwhile()
        deadline = time.monotonic() + messenger.timeout
        mixed = [tensor.new_empty(way.plan.shape[1], *tensor.shape[1:]) for tensor in tensors]
        for into, tensor in zip(mixed, tensors, strict=True):
            into[way.places[messenger.rank]] = tensor
        for r, pending in arriving.items():
            messenger.wait(pending, r, t, deadline)
            messenger.check(self._label(r, messenger.rank), incoming[r], layout, way.receive[r])
            views = layout.views(incoming[r], len(way.receive[r]))
            for into, rows in zip(mixed, views, strict=True):
                into[way.places[r]] = rows
        for r, pending in leaving.items():
            messenger.wait(pending, r, t, deadline)
        messenger.watch.computing(t)
        self.bytes_sent += layout.row_bytes * way.copies
        results = tuple(way.plan(values) for values in mixed)
        return results[0] if len(results) == 1 else results

    def _pack(self, rank: int, rows: Tensor, tensors: Sequence[Tensor], layout: Layout) -> Tensor:
        buffer = self._buffer("out", rank, layout, len(rows))
        for view, tensor in zip(layout.views(buffer, len(rows)), tensors, strict=True):
            torch.index_select(tensor.detach(), 0, rows.to(tensor.device), out=view)
        self._label(self._messenger.rank, rank).write(buffer, layout, len(rows))
        return buffer

    def _label(self, sender: int, receiver: int) -> Label:
        return Label(self._run, self._round, self._call, sender, self._messenger.seal, receiver)

    def _buffer(self, way: str, rank: int, layout: Layout, rows: int) -> Tensor:
        """Kept from round to round; every message has been delivered before its exchange ends."""
        size, kept = layout.size(rows), self._buffers.get((way, rank))
        if kept is None or len(kept) < size:
            kept = self._buffers[way, rank] = self._messenger.empty(size)
        return kept[:size]

    def _route(self, t: int) -> Route:
        period = self._topology.period
        key = t % period if period else t
        if key not in self._routes:
            if not period:
                self._routes.clear()  # a fresh graph every round: nothing to keep
            self._routes[key] = route(self._topology, t, self._messenger.blocks, self._messenger.rank)
        return self._routes[key]
