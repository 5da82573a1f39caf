"""What a shell is told: in no time, without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.config.keys import recipe_names, settings


def test_recipes_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").touch()
    (tmp_path / "mine.txt").touch()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "deep.toml").touch()
    assert recipe_names("quick") == ["quickstart"]
    assert recipe_names("m") == ["mine.toml", "more/"]
    assert recipe_names("more/d") == ["more/deep.toml"]
    assert "dyn-d2p/dirac" in recipe_names("dyn-d2p/")


def test_keys_and_kinds() -> None:
    assert settings("privacy.eps") == ["privacy.epsilon="]
    assert "topology.kind=ring" in settings("topology.kind=r")
    assert settings("privacy.epsilon=") == []


def test_nothing_heavy_is_loaded() -> None:
    program = (
        "import sys; from gossamer.config.keys import settings; settings('a');"
        "print([name for name in ('torch', 'numpy', 'pydantic', 'scipy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
