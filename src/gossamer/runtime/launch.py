"""The ranks of a run on this machine: started, watched and ended by the command that was typed, as torchrun would."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from gossamer.errors import UserError

FAILURE = "gossamer/failure"  # key of the store: why the run ends
_LAUNCHED = "GOSSAMER_LAUNCHED"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_GRACE = 15.0  # seconds that ranks have to end by themselves


def environment(threads: int) -> dict[str, str]:
    """The environment of a child process: our package, and so many threads for each of the libraries."""
    root = str(Path(__file__).parents[2])
    return {
        **os.environ,
        **dict.fromkeys(_THREADS, str(threads)),
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
    }


def launched() -> bool:
    """Is this a rank of `launch`, which prints its failures?"""
    return _LAUNCHED in os.environ


def launch(arguments: Sequence[str], ranks: int, *, timeout: float) -> None:
    """Run `gossamer` with these arguments once per rank; the first one prints.

    Raises a `UserError` with the reason of a failure. An interrupt ends every rank after its round.
    """
    command = [sys.executable, "-P", "-m", "gossamer", *arguments]
    store = meeting_point(timeout)
    processes = [start_rank(command, rank, ranks, store.port) for rank in range(ranks)]
    try:
        killed = wait(processes, timeout)
    finally:  # also after an interrupt, which the terminal sends to this process alone
        end(processes)
    codes = [process.wait() for process in processes]
    if any(codes):
        claimed = store.get(FAILURE).decode() if store.check([FAILURE]) else None
        raise UserError(reason(claimed, killed, codes))


def meeting_point(timeout: float) -> Any:
    """A store on loopback; held here, it outlives every rank."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    return TCPStore(
        "127.0.0.1",
        port,
        is_master=True,
        timeout=timedelta(seconds=timeout),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def start_rank(command: list[str], rank: int, ranks: int, port: int, **settings: Any) -> subprocess.Popen[bytes]:
    """A process with the variables that torchrun would set; `settings` are those of subprocess."""
    variables = {
        _LAUNCHED: "1",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is not rank 0's to open
        "GLOO_SOCKET_IFNAME": "lo",  # nothing leaves the machine
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    env = {**environment(threads=max(1, (os.cpu_count() or 1) // ranks)), **variables}
    streams = {"stdin": subprocess.DEVNULL, "stdout": None if rank == 0 else subprocess.DEVNULL}
    return subprocess.Popen(command, env=env, start_new_session=True, **{**streams, **settings})


def wait(processes: Sequence[subprocess.Popen[bytes]], timeout: float) -> int | None:
    """Until all have ended; once one has failed the others have the time-out to notice. The first that was killed."""
    deadline, killed = None, None
    while True:
        codes = [process.poll() for process in processes]
        if deadline is None and any(codes):
            deadline = time.monotonic() + timeout + _GRACE
            killed = next((rank for rank, code in enumerate(codes) if code is not None and code < 0), None)
        if all(code is not None for code in codes) or (deadline and time.monotonic() > deadline):
            return killed
        time.sleep(0.05)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End those that still run: after their round, or after some seconds at once."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def reason(claimed: str | None, killed: int | None, codes: Sequence[int]) -> str:
    """Why the ranks ended with these exit codes: what one of them claimed, and the signal that killed the first."""
    rank = killed if killed is not None else next(rank for rank, code in enumerate(codes) if code)
    signalled = f"was ended by signal {-codes[rank]}"
    if claimed is None:
        how = signalled if codes[rank] < 0 else f"ended with exit code {codes[rank]}"
        return f"rank {rank} {how} before it could say why."
    if killed is not None and claimed.startswith(f"rank {killed} "):
        claimed = f"{claimed} (its process {signalled})"
    return claimed if claimed.endswith(".") else f"{claimed}."
