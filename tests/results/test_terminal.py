"""Text of users is text: brackets stay, and it goes where it is told to."""

from __future__ import annotations

import re
import time

import pytest

from gossamer.options.stage import STAGES
from gossamer.results.terminal import spinner, terminal


def test_brackets_stay_and_errors_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    terminal().print("pip install 'gossamer[track]'")
    terminal(to_stderr=True).print("a file named [red]x[/red]")
    terminal(silent=True).print("nothing")
    out = capsys.readouterr()
    assert out.out == "pip install 'gossamer[track]'\n"
    assert out.err == "a file named [red]x[/red]\n"


@pytest.mark.parametrize("width", [20, 80, 140])
def test_on_a_terminal_no_word_is_broken_and_elsewhere_no_line(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "the paper's formula is a central-limit approximation: /a/path/that/is/longer/than/twenty and more "
    text = (words * 3).strip()
    terminal().say(text)
    assert capsys.readouterr().out == text + "\n"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    terminal().say(text)
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines).split() == text.split()
    assert all(len(line) <= width or " " not in line.strip() for line in lines)
    assert len(lines) > 1


def test_names_with_texts_stand_below_each_other(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal().listing({"a": "one", "long": "two"})
    assert capsys.readouterr().out == "a     one\nlong  two\n"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    terminal().listing({"a": "one and two and three and four and five and six"})
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert [line.rstrip() for line in shown.splitlines()] == [
        "a  one and two and three and four and",
        "   five and six",
    ]


def test_a_spinner_shows_the_stage_until_the_first_print(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    shown = ""

    def shows(stage: str) -> bool:
        nonlocal shown
        end = time.monotonic() + 60
        while f"{stage} …" not in shown and time.monotonic() < end:
            time.sleep(0.02)
            shown += capsys.readouterr().err
        return f"{stage} …" in shown

    with spinner("loading torch"):
        assert shows("loading torch")
        STAGES.info("calibrating the noise")
        assert shows("calibrating the noise")
        terminal().print("words")
        capsys.readouterr()
        STAGES.info("something later")
        assert not STAGES.handlers
    assert capsys.readouterr().err == ""


def test_no_spinner_off_a_terminal_or_for_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    with spinner("loading torch"):
        assert not STAGES.handlers
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "0")
    with spinner("loading torch"):
        assert not STAGES.handlers
