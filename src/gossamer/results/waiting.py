"""A spinner with what is being done, from the first second until the first words come.

On a terminal only, on stderr, and without a trace. Elsewhere a plain line, once something has taken long.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gossamer.options.stage import STAGES

AFTER, LONG = 0.3, 15.0  # seconds: until a spinner shows; until a line is worth it where nobody watches


class Waiting(logging.Handler):
    """Follows the stages. All of this may be called from two threads: the program's, and that of the clock."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what, self._ended = what, False
        self._status: Any = None
        self._watched = sys.stderr.isatty()
        self._guard = threading.RLock()
        self._clock = self._after()

    def emit(self, record: logging.LogRecord) -> None:
        with self._guard:
            self._what = record.getMessage()
            if self._ended:
                return
            if not self._what:
                self.stop()
            elif self._status is not None:
                self._status.update(f"{self._what} …")
            elif not self._watched:  # each stage is given its own time
                self._clock.cancel()
                self._clock = self._after()

    def stop(self) -> None:
        """Whatever comes next is shown by somebody else."""
        with self._guard:
            self._ended = True
            self._clock.cancel()
            if self._status is not None:
                self._status.stop()
                self._status = None

    def _after(self) -> threading.Timer:
        clock = threading.Timer(AFTER if self._watched else LONG, self._show)
        clock.daemon = True
        clock.start()
        return clock

    def _show(self) -> None:
        with self._guard:
            if self._ended:
                return
            if not self._watched:
                print(f"gossamer: {self._what} …", file=sys.stderr, flush=True)
                return
            from gossamer.results.terminal import terminal

            self._status = terminal(to_stderr=True).status(f"{self._what} …")
            self._status.start()


_active: list[Waiting] = []  # one, or none


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show what is being done until `ended`, or the end.

    Several ranks on one terminal would speak at once: none of them does.
    """
    if "LOCAL_RANK" in os.environ:
        yield
        return
    shown, level, propagates = Waiting(what), STAGES.level, STAGES.propagate
    _active.append(shown)
    STAGES.addHandler(shown)
    STAGES.setLevel(logging.INFO)
    STAGES.propagate = False
    try:
        yield
    finally:
        shown.stop()
        _active.remove(shown)
        STAGES.removeHandler(shown)
        STAGES.setLevel(level)
        STAGES.propagate = propagates


def ended() -> None:
    """Words are about to be printed."""
    for shown in _active:
        shown.stop()
