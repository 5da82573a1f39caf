"""Finished batches on disk: an audit is stopped and continued, and a torn line is not believed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gossamer.auditing import batches
from gossamer.auditing.command import audit_into
from gossamer.auditing.procedures import Found
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.errors import UserError


@pytest.mark.slow
def test_retraining_continues_where_it_stopped(tmp_path: Path) -> None:
    config = resolve(
        recipes.read("quickstart"),
        {"rounds": 3, "data.train_rows": 80, "privacy.noise.source": "seeded"},
    )
    how = {"observer": "final", "canary": "blank"}
    whole = audit_into(tmp_path / "whole", config, runs=150, **how)
    audit_into(tmp_path / "parts", config, runs=100, **how)
    seen: list[int] = []
    parts = audit_into(
        tmp_path / "parts", config, runs=150, on_batch=lambda done, of: seen.append(done), **how
    )
    assert parts["audit"]["bounds"] == whole["audit"]["bounds"]
    lines = (tmp_path / "parts" / batches.NAME).read_text().splitlines()
    assert len(lines) == 3  # what it belongs to, 100 trainings, 50 more: the first hundred was not run again
    with pytest.raises(UserError, match="something else"):
        audit_into(tmp_path / "parts", config, runs=150, observer="final", canary="mislabelled")


def test_a_torn_line_of_scores_is_not_believed(tmp_path: Path) -> None:
    config = resolve(recipes.read("quickstart"))
    kept = batches.KeptBatches(tmp_path, config)
    kept.keep(0, Found(np.zeros(2), np.array([True, False]), np.arange(2), 2, 1.0, 1.0))
    with (tmp_path / batches.NAME).open("a") as file:
        file.write('{"runs": 2, "scor')
    again = batches.KeptBatches(tmp_path, config)
    assert len(again) == 1
    again.keep(1, Found(np.ones(2), np.array([True, False]), np.arange(2), 2, 1.0, 1.0))
    assert len(batches.KeptBatches(tmp_path, config)) == 2


def test_a_batch_that_grows_does_not_count_twice(tmp_path: Path) -> None:
    """150 trainings, then 300: the batch of 50 is trained again as one of 100, and the third is another batch."""
    config = resolve(recipes.read("quickstart"))

    def found(runs: int, score: float) -> Found:
        return Found(np.full(runs, score), np.arange(runs) % 2 == 0, np.arange(runs), runs, 1.0, 1.0)

    kept = batches.KeptBatches(tmp_path, config)
    for number, runs, score in ((0, 100, 0.0), (1, 50, 1.0), (1, 100, 2.0)):
        assert kept.get(number, runs) is None
        kept.keep(number, found(runs, score))
    again = batches.KeptBatches(tmp_path, config)
    for number, runs, score in ((0, 100, 0.0), (1, 50, 1.0), (1, 100, 2.0)):
        batch = again.get(number, runs)
        assert batch is not None
        assert set(batch.scores) == {score}
    assert again.get(2, 100) is None
