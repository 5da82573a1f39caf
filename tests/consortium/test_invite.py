from __future__ import annotations

import json
import string
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.consortia import START
from tests.support.refusals import expect_refusal

from gossamer.consortium.authority import Invite, make_site_key, public_bytes, read_request, write_request
from gossamer.consortium.files import stamp, write_signed
from gossamer.errors import UserError

KEY = make_site_key()
ENDS = stamp(START + timedelta(days=7))
INVITE = Invite(consortium="north", site="mercy", authority="ab" * 32, expires=ENDS)
TEXT = INVITE.text()
REQUEST = write_request(INVITE, KEY, address="mercy.example.org:7443", records=1200)


def test_an_invite_is_one_word_and_says_all() -> None:
    assert Invite.read(f"  {TEXT}\n") == INVITE
    assert set(TEXT) <= set(string.ascii_letters + string.digits + "-_.")


def test_every_changed_character_of_an_invite_is_refused() -> None:
    for place, old in enumerate(TEXT):
        for new in "aZ0-_.":
            if new != old:
                with expect_refusal(key="invite", names="pki", remedy=True):
                    Invite.read(TEXT[:place] + new + TEXT[place + 1 :])


@settings(deadline=None)
@given(st.integers(0, len(TEXT) - 1), st.text(max_size=3), st.integers(0, 3))
def test_no_other_text_is_an_invite(place: int, put: str, cut: int) -> None:
    changed = TEXT[:place] + put + TEXT[place + cut :]
    if changed.strip() != TEXT:
        with pytest.raises(UserError):
            Invite.read(changed)


def test_an_invite_ends() -> None:
    INVITE.check_expiry(START + timedelta(days=6, hours=23))
    with expect_refusal(key="invite", names="8 2026"):
        INVITE.check_expiry(START + timedelta(days=7))


def test_a_request_says_who_asks_for_what() -> None:
    found = read_request(REQUEST, INVITE, "a file")
    assert (found.site, found.address, found.records) == ("mercy", "mercy.example.org:7443", 1200)
    assert public_bytes(found.key()) == public_bytes(KEY)
    assert INVITE.secret.encode() not in REQUEST


def test_every_changed_byte_of_a_request_is_refused() -> None:
    for place in range(len(REQUEST)):
        changed = bytearray(REQUEST)
        changed[place] ^= 1
        with pytest.raises(UserError):
            read_request(bytes(changed), INVITE, "a file")


def test_a_request_of_another_invite_is_refused() -> None:
    again = Invite(consortium="north", site="mercy", authority="ab" * 32, expires=ENDS)
    with expect_refusal(key="file", names="mercy"):
        read_request(REQUEST, again, "a file")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"site": "clinic"}, "file name"),
        ({"consortium": "south"}, "file name"),
        ({"records": 0}, "records"),
        ({"records": True}, "records"),
        ({"records": 1.5}, "records"),
        ({"address": "mercy"}, "address"),
        ({"address": 7}, "address"),
        ({"request": "nothing"}, "file request"),
        ({"request": 3}, "request 3"),
        ({"more": 1}, "file more"),
    ],
)
def test_also_the_holder_of_the_invite_must_write_a_request(change: dict[str, object], why: str) -> None:
    body = json.loads(REQUEST.partition(b"\n")[2].rpartition(b"signature ")[0])
    with expect_refusal(names=why):
        read_request(write_signed("request", body | change, INVITE.authenticate), INVITE, "a file")
