"""The declared columns of a table, `[data.columns]`: what a value may be, and which numbers a model sees in its place.

A declaration is public: it is in the configuration, in model.json and in the certificate, and the same at every node
whatever the order of the columns in its own file. The numbers follow from it and from one value alone: no other record
is looked at. What a value cannot be is decided once, so that no record can stop a run whose columns all have
`missing = true`:

- a number or a date outside the declared range counts as the nearer end,
- a value that is no declared level is `other`, where that is declared, and no level at all where it is not,
- what is not there, or cannot be read as what was declared, is missing: an indicator of its own, or refused.
"""

from __future__ import annotations

import datetime
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BeforeValidator, Field

from gossamer.data.arrays import MOST_COLUMNS, Floats, listed
from gossamer.errors import UserError
from gossamer.options.registry import Registry

Missing = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]
Level = bool | int | float | str

# Words for nothing, in a file that has words; one that is a declared level is that level.
NOTHING = ("", "na", "n/a", "#n/a", "nan", "-nan", "nat", "none", "null", "<na>", "?")


def plain(values: Any) -> Any:
    """An Arrow column as one array of plain values."""
    import pyarrow as pa
    from pyarrow import types

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # of no chunks, in older versions
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    return values.dictionary_decode() if types.is_dictionary(values.type) else values


def is_words(arrow_type: Any) -> bool:
    from pyarrow import types

    return any(test(arrow_type) for test in (types.is_string, types.is_large_string, types.is_string_view))


def texts(values: Any) -> Any:
    """As words without spaces around them, whole numbers without a point: beside a gap, programs write 1 as 1.0."""
    import pyarrow as pa
    from pyarrow import compute, types

    if types.is_floating(values.type):
        values = compute.if_else(compute.is_nan(values), pa.scalar(None, values.type), values)
    said = compute.utf8_trim_whitespace(values.cast(pa.string()))
    return compute.replace_substring_regex(said, r"^(-?[0-9]+)\.0*$", r"\1")


def level(level: Level) -> str:
    """A declared level as `texts` has it."""
    text = str(level).lower() if isinstance(level, bool) else str(level).strip()
    whole, point, rest = text.partition(".")
    return whole if point and not rest.strip("0") and whole.removeprefix("-").isdecimal() else text


def is_nothing(said: Any) -> Missing:
    import pyarrow as pa
    from pyarrow import compute

    empty = compute.is_in(compute.utf8_lower(said), value_set=pa.array(NOTHING))
    found: Missing = compute.or_(compute.is_null(said), empty).to_numpy(zero_copy_only=False)
    return found


def floats(values: Any) -> Numbers:
    """NaN where there is none."""
    import pyarrow as pa

    if is_words(values.type):
        return one_by_one(values, _number)
    found: Numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found.astype(np.float64, copy=False)


def one_by_one(values: Any, read: Callable[[str], float]) -> Numbers:
    """Every different word is read once."""
    import pyarrow as pa

    if not is_words(values.type):  # of a column without any value
        return np.full(len(values), np.nan)
    coded = values.cast(pa.string()).dictionary_encode()
    known = np.array(
        [math.nan if word is None else read(word) for word in coded.dictionary.to_pylist()] + [math.nan]
    )
    at = coded.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
    found: Numbers = known[at]
    return found


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan


def day(word: str) -> float:
    """Days since 1970; NaN of what is none."""
    try:
        found = datetime.date.fromisoformat(word.strip()[:10])
    except ValueError:
        return math.nan
    return float(found.toordinal() - datetime.date(1970, 1, 1).toordinal())


