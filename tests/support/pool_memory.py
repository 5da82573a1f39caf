"""As pool.py, with ranks that are threads of this process and talk through its memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.pool import Pool
from tests.support.pool_worker import answer_of

from gossamer.runtime.blocks import split
from gossamer.runtime.group import Ranks
from gossamer.runtime.transport.memory import Memory, MemoryTransport


class MemoryPool:
    def __init__(self, ranks: int, timeout: float = 60.0):
        self.ranks, self._timeout = ranks, timeout
        self._threads = ThreadPoolExecutor(ranks)

    def call(self, name: str, **arguments: Any) -> list[Any]:
        """The answers of all ranks, in their order; an exception is an answer too."""
        memory, blocks = (
            Memory(self.ranks),
            split(sum(arguments["sizes"]), self.ranks, arguments["sizes"]),
        )

        def answer(rank: int) -> Any:
            return answer_of(Ranks(blocks, MemoryTransport(memory, rank, self._timeout)), name, arguments)

        return list(self._threads.map(answer, range(self.ranks)))

    def close(self) -> None:
        self._threads.shutdown()


POOLS: dict[str, Callable[..., Pool | MemoryPool]] = {"memory": MemoryPool, "torch": Pool}
