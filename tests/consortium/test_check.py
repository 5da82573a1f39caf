"""`gossamer peer check`: what it says, and what it refuses before anything is drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.consortia import Clock, accepted
from tests.support.peer_studies import said

from gossamer.consortium.coordinator import Coordinator
from gossamer.consortium.names import now
from gossamer.errors import UserError


def test_check_says_what_was_checked_and_leaves_nothing(packed_study: Path, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    words = said("peer", "check", str(packed_study), "--site", str(tmp_path / "mercy"), "--seconds", "0")
    for part in (
        "signed by the authority that mercy knows",
        "mercy is node 1 of clinic, mercy",
        "100 are declared",
        "test rows: 30, as packed",
        "cap 8 (δ = 0.0001",
    ):
        assert part in words.replace("\n", " ")
    assert set(tmp_path.rglob("*")) == before


def test_check_tries_the_links(packed_study: Path, tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    words = said("peer", "check", str(packed_study), "--site", str(tmp_path / "mercy"), "--seconds", "0.2")
    assert "link to clinic: down" in words


def test_check_refuses_what_would_pass_the_cap(packed_study: Path, tmp_path: Path) -> None:
    site = tmp_path / "mercy" / "site.toml"
    site.write_text(site.read_text().replace("cap = 8.0", "cap = 1.0"))
    with pytest.raises(UserError, match="cap"):
        said("peer", "check", str(packed_study), "--site", str(site), "--seconds", "0")


def test_check_says_who_comes_and_goes_and_that_one_is_revoked(packed_study: Path, tmp_path: Path) -> None:
    north, clock = Coordinator(tmp_path / "north"), Clock(now())
    words = ("peer", "check", str(packed_study), "--site", str(tmp_path / "mercy"), "--seconds", "0")
    north.leave("clinic", 2)
    accepted(tmp_path / "mercy", north, clock)
    assert "from round 2 on: mercy" in said(*words)
    north.revoke("mercy", 3)
    accepted(tmp_path / "mercy", north, clock)
    with pytest.raises(UserError, match=r"mercy was revoked in roster 5.*peer leave"):
        said(*words)
