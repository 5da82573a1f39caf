"""Lines of a file that grows: all of them, once, whole, and never more in memory than is allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer.results import live
from gossamer.results.live import Follower


@given(pieces=st.lists(st.binary(max_size=9).map(lambda b: b.replace(b"\0", b"\n")), max_size=12))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_pieces_every_whole_line_comes_once(pieces: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"")
    follower, found = Follower(path), []
    for piece in pieces:
        with path.open("ab") as file:
            file.write(piece)
        other, lines = follower.look()
        assert not other
        found += lines
    assert found == [line for line in b"".join(pieces).split(b"\n")[:-1] if line]


def test_a_line_in_the_middle_of_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one\ntw")
    follower = Follower(path)
    assert follower.look() == (False, [b"one"])
    assert follower.look() == (False, [])
    path.write_bytes(b"one\ntwo\n")
    assert follower.look() == (False, [b"two"])


@pytest.mark.parametrize("content", [b"a\n", b"1\n2\nx\n4\n5\n"], ids=["shorter", "longer"])
def test_another_file_in_its_place_is_read_from_its_beginning(tmp_path: Path, content: bytes) -> None:
    path, new = tmp_path / "f", tmp_path / "new"
    path.write_bytes(b"1\n2\n3\n")
    follower = Follower(path)
    follower.look()
    new.write_bytes(content)
    os.replace(new, path)
    assert follower.look() == (True, content.split())
    path.write_bytes(content[:-2] + b"z\n" + content)  # rewritten in place: no other inode
    assert follower.look()[0]


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "AT_ONCE", 100)
    monkeypatch.setattr(live, "LONGEST", 250)
    path = tmp_path / "f"
    path.write_bytes(b"x" * 5000 + b"\nshort\n" + b"y" * 251 + b"\nlast\n")
    follower, found = Follower(path), []
    for _ in range(60):
        found += follower.look()[1]
        assert len(follower._rest) <= 250 + 100
    assert found == [b"short", b"last"]


def test_what_is_no_file_has_no_lines_and_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "f"
    follower = Follower(path)
    assert follower.look() == (False, [])
    os.mkfifo(path)
    assert follower.look() == (False, [])
    path.unlink()
    path.mkdir()
    assert follower.look() == (False, [])
