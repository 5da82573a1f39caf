"""Counts of classes."""

from __future__ import annotations

import torch

from gossamer.mechanism.summaries import Labels


def test_they_are_counts_and_strange_labels_are_nowhere() -> None:
    y = torch.tensor([0, 2, 2, 1, -1, 3])
    found = Labels(3).total(torch.zeros(6, 1), y, torch.ones(6, dtype=torch.float64))
    assert found.tolist() == [1.0, 1.0, 2.0]
    assert Labels(3).size == 3
