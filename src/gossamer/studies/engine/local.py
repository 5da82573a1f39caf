"""`--engine local`: as many processes of this machine as there are jobs at a time, each with a single thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gossamer.config.schema import RunConfig
from gossamer.options.sentences import whole_number
from gossamer.studies.engine.child import order
from gossamer.studies.engine.job import Job, OnStart
from gossamer.studies.engine.process import ChildProcess


class Local:
    here = True

    def __init__(self, jobs: int | None):
        if jobs is not None:
            jobs = whole_number("--jobs", jobs)
        self._jobs = jobs or _cores()

    def refuse(self, config: RunConfig) -> None:
        """Nothing leaves this machine."""

    @contextmanager
    def open(self, log: Path, data_dir: Path | None) -> Iterator[Processes]:
        processes = Processes(self._jobs, log, data_dir)
        try:
            yield processes
        finally:
            processes.stop()


class Processes:
    """They write into each job's place themselves."""

    def __init__(self, jobs: int, log: Path, data_dir: Path | None):
        self._jobs, self._log, self._data_dir = jobs, log, data_dir
        self._threads = ThreadPoolExecutor(jobs)
        self._own, self._lock, self._stopped = threading.local(), threading.Lock(), False
        self._children: list[tuple[ChildProcess, IO[str]]] = []

    def submit(self, job: Job, on_start: OnStart) -> Future[str | None]:
        return self._threads.submit(self._run, job, on_start)

    def at_a_time(self, jobs: int) -> str:
        return f"{min(self._jobs, max(1, jobs))} at a time"

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:  # a thread that has begun finds its child stopped, or makes none
            self._stopped = True
        for child, _ in self._children:
            child.stop()
        self._threads.shutdown(wait=True)
        for _, log in self._children:
            log.close()
        if self._log.is_file() and not self._log.stat().st_size:
            self._log.unlink()

    def _run(self, job: Job, on_start: OnStart) -> str | None:
        with self._lock:
            if self._stopped:
                return "it was stopped."
            if not hasattr(self._own, "child"):
                log = self._log.open("a", encoding="utf-8")
                self._own.child = ChildProcess(log)
                self._children.append((self._own.child, log))
        on_start()
        child: ChildProcess = self._own.child
        return child.run(order(job, job.place, self._data_dir))


def _cores() -> int:
    """That this process may use, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
