"""One loop per process, which a forked child makes again, and a log that does not repeat itself."""

from __future__ import annotations

import asyncio
import logging
import os
import threading

import pytest

from gossamer.consortium.links import LogLimit, event_loop, printable, run


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

    with pytest.raises(KeyError):
        run(fails(), 10)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_loop_that_runs() -> None:
    event_loop()
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

    async def drop(error: Exception, times: int) -> None:
        for _ in range(times):
            asyncio.get_running_loop().create_future().set_exception(error)

    with caplog.at_level(logging.INFO):
        run(drop(ConnectionResetError(104, "reset by peer"), 60), 10)
        run(drop(KeyError("a mistake of ours"), 1), 10)
    lines = [record for record in caplog.records if "reset by peer" in record.getMessage()]
    assert len(lines) <= 1  # in a minute
    assert not any(record.exc_info for record in lines)
    assert any(record.exc_info for record in caplog.records)
    assert all(record.exc_info[0] is KeyError for record in caplog.records if record.exc_info)


def test_the_same_sentence_is_said_once_a_while(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gossamer.peers"):
        log = LogLimit()
        for _ in range(1000):
            log.warn("refused a.")
        log.warn("refused b.")
    assert [record.message for record in caplog.records] == ["refused a.", "refused b."]


def test_it_is_said_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gossamer.peers"):
        log = LogLimit(interval=0.0)
        log.warn("refused a.")
        log.warn("refused a.")
    assert len(caplog.records) == 2


def test_a_million_refusals_of_one_site_are_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = LogLimit(20, clock=lambda: now[0])
    with caplog.at_level(logging.WARNING, "gossamer.peers"):
        for k in range(10_000):
            log.warn(f"eve: {k} bytes", about="eve")
        log.warn("bob", about="bob")
        now[0] += 60.0
        log.warn("eve again", about="eve")
    assert len(caplog.messages) == 22
    assert caplog.messages[-2:] == ["bob", "eve again"]


def test_memory_for_what_was_said_is_bounded() -> None:
    log = LogLimit()
    for i in range(5000):
        log.warn(f"refused {i}.")
    assert len(log._lines) <= 256


def test_no_line_is_forged_by_what_others_say() -> None:
    said = printable("x\nWARNING all is well\x1b[2J" + "y" * 1000)
    assert said.startswith("x WARNING all is well [2J")
    assert len(said) == 200
