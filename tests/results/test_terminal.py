"""Text of users is text: brackets stay, and it goes where it is told to."""

from __future__ import annotations

import pytest

from gossamer.results.terminal import terminal


def test_brackets_stay_and_errors_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    terminal().print("pip install 'gossamer[report]'")
    terminal(to_stderr=True).print("a file named [red]x[/red]")
    terminal(silent=True).print("nothing")
    out = capsys.readouterr()
    assert out.out == "pip install 'gossamer[report]'\n"
    assert out.err == "a file named [red]x[/red]\n"
