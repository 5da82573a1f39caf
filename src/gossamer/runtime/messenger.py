"""What the ranks do with each other over any transport: start, wait, check, gather; a failure is put down to a rank."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from gossamer.runtime.forms import Form, FormError, parsed
from gossamer.runtime.transport.base import LostError, Pending, Transport
from gossamer.runtime.transport.secret import TAG
from gossamer.runtime.watch import Watch, name_of
from gossamer.runtime.wire import Label, Layout, RefusedError, first_not_finite

T = TypeVar("T")


class Messenger:
    """One rank's messages: the transport carries them, the wire format labels them, the watch knows whom to blame."""

    def __init__(self, transport: Transport, blocks: Sequence[range]):
        self._transport, self.blocks = transport, list(blocks)
        self.rank, self.timeout, self.seal = transport.rank, transport.timeout, transport.seal
        self._gathers = 0
        self.watch = Watch(transport.notes, transport.rank, blocks, transport.timeout)

    def empty(self, size: int) -> Tensor:
        """A buffer where the transport wants it."""
        return torch.empty(size, dtype=torch.uint8, device=self._transport.device)

    def start(
        self, receive: Mapping[int, Tensor], send: Mapping[int, Tensor], tag: int
    ) -> tuple[dict[int, Pending], dict[int, Pending]]:
        try:
            return self._transport.start(receive, send, tag % (1 << 30))
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
                f"the message of {name} in round {label.round} was refused: {error}"
            ) from None
        for view in layout.views(buffer, len(nodes)):
            bad = first_not_finite(view)
            if bad is not None:
                who = f"node {nodes[bad]} (rank {label.sender})"
                raise self.watch.tell(f"{who} sent NaN or infinite values in round {label.round}: refused")

    def gather(self, items: Sequence[T], form: Form | None = None, *, each: Sequence[int] = ()) -> list[T]:
        """All ranks' items in the order of the ranks. As JSON: nothing that arrives is ever run as code.

        What a rank says is its own statement: it is held against `form`, and against how many items are due from `each`
        rank, before anything else sees it.
        """
        own = json.dumps(list(items)).encode()
        place = struct.pack("<Q", self._gathers)
        self._gathers += 1
        texts = self._collective(lambda: self._transport.gather(self._sealed(place, own)))
        found: list[T] = []
        for rank, text in enumerate(texts):
            try:
                said = parsed(self._opened(place, rank, text))
                if each and len(said) != each[rank]:
                    raise FormError(f"{len(said)} items where {each[rank]} are due")
                found += [form(item) for item in said] if form is not None else said
            except FormError as error:
                name = name_of(rank, self.blocks)
                raise self.watch.tell(f"what {name} stated was refused: {error}") from None
        return found

    def _sealed(self, place: bytes, own: bytes) -> bytes:
        if self.seal is None:
            return own
        return self.seal.tag(b"stated", place, struct.pack("<Q", self.rank), own) + own

    def _opened(self, place: bytes, rank: int, text: bytes) -> bytes:
        if self.seal is None:
            return text
        tag, content = text[:TAG], text[TAG:]
        if not self.seal.fits(tag, b"stated", place, struct.pack("<Q", rank), content):
            raise FormError("its seal does not fit its content")
        return content

    def sum(self, own: Tensor) -> Tensor:
        total: Tensor = self._collective(lambda: self._transport.sum(own))
        return total

    def _collective(self, work: Callable[[], Any]) -> Any:
        # Collectives go round in a ring: a rank waits for the next one first.
        at, next_rank = self.watch.round, (self.rank + 1) % len(self.blocks)
        self.watch.waiting(at, next_rank)
        try:
            found = work()
        except LostError as error:
            raise self.watch.lost(next_rank, error) from None
        self.watch.computing(at)
        return found
