"""What a cluster's worker does for us. Its code is here already; what comes is JSON, what goes back is a parcel.

A job is done by a child process of the worker, the same that does it on one machine, in a temporary folder: whatever a
run needs to keep secret is made in that process and dies with it. Nothing that a configuration names is executed.
"""

from __future__ import annotations

import json
import tempfile
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.data import sent
from gossamer.errors import UserError
from gossamer.studies.engine.parcel import pack
from gossamer.studies.engine.process import ChildProcess
from gossamer.studies.engine.same import code, difference

MOST_LOG = 20_000  # characters of what a job said beside its result
_LOCK = threading.Lock()


@dataclass
class _Seat:
    """A child process and the file that its words go to."""

    log: Any = field(default_factory=lambda: tempfile.TemporaryFile("w+", errors="replace"))  # noqa: SIM115
    child: ChildProcess = field(init=False)

    def __post_init__(self) -> None:
        self.child = ChildProcess(self.log)

    def words(self) -> str:
        """Said since the last time."""
        self.log.seek(0)
        said: str = self.log.read()[-MOST_LOG:]
        self.log.seek(0)
        self.log.truncate()
        return said


_FREE: list[_Seat] = []  # as many as there were jobs at a time; they keep what they have imported and read
_PARTS: dict[str, list[bytes]] = {}  # of files that are on their way here


def introduce() -> str:
    """What code this worker has, as JSON."""
    return json.dumps(code())


def do(request: str) -> bytes:
    """One job. Never raises: an exception would travel as a pickle."""
    import distributed

    worker = distributed.get_worker()
    try:
        told = json.loads(request)
        other = difference(told["code"], code(), worker.address)
        if other is not None:
            return pack({"error": other})
        lacking = [name for name in told["public"] if not sent.is_here(name)]
        if lacking:
            return pack({"lacks": lacking, "worker": worker.address})
        worker.log_event(told["topic"], {"job": told["job"], "worker": worker.address})
        return done(told["order"], Path(worker.local_directory), lambda: _wanted(worker, told["task"]))
    except UserError as error:
        return pack({"error": str(error)})
    except Exception as error:
        return pack(
            {
                "error": f"an error at the worker {worker.address}: {type(error).__name__}: {error} (see errors.log)",
                "log": traceback.format_exc()[-MOST_LOG:],
            }
        )


def done(order: dict[str, Any], folder: Path, wanted: Callable[[], bool] = lambda: True) -> bytes:
    """The job's files, also those that a failed one has left: what it had released is on file there."""
    with _LOCK:
        seat = _FREE.pop() if _FREE else _Seat()
    over = threading.Event()
    threading.Thread(target=_stop_if_unwanted, args=(seat.child, wanted, over), daemon=True).start()
    try:
        with tempfile.TemporaryDirectory(prefix="gossamer-", dir=folder) as temporary:
            out = Path(temporary) / "job"
            error = seat.child.run({**order, "out": str(out), "data_dir": None, "withhold": True})
            return pack({"error": error, "log": seat.words()}, out)
    finally:
        over.set()
        with _LOCK:
            if not seat.child.stopped:
                _FREE.append(seat)


def _wanted(worker: Any, key: str) -> bool:
    """Does the client still wait for it? One that was stopped, or is gone, has its tasks cancelled here."""
    task = worker.state.tasks.get(key)
    return task is not None and task.state in ("executing", "long-running")


def _stop_if_unwanted(child: ChildProcess, wanted: Callable[[], bool], over: threading.Event) -> None:
    while not over.wait(0.5):
        if not wanted():
            child.stop()
            return


def take(name: str, part: bytes, first: bool, last: bool) -> str | None:
    """A part of a public file that this worker lacks; after the last it is checked and kept. The error, or None."""
    with _LOCK:
        parts = _PARTS.setdefault(name, [])
        if first:
            parts.clear()
        parts.append(part)
        if not last:
            return None
        content = b"".join(_PARTS.pop(name))
    try:
        sent.take(name, content)
    except UserError as error:
        return str(error)
    except OSError as error:
        return f"{name} could not be kept: {error.strerror}."
    return None
