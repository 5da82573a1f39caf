"""A new run's directory: what it says of itself, and what it must not say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.configurations import configured, outlined

from gossamer.accounting.ledger import read_all
from gossamer.config.layers import stored
from gossamer.errors import UserError
from gossamer.runtime.group import Alone
from gossamer.training.assemble import assemble
from gossamer.training.run import Run
from gossamer.training.several import _different_keys, digest, require_same_everywhere

FIXED: dict[str, Any] = {"rounds": 4, "privacy__epsilon": None, "privacy__noise__multiplier": 50.0}


def test_a_directory_says_what_was_asked_for_and_holds_empty_ledgers(tmp_path: Path) -> None:
    o = outlined(**FIXED, baseline="central")
    run = Run.begin(assemble(o), tmp_path / "r", Alone(1))
    run.book.close()
    assert stored(tmp_path / "r" / "config.toml") == o.asked
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert manifest["run"] == run.identity
    assert manifest["configuration"] == digest(o.asked, without={"runtime"})
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
    with pytest.raises(UserError, match="exists and is not an empty directory"):
        Run.begin(parts, tmp_path / "a", Alone(8))


class Others(Alone):
    """Another rank says something else of itself."""

    def __init__(self, change: Any) -> None:
        super().__init__(8)
        self.change = change

    def join(self, items: Any, *, per_node: bool = False) -> Any:
        return [items[0], self.change(items[0])]


@pytest.mark.parametrize(("place", "name"), [(1, "model"), (2, "version"), (3, "data set")])
def test_ranks_that_differ_are_refused_by_what_differs(place: int, name: str) -> None:
    parts = assemble(outlined(**FIXED))

    def change(here: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple("other" if k == place else value for k, value in enumerate(here))

    with pytest.raises(UserError, match=f"rank 1 has another {name} than rank 0; give all ranks the same"):
        require_same_everywhere(parts, Others(change))
    require_same_everywhere(parts, Others(lambda here: here))


def test_a_configuration_that_differs_is_refused_by_its_keys_and_no_value_travels() -> None:
    """Both ranks' statements as they would be sent."""
    settings = [
        {},
        {"privacy__noise__multiplier": 57.0},
        {"privacy__noise__multiplier": 57.0, "topology__kind": "ring", "seed": 3},
    ]
    said: list[list[Any]] = []
    for one in settings:
        kept: list[Any] = []
        group = Others(lambda here, kept=kept: kept.append(here) or here)
        require_same_everywhere(assemble(outlined(**(FIXED | one))), group)
        _different_keys(configured(**(FIXED | one)), False, group, 1)
        said.append(kept)
    assert "57.0" not in json.dumps(said)
    parts = assemble(outlined(**FIXED))
    for other, named in (
        (1, "privacy.noise.multiplier"),
        (2, "privacy.noise.multiplier, seed, topology.kind"),
    ):
        answers = iter(said[other])
        with pytest.raises(
            UserError, match=f"^rank 1 has another {named} than rank 0; give all ranks the same"
        ):
            require_same_everywhere(parts, Others(lambda here, answers=answers: next(answers)))


def test_ranks_that_read_their_columns_in_another_way_are_refused(tmp_path: Path) -> None:
    def joined(header: str, **declared: Any) -> tuple[Any, ...]:
        (tmp_path / "own.csv").write_text(f"{header}\n" + "1,2,0\n3,4,1\n" * 8)
        table = {"kind": "csv", "path": str(tmp_path / "own.csv"), "label": "y", "classes": 2, "records": 2}
        table |= declared
        said: list[Any] = []
        parts = assemble(outlined(**FIXED, data=table))
        require_same_everywhere(parts, Others(lambda here: said.append(here) or here))
        return tuple(said[0])

    narrow, wide = (joined("a,b,y", columns={"a": [0, hi], "b": [0, 9]}) for hi in (4, 5))
    assert narrow[4] != wide[4]
    assert narrow[4] == joined("b,a,y", columns={"a": [0, 4], "b": [0, 9]})[4]  # a file's order is its own
    one, other = joined("a,b,y"), joined("b,a,y")
    with pytest.raises(
        UserError, match=r"rank 1 has other names, another order or another declaration.*data\.features"
    ):
        require_same_everywhere(assemble(outlined(**FIXED)), Others(lambda here: (*here[:4], other[4])))
    assert one[:4] == other[:4]


def test_a_digest_follows_every_setting_but_those_left_out() -> None:
    same = digest(configured(), without={"runtime"})
    assert digest(configured(runtime__timeout=7.0), without={"runtime"}) == same
    assert digest(configured(seed=1), without={"runtime"}) != same
