"""Processes that begin with everything imported: fifty restarts need not read the same libraries fifty times.

`Nursery` starts one process that forks for every command; what it forks is a process of its own, with its own files,
connections and end. Nothing of gRPC is made before the fork.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossamer.runtime.launch import environment

ROOT = Path(__file__).parents[2]


class Child:
    """As of subprocess.Popen, what is needed of it."""

    def __init__(self, nursery: Nursery, pid: int):
        self._nursery, self.pid, self.returncode = nursery, pid, None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._nursery.ask(poll=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._nursery.ask(wait=self.pid)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    def __init__(self) -> None:
        paths = os.pathsep.join([str(ROOT), environment(1)["PYTHONPATH"]])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.nursery"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**environment(1), "PYTHONPATH": paths},
        )  # fmt: skip

    def ask(self, **what: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(
        self, words: Sequence[str], said: Path, record: Path | None = None, namespace: str | None = None
    ) -> Child:
        """`gossamer WORDS`, with a witness if there is a `record`, in a network namespace if one is named."""
        pid = self.ask(
            words=list(words),
            said=str(said),
            record=None if record is None else str(record),
            namespace=namespace,
        )
        return Child(self, pid)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def _grow_up(words: list[str], said: str, record: str | None, namespace: str | None) -> None:
    """In the child, to its end."""
    from tests.support.recorded_peer import witnessed

    code = 1
    try:
        if namespace is not None:
            enter(namespace)
        with open(said, "ab", buffering=0) as file, open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        if record is not None:
            witnessed(Path(record), words)
        else:
            from gossamer.cli import main

            sys.argv[1:] = words
            main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def enter(namespace: str) -> None:
    """From here on this process has that namespace's addresses."""
    fd = os.open(f"/var/run/netns/{namespace}", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, 0x40000000):  # CLONE_NEWNET
        raise OSError(ctypes.get_errno(), f"setns {namespace}")
    os.close(fd)


def _serve() -> None:
    import tests.support.recorded_peer  # noqa: F401

    for line in sys.stdin:
        what = json.loads(line)
        answer: int | None
        if "words" in what:
            answer = os.fork()
            if not answer:
                _grow_up(**what)
        else:
            pid, how = os.waitpid(what.get("poll") or what["wait"], os.WNOHANG if "poll" in what else 0)
            answer = os.waitstatus_to_exitcode(how) if pid else None
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
