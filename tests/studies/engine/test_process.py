"""A child process answers, dies, is named and started again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.children import scripted

from gossamer.studies.engine.process import ChildProcess


def test_a_child_answers_dies_and_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch)
    with open(tmp_path / "log", "w") as log:
        child = ChildProcess(log)
        assert child.run({"out": "fine"}) is None
        assert child.run({"out": "a sentence"}) == "a sentence"
        assert child.run({"out": "dies"}) == "its process ended with exit code 3."
        assert child.run({"out": "fine"}) is None
        assert child.run({"out": "killed"}) == "its process was ended by signal 9 (out of memory?)."
        assert not child.stopped
        child.stop()
        assert child.stopped
        assert child.run({"out": "fine"}) == "it was stopped."
