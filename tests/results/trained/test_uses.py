"""An outcome and the run read back from its directory answer alike, to the last bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tests.support.trained import trained

import gossamer


def test_an_outcome_and_its_directory_give_the_same(tmp_path: Path) -> None:
    outcome = trained(tmp_path)
    loaded = gossamer.load(outcome.directory)
    rows = np.random.default_rng(0).normal(size=(30, 2))
    for node in ("average", 0, 2):
        np.testing.assert_array_equal(outcome.predict(rows, node), loaded.predict(rows, node))
        np.testing.assert_array_equal(outcome.predict_proba(rows, node), loaded.predict_proba(rows, node))
    for one, two in zip(outcome.module(1).parameters(), loaded.module(1).parameters(), strict=True):
        assert torch.equal(one, two)
    assert torch.equal(torch.cat([p.flatten() for p in outcome.module(1).parameters()]), outcome.points[1])
