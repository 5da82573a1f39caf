"""Jobs in processes of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.children import scripted
from tests.support.configurations import configured

from gossamer.errors import UserError
from gossamer.studies.engine.job import Job
from gossamer.studies.engine.local import Local


def test_jobs_have_answers_and_a_log_only_where_something_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch)
    log, started = tmp_path / "errors.log", []
    with Local(2).open(log, None) as executor:
        assert [executor.at_a_time(count) for count in (0, 1, 5)] == [
            "1 at a time",
            "1 at a time",
            "2 at a time",
        ]
        found = [
            executor.submit(Job("run", {}, tmp_path / name), lambda name=name: started.append(name))
            for name in ("fine", "no room", "dies")
        ]
        assert [future.result() for future in found] == [
            None,
            "no room",
            "its process ended with exit code 3.",
        ]
    assert sorted(started) == ["dies", "fine", "no room"]
    assert not log.exists()
    with Local(1).open(log, None) as executor:
        executor.submit(Job("run", {}, tmp_path / "talks"), lambda: None).result()
    assert log.read_text() == "some words\n"


def test_what_goes_on_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch)
    with Local(1).open(tmp_path / "log", None) as executor:
        futures = [executor.submit(Job("run", {}, tmp_path / "sleeps"), lambda: None) for _ in range(2)]
        while not futures[0].running():
            pass
    assert futures[1].cancelled()
    assert "signal 9" in str(futures[0].result()) or "stopped" in str(futures[0].result())


def test_a_number_of_jobs_is_a_number() -> None:
    with pytest.raises(UserError, match=r"--jobs 0 must be a whole number of at least 1\."):
        Local(0)
    Local(None).refuse(configured())
