"""The table [data.standardise]: by what columns are divided, found on the training records with noise.

Here is what is asked for. What is released for it, and what is made of that, is in `preprocess`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, Field

from gossamer.data.columns import Numeric
from gossamer.data.limits import listed
from gossamer.data.standard import Standard
from gossamer.errors import UserError
from gossamer.options.registry import Registry

if TYPE_CHECKING:
    from gossamer.data.dataset import Dataset
    from gossamer.data.source import Source

__all__ = ["Moments", "Quantiles", "Standard", "Standardise", "standardisations"]

MOST_COLUMNS = 4096


def _a_range(value: list[float]) -> list[float]:
    if len(value) != 2 or not abs(value[0]) <= 1e12 or not abs(value[1]) <= 1e12 or not value[0] < value[1]:
        raise ValueError("must be [lo, hi] with lo < hi")
    return value


@dataclass(frozen=True, kw_only=True)
class Standardise:
    """What all kinds have."""

    columns: Annotated[
        Annotated[list[str], Field(min_length=1)] | None,
        Field(
            description="the names of those that are meant; all with a range if not set. Fewer need less noise"
        ),
    ] = None
    within: Annotated[
        Annotated[list[float], AfterValidator(_a_range)] | None,
        Field(
            description="public [lo, hi] of all of them, as they are then; if not set [0, 1], as declared ranges give"
        ),
    ] = None

    kind: ClassVar[str]

    @property
    def bounds(self) -> tuple[float, float]:
        low, high = self.within or (0.0, 1.0)
        return low, high

    def places(self, source: Source, dataset: Dataset) -> tuple[int, ...]:
        """Which numbers of a record they are."""
        names = self._names(source, dataset)
        if names is None:
            return tuple(range(math.prod(dataset.x_train.shape[1:])))
        unknown = [name for name in names if name not in dataset.columns]
        if unknown or dataset.x_train.ndim != 2 or dataset.x_train.shape[1] != len(dataset.columns):
            has = listed(list(dataset.columns)) if dataset.columns else "none with names"
            raise UserError(
                f"data.standardise.columns names {listed(unknown or names)}, which is no column of the records as they "
                f"are then; there are {has}."
            )
        return tuple(dataset.columns.index(name) for name in names)

    def _names(self, source: Source, dataset: Dataset) -> list[str] | None:
        """Of a table with declared columns, those with a range of numbers; None: all there are."""
        if source.schema is None:
            return self.columns
        ranged = [n for n, c in source.schema.items() if isinstance(c, Numeric) and c.range is not None]
        others = [name for name in self.columns or [] if name not in ranged]
        if others or not ranged:
            raise UserError(
                "data.standardise is for numeric columns with a range, however wide"
                + (f", and {listed(others)} is none of them" if others else ", and there is none")
                + "; declare one in data.columns, or leave it out."
            )
        return self.columns or ranged

    def check(self, source: Source, dataset: Dataset) -> None:
        """What can be said before anything is released."""
        if dataset.x_train.ndim < 2:
            raise UserError(
                f"data.standardise is for records with columns, and data.kind = {source.kind!r} has places in a table."
            )
        if source.pca is not None and not source.private_components:
            raise UserError(
                f"data.standardise does not go with data.pca_from = {source.pca_from!r}, whose components are of "
                "columns as they were; use pca_from = 'private'."
            )
        places = self.places(source, dataset)
        if len(places) > MOST_COLUMNS:
            raise UserError(
                f"data.standardise is for at most {MOST_COLUMNS:,} columns, and these records have {len(places):,}; "
                "name those that are meant in data.standardise.columns."
            )
        if source.own and self.within is None and source.schema is None and not source.transform:
            declared = getattr(source, "ranges", None) or {}
            names = [dataset.columns[i] if dataset.columns else str(i) for i in places]
            open_ended = [name for name in names if name not in declared]
            if open_ended:
                raise UserError(
                    f"data.standardise needs a public range of column {listed(open_ended)}; set data.ranges for it, "
                    "however wide, or data.standardise.within."
                )


standardisations: Registry[Standardise] = Registry("data.standardise")


@standardisations.register("quantiles")
@dataclass(frozen=True, kw_only=True)
class Quantiles(Standardise):
    """By the median and the width of the middle 90%, from a histogram with noise: for ranges that are too wide."""


@standardisations.register("moments")
@dataclass(frozen=True, kw_only=True)
class Moments(Standardise):
    """By mean and deviation, from sums with noise: for many columns whose ranges are about right."""
