"""Components of a released second moment."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gossamer.data.load import datasets
from gossamer.preprocess import Components, Released


def test_they_are_the_leading_directions_and_records_stand_in_them() -> None:
    source, step = datasets.parse({"kind": "digits", "pca": 4, "pca_from": "private"}), Components()
    dataset = source.load()
    x, y = torch.from_numpy(dataset.x_train), torch.from_numpy(dataset.y_train)
    total = step.summary(source, dataset).total(x, y, torch.ones(len(y), dtype=torch.float64))
    found = step.found(source, dataset, Released(total / len(y), 0.0))
    rows = dataset.x_train.reshape(len(x), -1)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    leading = np.linalg.eigh(unit.T @ unit)[1][:, ::-1][:, :4].T
    assert np.abs((found["components"].numpy() * leading).sum(1)) == pytest.approx(np.ones(4), abs=1e-3)
    made = step.applied(source, dataset, found)
    assert made.x_train == pytest.approx(rows @ found["components"].numpy().T, abs=1e-4)
    assert made.components is not None
