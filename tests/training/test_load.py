"""A run directory as an object: each part when it is asked for, and a sentence for what is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.own_records import on_table, write_table
from tests.support.refusals import expect_refusal
from tests.support.trained import trained

import gossamer
from gossamer.config.layers import resolve
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import execute


def test_everything_a_run_left_can_be_read(tmp_path: Path) -> None:
    outcome = trained(tmp_path)
    loaded = gossamer.load(str(outcome.directory))
    assert loaded.finished
    assert loaded.config.nodes == 3
    assert loaded.certificate["run"] == outcome.certificate["run"]
    same = {key: value for key, value in outcome.result.items() if key != "seconds"}
    assert {key: value for key, value in loaded.result.items() if key != "seconds"} == same
    assert [row["round"] for row in loaded.metrics] == [1, 2]
    assert [proof.proven.epsilon for proof in loaded.proofs] == [
        entry["proven"] for entry in outcome.result["epsilon_by_node"]
    ]
    assert loaded.verdict.certified
    assert loaded.verdict.signed
    assert loaded.observers[0]["epsilon"] == outcome.result["epsilon_proven"]
    assert loaded.topology["nodes"] == 3
    assert repr(loaded) == f"<gossamer run 'study' in {outcome.directory}, finished>"


@pytest.mark.slow
def test_a_baseline_is_read_as_what_ran(tmp_path: Path) -> None:
    outcome = trained(tmp_path, {"baseline": "central"})
    loaded = gossamer.load(outcome.directory)
    assert loaded.result["nodes"] == outcome.result["nodes"] == 1
    assert loaded.models.nodes == [0]


def test_of_a_run_that_was_stopped_what_it_has(tmp_path: Path) -> None:
    def stop(done: int) -> None:
        raise KeyboardInterrupt

    parts = assemble(Plan.of(resolve(on_table(write_table(tmp_path / "t.csv")))))
    with pytest.raises(KeyboardInterrupt):
        execute(parts, out=tmp_path / "r", on_round=stop)
    loaded = gossamer.load(tmp_path / "r")
    assert not loaded.finished
    assert loaded.config.rounds == 2
    assert loaded.metrics == []
    assert len(loaded.proofs) == 3
    for ask in (lambda: loaded.certificate, lambda: loaded.result, lambda: loaded.observers):
        with expect_refusal(key="r", names="--resume", remedy=True):
            ask()
    with expect_refusal(key="r", names="--resume", remedy=True):
        loaded.module()


def test_another_folder_is_no_run(tmp_path: Path) -> None:
    with expect_refusal(names="manifest.json"):
        gossamer.load(tmp_path)
