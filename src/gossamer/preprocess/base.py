"""What a step before the first round is: what it releases, what is made of that, and what becomes of the records.

A step reads records through its summary alone, which `mechanism.summaries` releases. Everything else here gets the
released numbers: whatever is made of them is post-processing, and so are records that are changed by it one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from gossamer.accounting.releases import Gaussian
from gossamer.data.dataset import Dataset
from gossamer.data.source import Source
from gossamer.mechanism.summaries.base import Summary

Found = Mapping[str, Tensor]


@dataclass(frozen=True)
class Released:
    """All nodes' releases as one: an estimate of the mean vector over what is protected, and what noise it has."""

    mean: Tensor  # (size,)
    noise: float  # the deviation of every entry, from public numbers


class Step(Protocol):
    name: ClassVar[str]  # of its file, and in the certificate
    part: ClassVar[float]  # of the share of ε that pays for all steps, as 1/σ² goes, relative to the others
    says: ClassVar[str]  # what is released, for people
    released_as: ClassVar[type[Gaussian]]  # as its summary is

    def summary(self, source: Source, dataset: Dataset) -> Summary:
        """What is released of these records; its size follows from public facts."""
        ...

    def found(self, source: Source, dataset: Dataset, released: Released) -> Found:
        """What is kept beside the run, by name."""
        ...

    def check(self, source: Source, dataset: Dataset, found: Found) -> bool:
        """Is this what `found` would give, by its names and shapes?"""
        ...

    def applied(self, source: Source, dataset: Dataset, found: Found) -> Dataset:
        """The records with it."""
        ...
