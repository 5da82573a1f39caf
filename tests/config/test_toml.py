"""A file that is no TOML is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.config.recipes import read_toml
from gossamer.errors import UserError


def test_a_file_is_read_or_said_to_be_wrong(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("nodes = 3\n")
    assert read_toml(file) == {"nodes": 3}
    file.write_text("nodes = \n")
    with pytest.raises(UserError, match=r"run\.toml is not valid TOML: "):
        read_toml(file)
    with pytest.raises(UserError, match=r"none\.toml cannot be read: No such file"):
        read_toml(tmp_path / "none.toml")
