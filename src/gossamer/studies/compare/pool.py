"""Cells side by side: one process per job, each with a single thread; what is finished is not run again."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from gossamer.errors import UserError
from gossamer.runtime.children import environment
from gossamer.studies.compare import cells as on_disk
from gossamer.studies.compare.grid import Cell

Report = Callable[[Cell, str | None], None]  # the cell, and what went wrong with it


class Worker:
    """One child process; started again should it die."""

    def __init__(self, log: IO[str]):
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False

    def run(self, job: dict[str, Any]) -> str | None:
        """The error, or None."""
        if self._stopped:
            return "it was stopped."
        if self._process is None or self._process.poll() is not None:
            self._process = self._start()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = ""
        if not answer:
            code = process.wait()
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            return f"its process {how}{' (out of memory?)' if code == -9 else ''}."
        error: str | None = json.loads(answer)["error"]
        return error

    def stop(self) -> None:
        self._stopped = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "gossamer.studies.compare.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
            env=environment(threads=1),
        )


def run_cells(
    cells: Sequence[Cell],
    out: Path,
    *,
    jobs: int,
    data_dir: Path | None = None,
    force: bool = False,
    on_start: Callable[[Cell], None] = lambda cell: None,
    on_done: Report = lambda cell, error: None,
    on_tick: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Run what is not finished. The cells that failed, by name, with the reason in one sentence."""
    failed: dict[str, str] = {}
    started: queue.SimpleQueue[Cell] = queue.SimpleQueue()
    own = threading.local()
    workers: list[Worker] = []

    def run(cell: Cell) -> str | None:
        if not hasattr(own, "worker"):
            own.worker = Worker(log)
            workers.append(own.worker)
        started.put(cell)
        on_disk.set_aside(out, cell)
        worker: Worker = own.worker
        return worker.run(
            {
                "config": cell.settings,
                "out": str(on_disk.folder(out, cell)),
                "data_dir": str(data_dir) if data_dir else None,
                "force": force,
            }
        )

    errors = out / "errors.log"
    with open(errors, "a", encoding="utf-8") as log, ThreadPoolExecutor(jobs) as pool:
        waiting: dict[Future[str | None], Cell] = {pool.submit(run, cell): cell for cell in cells}
        try:
            while waiting:
                done, _ = wait(waiting, timeout=0.3, return_when=FIRST_COMPLETED)
                while not started.empty():
                    on_start(started.get())
                for future in done:
                    cell = waiting.pop(future)
                    error = future.result()
                    if error is not None:
                        failed[cell.name] = error
                    on_done(cell, error)
                on_tick()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.stop()
    if not errors.stat().st_size:
        errors.unlink()
    return failed


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Refuse a second comparison that would write into the same folder at the same time."""
    try:
        import fcntl
    except ImportError:  # not a Unix: no such lock
        yield
        return
    handle = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"--out {out} is in use by another comparison; wait for it.") from None
        yield
    finally:
        os.close(handle)
