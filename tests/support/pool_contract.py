"""What `gossamer.runtime.transport.base.Transport` promises, as jobs of a pool: each rank says what it saw."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch import Tensor

from gossamer.runtime.group import Ranks
from gossamer.runtime.transport.base import LostError, SilentError, Transport
from gossamer.runtime.transport.torch import TorchTransport
from gossamer.runtime.watch import RankError


def content(sender: int, receiver: int, place: int, size: int) -> Tensor:
    """Bytes that tell who sent them to whom."""
    random = torch.Generator().manual_seed(1000 * sender + 100 * receiver + place)
    return torch.randint(0, 256, (size,), generator=random, dtype=torch.uint8)


def everyone_to_everyone(ranks: Ranks, sizes: list[int], lengths: list[int]) -> Any:
    """All at once, one round per length: is every message complete and from the right one?"""
    transport, right = ranks.transport, []
    others = [rank for rank in range(transport.size) if rank != transport.rank]
    for place, length in enumerate(lengths):
        incoming = {rank: torch.zeros(length, dtype=torch.uint8) for rank in others}
        outgoing = {rank: content(transport.rank, rank, place, length) for rank in others}
        arriving, leaving = transport.start(incoming, outgoing, place)
        for pending in [*arriving.values(), *leaving.values()]:
            pending.wait(30.0)
        right += [
            torch.equal(buffer, content(rank, transport.rank, place, length))
            for rank, buffer in incoming.items()
        ]
    return right


def three_of_one_tag(ranks: Ranks, sizes: list[int]) -> Any:
    """Rank 0 sends three messages with one tag; rank 1 waits for the last first."""
    transport = ranks.transport
    if transport.rank == 0:
        for place in range(3):
            _send(transport, 1, content(0, 1, place, 40), tag=5)
        return None
    time.sleep(0.2)  # they arrive before they are asked for
    buffers = [torch.zeros(40, dtype=torch.uint8) for _ in range(3)]
    pending = [transport.start({0: buffer}, {}, 5)[0][0] for buffer in buffers]
    for one in reversed(pending):
        one.wait(30.0)
    return [torch.equal(buffer, content(0, 1, place, 40)) for place, buffer in enumerate(buffers)]


def two_tags_crossed(ranks: Ranks, sizes: list[int]) -> Any:
    """Sent with tags 1, 2; asked for in the order 2, 1."""
    transport = ranks.transport
    if transport.rank == 0:
        leaving = [transport.start({}, {1: content(0, 1, tag, 16)}, tag)[1][1] for tag in (1, 2)]
        for pending in leaving:
            pending.wait(30.0)
        return None
    right = []
    for tag in (2, 1):
        buffer = torch.zeros(16, dtype=torch.uint8)
        transport.start({0: buffer}, {}, tag)[0][0].wait(30.0)
        right.append(torch.equal(buffer, content(0, 1, tag, 16)))
    return right


def late_receiver(ranks: Ranks, sizes: list[int]) -> Any:
    """How long `start` takes while the other rank does something else; then both get 4 MB."""
    transport, other, length = ranks.transport, 1 - ranks.rank, 1 << 22
    ranks.join([0])
    if transport.rank == 1:
        time.sleep(1.0)
    began = time.monotonic()
    buffer = torch.zeros(length, dtype=torch.uint8)
    message = content(transport.rank, other, 0, length)
    arriving, leaving = transport.start({other: buffer}, {other: message}, 9)
    seconds = time.monotonic() - began
    arriving[other].wait(30.0)
    leaving[other].wait(30.0)
    return seconds, torch.equal(buffer, content(other, transport.rank, 0, length))


def gathered(ranks: Ranks, sizes: list[int], texts: list[list[str]]) -> Any:
    return [ranks.messenger.gather([text[ranks.rank]], each=[1] * ranks.size) for text in texts]


def summed(ranks: Ranks, sizes: list[int], terms: list[list[Tensor]]) -> Any:
    own = [term[ranks.rank].clone() for term in terms]
    totals = [ranks.messenger.sum(term) for term in own]
    return totals, all(torch.equal(a, term[ranks.rank]) for a, term in zip(own, terms, strict=True))


def noted(ranks: Ranks, sizes: list[int]) -> Any:
    """What each reads of notes that are written, claimed by all, and never written."""
    transport = ranks.transport
    transport.notes.clone().write(f"own/{transport.rank}", f"rank {transport.rank} ≤ ε")
    claimed = transport.notes.claim("claimed", f"rank {transport.rank}")
    ranks.join([0])
    own = [transport.notes.read(f"own/{rank}") for rank in range(transport.size)]
    return own, claimed, transport.notes.read("claimed"), transport.notes.read("nothing")


def silent(ranks: Ranks, sizes: list[int]) -> Any:
    """Rank 0 waits half a second for a message that rank 1 never sends."""
    if ranks.rank == 1:
        time.sleep(2.0)
        return None
    began = time.monotonic()
    try:
        ranks.transport.start({1: torch.zeros(8, dtype=torch.uint8)}, {}, 3)[0][1].wait(0.5)
    except LostError as error:
        return isinstance(error, SilentError), time.monotonic() - began
    return "it came"


def left_alone(ranks: Ranks, sizes: list[int], how: str) -> Any:
    """Rank 1 is gone; what rank 0 hears, or says, when it waits for it."""
    transport = ranks.transport
    ranks.join([0])
    if transport.rank == 1:
        if isinstance(transport, TorchTransport):
            os._exit(1)
        transport.close()
        return None
    try:
        if how == "receive":
            transport.start({1: torch.zeros(8, dtype=torch.uint8)}, {}, 3)[0][1].wait(20.0)
        elif how == "gather":
            ranks.join(["anybody?"])
        else:
            ranks.messenger.sum(torch.ones(3))
    except (LostError, RankError) as error:
        return type(error).__name__
    return "it came"


def _send(transport: Transport, rank: int, message: Tensor, tag: int) -> None:
    transport.start({}, {rank: message}, tag)[1][rank].wait(30.0)


JOBS = {
    job.__name__: job
    for job in (
        everyone_to_everyone, three_of_one_tag, two_tags_crossed, late_receiver, gathered, summed, noted, silent,
        left_alone,
    )
}  # fmt: skip
