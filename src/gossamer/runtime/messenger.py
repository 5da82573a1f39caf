"""What the ranks do with each other over any transport: start, wait, check, gather; a failure is put down to a rank."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from gossamer.runtime.forms import FormError, parsed
from gossamer.runtime.parcels import FIRST, INSIDE, MOST, ParcelError, Stamp
from gossamer.runtime.transport.base import LostError, Pending, Transport
from gossamer.runtime.watch import RankError, Watch, name_of
from gossamer.runtime.wire import Label, Layout, RefusedError, first_not_finite

T = TypeVar("T")
_PARCELS = 1 << 29  # tags from here on are those of parcels


class Messenger:
    """One rank's messages: the transport carries them, the wire format labels them, the watch knows whom to blame."""

    def __init__(self, transport: Transport, blocks: Sequence[range]):
        self._transport, self.blocks = transport, list(blocks)
        self.rank, self.timeout, self.seal = transport.rank, transport.timeout, transport.seal
        self._place = 0  # among all that was told and added up
        self.watch = Watch(transport.notes, transport.rank, blocks, transport.timeout)

    def empty(self, size: int) -> Tensor:
        """A buffer where the transport wants it."""
        return torch.empty(size, dtype=torch.uint8, device=self._transport.device)

    def start(
        self, receive: Mapping[int, Tensor], send: Mapping[int, Tensor], tag: int
    ) -> tuple[dict[int, Pending], dict[int, Pending]]:
        """A message of a round."""
        return self._start(receive, send, tag % _PARCELS)

    def _start(
        self, receive: Mapping[int, Tensor], send: Mapping[int, Tensor], tag: int
    ) -> tuple[dict[int, Pending], dict[int, Pending]]:
        try:
            return self._transport.start(receive, send, tag)
        except LostError as error:  # a connection that broke since the last round
            raise self.watch.lost(next(iter([*receive, *send])), error) from None

    def wait(self, pending: Pending, rank: int, at: int, deadline: float | None = None) -> None:
        """Until the message to or from that rank has arrived, or the time-out."""
        self.watch.waiting(at, rank)
        left = self.timeout if deadline is None else max(0.001, deadline - time.monotonic())
        try:
            pending.wait(left)
        except LostError as error:
            raise self.watch.lost(rank, error) from None
        self.watch.computing(at)

    def check(self, label: Label, buffer: Tensor, layout: Layout, nodes: Sequence[int]) -> None:
        """Refuse a message that is not the one due, or holds what must not be averaged in."""
        try:
            label.check(buffer, layout, len(nodes))
        except RefusedError as error:
            name = name_of(label.sender, self.blocks)
            raise self.watch.tell(
                f"the message of {name} in round {self.watch.round_of(label.round)} was refused: {error}"
            ) from None
        for view in layout.views(buffer, len(nodes)):
            bad = first_not_finite(view)
            if bad is not None:
                who = f"node {nodes[bad]} (rank {label.sender})"
                at = self.watch.round_of(label.round)
                raise self.watch.tell(f"{who} sent NaN or infinite values in round {at}: refused")

    def gather(self, items: Sequence[T], *, each: Sequence[int]) -> list[T]:
        """All ranks' items in the order of the ranks. As JSON: nothing that arrives is ever run as code.

        What a rank says is its own statement: it is held against how many items are due from `each`
        rank, before anything else sees it.
        """
        own = torch.frombuffer(bytearray(json.dumps(list(items)).encode()), dtype=torch.uint8)
        texts = self._told(b"stated", own, [MOST] * len(self.blocks))
        found: list[T] = []
        for rank, text in enumerate(texts):
            try:
                said = parsed(bytes(text.numpy().data))
                if len(said) != each[rank]:
                    raise FormError(f"{len(said)} items where {each[rank]} are due")
                found += said
            except FormError as error:
                raise self._refused(rank, error) from None
        return found

    def sum(self, own: Tensor) -> Tensor:
        """Of all ranks' tensors, to everyone. Each rank adds up one part of it for all, in the order of the ranks.

        So the sum is the same to the last bit whenever it is formed, and nobody is sent the whole of a single term.
        """
        mine = own.detach().cpu().contiguous().flatten()
        parts = mine.tensor_split(len(self.blocks))
        part = parts[self.rank]
        stamp = partial(Stamp, self.seal, b"part", self._place)
        found = self._carry(
            {
                rank: stamp(self.rank, rank, most=parts[rank].nbytes).pack(_bytes_of(parts[rank]))
                for rank in self._others
            },
            {rank: stamp(rank, self.rank, most=part.nbytes) for rank in self._others},
        )
        terms = {self.rank: part, **{rank: self._numbers(rank, found[rank], part) for rank in found}}
        total = terms[0].clone()
        for rank in range(1, len(self.blocks)):
            total += terms[rank]
        sums = self._told(b"total", _bytes_of(total), [one.nbytes for one in parts])
        whole = [self._numbers(rank, content, parts[rank]) for rank, content in enumerate(sums)]
        return torch.cat(whole).view(own.shape).to(own.device)

    def _numbers(self, rank: int, content: Tensor, like: Tensor) -> Tensor:
        if len(content) != like.nbytes:
            raise self._refused(rank, f"{len(content)} bytes where {like.nbytes} are due")
        return content.view(like.dtype)

    def _told(self, kind: bytes, own: Tensor, most: Sequence[int]) -> list[Tensor]:
        """Everyone's bytes, in the order of the ranks, to everyone; at most so many of each."""
        stamps = [Stamp(self.seal, kind, self._place, rank, most=size) for rank, size in enumerate(most)]
        found = self._carry(
            dict.fromkeys(self._others, stamps[self.rank].pack(own)),
            {rank: stamps[rank] for rank in self._others},
        )
        self._place += 1
        return [found.get(rank, own) for rank in range(len(self.blocks))]

    @property
    def _others(self) -> list[int]:
        return [rank for rank in range(len(self.blocks)) if rank != self.rank]

    def _carry(
        self, send: Mapping[int, tuple[Tensor, Tensor | None]], due: Mapping[int, Stamp]
    ) -> dict[int, Tensor]:
        """One parcel to some ranks, one from each of some.

        All first messages are started before any is waited for, and all second ones before any of those: no deadlock.
        """
        deadline = time.monotonic() + self.timeout
        firsts = {rank: torch.empty(FIRST, dtype=torch.uint8) for rank in due}
        leaving = self._arrived(firsts, {rank: first for rank, (first, _) in send.items()}, deadline)
        found = {rank: self._checked(rank, stamp.begin, firsts[rank]) for rank, stamp in due.items()}
        leaving += self._arrived(
            {rank: content[INSIDE:] for rank, content in found.items() if len(content) > INSIDE},
            {rank: rest for rank, (_, rest) in send.items() if rest is not None},
            deadline,
        )
        for rank, stamp in due.items():
            self._checked(rank, stamp.check, firsts[rank], found[rank])
        for rank, pending in leaving:
            self.wait(pending, rank, self.watch.round, deadline)
        return found

    def _arrived(
        self, receive: Mapping[int, Tensor], send: Mapping[int, Tensor], deadline: float
    ) -> list[tuple[int, Pending]]:
        """Start all, wait for what comes; what is still leaving."""
        arriving, leaving = self._start(receive, send, _PARCELS + self._place % _PARCELS)
        for rank, pending in arriving.items():
            self.wait(pending, rank, self.watch.round, deadline)
        return list(leaving.items())

    def _checked(self, rank: int, work: Callable[..., T], *arguments: Tensor) -> T:
        try:
            return work(*arguments)
        except ParcelError as error:
            raise self._refused(rank, error) from None

    def _refused(self, rank: int, why: object) -> RankError:
        return self.watch.tell(f"what {name_of(rank, self.blocks)} stated was refused: {why}")


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8)
