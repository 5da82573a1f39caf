"""The form of a raw record and its preparation for a model: names and public constants only.

A run writes this next to its models, so that a new row is prepared exactly as a training row was.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gossamer.data.arrays import Array, fit_components, listed, project, scale_records, to_ranges
from gossamer.data.columns import Interval, Schema, kinds
from gossamer.data.dataset import FAR, Dataset, Standard
from gossamer.data.packing import Part, packed
from gossamer.data.source import Scale, Source, load_public
from gossamer.data.tables import FrameTable, array_of, as_records, is_frame
from gossamer.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Inputs:
    shape: tuple[int, ...]  # of a record as it comes; () is a place in a table
    columns: tuple[str, ...] = ()  # their names in order, where it is a table that has names
    schema: Schema | None = None  # what was declared of them; the numbers in their place are what a record is
    label: str | tuple[str, ...] | None = None  # the column that is predicted, or several
    owner: str | None = None  # the column with the owner of a training row
    ranges: dict[str, Interval] = field(default_factory=dict)
    transform: list[Any] = field(default_factory=list)
    standard: Standard | None = None  # released
    pca: int | None = None
    pca_from: str = "train"
    components: str = ""  # released ones: float32, row after row, in base64
    scale: Scale = "none"
    bias: bool | Literal["outside"] = False
    parts: list[Part] | None = None  # side by side in a row, where the model takes several arguments

    def records(self, x: Any) -> Array:
        """Rows as a user has them (an array, a tensor, a frame) as records of this shape, not prepared yet."""
        if self.schema is not None and is_frame(x):
            return FrameTable(x, "x").encode(self.schema)[0]
        names = [str(name) for name in getattr(x, "columns", ())]  # of pandas or polars
        if names and self.columns:
            lacking = [name for name in self.columns if name not in names]
            if lacking:
                raise UserError(f"x has no column {listed(lacking)} of the training; it has {listed(names)}.")
            x = x[[list(x.columns)[names.index(name)] for name in self.columns]]
        if self.parts is not None and tuple(getattr(x, "shape", ()))[1:] != self.shape:  # packed rows stay
            x = packed(x, self.parts, "x")
        array = array_of("x", x)
        if array.dtype.kind not in "iufb":
            wanted = "numbers" if self.schema is None else "a frame with the columns that were declared"
            raise UserError(f"x holds values of type {array.dtype}; give {wanted}.")
        if self.shape == ():
            rows: Array = array.astype(np.int64)
        else:
            rows = as_records(array) if array.ndim in (2, 3, 4) else array
        if rows.shape[1:] != self.shape or rows.ndim == 0:
            wanted = ", ".join(["rows", *map(str, self.shape)])
            raise UserError(f"x has shape {array.shape}; the model takes ({wanted}).")
        if not np.isfinite(rows).all():
            raise UserError("x holds NaN or infinite values; fill them or leave their rows out.")
        return rows

    def prepared(self, rows: Array, data_dir: Path | None = None) -> Array:
        """Records after the steps that a training record went through, in the same order; one at a time."""
        if self.ranges:
            rows = to_ranges(rows, self.columns, self.ranges)
        if self.transform:
            from gossamer.data.features import pipeline

            public = partial(load_public, data_dir=data_dir)
            rows = pipeline.applied(rows, self.transform, public, data_dir=data_dir)
        if self.standard is not None:
            rows = self.standard.applied(rows)
        if self.pca is not None:
            rows = self._projected(rows, data_dir)
        return scale_records(rows, self.scale, self.bias)

    def _projected(self, rows: Array, data_dir: Path | None) -> Array:
        assert self.pca is not None
        width = math.prod(rows.shape[1:])
        if self.pca_from == "train":
            raise UserError("data.pca_from = 'train' keeps no components for new rows; use a public set.")
        if self.pca_from == "private":  # released, so part of the model
            try:
                numbers = np.frombuffer(base64.b64decode(self.components), "<f4").reshape(self.pca, width)
            except ValueError:
                numbers = np.full((1, 1), np.nan, np.float32)
            if not np.isfinite(numbers).all():
                raise UserError(f"the description has no {self.pca} components of {width} numbers.")
            return project(rows, np.zeros(width, np.float32), numbers.astype(np.float32))
        fitted = load_public(self.pca_from, {}, data_dir).x_train
        if math.prod(fitted.shape[1:]) != width:
            raise UserError(f"data.pca_from = {self.pca_from!r} has no records of {width} numbers.")
        return project(rows, *fit_components(fitted, self.pca))

    def steps(self) -> list[str]:
        """The same in words, for a page."""
        lines = [f"column {name}: [{lo:g}, {hi:g}] becomes [0, 1]" for name, (lo, hi) in self.ranges.items()]
        for name, column in (self.schema or {}).items():
            declared = kinds.options(column).items()
            options = ", ".join(f"{key} = {value}" for key, value in declared if value not in (None, False))
            lines.append(f"column {name}, {column.kind}: {options}".removesuffix(": "))
        lines += [f"step: {step}" for step in self.transform]
        if self.standard is not None:
            count = len(self.standard.places)
            lines.append(f"{count} columns by a middle and spread found with noise, cut off at ±{FAR:g}")
        if self.pca is not None:
            origin = "the training records, with noise" if self.pca_from == "private" else self.pca_from
            lines.append(f"{self.pca} principal components of {origin}")
        lines += {"unit-ball": ["x / max(1, ‖x‖)"], "unit-sphere": ["x / ‖x‖"]}.get(self.scale, [])
        if self.bias:
            lines.append("(x, 1)" if self.bias == "outside" else "(x, 1)/√2")
        return lines


def inputs_of(source: Source, dataset: Dataset) -> Inputs:
    label, components = getattr(source, "label", None), ""
    if dataset.components is not None:
        components = base64.b64encode(dataset.components.astype("<f4").tobytes()).decode()
    return Inputs(
        shape=dataset.x_train.shape[1:] if dataset.raw_shape is None else dataset.raw_shape,
        columns=dataset.columns if source.schema is None else tuple(source.schema),
        schema=None if source.schema is None else dict(source.schema),
        label=label if isinstance(label, str | None) else tuple(label),
        owner=getattr(source, "owner", None),
        ranges=getattr(source, "ranges", None) or {},
        standard=dataset.standard,
        components=components,
        parts=source.layout,
        **{key: getattr(source, key) for key in ("transform", "pca", "pca_from", "scale", "bias")},
    )
