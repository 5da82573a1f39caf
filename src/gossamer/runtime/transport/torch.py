"""Several processes, each with a block of nodes, over torch.distributed: on one machine or, by torchrun, on many.

An exchange sends, to every rank with a neighbour of a node hosted here, one contiguous message with the rows it needs,
and nothing to anyone else. All receives and sends of an exchange are started before the first is waited for, so a rank
in round t waits only for ranks that have not yet come to round t. "Has come less far" has no cycles: whatever the
graphs of the rounds look like, some rank can always go on, and nothing can deadlock.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from gossamer.errors import UserError
from gossamer.kernels.mixing import MixPlan
from gossamer.runtime.blocks import split
from gossamer.runtime.watch import Watch, name_of
from gossamer.runtime.wire import Label, Layout, RefusedError, first_not_finite
from gossamer.topology.schedule import Topology

T = TypeVar("T")


def started_by_torchrun() -> bool:
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


class Ranks:
    """This process among those of the run. Made by `Ranks.meet`; a context that leaves the others at its end."""

    def __init__(self, blocks: Sequence[range], rank: int, store: Any, timeout: float, device: str = "cpu"):
        self.blocks, self.rank, self.size = list(blocks), rank, len(blocks)
        self.nodes, self.first = self.blocks[rank], rank == 0
        self.first_here = int(os.environ.get("LOCAL_RANK", rank)) == 0
        self.spread = int(os.environ.get("LOCAL_WORLD_SIZE", self.size)) < self.size
        self.machine = os.environ.get("GROUP_RANK", "0")
        self.store, self.timeout, self.device = store, timeout, torch.device(device)
        self.watch = Watch(store, rank, blocks, timeout)

    @classmethod
    def meet(cls, nodes: int, *, blocks: Sequence[int] | None, timeout: float, device: str = "cpu") -> Ranks:
        """Find the others, as torchrun's environment says where."""
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        shares = split(nodes, size, blocks)
        limit = timedelta(seconds=timeout)
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        try:
            store, rank, size = next(rendezvous("env://", timeout=limit))
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"rank {rank} cannot reach the meeting point {where}: {_short(error)}; check torchrun's settings."
            ) from None
        store.set(f"gossamer/joined/{rank}", "")
        backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
        try:
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
        except RuntimeError as error:
            missing = [r for r in range(size) if not store.check([f"gossamer/joined/{r}"])]
            who = (
                f"rank {missing[0]} did not come"
                if missing
                else f"the ranks cannot connect ({_short(error)})"
            )
            raise UserError(f"{who} to {where} within runtime.timeout = {timeout:g} s.") from None
        return cls(shares, rank, store, timeout, device)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Told before the connections break, so that nobody takes the breaking for the cause.
        if isinstance(error, KeyboardInterrupt):
            self.watch.tell(f"{self.name} was stopped in round {self.watch.round}")
        elif isinstance(error, UserError):
            self.watch.tell(str(error))
        elif error is not None:
            self.watch.tell(f"{self.name} failed in round {self.watch.round}: {_short(error)}")
        self.watch.close()
        if error is None:
            dist.destroy_process_group()

    @property
    def name(self) -> str:
        return name_of(self.rank, self.blocks)

    def join(self, items: Sequence[T]) -> list[T]:
        """As JSON: nothing that arrives is ever run as code."""
        own = torch.frombuffer(bytearray(json.dumps(list(items)).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        self._collective(lambda: dist.all_gather(sizes, torch.tensor([len(own)])))
        texts = [torch.zeros(int(max(sizes)), dtype=torch.uint8) for _ in sizes]
        padded = torch.zeros_like(texts[0])
        padded[: len(own)] = own
        self._collective(lambda: dist.all_gather(texts, padded))
        return [
            item
            for text, size in zip(texts, sizes, strict=True)
            for item in json.loads(bytes(text[: int(size)].numpy()))
        ]

    def mean(self, points: Tensor) -> Tensor:
        total = points.sum(0)
        self._collective(lambda: dist.all_reduce(total))
        return total / self.blocks[-1].stop

    def exchange(
        self, topology: Topology, run: str, meanwhile: Callable[[], None] | None = None
    ) -> ProcessExchange:
        return ProcessExchange(self, topology, run, meanwhile or (lambda: None))

    def broadcast(self, tensor: Tensor, source: int) -> Tensor:
        """The tensor of one rank, to everyone."""
        copy = tensor.clone()
        self._collective(lambda: dist.broadcast(copy, source))
        return copy

    def wait(self, work: Any, rank: int, at: int, deadline: float | None = None) -> None:
        """Until the message to or from that rank has arrived, or the time-out."""
        self.watch.waiting(at, rank)
        left = self.timeout if deadline is None else max(0.001, deadline - time.monotonic())
        try:
            work.wait(timedelta(seconds=left))
        except RuntimeError as error:
            raise self.watch.lost(rank, str(error)) from None
        self.watch.computing(at)

    def check(self, label: Label, buffer: Tensor, layout: Layout, nodes: list[int]) -> None:
        """Refuse a message that is not the one due, or holds what must not be averaged in."""
        try:
            label.check(buffer, layout, len(nodes))
        except RefusedError as error:
            name = name_of(label.sender, self.blocks)
            raise self.watch.tell(
                f"the message of {name} in round {label.round} was refused: {error}"
            ) from None
        for view in layout.views(buffer, len(nodes)):
            bad = first_not_finite(view)
            if bad is not None:
                who = f"node {nodes[bad]} (rank {label.sender})"
                raise self.watch.tell(f"{who} sent NaN or infinite values in round {label.round}: refused")

    def _collective(self, work: Callable[[], Any]) -> None:
        at = self.watch.round
        self.watch.waiting(
            at, (self.rank + 1) % self.size
        )  # gloo's rings wait for one neighbour after the other
        try:
            work()
        except RuntimeError as error:
            raise self.watch.lost((self.rank + 1) % self.size, str(error)) from None
        self.watch.computing(at)


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


class ProcessExchange:
    """mix(t, A, B, …) = the hosted rows of P_t A, P_t B, …, by messages along the edges of round t."""

    def __init__(self, ranks: Ranks, topology: Topology, run: str, meanwhile: Callable[[], None]):
        self._ranks, self._topology, self._run, self._meanwhile = ranks, topology, run, meanwhile
        self._routes: dict[int, Route] = {}
        self._buffers: dict[tuple[str, int], Tensor] = {}
        self._round, self._call = -1, 0
        self.bytes_sent = 0  # what the hosted nodes' messages hold, as the simulator counts
        self.bytes_on_wire = (
            0  # what left this process: headers too, but no row twice to one rank, none to itself
        )
        meanwhile()

    def __call__(self, t: int, *tensors: Tensor) -> Any:
        self._call = self._call + 1 if t == self._round else 0
        self._round = t
        way, layout, watch = self._route(t), Layout.of(tensors), self._ranks.watch
        watch.computing(t)
        incoming = {r: self._buffer("in", r, layout, len(nodes)) for r, nodes in way.receive.items()}
        outgoing = {r: self._pack(r, rows, tensors, layout) for r, rows in way.send.items()}
        arriving, leaving = self._start(incoming, outgoing)
        self._meanwhile()
        deadline = time.monotonic() + self._ranks.timeout
        mixed = [tensor.new_empty(way.plan.shape[1], *tensor.shape[1:]) for tensor in tensors]
        for into, tensor in zip(mixed, tensors, strict=True):
            into[way.places[self._ranks.rank]] = tensor
        for r, work in arriving.items():
            self._ranks.wait(work, r, t, deadline)
            for into, rows in zip(mixed, self._open(r, incoming[r], way, layout), strict=True):
                into[way.places[r]] = rows
        for r, work in leaving.items():
            self._ranks.wait(work, r, t, deadline)
        watch.computing(t)
        self.bytes_sent += layout.row_bytes * way.copies
        results = tuple(way.plan(values) for values in mixed)
        return results[0] if len(results) == 1 else results

    @property
    def _tag(self) -> int:
        return (self._round * 16 + self._call) % (1 << 30)

    def _start(self, incoming: dict[int, Tensor], outgoing: dict[int, Tensor]) -> tuple[dict[int, Any], ...]:
        """Start all at once. NCCL gives one handle for the whole batch, gloo one for each."""
        starts = [
            *(dist.P2POp(dist.irecv, buffer, r, tag=self._tag) for r, buffer in incoming.items()),
            *(dist.P2POp(dist.isend, buffer, r, tag=self._tag) for r, buffer in outgoing.items()),
        ]
        if not starts:
            return {}, {}
        self.bytes_on_wire += sum(map(len, outgoing.values()))
        try:
            works = dist.batch_isend_irecv(starts)
        except RuntimeError as error:  # a connection that broke since the last round
            raise self._ranks.watch.lost(next(iter([*incoming, *outgoing])), str(error)) from None
        if len(works) < len(starts):
            works = works * len(starts)
        return dict(zip(incoming, works, strict=False)), dict(
            zip(outgoing, works[len(incoming) :], strict=False)
        )

    def _pack(self, rank: int, rows: Tensor, tensors: Sequence[Tensor], layout: Layout) -> Tensor:
        buffer = self._buffer("out", rank, layout, len(rows))
        for view, tensor in zip(layout.views(buffer, len(rows)), tensors, strict=True):
            torch.index_select(tensor.detach(), 0, rows.to(tensor.device), out=view)
        self._label(self._ranks.rank).write(buffer, layout, len(rows))
        return buffer

    def _open(self, rank: int, buffer: Tensor, way: Route, layout: Layout) -> list[Tensor]:
        self._ranks.check(self._label(rank), buffer, layout, way.receive[rank])
        return layout.views(buffer, len(way.receive[rank]))

    def _label(self, sender: int) -> Label:
        return Label(self._run, self._round, self._call, sender)

    def _buffer(self, way: str, rank: int, layout: Layout, rows: int) -> Tensor:
        """Kept from round to round; every message has been delivered before its exchange ends."""
        size, kept = layout.size(rows), self._buffers.get((way, rank))
        if kept is None or len(kept) < size:
            kept = self._buffers[way, rank] = torch.empty(size, dtype=torch.uint8, device=self._ranks.device)
        return kept[:size]

    def _route(self, t: int) -> Route:
        period = self._topology.period
        key = t % period if period else t
        if key not in self._routes:
            if not period:
                self._routes.clear()  # a fresh graph every round: nothing to keep
            self._routes[key] = route(self._topology, t, self._ranks.blocks, self._ranks.rank)
        return self._routes[key]


def _short(error: BaseException) -> str:
    """The first line of what a library says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
