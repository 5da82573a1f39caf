"""Retraining finds odd records where no noise hides them."""

from __future__ import annotations

import pytest
from tests.support.audits import outlined, verdict_of

from gossamer.accounting.observers import EVERYONE, FinalModels, Observer
from gossamer.run.assemble import assemble
from gossamer.studies.audit.retraining import Retraining


@pytest.mark.parametrize(
    ("kind", "observer"), [("blank", FinalModels()), ("mislabelled", EVERYONE), ("extreme", FinalModels())]
)
def test_retraining_finds_an_odd_record_without_noise_to_hide_it(kind: str, observer: Observer) -> None:
    """ε = 200 is next to no noise: an odd record shows in a hundred trainings."""
    o = outlined(privacy__epsilon=200.0, privacy__sampling={"kind": "full"}, data__train_rows=80)
    verdict = verdict_of(Retraining(assemble(o), kind, observer), o, runs=100)
    assert verdict.violated == ()
    assert verdict.epsilon > 0.5
