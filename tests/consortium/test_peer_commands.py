from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.peer_studies import said

from gossamer.errors import UserError


def test_who_has_not_begun_cannot_leave(packed_study: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing was drawn"):
        said("peer", "leave", str(packed_study), "--site", str(tmp_path / "mercy"))


@pytest.mark.parametrize("taken", ["mercy/part", "mercy/part/journal/x"])
def test_a_file_that_cannot_be_written_is_named_in_one_sentence(
    packed_study: Path, tmp_path: Path, taken: str
) -> None:
    """Something else has its name: what a full disk or a read-only folder does, without being root."""
    (tmp_path / taken).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / taken).write_text("")
    out = tmp_path / "mercy" / "part"
    with pytest.raises(UserError, match=r"part.*; fix this .*the same command resumes"):
        said(
            "peer",
            "run",
            str(packed_study),
            "--site",
            str(tmp_path / "mercy"),
            "--out",
            str(out),
            "--wait",
            "1",
        )
