from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.peer_studies import said
from tests.support.refusals import expect_refusal

from gossamer.consortium.relay import token

SECRET = "7" * 64
FRONT = ["relay", "--back", "127.0.0.1:7500", "--front", "mercy=127.0.0.1:7501"]


def test_who_has_not_begun_cannot_leave(packed_study: Path, tmp_path: Path) -> None:
    with expect_refusal(key="run", names="drawn"):
        said("peer", "leave", str(packed_study), "--site", str(tmp_path / "mercy"))


def test_a_relay_gives_a_site_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    monkeypatch.setenv("GOSSAMER_SECRET_FILE", str(secret))
    assert said(*FRONT, "--token", "mercy").strip() == token(SECRET, "mercy")
    with expect_refusal(key="--token", value="clinic", names="--front"):
        said(*FRONT, "--token", "clinic")
    with expect_refusal(key="--front", value="127.0.0.1:7501", names="SITE HOST PORT", remedy=True):
        said(*FRONT[:-1], "127.0.0.1:7501")
    monkeypatch.delenv("GOSSAMER_SECRET_FILE")
    with expect_refusal(key="GOSSAMER_SECRET_FILE", names="set"):
        said(*FRONT)


def test_a_site_at_a_relay_needs_a_port_and_a_token(
    packed_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ("peer", "run", str(packed_study), "--site", str(tmp_path / "mercy"), "--relay", "127.0.0.1:7500")
    with expect_refusal(key="--relay", value="127.0.0.1:7500", names="GOSSAMER_RELAY_TOKEN"):
        said(*run)
    monkeypatch.setenv("GOSSAMER_RELAY_TOKEN", "7" * 64)
    with expect_refusal(key="--relay", value="127.0.0.1:7500", names="none"):
        said(*run)


@pytest.mark.parametrize("taken", ["mercy/part", "mercy/part/journal/x"])
def test_a_file_that_cannot_be_written_is_named_in_one_sentence(packed_study: Path, tmp_path: Path, taken: str) -> None:
    """Something else has its name: what a full disk or a read-only folder does, without being root."""
    (tmp_path / taken).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / taken).write_text("")
    out = tmp_path / "mercy" / "part"
    with expect_refusal(names="part", remedy=True):
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
