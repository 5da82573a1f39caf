"""Runs `gossamer` in a forked child per line of stdin, so that a start takes no time: see test_kill.py.

The child writes down, outside of the run directory and of what it tests, which noise it drew and which values left the
mechanism: `drawn` gets a line "node step" per row of noise, `released` a line "step" per value.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.cli import main
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise.base import MASK, NOISE
from gossamer.mechanism.reader import PrivateGradient

PAIRS = 1_000_000  # masks are written down as noise of nodes from here on


def call(words: list[str]) -> int:
    sys.argv = ["gossamer", *words]
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def put(fd: int, lines: bytes) -> None:
    """All of it or nothing, also where a limit comes in between: half a number would be another."""
    size = os.fstat(fd).st_size
    if os.write(fd, lines) != len(lines):
        os.ftruncate(fd, size)
        raise OSError(errno.EFBIG, "the disk is full for the witness")


def witness(folder: Path) -> None:
    """Write to `folder` what happens; each line is one system call, so nothing that happened can be missing."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    drawn, released = os.open(folder / "drawn", flags), os.open(folder / "released", flags)
    draw, release = Stream.normal_rows, PrivateGradient.__call__

    def normal_rows(self: Stream, purpose: int, nodes: Any, step: int, out: Any, *args: Any, **kwargs: Any) -> None:
        if purpose == NOISE and not isinstance(out, np.ndarray):  # for a tensor it calls itself with an array
            put(drawn, "".join(f"{node} {step}\n" for node in nodes).encode())
        if purpose == MASK and not isinstance(out, np.ndarray):
            put(drawn, "".join(f"{PAIRS + pair} {step}\n" for pair in nodes).encode())
        draw(self, purpose, nodes, step, out, *args, **kwargs)

    def private(self: PrivateGradient, points: Any) -> Any:
        step = self.draws
        value = release(self, points)
        if bool((self._allowance > step).any()):
            put(released, f"{step}\n".encode())
        return value

    Stream.normal_rows, PrivateGradient.__call__ = normal_rows, private  # type: ignore[method-assign]


def wait_for(child: int, file: Path, lines: int, seconds: float) -> None:
    """Until the file has so many more lines (or the child ended), and then some seconds."""
    size = file.stat().st_size if file.exists() else 0
    while lines and (file.stat().st_size if file.exists() else 0) < size + 4 * lines:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.001)
    time.sleep(seconds)


def start(job: dict[str, Any]) -> int:
    """A child that does the job, under its limits."""
    child = os.fork()
    if child == 0:
        witness(Path(job["folder"]))
        names = {"files": resource.RLIMIT_NOFILE, "bytes": resource.RLIMIT_FSIZE}
        for name, limit in job["limits"].items():
            resource.setrlimit(names[name], (limit, limit))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        os._exit(call(job["words"]))
    return child


def serve() -> None:
    answers, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: SIM115
    call(["run", *sys.argv[1:]])  # compiles and loads everything before the first fork
    for line in sys.stdin:
        job = json.loads(line)
        children = [start(job) for _ in range(2 if job["twice"] else 1)]
        child = children[0]
        if job["kill"] is not None:
            wait_for(child, Path(job["folder"]) / "drawn", *job["kill"])
            for one in children:
                os.kill(one, signal.SIGKILL)  # not waited for yet: the number cannot be anybody else's
        for one in children[1:]:
            os.waitpid(one, 0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


if __name__ == "__main__":
    serve()
