"""Names, addresses, dates and signed files: what is accepted, and that nothing else is."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.refusals import expect_refusal

from gossamer.consortium import files
from gossamer.consortium.files import read_signed, write_signed
from gossamer.errors import UserError


@pytest.mark.parametrize("name", ["a", "mercy", "st-mary-2", "9", "a" * 40])
def test_names_that_are_folders_hosts_and_words(name: str) -> None:
    files.check_field(files.Name, "the site's name", name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Mercy",
        "..",
        ".",
        "a/b",
        "../a",
        "a b",
        "-a",
        "a-",
        "a" * 41,
        "é",
        "a\n",
        "a.b",
        "a\0",
        "none\t",
        "-",
    ],
)
def test_names_that_could_leave_their_folder_or_mean_two_hosts_are_refused(name: str) -> None:
    with expect_refusal(key="site", names="letters", remedy=True):
        files.check_field(files.Name, "the site's name", name)


@given(st.text(max_size=50))
def test_whatever_is_a_name_is_one_part_of_a_path(text: str) -> None:
    with contextlib.suppress(UserError):
        files.check_field(files.Name, "the site's name", text)
        assert not set(text) - set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert 1 <= len(text) <= 40


@pytest.mark.parametrize("address", ["a:1", "mercy.example.org:7443", "10.0.0.1:65535", "[::1]:7443", "Host-1:80"])
def test_addresses(address: str) -> None:
    files.check_field(files.Listen, "--listen", address)


@pytest.mark.parametrize(
    "address",
    ["mercy", "mercy:", ":7443", "a:0", "a:65536", "a:07", "a b:7", "http://a:7", "::1:7443", "[::1%eth0]:7", "1.2.3:7",
     "999.1.1.1:7", "a..b:7", "-a:7", "a:7\n", "[1.2.3.4]:7"],
)  # fmt: skip
def test_what_is_no_address_is_refused(address: str) -> None:
    with expect_refusal(key="--listen", names="host", remedy=True):
        files.check_field(files.Listen, "--listen", address)


def test_none_is_no_address() -> None:
    files.check_field(files.Listen, "--listen", "none")
    assert files.bind_address(None) == "none"


def test_a_site_binds_to_numbers_as_they_are_and_to_names_everywhere() -> None:
    assert files.bind_address("127.0.0.1:7443") == "127.0.0.1:7443"
    assert files.bind_address("[::1]:7443") == "[::1]:7443"
    assert files.bind_address("mercy.example.org:7443") == "0.0.0.0:7443"


def test_dates_are_written_in_one_way() -> None:
    at = datetime(2026, 3, 9, 10, 20, 30, tzinfo=UTC)
    assert files.stamp(at) == "2026-03-09T10:20:30Z"
    assert files.read_stamp("2026-03-09T10:20:30Z") == at
    for other in ("2026-3-9T10:20:30Z", "2026-03-09 10:20:30", "2026-02-30T00:00:00Z", ""):
        with pytest.raises(ValueError, match=r"."):
            files.read_stamp(other)


KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
CONTENT = write_signed("roster", {"version": 3, "sites": ["mercy", "é"]}, KEY.sign)


def opened(content: bytes, kind: str = "roster") -> dict[str, object]:
    found = read_signed(kind, content, "a file")
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
    with expect_refusal(key="file", names="study"):
        opened(CONTENT, "study")
    with expect_refusal(key="file", names="authority"):
        opened(CONTENT.replace(b"gossamer roster 1", b"gossamer study 1"), "study")


def test_another_key_and_names_twice_are_refused() -> None:
    other = write_signed("roster", {"version": 3}, Ed25519PrivateKey.generate().sign)
    with expect_refusal(key="file", names="consortium"):
        opened(other)
    said = b'gossamer roster 1\n{"version": 3, "version": 4}\n'
    with expect_refusal(key="file", names="JSON"):
        opened(said + f"signature {KEY.sign(said).hex()}\n".encode())


def test_a_key_under_which_one_signature_fits_everything_is_nobodys() -> None:
    """y = 1, the point zero: R = 0 and S = 0 satisfy the equation of every message."""
    zero = Ed25519PublicKey.from_public_bytes(b"\x01" + bytes(31))
    signature = b"\x01" + bytes(63)
    said = b"gossamer roster 1\n" + json.dumps({}).encode() + b"\n"
    forged = read_signed("roster", said + f"signature {signature.hex()}\n".encode(), "a file")
    with pytest.raises(UserError):
        forged.check(zero)
