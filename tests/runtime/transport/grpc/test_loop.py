"""One loop a process; a forked child makes its own."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from gossamer.runtime.transport.grpc.loop import loop, run, submit


async def where() -> tuple[int, int]:
    return id(asyncio.get_running_loop()), threading.get_ident()


def test_all_threads_share_one_loop_in_a_thread_of_its_own() -> None:
    found = {run(where(), 10)}
    threads = [threading.Thread(target=lambda: found.add(run(where(), 10))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1
    assert found.pop()[1] != threading.get_ident()


def test_what_takes_too_long_is_cancelled() -> None:
    cancelled = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            cancelled.set()

    with pytest.raises(TimeoutError):
        run(forever(), 0.05)
    assert cancelled.wait(10)


def test_errors_come_back() -> None:
    async def fails() -> None:
        raise KeyError("x")

    assert isinstance(submit(fails()).exception(10), KeyError)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_loop_that_runs() -> None:
    loop()
    child = os.fork()
    if child == 0:
        try:
            run(where(), 10)
            os._exit(0)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
