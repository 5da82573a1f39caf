"""The one event loop in which gRPC works, in a thread of its own.

grpc.aio binds to the process: of two loops in two threads, one gets the other's events. So there is one loop a
process, made when it is first needed, and it ends with the process.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from gossamer.runtime.transport.base import count_resets

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


def _forget() -> None:
    """In a forked child, which has no such thread."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
