"""The processes of a run on this machine: started, watched and ended by gossamer itself, as torchrun would.

The parent holds the ranks' meeting point, so that it outlives any of them and can say why the run ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from gossamer.config.baselines import effective
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.results.rundir import free_path
from gossamer.run.request import RunRequest
from gossamer.runtime.blocks import split
from gossamer.runtime.children import environment
from gossamer.runtime.watch import FAILURE, KILLED, RESULT

_GRACE = 10.0  # seconds beyond the time-out that the others have to end by themselves


def launch(config: RunConfig, request: RunRequest) -> dict[str, Any]:
    """Run on `runtime.ranks` processes; the result, or one sentence about what went wrong."""
    from torch._C._distributed_c10d import TCPStore

    ranks = how_many(config)
    split(effective(config).nodes, ranks, config.runtime.blocks)  # a mistake in it shows now
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=5))
    out = None if request.resume else request.out or free_path(config.name)
    job = {
        "config": config.model_dump(exclude_none=True),
        "out": _text(out),
        "resume": _text(request.resume),
        "data_dir": _text(request.data_dir),
        "track": request.track,
        "quiet": request.quiet,
    }
    command = [sys.executable, "-P", "-m", "gossamer.run.launch"]
    processes = [start_rank(command, rank, ranks, store.port) for rank in range(ranks)]
    try:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps(job).encode())
            process.stdin.close()
        codes = _wait(processes, config.runtime.timeout, store)
    except KeyboardInterrupt:
        # They are out of the terminal's reach: one interrupt each, and time to put their files in order.
        _end(processes, signal.SIGINT)
        raise KeyboardInterrupt(f"continue with `gossamer run --resume {request.resume or out}`") from None
    finally:
        _end(processes, signal.SIGTERM)
    if any(codes):
        raise UserError(_reason(store, codes))
    result: dict[str, Any] = json.loads(store.get(RESULT))
    return result


def how_many(config: RunConfig) -> int:
    asked = config.runtime
    if asked.ranks is not None:
        return asked.ranks
    return len(asked.blocks) if asked.blocks else min(os.cpu_count() or 1, effective(config).nodes)


def start_rank(
    command: list[str], rank: int, ranks: int, port: int, **settings: Any
) -> subprocess.Popen[bytes]:
    """A process that finds the others by torchrun's variables; `settings` are subprocess' own."""
    meeting = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # torch's name for: the meeting point exists, do not open one
        "GLOO_SOCKET_IFNAME": "lo",  # nothing leaves the machine
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    own = {**environment(threads=max(1, (os.cpu_count() or 1) // ranks)), **meeting}
    shown = {"stdout": None if rank == 0 else subprocess.DEVNULL, **settings}
    return subprocess.Popen(command, stdin=subprocess.PIPE, env=own, start_new_session=True, **shown)


def _wait(processes: Sequence[subprocess.Popen[bytes]], timeout: float, store: Any) -> list[int]:
    """Until all have ended; once one has failed, the others have the time-out to notice.

    They are told of a killed one: it cannot say so itself, and what they see of it may be mere silence.
    """
    deadline = None
    while True:
        codes = [process.poll() for process in processes]
        if deadline is None and any(codes):
            deadline = time.monotonic() + timeout + _GRACE
            killed = next((rank for rank, code in enumerate(codes) if code is not None and code < 0), None)
            if killed is not None:
                store.set(KILLED, str(killed))
        if all(code is not None for code in codes):
            return [process.wait() for process in processes]
        if deadline is not None and time.monotonic() > deadline:
            _end(processes, signal.SIGKILL)
            return [process.wait() for process in processes]
        time.sleep(0.05)


def _end(processes: Sequence[subprocess.Popen[bytes]], how: signal.Signals) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(how)
    for process in processes:
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _reason(store: Any, codes: Sequence[int]) -> str:
    told = store.get(FAILURE).decode() if store.check([FAILURE]) else None
    # Only the first that was killed: the others we may have killed ourselves.
    first = int(store.get(KILLED)) if store.check([KILLED]) else None
    if told is None:
        rank = first if first is not None else next(rank for rank, code in enumerate(codes) if code)
        how = (
            f"was ended by signal {-codes[rank]}"
            if codes[rank] < 0
            else f"ended with exit code {codes[rank]}"
        )
        return f"rank {rank} {how} before it could say why."
    if first is not None and told.startswith(f"rank {first} "):
        told = f"{told} (its process was ended by signal {-codes[first]})"
    return told if told.endswith(".") else f"{told}."


def rank_main() -> None:
    """One rank: the job comes on stdin, why it failed and what it found go to the meeting point."""
    from gossamer.run.request import run_here

    job = json.loads(sys.stdin.read())
    request = RunRequest(
        recipe=None,
        overrides=[],
        out=_path(job["out"]),
        resume=_path(job["resume"]),
        data_dir=_path(job["data_dir"]),
        track=job["track"],
        quiet=job["quiet"],
    )
    parent = os.getppid()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # whatever it was inherited as: the parent passes it on

    def orphaned(_: int) -> None:
        if os.getppid() != parent:  # nobody is left to end us or to hear how it went
            os._exit(1)

    try:
        result = run_here(RunConfig.model_validate(job["config"]), request, orphaned)
    except UserError as error:
        _tell(FAILURE, str(error))
        os._exit(2)  # without torch's farewell to connections that are gone
    except KeyboardInterrupt:
        os._exit(130)
    if result is not None:
        _tell(RESULT, json.dumps(result))


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _tell(key: str, text: str) -> None:
    from torch._C._distributed_c10d import TCPStore

    where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    TCPStore(*where, is_master=False, timeout=timedelta(seconds=5)).compare_set(key, "", text)


if __name__ == "__main__":
    rank_main()
