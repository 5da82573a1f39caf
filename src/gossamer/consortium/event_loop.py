"""The event loop of links and relays, and their log.

grpc.aio binds to the process: of two loops in two threads, one gets the other's events. So there is one loop per
process, started when it is first needed, and it ends with the process.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any, TypeVar

LOG = logging.getLogger("gossamer.peers")
Result = TypeVar("Result")
_REMEMBERED = 256  # messages
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def event_loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - one per process
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            count_resets(_loop)
            threading.Thread(target=_loop.run_forever, name="gossamer-links", daemon=True).start()
        return _loop


def run(work: Coroutine[Any, Any, Result], seconds: float) -> Result:
    """Run a coroutine in the loop, from any other thread; TimeoutError after `seconds`."""
    started = asyncio.run_coroutine_threadsafe(work, event_loop())
    try:
        return started.result(seconds)
    except TimeoutError:
        started.cancel()
        raise


def _forget_loop() -> None:
    """A forked child has no thread that runs the loop."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_loop)


def count_resets(loop: asyncio.AbstractEventLoop, every: float = 60.0) -> None:
    """Log the number of broken connections once per interval, where asyncio would write a traceback for each."""
    logged, count = -math.inf, 0

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal logged, count
        error = context.get("exception")
        if not isinstance(error, OSError):
            loop.default_exception_handler(context)
            return
        count += 1
        if time.monotonic() - logged >= every:
            LOG.warning("%d connections broke since the last such line: %s", count, error)
            logged, count = time.monotonic(), 0

    loop.set_exception_handler(handle)


class RepeatFilter:
    """A log that repeats a message only after a while: what others cause must not fill a disk."""

    def __init__(self, interval: float = 60.0):
        self._interval = interval
        self._logged: OrderedDict[str, float] = OrderedDict()

    def warn(self, message: str) -> None:
        message, now = printable(message, 400), time.monotonic()
        if now - self._logged.get(message, -math.inf) < self._interval:
            return
        self._logged[message] = now
        self._logged.move_to_end(message)
        if len(self._logged) > _REMEMBERED:
            self._logged.popitem(last=False)
        LOG.warning("%s", message)


def printable(text: str, length: int = 200) -> str:
    """Return one line of printable characters of text that somebody else wrote."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:length])
