"""The one event loop in which gRPC works, in a thread of its own.

grpc.aio binds to the process: of two loops in two threads, one gets the other's events. So there is one loop a
process, made when it is first needed, and it ends with the process.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

LOG = logging.getLogger("gossamer.transport")
Result = TypeVar("Result")
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def loop() -> asyncio.AbstractEventLoop:
    global _loop  # noqa: PLW0603 - one a process
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            count_resets(_loop)
            threading.Thread(target=_loop.run_forever, name="gossamer-links", daemon=True).start()
        return _loop


def submit(work: Coroutine[Any, Any, Result]) -> Future[Result]:
    return asyncio.run_coroutine_threadsafe(work, loop())


def run(work: Coroutine[Any, Any, Result], seconds: float) -> Result:
    """From any other thread; TimeoutError after `seconds`."""
    started = submit(work)
    try:
        return started.result(seconds)
    except TimeoutError:
        started.cancel()
        raise


def count_resets(loop: asyncio.AbstractEventLoop, every: float = 60.0) -> None:
    """Log broken connections as one count every so many seconds, where asyncio writes a traceback for each."""
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


def _forget() -> None:
    """In a forked child, which has no such thread."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
