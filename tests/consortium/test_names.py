from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.consortium import names
from gossamer.errors import UserError


@pytest.mark.parametrize("name", ["a", "mercy", "st-mary-2", "9", "a" * 40])
def test_names_that_are_folders_hosts_and_words(name: str) -> None:
    assert names.check_name("the site's name", name) == name


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
    with pytest.raises(UserError, match="small letters, digits and hyphens"):
        names.check_name("the site's name", name)


@given(st.text(max_size=50))
def test_whatever_is_a_name_is_one_part_of_a_path(text: str) -> None:
    if names.is_name(text):
        assert not set(text) - set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert 1 <= len(text) <= 40


@pytest.mark.parametrize(
    "address", ["a:1", "mercy.example.org:7443", "10.0.0.1:65535", "[::1]:7443", "Host-1:80"]
)
def test_addresses(address: str) -> None:
    assert names.check_address("--listen", address) == address


@pytest.mark.parametrize(
    "address",
    ["mercy", "mercy:", ":7443", "a:0", "a:65536", "a:07", "a b:7", "http://a:7", "::1:7443", "[::1%eth0]:7", "1.2.3:7",
     "999.1.1.1:7", "a..b:7", "-a:7", "a:7\n", "[1.2.3.4]:7"],
)  # fmt: skip
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="host:port"):
        names.check_address("--listen", address)


def test_none_is_no_address() -> None:
    assert names.check_address("--listen", "none") is None
    assert names.bind_address(None) is None


def test_a_site_binds_to_numbers_as_they_are_and_to_names_everywhere() -> None:
    assert names.bind_address("127.0.0.1:7443") == "127.0.0.1:7443"
    assert names.bind_address("[::1]:7443") == "[::1]:7443"
    assert names.bind_address("mercy.example.org:7443") == "0.0.0.0:7443"


def test_dates_are_written_in_one_way() -> None:
    at = datetime(2026, 3, 9, 10, 20, 30, tzinfo=UTC)
    assert names.stamp(at) == "2026-03-09T10:20:30Z"
    assert names.read_stamp("2026-03-09T10:20:30Z") == at
    for other in ("2026-3-9T10:20:30Z", "2026-03-09 10:20:30", "2026-02-30T00:00:00Z", ""):
        with pytest.raises(ValueError, match=r"."):
            names.read_stamp(other)
