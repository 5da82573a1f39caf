"""The ranks of a run on this machine: started, watched and ended from here, as torchrun would.

The parent holds the ranks' meeting point, so that it outlives any of them and can say why the run ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from gossamer.errors import UserError
from gossamer.runtime.children import environment
from gossamer.runtime.transport.base import Notes
from gossamer.runtime.transport.meeting import PLACE, Meeting, MeetingNotes
from gossamer.runtime.transport.secret import Secret
from gossamer.runtime.watch import FAILURE, KILLED

_ANSWERS = "GOSSAMER_ANSWERS"  # the number of the pipe's end, in the first rank's environment
_GRACE = 10.0  # seconds beyond the time-out that the others have to end by themselves


def launch(command: list[str], ranks: int, *, timeout: float, job: dict[str, Any]) -> Any:
    """Run `command` once per rank with the job as JSON on its stdin, each answering by `answer`.

    What the first rank found, or one sentence about what went wrong. An interrupt is passed on once to every rank.
    """
    meeting = Meeting()
    try:
        return _launch(command, ranks, timeout, job, meeting)
    finally:
        meeting.close()


def _launch(command: list[str], ranks: int, timeout: float, job: dict[str, Any], meeting: Meeting) -> Any:
    # What was found comes by a pipe that nobody else can reach, and is read while the ranks work: it may be long.
    reading, writing = os.pipe()
    processes = [
        start_rank(command, rank, ranks, meeting, answers=writing if rank == 0 else None)
        for rank in range(ranks)
    ]
    os.close(writing)
    found: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(reading, found), daemon=True)
    reader.start()
    try:
        for process in processes:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended already: its exit code tells
                process.stdin.write(json.dumps(job).encode())
                process.stdin.close()
        codes = wait(processes, timeout, meeting.notes)
    except KeyboardInterrupt:
        # The terminal does not reach them: one interrupt each, and time to put their files in order.
        end(processes, signal.SIGINT)
        raise
    finally:
        end(processes, signal.SIGTERM)
    if any(codes):
        raise UserError(reason(meeting.notes, codes))
    reader.join()
    return json.loads(found[0] or b"null")


def _read_all(reading: int, found: list[bytes]) -> None:
    with os.fdopen(reading, "rb") as pipe:
        found.append(pipe.read())


def answer(work: Callable[[dict[str, Any], Callable[[], None]], Any]) -> None:
    """One rank: work(job, still_needed), the job from stdin; its result goes back by a pipe, a failure by the notes.

    `still_needed` is to be called now and then: it ends a rank whose parent is gone.
    """
    job, parent = json.loads(sys.stdin.read()), os.getppid()
    # Whatever was inherited: the parent passes interrupts on.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def still_needed() -> None:
        if os.getppid() != parent:  # nobody is left to end us or to hear how it went
            os._exit(1)

    try:
        result = work(job, still_needed)
    except UserError as error:
        _tell(str(error))
        os._exit(2)  # without closing the process group: its sockets are gone
    except KeyboardInterrupt:
        os._exit(130)
    if result is not None:
        with os.fdopen(int(os.environ[_ANSWERS]), "wb") as pipe:
            pipe.write(json.dumps(result).encode())


def start_rank(
    command: list[str],
    rank: int,
    ranks: int,
    meeting: Meeting,
    *,
    answers: int | None = None,
    **settings: Any,
) -> subprocess.Popen[bytes]:
    """A process that finds the others by torchrun's variables and ours; `settings` are subprocess' own.

    `answers` is the end of a pipe for what it finds.
    """
    known = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GLOO_SOCKET_IFNAME": "lo",  # nothing leaves the machine
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        **meeting.environment(),
        **({} if answers is None else {_ANSWERS: str(answers)}),
    }
    own = {**environment(threads=max(1, (os.cpu_count() or 1) // ranks)), **known}
    shown = {"stdout": None if rank == 0 else subprocess.DEVNULL, **settings}
    kept = () if answers is None else (answers,)
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, env=own, start_new_session=True, pass_fds=kept, **shown
    )


def wait(processes: Sequence[subprocess.Popen[bytes]], timeout: float, notes: Notes) -> list[int]:
    """Until all have ended; once one has failed, the others have the time-out to notice.

    A killed one cannot say so itself, and what the others see of it may be mere silence: it is noted for them.
    """
    deadline = None
    while True:
        codes = [process.poll() for process in processes]
        if deadline is None and any(codes):
            deadline = time.monotonic() + timeout + _GRACE
            killed = next((rank for rank, code in enumerate(codes) if code is not None and code < 0), None)
            if killed is not None:
                notes.write(KILLED, str(killed))
        if all(code is not None for code in codes):
            return [process.wait() for process in processes]
        if deadline is not None and time.monotonic() > deadline:
            end(processes, signal.SIGKILL)
            return [process.wait() for process in processes]
        time.sleep(0.05)


def end(processes: Sequence[subprocess.Popen[bytes]], how: signal.Signals) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(how)
    for process in processes:
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def reason(notes: Notes, codes: Sequence[int]) -> str:
    said, killed = notes.read(FAILURE), notes.read(KILLED)
    # Only the first that was killed: the others we may have killed ourselves.
    first = int(killed) if killed is not None else None
    if said is None:
        rank = first if first is not None else next(rank for rank, code in enumerate(codes) if code)
        how = (
            f"was ended by signal {-codes[rank]}"
            if codes[rank] < 0
            else f"ended with exit code {codes[rank]}"
        )
        return f"rank {rank} {how} before it could say why."
    if first is not None and said.startswith(f"rank {first} "):
        said = f"{said} (its process was ended by signal {-codes[first]})"
    return said if said.endswith(".") else f"{said}."


def _tell(text: str) -> None:
    host, port = os.environ[PLACE].rsplit(":", 1)
    secret = Secret.of_environment()
    assert secret is not None  # `start_rank` gave it
    MeetingNotes(secret, host, int(port), int(os.environ["RANK"])).claim(FAILURE, text)
