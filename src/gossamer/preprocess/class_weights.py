"""Weights of classes from a noised count of each: `data.class_weights = "private"`.

They multiply the loss of a record, before its gradient is clipped: what a record can move stays what it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch

from gossamer.accounting.releases import Gaussian
from gossamer.data.dataset import Dataset
from gossamer.data.source import Source
from gossamer.errors import UserError
from gossamer.mechanism.summaries.labels import Labels
from gossamer.preprocess.base import Found, Released


class ClassWeights:
    name: ClassVar[str] = "class-weights"
    part: ClassVar[float] = 1.0  # a few counts of thousands of records: they need less than columns do
    says: ClassVar[str] = "how many records each class has, for class weights"
    released_as: ClassVar[type[Gaussian]] = Labels.released_as

    def summary(self, source: Source, dataset: Dataset) -> Labels:
        if dataset.classes is None or dataset.y_train.ndim != 1:
            raise UserError("data.class_weights = 'private' needs records of one class each; leave it out.")
        return Labels(dataset.classes)

    def found(self, source: Source, dataset: Dataset, released: Released) -> Found:
        """1 / (C · share) of each class, within the limits; a share is not taken to be below its own noise."""
        shares = released.mean.double().clamp_min(max(released.noise, 1e-12))
        shares = shares / shares.sum()
        weights = 1 / (len(shares) * shares)
        return {"weights": weights.clamp(1 / source.most_weight, source.most_weight)}

    def check(self, source: Source, dataset: Dataset, found: Found) -> bool:
        weights = found.get("weights", torch.zeros(0))
        return weights.shape == (dataset.classes,) and bool((weights > 0).all())

    def applied(self, source: Source, dataset: Dataset, found: Found) -> Dataset:
        return replace(dataset, class_weights=tuple(found["weights"].double().tolist()))
