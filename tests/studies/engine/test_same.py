"""The same code, by its bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gossamer.studies.engine.same import code, difference


def test_what_is_here_is_the_same_as_itself_and_json() -> None:
    here = code()
    assert len(here["source"]) == 64
    assert difference(here, json.loads(json.dumps(here)), "w") is None


def test_another_version_or_another_line_is_named() -> None:
    here = code()
    other = difference(here, {**here, "version": "0.0.9"}, "tcp://h:1")
    assert other is not None
    assert other.startswith("the worker tcp://h:1 has gossamer 0.0.9, code ")
    assert difference(here, {**here, "source": "0" * 64}, "w") is not None
    assert difference(here, {}, "w") is not None


def test_plug_ins_must_be_known_there_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = code()
    (tmp_path / "mine.py").write_text("x = 1\n")
    monkeypatch.setenv("GOSSAMER_PLUGINS", str(tmp_path / "mine.py"))
    here = code()
    missing = difference(here, without, "w")
    assert missing is not None
    assert "the plug-in mine.py is not known at the worker w" in missing
    assert difference(without, here, "w") is None  # it may know more
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.py").write_text("x = 1\n")
    monkeypatch.setenv("GOSSAMER_PLUGINS", str(tmp_path / "elsewhere" / "mine.py"))
    assert difference(here, code(), "w") is None  # wherever it lies
    (tmp_path / "elsewhere" / "mine.py").write_text("x = 2\n")
    assert difference(here, code(), "w") is not None
    assert difference(here, {**here, "plugins": None}, "w") is not None
