"""What a worker sends is data: only what `pack` makes is unpacked, and nothing lands outside of its folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.results.seals import KEY
from gossamer.studies.engine.parcel import ParcelError, lay_out, pack, unpack


def parcel(files: object, content: bytes = b"", said: object = None) -> bytes:
    header = json.dumps({"said": {} if said is None else said, "files": files}).encode()
    return len(header).to_bytes(8, "big") + header + content


def test_a_folder_arrives_as_it_was_but_for_keys_and_links(tmp_path: Path) -> None:
    there = tmp_path / "there"
    (there / "ledger").mkdir(parents=True)
    (there / "config.toml").write_text("a = 1\n")
    (there / "ledger" / "node-000.jsonl").write_bytes(b"\x00\xff")
    (there / KEY).write_text("secret")
    (there / "link").symlink_to("/etc/passwd")
    said, files = unpack(pack({"error": None}, there))
    assert said == {"error": None}
    assert files == {"config.toml": b"a = 1\n", "ledger/node-000.jsonl": b"\x00\xff"}
    lay_out(files, tmp_path / "here")
    assert (tmp_path / "here" / "ledger" / "node-000.jsonl").read_bytes() == b"\x00\xff"
    assert unpack(pack({"error": "x"})) == ({"error": "x"}, {})


@pytest.mark.parametrize(
    "name",
    ["../up", "/etc/x", "a/../../b", "", ".hidden", "a//b", "a/", "a\nb", "a\\b", "é", KEY, f"deep/{KEY}", "a/b/c/d/e/f/g"],
)  # fmt: skip
def test_names_that_no_run_has_are_refused(name: str) -> None:
    with pytest.raises(ParcelError, match="is no name of a run's file"):
        unpack(parcel([[name, 0, hashlib.sha256(b"").hexdigest()]]))


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ("text", "it is a str, not bytes"),
        (b"", "cut off"),
        (b"\xff" * 20, "cut off"),
        ((3).to_bytes(8, "big") + b"{,}", "not JSON"),
        ((2).to_bytes(8, "big") + b"[]", "says nothing"),
        (parcel(None), "lists no files"),
        (parcel([["a", True, "x"]]), "no file"),
        (parcel([["a", 1, "x"]], b"b"), "not what its header says"),
        (parcel([["a", 5, hashlib.sha256(b"b").hexdigest()]], b"b"), "not what its header says"),
        (parcel([["a", -1, "x"]]), "no name"),
        (parcel([["a", 0, hashlib.sha256(b"").hexdigest()]] * 2), "not what its header says"),
        (parcel([], b"more"), "bytes behind"),
        (parcel([], b"", 3), "says nothing"),
    ],
)
def test_anything_else_is_refused(made: object, why: str) -> None:
    with pytest.raises(ParcelError, match=why):
        unpack(made)


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_be_refused(made: bytes) -> None:
    with pytest.raises(ParcelError):
        unpack(made)


@given(st.data())
def test_no_changed_byte_of_a_file_passes(data: st.DataObject) -> None:
    made = bytearray(parcel([["a", 4, hashlib.sha256(b"abcd").hexdigest()]], b"abcd"))
    made[-data.draw(st.integers(1, 4))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ParcelError):
        unpack(bytes(made))
