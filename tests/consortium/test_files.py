from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.refusals import expect_refusal

from gossamer.consortium import files
from gossamer.results.rundir import read_private


def test_a_private_file_is_its_owners_alone_from_the_start(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        files.write(tmp_path / "key", b"secret", 0o600, new=True)
    finally:
        os.umask(before)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert read_private(tmp_path / "key") == b"secret"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    files.write(tmp_path / "key", b"secret", 0o600, new=True)
    (tmp_path / "key").chmod(mode)
    with expect_refusal(key="key", names="others"):
        read_private(tmp_path / "key")


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    files.write(tmp_path / "a", b"1", new=True)
    with expect_refusal(key="a", names="overwritten"):
        files.write(tmp_path / "a", b"2", new=True)
    assert (tmp_path / "a").read_bytes() == b"1"
    assert os.listdir(tmp_path) == ["a"]  # and nothing is left behind


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(tmp_path / "a", b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with expect_refusal(key="a", names="space"):
        files.write(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_files_without_end_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST", 10)
    (tmp_path / "a").write_bytes(b"x" * 11)
    with expect_refusal(key="a", names="file", remedy=True):
        files.read(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")
    with expect_refusal(key="pipe", names="regular"):
        files.read(tmp_path / "pipe")
    with expect_refusal(key="nothing", names="file"):
        files.read(tmp_path / "nothing")


def test_one_command_at_a_time(tmp_path: Path) -> None:
    again = files.locked(tmp_path / "site.toml")
    with files.locked(tmp_path / "site.toml"), expect_refusal(key="another", names="work"):
        again.__enter__()
    with files.locked(tmp_path / "site.toml"):
        pass


def test_the_only_folder_is_found_and_of_two_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with expect_refusal(key="folder"):
        files.only_folder_with("key", "--dir", "folder", None)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "key").touch()
    assert files.only_folder_with("key", "--dir", "folder", None) == Path("a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "key").touch()
    with expect_refusal(key="folder", names="a b"):
        files.only_folder_with("key", "--dir", "folder", None)
    assert files.only_folder_with("key", "--dir", "folder", tmp_path / "b") == tmp_path / "b"
    assert files.only_folder_with("key", "--dir", "folder", tmp_path / "b" / "key") == tmp_path / "b"
    with expect_refusal(key="--dir", names="key"):
        files.only_folder_with("key", "--dir", "folder", tmp_path)


def test_a_folder_for_keys_is_new_and_closed_to_others(tmp_path: Path) -> None:
    files.make_folder(tmp_path / "a")
    assert (tmp_path / "a").stat().st_mode & 0o077 == 0
    with expect_refusal(key="a", names="exists"):
        files.make_folder(tmp_path / "a")
    with expect_refusal(key="c", names="created"):
        files.make_folder(tmp_path / "b" / "c")
