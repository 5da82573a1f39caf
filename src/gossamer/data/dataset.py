"""The one shape in which records leave this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.data.standard import Standard

Array = npt.NDArray[Any]


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
    owner: npt.NDArray[np.int64] | None  # one id per training row, where the records have owners
    provenance: dict[str, str]
    person: npt.NDArray[np.int64] | None = None  # whose each training row is, where something says so
    truth: npt.NDArray[np.float32] | None = None  # the coefficients that made a synthetic set
    columns: tuple[str, ...] = ()  # of a table of the user's own, in the order in which they were read
    test_shares_rows: bool = False  # does a hold-out that was declared public hold training records?
    labels: tuple[
        Any, ...
    ] = ()  # what classes, or several labels, are called, in their order; empty: by number
    standard: Standard | None = None  # released: what columns were divided by
    class_weights: tuple[float, ...] = ()  # released: of the loss of each class's records
    components: npt.NDArray[np.float32] | None = None  # (k, p) released ones, in place of which records stand
    raw_shape: tuple[int, ...] | None = (
        None  # of a record as it came, before the table's steps; None: as it is
    )

    @property
    def several(self) -> int | None:
        """How many labels of yes or no a record has, where it has several."""
        return self.y_train.shape[1] if self.y_train.ndim == 2 else None
