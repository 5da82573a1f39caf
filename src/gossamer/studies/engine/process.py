"""One child process that does jobs, one after the other; the same here and at a cluster's workers."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import IO, Any

from gossamer.runtime.children import environment

THREADS = 1  # of each: as many processes as cores, and the same sums everywhere


class ChildProcess:
    """Started when it is first needed, and again should it die."""

    def __init__(self, log: IO[Any]):
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._stopped, self._lock = False, threading.Lock()

    def run(self, order: dict[str, Any]) -> str | None:
        """The error, or None."""
        with self._lock:  # none is started behind the back of `stop`
            if self._stopped:
                return "it was stopped."
            if self._process is None or self._process.poll() is not None:
                self._process = self._start()
            process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(order) + "\n")
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

    @property
    def stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        """For good."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "gossamer.studies.engine.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
            env=environment(THREADS),
        )
