"""A file that is no TOML is one sentence."""

from __future__ import annotations

from pathlib import Path

from tests.support.refusals import expect_refusal

from gossamer.config.recipes import read_toml


def test_a_file_is_read_or_said_to_be_wrong(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("nodes = 3\n")
    assert read_toml(file) == {"nodes": 3}
    file.write_text("nodes = \n")
    with expect_refusal(key="run.toml", names="TOML"):
        read_toml(file)
    with expect_refusal(key="none.toml", names="file"):
        read_toml(tmp_path / "none.toml")
