"""Data sets as they leave this package."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.data.arrays import Array, Floats, by_block, gathered
from gossamer.errors import UserError

FAR = 5.0  # spreads from the middle, where values are cut off


@dataclass(frozen=True)
class Standard:
    """(x − middle) / spread in the places named, cut off at ±5; the other columns stay.

    Values outside the declared range count as its nearer end.
    """

    places: tuple[int, ...]
    low: float
    high: float
    middle: tuple[float, ...]  # one number for each place
    spread: tuple[float, ...]

    def __post_init__(self) -> None:
        numbers = [self.low, self.high, *self.middle, *self.spread]
        if (
            not len(self.places) == len(self.middle) == len(self.spread)
            or not all(math.isfinite(one) for one in numbers)
            or min(self.spread, default=1.0) <= 0
            or min(self.places, default=0) < 0
            or self.low >= self.high
        ):
            raise UserError("a standard for columns needs a middle and a positive spread of each.")

    def applied(self, x: npt.NDArray[Any]) -> Floats:
        rows = np.array(x.reshape(len(x), math.prod(x.shape[1:])), dtype=np.float32)
        if max(self.places, default=-1) >= rows.shape[1]:
            raise UserError(f"a standard for column {max(self.places)} does not fit {rows.shape[1]} numbers.")
        at = list(self.places)
        own = np.clip(rows[:, at].astype(np.float64), self.low, self.high)
        rows[:, at] = np.clip((own - self.middle) / self.spread, -FAR, FAR)
        return rows.reshape(x.shape)


@dataclass(frozen=True)
class Dataset:
    """Training records and a hold-out, ready for a model.

    Images are float32 (N, C, H, W) in [0, 1], tables float32 (N, p), places in a table int64 (N,). Labels
    are int64 from 0, float32 targets, or float32 (N, L) of 0 and 1: several of yes or no. `provenance["sha256"]` is a
    digest of the records: for private data it stays on the node too.
    """

    name: str
    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    classes: int | None  # None: numbers, or several labels of yes or no
    public_test: bool  # may the hold-out be used for metrics that leave the node?
    owner: npt.NDArray[np.int64] | None = None  # one id per training row, where the records have owners
    provenance: dict[str, str] = field(default_factory=dict)
    person: npt.NDArray[np.int64] | None = None  # the person of each training row, where known
    truth: npt.NDArray[np.float32] | None = None  # the coefficients that made a synthetic set
    columns: tuple[str, ...] = ()  # of a table of the user's own, in the order in which they were read
    test_shares_rows: bool = False  # does a hold-out that was declared public hold training records?
    labels: tuple[Any, ...] = ()  # names of the classes, or of several labels, in order; empty: by number
    standard: Standard | None = None  # released: what columns were divided by
    class_weights: tuple[float, ...] = ()  # released: of the loss of each class's records
    components: npt.NDArray[np.float32] | None = None  # (k, p) released ones, in place of which records stand
    raw_shape: tuple[int, ...] | None = None  # of a record before the table's steps; None: as it is

    def take(self, rows: Array) -> Dataset:
        """Only these training rows."""
        return replace(
            self,
            x_train=gathered(self.x_train, rows),
            y_train=self.y_train[rows],
            owner=None if self.owner is None else self.owner[rows],
            person=None if self.person is None else self.person[rows],
        )

    def map(self, function: Callable[[Array], Array]) -> Dataset:
        """With this function of each record in place of the records."""
        return replace(self, x_train=by_block(self.x_train, function), x_test=function(self.x_test))

    def noted(self, **notes: str) -> Dataset:
        """With these notes in its provenance."""
        return replace(self, provenance={**self.provenance, **notes})

    @property
    def several(self) -> int | None:
        """The number of labels of yes or no of a record, where it has several."""
        return self.y_train.shape[1] if self.y_train.ndim == 2 else None


def digest(arrays: Mapping[str, Array]) -> str:
    """sha256 over name, dtype, shape and bytes of the arrays, in the order given."""
    state = hashlib.sha256()
    for name, array in arrays.items():
        state.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)  # without a copy
    return state.hexdigest()