def is_day(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 10 and not math.isnan(day(value))


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


def _in_full(value: Any) -> Any:
    """`"boolean"`, `[lo, hi]`, `["a", "b"]`, or a table whose keys say of which kind it is."""
    if isinstance(value, str):
        return {"kind": value}
    if isinstance(value, Sequence):
        value = [_iso(one) for one in value]
        if any(isinstance(one, str) for one in value):
            days = len(value) == 2 and all(map(is_day, value))
            return {"kind": "date", "range": value} if days else {"kind": "categorical", "levels": value}
        return {"kind": "numeric", "range": value}
    if not isinstance(value, Mapping):
        return value
    table = {key: [_iso(one) for one in v] if isinstance(v, list | tuple) else v for key, v in value.items()}
    if "kind" not in table:
        ends = table.get("range")
        dates = isinstance(ends, list) and bool(ends) and all(map(is_day, ends))
        guess = "categorical" if "levels" in table else "date" if dates else "numeric"
        if {"levels", "range", "mean", "scale"} & set(table):
            return {"kind": guess, **table}
    return table


def _bounded(schema: dict[str, Column]) -> dict[str, Column]:
    if not schema:
        raise UserError("data.columns declares no column: name at least one, or leave the table out")
    width = sum(len(column.levels) if isinstance(column, Categorical) else 1 for column in schema.values())
    if width > MOST_COLUMNS:
        raise UserError(
            f"data.columns makes {width} numbers of a record, and at most {MOST_COLUMNS} are taken: declare fewer "
            "levels, and let the rest be other"
        )
    return schema


Schema = Annotated[
    dict[str, Annotated[Column, kinds, BeforeValidator(_in_full)]],
    AfterValidator(_bounded),
]


Columns = Annotated[
    Schema | None,
    Field(
        description="what each column to predict from may hold, declared: its range, its levels; in place of "
        "features and ranges, see docs/tables.md"
    ),
]


def refuse_said_twice(data: Any) -> None:
    """A table [data] says of each column once what it is."""
    schema = data.schema
    if schema is None:
        return
    if data.ranges is not None:
        raise UserError(
            "data.ranges is part of data.columns: put each range into its column, and leave it out"
        )
    if getattr(data, "features", None) is not None:
        raise UserError("data.features is what data.columns declares by name: leave out one of the two")
    for key in ("label", "owner", "person"):
        said = getattr(data, key, None)
        for name in said if isinstance(said, list) else [said]:
            if name in schema:
                raise UserError(f"data.columns.{name} is data.{key}, no feature: leave it out there")


def number_names(schema: Mapping[str, Column]) -> list[str]:
    """The numbers of a record, in their order: that of the declaration, whatever a file's is."""
    return [number for name, column in schema.items() for number in column.all_numbers(name)]


def encoded(where: str, schema: Mapping[str, Column], table: Mapping[str, Any]) -> Floats:
    """(rows, numbers) of a table's Arrow columns by name."""
    rows = len(table[next(iter(schema))])
    out = np.zeros((rows, len(number_names(schema))), np.float32)
    encode_into(where, schema, table, out)
    return out


def encode_into(where: str, schema: Mapping[str, Column], table: Mapping[str, Any], out: Floats) -> None:
    """The same into an array of zeros: that of a part of the rows, where all would be too many."""
    at = 0
    for name, column in schema.items():
        values = plain(table[name])
        if not column.fits(values.type):
            raise UserError(
                f"{where}: column {name!r} holds values of type {values.type}, and data.columns.{name} is "
                f"{column.kind}: declare it as what it is"
            )
        width = len(column.numbers(name))
        missing = column.encode(values, out[:, at : at + width])
        at += width
        if column.missing:
            out[:, at] = missing
            at += 1
        elif missing.any():
            raise UserError(
                f"{where}: column {name!r} has rows without a value, or with one that is not {column.kind}: set "
                f"data.columns.{name}.missing = true, or fill them"
            )


def refuse_absent(where: str, schema: Mapping[str, Column], names: Sequence[str]) -> None:
    lacking = [name for name in schema if name not in names]
    if lacking:
        raise UserError(
            f"{where} has no column {listed(lacking)}, which data.columns declares: it has {listed(names)}"
        )


def _iso(value: Any) -> Any:
    """TOML has dates of its own."""
    if isinstance(value, datetime.datetime):
        value = value.date()
    return value.isoformat() if isinstance(value, datetime.date) else value
