"""The secret of a relay: where it comes from, and that seals cannot be moved from one text to another."""

from __future__ import annotations

import hashlib
import hmac
import struct
from pathlib import Path

import pytest

from gossamer.consortium.secret import FILE, VARIABLE, Seal, Secret
from gossamer.errors import UserError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in (FILE, VARIABLE):
        monkeypatch.delenv(key, raising=False)


def test_a_tag_is_the_hmac_of_length_and_content_of_every_part() -> None:
    text = struct.pack("<Q", 2) + b"ab" + struct.pack("<Q", 1) + b"c"
    assert Seal(b"key").tag(b"ab", b"c") == hmac.new(b"key", text, hashlib.sha256).digest()
    assert Seal(b"key").tag(b"ab", b"c") != Seal(b"key").tag(b"a", b"bc")
    assert Seal(b"key").fits(Seal(b"key").tag(b"x"), b"x")
    assert not Seal(b"key").fits(Seal(b"other").tag(b"x"), b"x")
    assert not Seal(b"key").fits(b"", b"x")


def test_a_file_is_preferred_and_must_be_the_owners_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Secret.of_environment() is None
    monkeypatch.setenv(VARIABLE, "v" * 32)
    assert Secret.of_environment().tag(b"x") == Seal(b"v" * 32).tag(b"x")  # type: ignore[union-attr]
    file = tmp_path / "run.secret"
    file.write_text("f" * 40 + "\n")
    file.chmod(0o600)
    monkeypatch.setenv(FILE, str(file))
    assert Secret.of_environment().tag(b"x") == Seal(b"f" * 40).tag(b"x")  # type: ignore[union-attr]
    file.chmod(0o640)
    with pytest.raises(UserError, match="can be read by other users; run `chmod 600"):
        Secret.of_environment()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file"),
        (b"short", "has 5 characters, but 32 are needed"),
        (b"\xff" * 40, "is not text"),
    ],
)
def test_a_secret_that_is_none_is_one_sentence(
    content: bytes | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.secret"
    if content is not None:
        file.write_bytes(content)
        file.chmod(0o600)
    monkeypatch.setenv(FILE, str(file))
    with pytest.raises(UserError, match=says):
        Secret.of_environment()
    monkeypatch.setenv(FILE, str(tmp_path))
    with pytest.raises(UserError, match="is not a file"):
        Secret.of_environment()
