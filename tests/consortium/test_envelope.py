from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.consortium.envelope import sealed, signed_by, unpacked
from gossamer.errors import UserError

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
CONTENT = sealed("roster", {"version": 3, "sites": ["mercy", "é"]}, KEY)


def opened(content: bytes, kind: str = "roster") -> dict[str, object]:
    found = unpacked(kind, content, "a file")
    found.check(KEY.public_key())
    return found.body


def test_what_was_signed_is_read_back() -> None:
    assert opened(CONTENT) == {"version": 3, "sites": ["mercy", "é"]}


def test_every_changed_byte_is_refused() -> None:
    for place in range(len(CONTENT)):
        for flip in (1, 0x20, 0x80):
            changed = bytearray(CONTENT)
            changed[place] ^= flip
            with pytest.raises(UserError):
                opened(bytes(changed))


@settings(deadline=None)
@given(st.integers(0, len(CONTENT) - 1), st.binary(max_size=5), st.integers(0, 5))
def test_every_other_content_is_refused(place: int, put: bytes, cut: int) -> None:
    changed = CONTENT[:place] + put + CONTENT[place + cut :]
    if changed != CONTENT:
        with pytest.raises(UserError):
            opened(changed)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_whatever_comes_is_a_sentence(content: bytes) -> None:
    for start in (b"", b"gossamer roster 1\n"):
        with pytest.raises(UserError):
            opened(start + content)


def test_a_signature_over_a_roster_is_none_over_a_study() -> None:
    with pytest.raises(UserError, match="is no study"):
        opened(CONTENT, "study")
    with pytest.raises(UserError, match="not what the consortium's authority signed"):
        opened(CONTENT.replace(b"gossamer roster 1", b"gossamer study 1"), "study")


def test_another_format_is_named() -> None:
    with pytest.raises(UserError, match="another version of gossamer"):
        opened(CONTENT.replace(b"gossamer roster 1", b"gossamer roster 2"))


def test_another_key_and_names_twice_are_refused() -> None:
    other = sealed("roster", {"version": 3}, Ed25519PrivateKey.generate())
    with pytest.raises(UserError, match="changed or made up"):
        opened(other)
    said = b'gossamer roster 1\n{"version": 3, "version": 4}\n'
    with pytest.raises(UserError, match="not JSON"):
        opened(said + f"signature {KEY.sign(said).hex()}\n".encode())


def test_a_key_under_which_one_signature_fits_everything_is_nobodys() -> None:
    """y = 1, the point zero: R = 0 and S = 0 satisfy the equation of every message."""
    zero = Ed25519PublicKey.from_public_bytes(b"\x01" + bytes(31))
    signature = b"\x01" + bytes(63)
    assert not signed_by(zero, signature, b"whatever")
    said = b"gossamer roster 1\n" + json.dumps({}).encode() + b"\n"
    forged = unpacked("roster", said + f"signature {signature.hex()}\n".encode(), "a file")
    with pytest.raises(UserError):
        forged.check(zero)
