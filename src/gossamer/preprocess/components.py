"""Private principal components: `data.pca_from = "private"`."""

from __future__ import annotations

import math
from typing import ClassVar

from gossamer.accounting.releases import Gaussian
from gossamer.data.dataset import Dataset
from gossamer.data.source import Source
from gossamer.mechanism.summaries.second_moment import SecondMoment, components, unpacked
from gossamer.preprocess.base import Found, Released


class Components:
    name: ClassVar[str] = "components"
    part: ClassVar[float] = 4.0
    says: ClassVar[str] = "the second moment of the records, for principal components"
    released_as: ClassVar[type[Gaussian]] = SecondMoment.released_as

    def summary(self, source: Source, dataset: Dataset) -> SecondMoment:
        return SecondMoment(math.prod(dataset.x_train.shape[1:]))

    def found(self, source: Source, dataset: Dataset, released: Released) -> Found:
        assert source.pca is not None
        width = self.summary(source, dataset).width
        return {"components": components(unpacked(released.mean, width), source.pca).contiguous()}

    def check(self, source: Source, dataset: Dataset, found: Found) -> bool:
        width = self.summary(source, dataset).width
        return set(found) == {"components"} and found["components"].shape == (source.pca, width)

    def applied(self, source: Source, dataset: Dataset, found: Found) -> Dataset:
        return source.finished(dataset, components=found["components"].float().numpy())
