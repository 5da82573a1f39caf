"""Columns by their middle and spread: `[data.standardise]`, by moments or by quantiles."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import ClassVar

import torch
from scipy.special import ndtri
from torch import Tensor

from gossamer.accounting.releases import Gaussian
from gossamer.data.dataset import Dataset
from gossamer.data.source import Source, standardised
from gossamer.data.standard import Standard
from gossamer.mechanism.summaries.base import Summary
from gossamer.mechanism.summaries.columns import Columns, Histogram, Moments, dyadic_edges, quantiles
from gossamer.preprocess.base import Found, Released

EDGES = dyadic_edges(levels=20, steps=16)
FINEST = min(b - a for a, b in pairwise(EDGES))
TAIL = 0.05  # on each side: the spread is that of the 90% between
SURE = 2.0  # deviations of its noise, below which a share or a variance says nothing


class _Standardise:
    """What both kinds share: a middle and a spread of u, the value in its declared range."""

    part: ClassVar[float] = 4.0

    def columns(self, source: Source, dataset: Dataset) -> Columns:
        assert source.standardise is not None
        return Columns(source.standardise.places(source, dataset), *source.standardise.bounds)

    def _kept(self, columns: Columns, middle: Tensor, spread: Tensor) -> Found:
        """In the units of the records."""
        length = columns.high - columns.low
        return {"middle": columns.low + length * middle, "spread": length * spread}

    def check(self, source: Source, dataset: Dataset, found: Found) -> bool:
        width = len(self.columns(source, dataset).places)
        return set(found) == {"middle", "spread"} and all(v.shape == (width,) for v in found.values())

    def applied(self, source: Source, dataset: Dataset, found: Found) -> Dataset:
        columns = self.columns(source, dataset)
        standard = Standard(
            places=columns.places,
            low=columns.low,
            high=columns.high,
            middle=tuple(found["middle"].double().tolist()),
            spread=tuple(found["spread"].double().tolist()),
        )
        made = standardised(dataset, standard)
        # Private components come next, of columns as they are now.
        return made if source.private_components else source.finished(made)


class ByMoments(_Standardise):
    name: ClassVar[str] = "standardise"
    says: ClassVar[str] = "sums of every column and of its squares, for its mean and deviation"
    released_as: ClassVar[type[Gaussian]] = Moments.released_as

    def summary(self, source: Source, dataset: Dataset) -> Summary:
        return Moments(self.columns(source, dataset))

    def found(self, source: Source, dataset: Dataset, released: Released) -> Found:
        columns = self.columns(source, dataset)
        mean, variance = Moments(columns).read(released.mean)
        # A variance below its own noise may be anything down to 0: then the noise is what is known of it.
        unsure = released.noise * math.sqrt(len(columns.places))
        return self._kept(columns, mean.clamp(0, 1), variance.clamp_min(max(unsure, 1e-12)).sqrt())


class ByQuantiles(_Standardise):
    name: ClassVar[str] = "standardise"
    says: ClassVar[str] = "a histogram of every column, for its median and spread"
    released_as: ClassVar[type[Gaussian]] = Histogram.released_as

    def summary(self, source: Source, dataset: Dataset) -> Summary:
        return Histogram(self.columns(source, dataset), EDGES)

    def found(self, source: Source, dataset: Dataset, released: Released) -> Found:
        columns = self.columns(source, dataset)
        histogram = Histogram(columns, EDGES)
        # The noise of half of the bins together; a tail that is hidden by it is not looked for.
        unsure = released.noise * math.sqrt(len(columns.places) * histogram.bins / 2)
        tail = max(TAIL, SURE * unsure)
        if tail > 0.4:  # nothing is seen: the declared range is all that is known
            return self._kept(columns, *_as_declared(len(columns.places)))
        shares, noise = histogram.read(released.mean), released.noise * math.sqrt(len(columns.places))
        at = quantiles(_believed(shares, noise), EDGES, (tail, 0.5, 1 - tail))
        spread = (at[:, 2] - at[:, 0]) / (2 * float(ndtri(1 - tail)))
        # Nearly all in the finest bin, as with a rare yes among many noes: the range is the better measure then.
        middle, wide = at[:, 1], spread > 2 * FINEST
        return self._kept(columns, middle, torch.where(wide, spread, 1.0))


def _believed(shares: Tensor, noise: float) -> Tensor:
    """Without bins that noise alone may have filled: most are empty, and one far out would stretch the column.

    Where that leaves less than half of a column, as of one that is spread over many bins, all of them count.
    """
    clear = torch.where(shares > SURE * noise, shares, 0.0)
    return torch.where(clear.sum(1, keepdim=True) > 0.5, clear, shares)


def _as_declared(width: int) -> tuple[Tensor, Tensor]:
    """The range as [−1, 1]."""
    halves = torch.full((width,), 0.5, dtype=torch.float64)
    return halves, halves
