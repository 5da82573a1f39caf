"""Files that were damaged are named in a sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.refusals import expect_refusal

from gossamer.results.rundir import digest_of_object, read_metrics, read_object, read_text


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "JSON"),
        (b"[1]", "JSON list"),
        (b"null", "JSON NoneType"),
        (b'{"a"', "JSON"),
        (b"[" * 100_000, "brackets"),
        (b"\xff\xfe", "0 UTF-8"),
        (b'{"a": ' + b"1" * 5000 + b"}", "JSON"),
        (b'{"b": 1}', "'a'"),
    ],
)
def test_what_is_no_object_is_a_sentence_with_its_name(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with expect_refusal(key="x.json", names=what):
        read_object(path, "a")


def test_a_pipe_a_folder_and_nothing_are_refused_and_a_link_is_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, what in (("pipe", "regular"), (".", "regular"), ("none", "file")):
        with expect_refusal(tmp_path / name, names=what):
            read_text(tmp_path / name)
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read_text(tmp_path / "link") == "x"


def test_metrics_are_read_to_the_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_metrics(path) == []
    path.write_text('{"round": 1}\n{"rou')
    assert read_metrics(path) == [{"round": 1}]
    with expect_refusal(key="metrics.jsonl", names="2"):
        read_metrics(path, to_the_end=True)
    for line in ('{"round": "1"}', '{"round": true}', "7", '{"round": 1, "not_private": [1]}', "{"):
        path.write_text('{"round": 1}\n' + line + "\n")
        with expect_refusal(key="metrics.jsonl", names="2"):
            read_metrics(path)


def test_a_digest_is_of_what_is_said(tmp_path: Path) -> None:
    assert digest_of_object({"a": 1, "b": 2}) == digest_of_object({"b": 2, "a": 1, "c": 3}, without=("c",))
    assert digest_of_object({"a": 1}) != digest_of_object({"a": 2})
