"""Arguments that commands share: what a shell completes, and the version."""

from __future__ import annotations

import pytest
import typer

import gossamer
from gossamer import arguments, cli


def test_words_are_completed() -> None:
    assert cli._paper_tables("dyn-d2p/table") == ["dyn-d2p/table1", "dyn-d2p/table2"]
    assert arguments._recipes("quick") == ["quickstart"]
    assert arguments._settings("privacy.eps") == ["privacy.epsilon="]


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    cli.show_version(False)
    with pytest.raises(typer.Exit):
        cli.show_version(True)
    assert capsys.readouterr().out == f"gossamer {gossamer.__version__}\n"
