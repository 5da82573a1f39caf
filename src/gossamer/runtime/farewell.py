"""torchrun ends all ranks of a machine by SIGTERM as soon as one has died: those that are left say first which it was.

Without this nobody would: the one that died cannot, and the others would be gone before they noticed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from gossamer.runtime.watch import Watch

_GRACE = 10.0  # seconds; torchrun kills after 30


def started_by_torchrun_itself() -> bool:
    """And not by `gossamer run`, which knows by itself who died."""
    return "TORCHELASTIC_RUN_ID" in os.environ


class Farewell:
    """While it is open, SIGTERM ends this process after at most so many seconds, and with a sentence."""

    def __init__(self, watch: Watch, grace: float = _GRACE):
        self._watch, self._asked = watch, threading.Event()
        self._timer = threading.Timer(grace, self._go)
        self._timer.daemon = True
        self._before: Any = signal.signal(signal.SIGTERM, self._on_signal)

    def check(self) -> None:
        """Between rounds, where nothing is under way."""
        if self._asked.is_set():
            raise self._watch.terminated() or KeyboardInterrupt

    def close(self) -> None:
        self._timer.cancel()
        signal.signal(signal.SIGTERM, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._asked.is_set():
            self._asked.set()
            self._timer.start()

    def _go(self) -> None:
        """The main thread has not come to it: it computes, or waits for a message."""
        why = self._watch.terminated()
        sys.stderr.write(f"gossamer: {why or 'stopped by SIGTERM'}\n")
        sys.stderr.flush()
        os._exit(2 if why else 128 + signal.SIGTERM)
