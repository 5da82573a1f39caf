"""The declared columns of a table, `[data.columns]`: what a value may be, and which numbers a model sees in its place.

The numbers follow from the declaration, which is public, and from one value alone: no other record is looked at. What a
value cannot be is decided once, so that no record can stop a run whose columns all have `missing = true`:

- a number or a date outside the declared range counts as the nearer end,
- a value that is no declared level is `other`, where that is declared, and no level at all where it is not,
- what is not there, or cannot be read as what was declared, is missing: an indicator of its own, or refused.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gossamer.data.scaling import Floats
from gossamer.data.values import (
    Level,
    Missing,
    day,
    floats,
    is_nothing,
    is_words,
    level,
    one_by_one,
    texts,
)
from gossamer.options.registry import Registry

OUTSIDE = "values outside the range count as the nearer end"
YES, NO = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """What the values of one column may be."""

    missing: Annotated[
        bool,
        Field(description="1 in a number of its own where there is no value; without it, that is refused"),
    ] = False

    kind: ClassVar[str]

    @abstractmethod
    def numbers(self, name: str) -> list[str]:
        """The names of the numbers that come in place of a value, without the indicator."""

    @abstractmethod
    def fits(self, arrow_type: Any) -> bool:
        """May values of this type be such a column? Words may: what they say is looked at one by one."""

    @abstractmethod
    def encode(self, values: Any, out: Floats) -> Missing:
        """Write the numbers of an Arrow array into `out`, which is zero; which values are missing stay so."""

    def surprise(self, values: Any) -> str | None:
        """What whoever holds the records should hear of values that have a place all the same; no value is named."""
        return None

    @abstractmethod
    def words(self) -> str:
        """What is done, for a page."""

    def all_numbers(self, name: str) -> list[str]:
        return [*self.numbers(name), *([f"{name} missing"] if self.missing else [])]


kinds: Registry[Column] = Registry("data.columns.NAME")


@kinds.register("numeric")
@dataclass(frozen=True, kw_only=True)
class Numeric(Column):
    """A number with a public range, which becomes [0, 1], or with a public mean and scale."""

    range: Annotated[
        Annotated[list[float], Field(min_length=2, max_length=2)] | None,
        Field(description="public [lo, hi], mapped to [0, 1]; a value outside counts as the nearer end"),
    ] = None
    mean: Annotated[float | None, Field(description="public; (value − mean)/scale in place of the value")] = (
        None
    )
    scale: Annotated[float | None, Field(gt=0, description="public; goes with mean")] = None
    clip: Annotated[
        float | None, Field(gt=0, description="with mean: at most so many scales; 5 if not set")
    ] = None

    def __post_init__(self) -> None:
        if (self.range is None) == (self.mean is None) or (self.mean is None) != (self.scale is None):
            raise ValueError("a numeric column has either range = [lo, hi] or mean and scale")
        if self.range is None:
            finite = [v for v in (self.mean, self.scale, self.clip) if v is not None and not math.isfinite(v)]
            if finite:
                raise ValueError("mean, scale and clip must be finite")
        elif self.clip is not None:
            raise ValueError("clip goes with mean and scale; a range is clipped at its ends")
        elif not (math.isfinite(self.range[0]) and self.range[0] < self.range[1] < math.inf):
            raise ValueError("range must be [lo, hi] with lo < hi")

    def numbers(self, name: str) -> list[str]:
        return [name]

    def fits(self, arrow_type: Any) -> bool:
        from pyarrow import types

        tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
        return any(test(arrow_type) for test in tests) or is_words(arrow_type)

    def encode(self, values: Any, out: Floats) -> Missing:
        raw = floats(values)
        if self.range is not None:
            lo, hi = self.range
            scaled = (np.clip(raw, lo, hi) - lo) / (hi - lo)
        else:
            assert self.mean is not None
            assert self.scale is not None
            most = 5.0 if self.clip is None else self.clip
            with np.errstate(over="ignore"):  # beyond all numbers is beyond the clip
                scaled = np.clip((raw - self.mean) / self.scale, -most, most)
        missing = np.isnan(raw)
        out[:, 0] = np.where(missing, 0, scaled)
        return missing

    def surprise(self, values: Any) -> str | None:
        raw = floats(values)
        lo, hi = self._ends()
        return OUTSIDE if bool(((raw < lo) | (raw > hi)).any()) else None

    def _ends(self) -> tuple[float, float]:
        if self.range is not None:
            return self.range[0], self.range[1]
        assert self.mean is not None
        assert self.scale is not None
        most = self.scale * (5.0 if self.clip is None else self.clip)
        return self.mean - most, self.mean + most

    def words(self) -> str:
        if self.range is not None:
            return f"[{self.range[0]:g}, {self.range[1]:g}] becomes [0, 1], clipped"
        return f"(x − {self.mean:g})/{self.scale:g}, clipped at ±{5.0 if self.clip is None else self.clip:g}"


@kinds.register("categorical")
@dataclass(frozen=True, kw_only=True)
class Categorical(Column):
    """One of some declared levels: a 0 or 1 for each."""

    levels: Annotated[
        Annotated[list[Level], Field(min_length=1)],
        Field(description="all that are told apart; public, and so not read off the records"),
    ]
    other: Annotated[
        bool,
        Field(description="a 0 or 1 more for values that are no level; without it they are 0 everywhere"),
    ] = False

    def __post_init__(self) -> None:
        if len({level(one) for one in self.levels}) < len(self.levels):
            raise ValueError("levels must differ, also in more than spaces around them")

    def numbers(self, name: str) -> list[str]:
        levels = [f"{name}={level(one)}" for one in self.levels]
        return [*levels, *([f"{name} other"] if self.other else [])]

    def fits(self, arrow_type: Any) -> bool:
        from pyarrow import types

        return Numeric.fits(_AS_NUMBER, arrow_type) or types.is_date(arrow_type)

    def encode(self, values: Any, out: Floats) -> Missing:
        import pyarrow as pa
        from pyarrow import compute

        said = texts(values)
        found = compute.index_in(said, value_set=pa.array([level(one) for one in self.levels]))
        at = found.fill_null(-1).to_numpy(zero_copy_only=False)
        known = at >= 0
        missing: Missing = ~known & is_nothing(said)
        out[np.flatnonzero(known), at[known]] = 1
        if self.other:
            out[~known & ~missing, len(self.levels)] = 1
        return missing

    def surprise(self, values: Any) -> str | None:
        out = np.zeros((len(values), len(self.numbers(""))), np.float32)
        missing = self.encode(values, out)
        strange = ~missing & (out[:, : len(self.levels)].sum(axis=1) == 0)
        if not strange.any():
            return None
        return (
            "values that are no level count as other"
            if self.other
            else "values that are no level are 0 in all"
        )

    def words(self) -> str:
        rest = "1 more for others" if self.other else "others are 0"
        return f"a 0 or 1 for each of {len(self.levels)} levels, {rest}"


@kinds.register("boolean")
@dataclass(frozen=True, kw_only=True)
class Boolean(Column):
    """True or false (also 1 or 0, yes or no): 1 or 0."""

    def numbers(self, name: str) -> list[str]:
        return [name]

    def fits(self, arrow_type: Any) -> bool:
        return Numeric.fits(_AS_NUMBER, arrow_type)

    def encode(self, values: Any, out: Floats) -> Missing:
        import pyarrow as pa
        from pyarrow import compute

        found = compute.index_in(compute.utf8_lower(texts(values)), value_set=pa.array([*YES, *NO]))
        at = found.fill_null(-1).to_numpy(zero_copy_only=False)
        out[:, 0] = (at >= 0) & (at < len(YES))
        return np.asarray(at < 0)

    def words(self) -> str:
        return "1 where it is true"


@kinds.register("date")
@dataclass(frozen=True, kw_only=True)
class Date(Column):
    """A day in a public range of days, which becomes [0, 1]; of a time of day the day counts."""

    range: Annotated[
        Annotated[list[str], Field(min_length=2, max_length=2)],
        Field(description="public first and last day, as 2024-01-31; a day outside counts as the nearer one"),
    ]

    def __post_init__(self) -> None:
        first, last = (day(text) for text in self.range)
        if not first < last:
            raise ValueError("range must be two days as 2024-01-31, the earlier first")

    def numbers(self, name: str) -> list[str]:
        return [name]

    def fits(self, arrow_type: Any) -> bool:
        from pyarrow import types

        tests = (types.is_date, types.is_timestamp, types.is_null)
        return any(test(arrow_type) for test in tests) or is_words(arrow_type)

    def _days(self, values: Any) -> npt.NDArray[np.float64]:
        import pyarrow as pa
        from pyarrow import types

        if types.is_date(values.type) or types.is_timestamp(values.type):
            return floats(values.cast(pa.date32(), safe=False).cast(pa.int32()))
        return one_by_one(values, day)

    def surprise(self, values: Any) -> str | None:
        days, (first, last) = self._days(values), (day(text) for text in self.range)
        return OUTSIDE if bool(((days < first) | (days > last)).any()) else None

    def encode(self, values: Any, out: Floats) -> Missing:
        days = self._days(values)
        first, last = (day(text) for text in self.range)
        missing = np.isnan(days)
        out[:, 0] = np.where(missing, 0, (np.clip(days, first, last) - first) / (last - first))
        return missing

    def words(self) -> str:
        return f"{self.range[0]} to {self.range[1]} becomes [0, 1], clipped"


_AS_NUMBER = Numeric(range=[0.0, 1.0])
