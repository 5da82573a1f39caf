"""Who waits is told for what: a spinner on a terminal, a line elsewhere once it takes long, nothing in between."""

from __future__ import annotations

import time

import pytest

from gossamer.options.stage import STAGES, stage
from gossamer.results import waiting as module
from gossamer.results.terminal import terminal
from gossamer.results.waiting import waiting


def test_off_a_terminal_only_what_takes_long_is_said_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONG", 0.02)
    with waiting("loading torch"):
        time.sleep(0.1)
    assert capsys.readouterr().err == "gossamer: loading torch …\n"
    monkeypatch.setattr(module, "LONG", 30.0)
    with waiting("loading torch"):
        stage("calibrating the noise")
    assert capsys.readouterr().err == ""
    assert not STAGES.handlers


def test_on_a_terminal_a_spinner_says_the_stage_and_the_first_words_end_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(module, "AFTER", 0.01)
    with waiting("loading torch"):
        time.sleep(0.15)
        stage("calibrating the noise")
        time.sleep(0.15)
        terminal().print("words")
        after = capsys.readouterr()
        stage("something later")
        time.sleep(0.15)
    assert "loading torch …" in after.err
    assert "calibrating the noise …" in after.err
    assert capsys.readouterr().err == ""


def test_ranks_on_one_terminal_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    with waiting("loading torch"):
        assert not STAGES.handlers
