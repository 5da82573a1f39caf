"""`gossamer compare` as a user types it: resumed, in parallel, and with mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import assert_names

SHORT = ["--set", "rounds=8", "--set", "evaluation.every=4", "--set", "nodes=4"]
SEEDED = ["--set", "privacy.noise.source=seeded"]
Command = Callable[..., tuple[int, str, str]]


def last(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return found


@pytest.mark.slow
def test_a_comparison_is_resumed_cell_by_cell(command: Command, tmp_path: Path) -> None:
    words = ["compare", "quickstart", *SHORT, "--over", "algorithm.kind=dyn-d2p,sgp", "--seeds", "2"]
    code, out, _ = command(*words, "--out", "c", "--jobs", "2", "--json")
    first = last(out)
    assert code == 0
    assert (first["cells_run"], first["cells_kept"], first["failed"]) == (4, 0, {})
    assert [row["settings"]["algorithm.kind"] for row in first["rows"]] == ["dyn-d2p", "sgp"]
    assert 0 < first["rows"][0]["epsilon_proven"] <= 8.0
    assert first["rows"][1]["not_proven_because"]
    for name in ("table.csv", "table.md", "plot.html", "comparison.json"):
        assert (tmp_path / "c" / name).is_file()
    assert not (tmp_path / "c" / "errors.log").exists()

    again = last(command(*words, "--out", "c", "--json")[1])
    assert (again["cells_run"], again["cells_kept"]) == (0, 4)
    assert again["rows"] == first["rows"]

    lost = tmp_path / "c" / "cells" / first["rows"][0]["cells"][1]
    (lost / "certificate.json").unlink()  # as a run that was killed leaves it
    (lost / "thesis.txt").write_text("precious")
    resumed = last(command(*words, "--out", "c", "--json")[1])
    assert (resumed["cells_run"], resumed["cells_kept"]) == (1, 3)
    assert (tmp_path / "c" / "set-aside" / f"{lost.name}-1" / "thesis.txt").read_text() == "precious"
    assert (lost / "certificate.json").is_file()

    more = last(command(*words[:-1], "3", "--out", "c", "--jobs", "1", "--json")[1])
    assert (more["cells_run"], more["cells_kept"]) == (2, 4)
    assert more["rows"][0]["seeds"] == 3


@pytest.mark.slow
def test_parallel_and_sequential_give_the_same_numbers(command: Command) -> None:
    words = ["compare", "quickstart", *SHORT, *SEEDED, "--over", "privacy.epsilon=4,8", "--json"]
    one = last(command(*words, "--jobs", "1", "--out", "one")[1])
    two = last(command(*words, "--jobs", "2", "--out", "two")[1])
    assert "SEEDED NOISE: NO PRIVACY" in one["caption"]
    for a, b in zip(one["rows"], two["rows"], strict=True):
        for key in ("accuracy_mean", "worst_node_mean", "consensus_distance_mean", "epsilon_proven", "cells"):
            assert a[key] == b[key]


@pytest.mark.slow
def test_a_failing_cell_is_reported_stops_no_other_and_makes_the_exit_code_2(command: Command, tmp_path: Path) -> None:
    # The true number of records shows only when the data are dealt out, after the outline.
    code, out, err = command(
        "compare", "quickstart", *SHORT, "--set", "data.records=500", "--jobs", "1", "--out", "c", "--json",
        "--over", "privacy.sampling={kind = 'fixed-size', lot = 10},{kind = 'poisson', lot = 10}",
    )  # fmt: skip
    assert code == 2
    assert len(last(out)["failed"]) == 1
    assert_names(err, names="data.records 500 node 0")
    assert "Traceback" not in err
    assert [row["seeds"] for row in last(out)["rows"]] == [0, 1]
    assert (tmp_path / "c" / "table.md").is_file()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["quickstart", "--over", "privacy.epsilom=1,2"], ["privacy.epsilom", "epsilon"]),
        (["quickstart", "--over", "data.colour=1,2"], ["data.colour"]),
        (["quickstart", "--over", "algorithm.kind=dyn-d2p,dp-dsgd", "--set", "topology.kind=digraph"], ["dp-dsgd", "digraph", "doubly"]),
        (["quickstart", "--over", "topology.kind=ring,mesh"], ["topology.kind", "mesh", "ring"]),
        (["quickstart", "--over", "data.kind=digits,imagenet"], ["data.kind", "imagenet"]),
        (["dyn-d2p/fashion-mnist", "--data-dir", "nowhere"], ["nowhere"]),
        (["quickstart", "no/such"], ["no/such", "gossamer recipes"]),
        (["quickstart", "quickstart"], ["recipe"]),
        (["quickstart", "--jobs", "0"], ["--jobs 0"]),
        (["quickstart", "--out", "mine"], ["--out mine", "comparison"]),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    command: Command, tmp_path: Path, words: list[str], named: list[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    code, out, err = command("compare", *words, "--set", "rounds=8")
    assert code == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    for word in named:
        assert word in err
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "thesis.txt"]


@pytest.mark.slow
def test_the_same_command_finds_its_folder_again(command: Command, tmp_path: Path) -> None:
    words = ["compare", "quickstart", *SHORT, "--set", "algorithm.kind=sgp"]
    code, out, _ = command(*words)
    assert code == 0
    assert "1/1  quickstart, seed 0: accuracy" in out
    code, out, _ = command(*words)
    assert "1 cells, 1 of them finished already" in out
    assert len(list((tmp_path / "runs").iterdir())) == 1
