"""Lists with an entry per node are written by what is alike, and read as they were."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import expect_refusal

from gossamer.results.rundir import RunDirectory, digest_of_object, pack, read_object, unpack

N = 5000
LISTS: dict[str, Any] = {
    "draws": [20] * N,
    "epsilon_by_node": [{"claimed": None, "proven": 7.9 + (i % 3 == 0)} for i in range(N)],
    "public_constants": [{"node": i, "records": 10 + i // 1000} for i in range(N)],
    "heads": [f"{i:064x}" for i in range(N)],
    "few": [1, 2, 3],
    "name": "many",
}


def test_what_is_alike_is_written_once_and_read_as_it_was(tmp_path: Path) -> None:
    RunDirectory(tmp_path).write_json("certificate.json", LISTS)
    said = json.loads((tmp_path / "certificate.json").read_text())
    assert said["draws"] == {"values": [20], "of": [[0, N - 1, 0]]}
    assert said["public_constants"]["numbered"] is True
    assert len(said["public_constants"]["values"]) == 5
    assert said["heads"] == LISTS["heads"]  # nothing repeats
    assert said["few"] == [1, 2, 3]
    found = read_object(tmp_path / "certificate.json")
    assert found == LISTS
    assert digest_of_object(found) == digest_of_object(LISTS)


@pytest.mark.parametrize(
    "said",
    [
        {"values": [1], "of": [[0, 10**9, 0]]},
        {"values": [1], "of": [[0, 999_999_999_999, 0]]},
        {"values": [1], "of": [[0, N, 1]]},
        {"values": [1], "of": [[5, N, 0]]},
        {"values": [1], "of": []},
        {"values": [1], "of": [3]},
        {"values": 1, "of": [[0, N, 0]]},
        {"values": [1], "of": [[0, N, 0]], "numbered": True},
    ],
)
def test_what_no_run_writes_is_one_sentence(tmp_path: Path, said: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        unpack({"draws": said})
    (tmp_path / "c.json").write_text(json.dumps({"draws": said}))
    with expect_refusal(key="c.json", names="damaged"):
        read_object(tmp_path / "c.json")


def test_other_objects_are_left_alone() -> None:
    other = {"a": {"values": [1]}, "b": {"values": [1], "of": [], "more": 1}, "c": [1] * 1000}
    assert pack(other) == other
    assert unpack(other) == other
