"""A job at a worker: its files come back whatever became of it, and whoever is not waited for is stopped."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import scripted

from gossamer.data import sent
from gossamer.errors import UserError
from gossamer.studies.engine import at_worker
from gossamer.studies.engine.parcel import unpack


@pytest.fixture(autouse=True)
def _own_children(monkeypatch: pytest.MonkeyPatch) -> Any:
    scripted(monkeypatch)
    monkeypatch.setattr(at_worker, "_FREE", seats := [])
    yield
    for seat in seats:
        seat.child.stop()
        seat.log.close()


def job(come_to: str, **files: str) -> dict[str, Any]:
    return {"options": {"come to": come_to, "files": files}}


def test_files_come_back_also_from_a_job_that_failed(tmp_path: Path) -> None:
    said, files = unpack(at_worker.done(job("fine", a="1"), tmp_path))
    assert (said, files) == ({"error": None, "log": ""}, {"a": b"1"})
    said, files = unpack(at_worker.done(job("no room", b="2"), tmp_path))
    assert (said["error"], files) == ("no room", {"b": b"2"})
    said, _ = unpack(at_worker.done(job("talks"), tmp_path))
    assert said["log"] == "some words\n"
    said, files = unpack(at_worker.done(job("killed", c="3"), tmp_path))
    assert (said["error"], files) == (
        "its process was ended by signal 9 (out of memory?).",
        {"c": b"3"},
    )
    assert not list(tmp_path.iterdir())
    assert len(at_worker._FREE) == 1  # one process for all of them


def test_who_is_not_waited_for_is_stopped(tmp_path: Path) -> None:
    wanted = threading.Event()
    wanted.set()
    threading.Timer(0.2, wanted.clear).start()
    start = time.monotonic()
    said, _ = unpack(at_worker.done(job("sleeps"), tmp_path, wanted.is_set))
    assert time.monotonic() - start < 10
    assert "signal 9" in said["error"]
    assert not at_worker._FREE


def test_a_file_in_parts_is_taken_when_it_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[str, bytes]] = []
    monkeypatch.setattr(sent, "take", lambda name, content: taken.append((name, content)))
    at_worker.take("mnist", b"of a sender that is gone", True, False)
    assert [at_worker.take("mnist", part, first, last) for part, first, last in (
        (b"ab", True, False), (b"c", False, False), (b"d", False, True),
    )] == [None] * 3  # fmt: skip
    assert taken == [("mnist", b"abcd")]

    def refuse(name: str, content: bytes) -> None:
        raise UserError("it is another.")

    monkeypatch.setattr(sent, "take", refuse)
    assert at_worker.take("mnist", b"x", True, True) == "it is another."
