"""Links between sites: the interface that the exchange knows, the event loop, and the log."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

from gossamer.consortium.roster import Member

LOG = logging.getLogger("gossamer.peers")
MAX_MESSAGE = 1 << 30  # bytes
Result = TypeVar("Result")
_REMEMBERED = 256  # messages


class Arrival(NamedTuple):
    sender: str  # the name proven by the connection, never one taken from the message
    message: bytes


class Links:
    """One site's links to the others. A message may be lost, arrive twice, late or in another order, but intact.

    This base class reaches no site: it serves one that was revoked.
    """

    def send(self, to: str, message: bytes, deadline: float) -> None:
        """Return at once; try until `deadline` (monotonic seconds).

        Only the newest messages to a site are kept while they wait; the exchange has an outbox of its own.
        """

    def receive(self, deadline: float) -> Arrival | None:
        """Return the next message of any site, or None at the deadline. A deadline in the past does not wait."""
        time.sleep(max(0.0, deadline - time.monotonic()))
        return None

    def states(self) -> dict[str, str]:
        """Return "up", "suspect" or "down" for every other site of the roster; a missing site has no link."""
        return {}

    def versions(self) -> dict[str, str]:
        """Return the gossamer version of every site that has been connected."""
        return {}

    def update(self, members: Iterable[Member]) -> None:
        """Apply a new roster: sites that are not in it are cut off before this returns."""

    def close(self) -> None:
        pass


# The event loop. grpc.aio binds to the process: of two loops in two threads, one gets the other's events. So there is
# one loop per process, started when it is first needed, and it ends with the process.


@functools.cache
def event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    log_broken_connections(loop)
    threading.Thread(target=loop.run_forever, name="gossamer-links", daemon=True).start()
    return loop


os.register_at_fork(after_in_child=event_loop.cache_clear)  # a forked child has no thread that runs the loop


def run(work: Coroutine[Any, Any, Result], seconds: float) -> Result:
    """Run a coroutine in the loop, from any other thread; TimeoutError after `seconds`."""
    started = asyncio.run_coroutine_threadsafe(work, event_loop())
    try:
        return started.result(seconds)
    except TimeoutError:
        started.cancel()
        raise


def log_broken_connections(loop: asyncio.AbstractEventLoop) -> None:
    """Log a connection that broke in one line, where asyncio would write a traceback."""
    log = LogLimit()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError):
            log.warn(f"a connection broke: {error}")
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


class LogLimit:
    """A log with at most `most` lines about one thing in `interval` seconds: what others cause must not fill a disk."""

    def __init__(self, most: int = 1, interval: float = 60.0, clock: Callable[[], float] = time.monotonic):
        self._most, self._interval, self._clock = most, interval, clock
        self._lines: dict[str, tuple[float, int]] = {}  # about what → start of the interval, lines in it

    def warn(self, message: str, about: str | None = None) -> None:
        """`about`: what the line is about; None: the message itself, which is repeated only after a while."""
        message, now = printable(message, 400), self._clock()
        about = message if about is None else about
        if about not in self._lines and len(self._lines) >= _REMEMBERED:
            self._lines.clear()
        start, count = self._lines.get(about, (-math.inf, 0))
        if now - start >= self._interval:
            start, count = now, 0
        self._lines[about] = start, count + 1
        if count < self._most:
            LOG.warning("%s", message)


def printable(text: str, length: int = 200) -> str:
    """Return one line of printable characters of text that somebody else wrote."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:length])
