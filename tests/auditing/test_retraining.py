"""Retraining finds odd records where no noise hides them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.audits import outlined, verdict_of

from gossamer.accounting.observers import EVERYONE, FinalModels, Observer
from gossamer.auditing.procedures import stream_of
from gossamer.auditing.retraining import Retraining
from gossamer.mechanism.noise.base import COINS
from gossamer.training.assemble import assemble


@pytest.mark.parametrize(
    ("kind", "observer"), [("blank", FinalModels()), ("mislabelled", EVERYONE), ("extreme", FinalModels())]
)
def test_retraining_finds_an_odd_record_without_noise_to_hide_it(kind: str, observer: Observer) -> None:
    """ε = 200 is next to no noise: an odd record shows in a hundred trainings."""
    o = outlined(privacy__epsilon=200.0, privacy__sampling={"kind": "full"}, data__train_rows=80)
    verdict = verdict_of(Retraining(assemble(o), kind, observer), o, runs=100)
    assert verdict.violated == ()
    assert verdict.epsilon > 0.5


def test_coins_of_trainings_are_drawn_from_the_secret_stream() -> None:
    """They once took turns: an attacker who counts would have known them all."""
    o = outlined(rounds=1, data__train_rows=80, privacy__sampling={"kind": "full"})
    attack = Retraining(assemble(o), "blank", FinalModels())
    drawn = [attack.batch(number, 100).heads for number in (0, 1)]
    for number, heads in enumerate(drawn):
        # Of their own purpose, so the noise stays as it was.
        stream = stream_of(o.config, number)
        np.testing.assert_array_equal(heads, stream.uniform_bits_rows(COINS, [0], 0, 100)[0] & np.uint64(1))
        assert 30 <= heads.sum() <= 70  # but for a chance of 4e-5 each
    assert not np.array_equal(*drawn)
    secret = outlined(rounds=1, data__train_rows=80, privacy__noise__source="system")
    system = Retraining(assemble(secret), "blank", FinalModels())
    assert not np.array_equal(system.batch(0, 60).heads, system.batch(0, 60).heads)
