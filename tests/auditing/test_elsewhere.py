"""Batches of trainings on an engine are those of this process."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from gossamer.auditing import elsewhere
from gossamer.auditing.batches import KeptBatches
from gossamer.auditing.command import attack_of, audit
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.errors import UserError
from gossamer.studies.jobs import Engine, Outcome
from gossamer.training.plan import Plan

ASKED = {"observer": "final", "canary": "blank", "records": 1}


def config(**changes: Any) -> Any:
    short = {"rounds": 2, "data.train_rows": 40, "nodes": 4, "privacy.noise.source": "seeded"}
    return resolve(recipes.read("quickstart"), short | changes)


class Inline:
    """An executor that does every job at once, in this process."""

    def __init__(self, failing: int | None = None):
        self.done: list[int] = []
        self._failing = failing

    def submit(self, work: Any, settings: Any, number: int, runs: int, **options: Any) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        if number == self._failing:
            future.set_result(Outcome("no room"))
            return future
        future.set_result(work(settings, number, runs, **options))
        self.done.append(number)
        return future


def train(executor: Any, folder: Path) -> list[tuple[int, int]]:
    told: list[tuple[int, int]] = []
    kept = KeptBatches(folder, config())
    elsewhere.train_elsewhere(
        (Engine(), executor),
        folder,
        config(),
        kept,
        [6, 4],
        ASKED,
        force=False,
        on_batch=lambda *n: told.append(n),
    )
    return told


def test_batches_are_those_of_this_process_and_kept_as_they_come(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="batch 1 of the audit failed: no room"):
        train(Inline(failing=1), tmp_path)
    again = Inline()
    assert train(again, tmp_path) == [(10, 10)]
    assert again.done == [1]  # the first was kept
    kept = KeptBatches(tmp_path, config())
    attack = attack_of(Plan.of(config()), "final", "blank", None)
    for number, runs in enumerate((6, 4)):
        found, here = kept.get(number, runs), attack.batch(number, runs)
        assert found is not None
        assert np.array_equal(found.heads, here.heads)
        assert np.allclose(found.scores, here.scores)


def test_only_trainings_go_elsewhere_and_no_code(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra [cluster] is not installed")
    with elsewhere.opened("local", [config()], canary=None) as executor:
        assert executor is None  # in this process, as ever
    there = "dask:tcp://127.0.0.1:1"
    with pytest.raises(
        UserError, match=r"is for audits by training again, --canary blank, mislabelled, extreme"
    ):
        audit(config(), out=tmp_path / "out", engine=there, canary="release")
    with (
        pytest.raises(UserError, match="--module is code; leave one out"),
        elsewhere.opened(there, [config()], canary="blank", module=nn.Linear(1, 1)),
    ):
        pass
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_audit_at_a_cluster_shows_what_it_shows_here(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra [cluster] is not installed")
    from tests.support.dask_cluster import cluster

    how: dict[str, Any] = {"observer": "final", "canary": "blank", "runs": 150}
    here = audit(config(), out=tmp_path / "here", **how)
    with cluster(tmp_path / "cluster", 2) as there:
        found = audit(config(), out=tmp_path / "there", engine=there.engine, **how)
    assert found["audit"]["coins"] == 150
    assert found["epsilon_audited"] == pytest.approx(here["epsilon_audited"], abs=1e-6)
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == sorted(
        path.name for path in (tmp_path / "here").iterdir()
    )
