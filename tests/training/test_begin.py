"""A new run's directory: what it says of itself, and what it must not say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.configurations import configured, outlined
from tests.support.refusals import expect_refusal

from gossamer.accounting.ledger import read_all
from gossamer.config.layers import stored
from gossamer.runtime.group import Alone
from gossamer.training.assemble import assemble
from gossamer.training.manifest import COLUMNS, digest, require_same_everywhere
from gossamer.training.run import Run

FIXED: dict[str, Any] = {"rounds": 4, "privacy__epsilon": None, "privacy__noise__multiplier": 50.0}


def test_a_directory_says_what_was_asked_for_and_holds_empty_ledgers(tmp_path: Path) -> None:
    o = outlined(**FIXED, baseline="central")
    run = Run.begin(assemble(o), tmp_path / "r", Alone(1))
    run.book.close()
    assert stored(tmp_path / "r" / "config.toml") == o.asked
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert manifest["run"] == run.identity
    assert manifest["configuration"] == digest(o.asked)
    assert (manifest["dimension"], manifest["records_by_node"], manifest["ledgers_here"]) == (
        650,
        [1437],
        [[0, 0]],
    )
    ((header, events),) = read_all(tmp_path / "r").values()
    assert events == []
    assert header["public"]["records"] == 1437
    assert header["noise"] == "system"
    assert (run.done, run.lost_draws) == (0, 0)


def test_no_digest_of_private_records_is_written(tmp_path: Path) -> None:
    for own in (False, True):
        parts = assemble(outlined(**FIXED))
        dataset = replace(parts.dataset, provenance={"sha256": "abc", "source": "here"})
        config = parts.plan.config
        if own:
            table = {"kind": "csv", "path": "x.csv", "label": "y", "classes": 10}
            config = configured(**FIXED, data={**table, "records": 100})
        parts = replace(parts, dataset=dataset, plan=replace(parts.plan, config=config))
        Run.begin(parts, tmp_path / str(own), Alone(8)).book.close()
        data = json.loads((tmp_path / str(own) / "manifest.json").read_text())["data"]
        assert data == {"source": "here"} if own else {"sha256": "abc", "source": "here"}


def test_two_runs_have_different_names_and_a_taken_folder_is_refused(tmp_path: Path) -> None:
    parts = assemble(outlined(**FIXED))
    runs = [Run.begin(parts, tmp_path / name, Alone(8)) for name in ("a", "b")]
    for run in runs:
        run.book.close()
    assert runs[0].identity != runs[1].identity
    with expect_refusal(key="--out", names="empty"):
        Run.begin(parts, tmp_path / "a", Alone(8))


class Others(Alone):
    """Another rank says something else of itself."""

    def __init__(self, change: Any) -> None:
        super().__init__(8)
        self.change = change

    size = 2

    def join(self, items: Any, *, per_node: bool = False) -> Any:
        return [items[0], self.change(items[0])]


@pytest.mark.parametrize("name", ["model", "version", "data set"])
def test_ranks_that_differ_are_refused_by_what_differs(name: str) -> None:
    parts = assemble(outlined(**FIXED))
    with expect_refusal(key="rank", value="1", names=[name]):
        require_same_everywhere(parts, Others(lambda here: {**here, name: "other"}))
    require_same_everywhere(parts, Others(lambda here: here))


def stated(**settings: Any) -> dict[str, str]:
    """What a rank with these settings would send."""
    sent: list[dict[str, str]] = []
    require_same_everywhere(assemble(outlined(**settings)), Others(lambda here: sent.append(here) or here))
    return sent[0]


def test_a_configuration_that_differs_is_refused_by_its_keys_and_no_value_travels() -> None:
    parts = assemble(outlined(**FIXED))
    for changed, named in (
        ({"privacy__noise__multiplier": 57.0}, "privacy.noise.multiplier"),
        (
            {"privacy__noise__multiplier": 57.0, "topology__kind": "ring", "seed": 3},
            "privacy.noise.multiplier, seed, topology.kind",
        ),
    ):
        other = stated(**(FIXED | changed))
        assert "57.0" not in json.dumps(other)
        with expect_refusal(key="rank", value="1", names=[named]):
            require_same_everywhere(parts, Others(lambda here, other=other: other))


def test_ranks_that_read_their_columns_in_another_way_are_refused(tmp_path: Path) -> None:
    def joined(header: str, **declared: Any) -> dict[str, str]:
        (tmp_path / "own.csv").write_text(f"{header}\n" + "1,2,0\n3,4,1\n" * 8)
        table = {"kind": "csv", "path": str(tmp_path / "own.csv"), "label": "y", "classes": 2, "records": 2}
        return stated(**FIXED, data=table | declared)

    narrow, wide = (joined("a,b,y", columns={"a": [0, hi], "b": [0, 9]}) for hi in (4, 5))
    assert narrow[COLUMNS] != wide[COLUMNS]
    assert narrow == joined("b,a,y", columns={"a": [0, 4], "b": [0, 9]})  # a file's order is its own
    one, other = joined("a,b,y"), joined("b,a,y")
    assert {name for name in one if one[name] != other[name]} == {COLUMNS}
    with expect_refusal(key="rank", value="1", names="data.features"):
        require_same_everywhere(assemble(outlined(**FIXED)), Others(lambda here: {**here, COLUMNS: other[COLUMNS]}))


def test_a_digest_follows_every_setting_but_those_left_out() -> None:
    same = digest(configured())
    assert digest(configured(runtime__timeout=7.0)) == same
    assert digest(configured(seed=1)) != same
