"""Parcels at the ends of links: cut into chunks, put together again, kept while they wait; never more than allowed."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from gossamer.consortium.limits import CHUNK, KEPT, SMALL, SMALL_KEPT
from gossamer.consortium.links import Arrival
from gossamer.consortium.peer_pb2 import Chunk


class FrameError(Exception):
    """The other end does not keep to the format; one sentence."""


@dataclass
class _Waiting:
    number: int
    parcel: bytes
    deadline: float
    sent: int = -1  # bytes of it on this connection; −1: not begun

    @property
    def done(self) -> bool:
        return self.sent >= len(self.parcel)

    @property
    def begun(self) -> bool:
        return self.sent >= 0

    @property
    def small(self) -> bool:
        return len(self.parcel) <= SMALL


class Outbox:
    """What waits to be taken by one other site."""

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._numbers = 0
        self.expired = -float("inf")  # when a parcel ran out of time, unless one was taken since

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, parcel: bytes, deadline: float) -> None:
        self.expire()
        self._numbers += 1
        self._waiting.append(_Waiting(self._numbers, parcel, deadline))
        self._make_room([kept for kept in self._waiting if kept.small], SMALL_KEPT)
        self._make_room([kept for kept in self._waiting if not kept.small], KEPT)

    def chunk(self) -> Chunk | None:
        """The next piece; None if everything is on its way.

        A parcel on its way is finished first, so that on a slow link something arrives, however often one sends.
        """
        self.expire()
        now = next((kept for kept in self._waiting if kept.begun and not kept.done), None)
        now = now or next((kept for kept in self._waiting if not kept.begun), None)
        if now is None:
            return None
        offset = max(now.sent, 0)
        data = now.parcel[offset : offset + CHUNK]
        now.sent = offset + len(data)
        return Chunk(number=now.number, size=len(now.parcel), offset=offset, data=data)

    def taken(self, number: int) -> None:
        self._waiting = [kept for kept in self._waiting if kept.number != number]
        self.expired = -float("inf")

    def again(self) -> None:
        """On a new connection everything begins anew."""
        self.expired = -float("inf")
        for kept in self._waiting:
            kept.sent = -1

    def expire(self) -> None:
        now = time.monotonic()
        left = [kept for kept in self._waiting if kept.deadline > now]
        if len(left) < len(self._waiting):
            self.expired, self._waiting = now, left

    def _make_room(self, kept: list[_Waiting], most: int) -> None:
        if len(kept) > most:
            victim = next(old for old in kept if not old.begun or old.done)
            self._waiting.remove(victim)


class Assembly:
    """A parcel of the other end, as far as it has come."""

    def __init__(self, most: int):
        self._most, self._number, self._size = most, 0, 0
        self._parts: list[bytes] = []
        self._length = 0

    def add(self, chunk: Chunk) -> bytes | None:
        """The parcel, once its last byte is there."""
        if not 0 < chunk.size <= self._most:
            raise FrameError(f"a parcel of {chunk.size} bytes is not in 1 … {self._most}")
        if chunk.offset == 0:
            self._number, self._size, self._parts, self._length = chunk.number, chunk.size, [], 0
        if (chunk.number, chunk.size, chunk.offset) != (self._number, self._size, self._length):
            raise FrameError(
                f"a chunk at {chunk.offset} does not follow {self._length} bytes of parcel {self._number}"
            )
        self._length += len(chunk.data)
        # Chunks are full but for the last: nobody fills memory with a million pieces of one byte.
        if len(chunk.data) != min(CHUNK, self._size - chunk.offset):
            raise FrameError(f"a chunk at {chunk.offset} of {self._size} bytes has {len(chunk.data)} bytes")
        self._parts.append(chunk.data)
        if self._length < self._size:
            return None
        whole = b"".join(self._parts)
        self._parts, self._length, self._size = [], 0, 0
        return whole


@dataclass
class _Arrived:
    arrival: Arrival
    taken: Callable[[], None] = field(repr=False)  # tells the sender


class Inbox:
    """What has arrived and was not taken yet, of all sites; the loop puts, the program takes."""

    def __init__(self) -> None:
        self._arrived: deque[_Arrived] = deque()
        self._changed = threading.Condition()

    def put(self, arrival: Arrival, taken: Callable[[], None]) -> None:
        """A site that sends more than it may push out its own oldest."""
        with self._changed:
            small = len(arrival.parcel) <= SMALL
            others = [
                old
                for old in self._arrived
                if old.arrival.sender == arrival.sender and (len(old.arrival.parcel) <= SMALL) == small
            ]
            if len(others) >= (SMALL_KEPT if small else KEPT):
                self._arrived = deque(kept for kept in self._arrived if kept is not others[0])
            self._arrived.append(_Arrived(arrival, taken))
            self._changed.notify()

    def take(self, deadline: float) -> Arrival | None:
        with self._changed:
            while not self._arrived:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
            first = self._arrived.popleft()
        first.taken()
        return first.arrival

    def forget(self, sender: str) -> None:
        with self._changed:
            self._arrived = deque(kept for kept in self._arrived if kept.arrival.sender != sender)

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
