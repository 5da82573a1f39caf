"""Sites that run different versions of this program are told so."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.peer_studies import said

import gossamer

pytest.importorskip("grpc")

OTHER = "9.8.7"


def test_a_study_that_another_version_packed_is_told(
    packed_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("peer", "check", str(packed_study), "--site", str(tmp_path / "mercy"), "--seconds", "0")
    assert "packed by gossamer" not in said(*words)
    monkeypatch.setattr(gossamer, "__version__", OTHER)
    assert f"and this site runs {OTHER}" in said(*words).replace("\n", " ")
