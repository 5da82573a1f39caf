"""What own records are labelled by: classes become their numbers, numbers targets, yes and no 1 and 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.data.dataset import Array
from gossamer.errors import UserError


def yes_or_no(y: Array, key: str) -> npt.NDArray[np.float32]:
    """(N, L) of 0 and 1."""
    if y.dtype.kind not in "iufb" or not ((y == 0) | (y == 1)).all():
        raise UserError(f"{key} has a label that is neither yes nor no: give 0 and 1, or true and false")
    return y.astype(np.float32)


def targets_of(y: Array) -> npt.NDArray[np.float32]:
    if y.dtype.kind not in "iufb":
        raise UserError("data.task = 'regression' needs numbers as labels: the label column holds words")
    return y.astype(np.float32)


def known_labels(y: Array, classes: int | list[Any] | None) -> Array:
    """All labels in the order of their ids."""
    if classes is None:
        known = np.unique(_class_labels(y))
        if len(known) < 2:
            raise UserError("data.label is the same in all rows: declare data.classes or choose another")
        return known
    if isinstance(classes, list):
        declared = np.asarray(classes)
        if len(declared) < 2 or declared.ndim != 1 or len(np.unique(declared)) < len(declared):
            raise UserError(f"data.classes = {list(classes)} must list at least two different labels")
        return declared
    return np.arange(classes)


def _class_labels(y: Array) -> Array:
    if y.dtype.kind != "f":
        return y
    if not np.all(y == np.round(y)):
        raise UserError(
            "data.task = 'classification' needs whole numbers or words as labels: the column has fractions"
        )
    return y.astype(np.int64)


def class_numbers(y: Array, known: Array, key: str, where: str) -> npt.NDArray[np.int64]:
    """The position of every label in `known`."""
    y = _class_labels(y)
    if (y.dtype.kind in "US") != (known.dtype.kind in "US"):
        y, known = y.astype(np.str_), known.astype(np.str_)
    order = np.argsort(known)
    position = np.minimum(np.searchsorted(known, y, sorter=order), len(known) - 1)
    ids: npt.NDArray[np.int64] = order[position].astype(np.int64)
    if (known[ids] != y).any():  # which ones stays unsaid: they are values of records
        raise UserError(f"{key} has labels that are not among {where}")
    return ids
