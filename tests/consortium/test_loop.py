"""One loop a process; a forked child makes its own."""

from __future__ import annotations

import asyncio
import logging
import os
import threading

import pytest

from gossamer.consortium.loop import loop, run, submit


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


def test_connections_that_reset_are_counted_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """What asyncio does about a reset that nobody waits for: the error of a future that is dropped."""

    async def reset() -> None:
        for _ in range(60):
            asyncio.get_running_loop().create_future().set_exception(
                ConnectionResetError(104, "reset by peer")
            )

    async def wrong() -> None:
        asyncio.get_running_loop().create_future().set_exception(KeyError("a mistake of ours"))

    with caplog.at_level(logging.INFO):
        for work in (reset, wrong):
            asyncio.run_coroutine_threadsafe(work(), loop()).result(10)
    lines = [record for record in caplog.records if "reset by peer" in record.getMessage()]
    assert len(lines) <= 1  # in a minute
    assert not any(record.exc_info for record in lines)
    assert any(record.exc_info for record in caplog.records)
    assert all(record.exc_info[0] is KeyError for record in caplog.records if record.exc_info)
