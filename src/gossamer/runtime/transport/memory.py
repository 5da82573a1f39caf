"""Several ranks as threads of one process, without sockets: for tests of whatever runs over a transport."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from gossamer.runtime.transport.base import LostError, Pending, SilentError
from gossamer.runtime.transport.secret import Secret

if TYPE_CHECKING:
    from torch import Tensor

Way = tuple[int, int, int]  # sender, receiver, tag


class Memory:
    """What the ranks share: messages on their way, notes, a seal. `end` breaks a rank's lines."""

    def __init__(self, size: int):
        self.size, self.changed = size, threading.Condition()
        self.messages: dict[tuple[Way, int], Tensor] = {}  # the n-th of its way
        self.sends: defaultdict[Way, int] = defaultdict(int)  # started so far
        self.receives: defaultdict[Way, int] = defaultdict(int)
        self.seal = Secret.fresh()
        self.ended: set[int] = set()
        self.texts: dict[str, str] = {}

    def end(self, rank: int) -> None:
        """As if its process had ended: whoever waits for it notices."""
        with self.changed:
            self.ended.add(rank)
            self.changed.notify_all()

    def wait(self, ready: Callable[[], bool], of: Callable[[], Iterable[int]], seconds: float) -> None:
        """Until ready, unless one of the ranks `of` has ended; with the lock held."""
        deadline = time.monotonic() + seconds
        while not ready():
            gone = next((rank for rank in of() if rank in self.ended), None)
            if gone is not None:
                raise LostError(f"rank {gone} has left")
            left = deadline - time.monotonic()
            if left <= 0:
                raise SilentError(f"nothing came within {seconds:g} s")
            self.changed.wait(left)


class MemoryNotes:
    def __init__(self, memory: Memory):
        self._memory = memory

    def read(self, key: str) -> str | None:
        with self._memory.changed:
            return self._memory.texts.get(key)

    def write(self, key: str, text: str) -> None:
        with self._memory.changed:
            self._memory.texts[key] = text

    def claim(self, key: str, text: str) -> str:
        with self._memory.changed:
            return self._memory.texts.setdefault(key, text)

    def clone(self) -> MemoryNotes:
        return self


class MemoryTransport:
    """One rank's end; the thread of that rank alone uses it."""

    spread, machine = False, "0"

    def __init__(self, memory: Memory, rank: int, timeout: float = 60.0):
        self._memory, self.rank, self.size = memory, rank, memory.size
        import torch

        self.timeout, self.device = timeout, torch.device("cpu")
        self.notes, self.first_here, self.seal = MemoryNotes(memory), rank == 0, memory.seal

    def start(
        self, receive: Mapping[int, Tensor], send: Mapping[int, Tensor], tag: int
    ) -> tuple[dict[int, Pending], dict[int, Pending]]:
        memory = self._memory
        with memory.changed:
            gone = next((rank for rank in send if rank in memory.ended), None)
            if gone is not None:
                raise LostError(f"rank {gone} has left")
            arriving: dict[int, Pending] = {}
            for rank, buffer in receive.items():
                way = (rank, self.rank, tag)
                arriving[rank] = _Receive(memory, way, memory.receives[way], buffer)
                memory.receives[way] += 1
            for rank, buffer in send.items():
                way = (self.rank, rank, tag)
                memory.messages[way, memory.sends[way]] = buffer.clone()
                memory.sends[way] += 1
            memory.changed.notify_all()
        return arriving, {rank: _Sent() for rank in send}

    def close(self) -> None:
        self._memory.end(self.rank)

    def abandon(self) -> None:
        return


class _Sent:
    """The message was copied when it was started."""

    def wait(self, seconds: float) -> None:
        return


class _Receive:
    """The n-th receive of a way gets its n-th message."""

    def __init__(self, memory: Memory, way: Way, place: int, buffer: Tensor):
        self._memory, self._key, self._buffer = memory, (way, place), buffer

    def wait(self, seconds: float) -> None:
        memory, key = self._memory, self._key
        with memory.changed:
            memory.wait(lambda: key in memory.messages, lambda: [key[0][0]], seconds)
            message = memory.messages.pop(key)
        if len(message) != len(self._buffer):
            raise LostError(f"a message of {len(message)} bytes came where {len(self._buffer)} were due")
        self._buffer.copy_(message)
