"""Ranks that stay: one set of processes serves many tests. `Pool.call` runs a function of pool_worker.py on all ranks."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from typing import Any

from gossamer.runtime.launch import meeting_point, start_rank


class Pool:
    def __init__(self, ranks: int, timeout: float = 60.0):
        self.ranks = ranks
        self._store = meeting_point(timeout)
        command = [sys.executable, "-m", "tests.support.pool_worker", str(timeout)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.processes = [start_rank(command, rank, ranks, self._store.port, **pipes) for rank in range(ranks)]

    def call(self, name: str, **arguments: Any) -> list[Any]:
        """The answers of all ranks, in their order; an exception is an answer too."""
        job = pickle.dumps((name, arguments))
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(struct.pack("<Q", len(job)) + job)
            process.stdin.flush()
        return [self._answer(process) for process in self.processes]

    def _answer(self, process: subprocess.Popen[bytes]) -> Any:
        assert process.stdout is not None
        size = process.stdout.read(8)
        if len(size) < 8:
            return EOFError("the rank is dead")
        return pickle.loads(process.stdout.read(struct.unpack("<Q", size)[0]))

    def close(self) -> None:
        for process in self.processes:
            with process:
                process.kill()


def uneven(ranks: int) -> list[int]:
    """Blocks of different sizes, some of a single node."""
    return {2: [2, 5], 4: [1, 4, 2, 3], 8: [1, 3, 1, 2, 1, 1, 2, 1]}[ranks]
