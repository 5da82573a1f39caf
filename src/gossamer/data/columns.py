"""The declared columns of a table, `[data.columns]`: which values each may hold, and the numbers that encode them.

A declaration is public: it is in the configuration, in model.json and in the certificate, and the same at every node,
whatever the order of the columns in its own file. The numbers follow from it and from one value alone: no other record
is read. With `missing = true` in every column no record can stop a run:

- a number or a date outside the declared range counts as the nearer end,
- a value that is no declared level is `other`, where that is declared, and no level at all where it is not,
- what is absent, or cannot be read as declared, is missing: an indicator of its own, or refused.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BeforeValidator, Field

from gossamer.data.arrays import MOST_COLUMNS, Floats
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
    trimmed = compute.utf8_trim_whitespace(values.cast(pa.string()))
    return compute.replace_substring_regex(trimmed, r"^(-?[0-9]+)\.0*$", r"\1")


def level(level: Level) -> str:
    """A declared level as `texts` has it."""
    text = str(level).lower() if isinstance(level, bool) else str(level).strip()
    whole, point, rest = text.partition(".")
    return whole if point and not rest.strip("0") and whole.removeprefix("-").isdecimal() else text


def is_nothing(words: Any) -> Missing:
    import pyarrow as pa
    from pyarrow import compute

    empty = compute.is_in(compute.utf8_lower(words), value_set=pa.array(NOTHING))
    nothing: Missing = compute.or_(compute.is_null(words), empty).to_numpy(zero_copy_only=False)
    return nothing


def floats(values: Any) -> Numbers:
    """NaN where there is none."""
    import pyarrow as pa

    if is_words(values.type):
        return one_by_one(values, _number)
    numbers: Numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers.astype(np.float64, copy=False)


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
    numbers: Numbers = known[at]
    return numbers


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan


def day(word: str) -> float:
    """Days since 1970; NaN of what is none."""
    try:
        date = datetime.date.fromisoformat(word.strip()[:10])
    except ValueError:
        return math.nan
    return float(date.toordinal() - datetime.date(1970, 1, 1).toordinal())


def is_day(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 10 and not math.isnan(day(value))


YES, NO = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")


@dataclass(frozen=True)
class Finding:
    """About one column, or about the file; `must`: a run would refuse it."""

    column: str
    kind: str  # as it was declared, else the type of its values
    remark: str
    must: bool = False


@dataclass(frozen=True, kw_only=True)
class Column(ABC):
    """The values that one column may hold. A new kind is a subclass, registered in `kinds`."""

    missing: Annotated[
        bool,
        Field(description="1 in a number of its own where there is no value; without it, that is refused"),
    ] = False

    kind: ClassVar[str]

    def numbers(self, name: str) -> list[str]:
        """The names of the numbers that encode a value, without the indicator of a missing one."""
        return [name]

    def all_numbers(self, name: str) -> list[str]:
        return [*self.numbers(name), *([f"{name} missing"] if self.missing else [])]

    def fits(self, arrow_type: Any) -> bool:
        """May values of this type be such a column? Words may: they are read one by one."""
        from pyarrow import types

        tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null)
        return any(test(arrow_type) for test in tests) or is_words(arrow_type)

    @abstractmethod
    def encode(self, values: Any, out: Floats) -> Missing:
        """Write the numbers of an Arrow array into `out`, which is zero; return which values are missing."""

    def surprise(self, values: Any) -> str | None:
        """A remark on values that are encoded but probably not meant; it names no value."""
        return None

    @abstractmethod
    def words(self) -> str:
        """The encoding in words, for a page."""

    def remarks(self, values: Any) -> dict[str, bool]:
        """What the holder of these values should know, and whether a run would refuse them; names no value."""
        if not self.fits(values.type):
            return {f"holds values of type {values.type}, which cannot be {self.kind}": True}
        remarks = {}
        missing = self.encode(values, np.zeros((len(values), len(self.numbers(""))), np.float32))
        if missing.all() and len(values):
            remarks[f"has no value that is {self.kind}"] = not self.missing
        elif missing.any() and not self.missing:
            remarks[f"has gaps, or values that are not {self.kind}: set missing = true"] = True
        if (surprise := self.surprise(values)) is not None:
            remarks[surprise] = False
        return remarks


class _Interval(Column):
    """One number within two public ends; beyond them the nearer end counts."""

    @abstractmethod
    def _raw(self, values: Any) -> Numbers:
        """NaN where there is no value."""

    @abstractmethod
    def _ends(self) -> tuple[float, float]: ...

    def _scaled(self, raw: Numbers) -> Numbers:
        lo, hi = self._ends()
        return (np.clip(raw, lo, hi) - lo) / (hi - lo)

    def encode(self, values: Any, out: Floats) -> Missing:
        raw = self._raw(values)
        missing = np.isnan(raw)
        out[:, 0] = np.where(missing, 0, self._scaled(raw))
        return missing

    def surprise(self, values: Any) -> str | None:
        raw, (lo, hi) = self._raw(values), self._ends()
        outside = bool(((raw < lo) | (raw > hi)).any())
        return "values outside the range count as the nearer end" if outside else None


kinds: Registry[Column] = Registry("data.columns.NAME")


@kinds.register("numeric")
@dataclass(frozen=True, kw_only=True)
class Numeric(_Interval):
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
        if not all(math.isfinite(value) for value in (self.mean or 0, self.scale or 1, self.clip or 1)):
            raise ValueError("mean, scale and clip must be finite")
        if self.range is not None and self.clip is not None:
            raise ValueError("clip goes with mean and scale; a range is clipped at its ends")
        if self.range is not None and not -math.inf < self.range[0] < self.range[1] < math.inf:
            raise ValueError("range must be [lo, hi] with lo < hi")

    @property
    def _standard(self) -> tuple[float, float, float]:
        """Mean, scale and clip."""
        return self.mean or 0.0, self.scale or 1.0, self.clip or 5.0

    def _raw(self, values: Any) -> Numbers:
        return floats(values)

    def _ends(self) -> tuple[float, float]:
        if self.range is not None:
            return self.range[0], self.range[1]
        mean, scale, clip = self._standard
        return mean - clip * scale, mean + clip * scale

    def _scaled(self, raw: Numbers) -> Numbers:
        if self.range is not None:
            return super()._scaled(raw)
        mean, scale, clip = self._standard
        with np.errstate(over="ignore"):  # beyond all numbers is beyond the clip
            return np.clip((raw - mean) / scale, -clip, clip)

    def words(self) -> str:
        if self.range is not None:
            return f"[{self.range[0]:g}, {self.range[1]:g}] becomes [0, 1], clipped"
        mean, scale, clip = self._standard
        return f"(x − {mean:g})/{scale:g}, clipped at ±{clip:g}"


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

        return super().fits(arrow_type) or types.is_date(arrow_type)

    def encode(self, values: Any, out: Floats) -> Missing:
        at, missing = self._levels_of(values)
        known = at >= 0
        out[np.flatnonzero(known), at[known]] = 1
        if self.other:
            out[~known & ~missing, len(self.levels)] = 1
        return missing

    def _levels_of(self, values: Any) -> tuple[npt.NDArray[np.int32], Missing]:
        """The place of each value's level, −1 for none, and which values are missing."""
        import pyarrow as pa
        from pyarrow import compute

        words = texts(values)
        places = compute.index_in(words, value_set=pa.array([level(one) for one in self.levels]))
        at = places.fill_null(-1).to_numpy(zero_copy_only=False)
        return at, (at < 0) & is_nothing(words)

    def surprise(self, values: Any) -> str | None:
        at, missing = self._levels_of(values)
        if not ((at < 0) & ~missing).any():
            return None
        return f"values that are no level {'count as other' if self.other else 'are 0 in all'}"

    def words(self) -> str:
        rest = "1 more for others" if self.other else "others are 0"
        return f"a 0 or 1 for each of {len(self.levels)} levels, {rest}"


@kinds.register("boolean")
@dataclass(frozen=True, kw_only=True)
class Boolean(Column):
    """True or false (also 1 or 0, yes or no): 1 or 0."""

    def encode(self, values: Any, out: Floats) -> Missing:
        import pyarrow as pa
        from pyarrow import compute

        places = compute.index_in(compute.utf8_lower(texts(values)), value_set=pa.array([*YES, *NO]))
        at = places.fill_null(-1).to_numpy(zero_copy_only=False)
        out[:, 0] = (at >= 0) & (at < len(YES))
        return np.asarray(at < 0)

    def words(self) -> str:
        return "1 where it is true"


@kinds.register("date")
@dataclass(frozen=True, kw_only=True)
class Date(_Interval):
    """A day in a public range of days, which becomes [0, 1]; of a time of day the day counts."""

    range: Annotated[
        Annotated[list[str], Field(min_length=2, max_length=2)],
        Field(description="public first and last day, as 2024-01-31; a day outside counts as the nearer one"),
    ]

    def __post_init__(self) -> None:
        first, last = self._ends()
        if not first < last:
            raise ValueError("range must be two days as 2024-01-31, the earlier first")

    def fits(self, arrow_type: Any) -> bool:
        from pyarrow import types

        tests = (types.is_date, types.is_timestamp, types.is_null)
        return any(test(arrow_type) for test in tests) or is_words(arrow_type)

    def _raw(self, values: Any) -> Numbers:
        import pyarrow as pa
        from pyarrow import types

        if types.is_date(values.type) or types.is_timestamp(values.type):
            return floats(values.cast(pa.date32(), safe=False).cast(pa.int32()))
        return one_by_one(values, day)

    def _ends(self) -> tuple[float, float]:
        return day(self.range[0]), day(self.range[1])

    def words(self) -> str:
        return f"{self.range[0]} to {self.range[1]} becomes [0, 1], clipped"


def _in_full(value: Any) -> Any:
    """The table of a short form: `"boolean"`, `[lo, hi]`, `["a", "b"]`, or a table without a kind."""
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


def check_declared_once(data: Any) -> None:
    """Refuse a table [data] with two declarations of one column."""
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
        named = getattr(data, key, None)
        for name in named if isinstance(named, list) else [named]:
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


def _iso(value: Any) -> Any:
    """TOML has dates of its own."""
    if isinstance(value, datetime.datetime):
        value = value.date()
    return value.isoformat() if isinstance(value, datetime.date) else value


def kind_of(arrow_type: Any) -> str:
    """The kind of column that Arrow's type suggests."""
    from pyarrow import types

    if types.is_boolean(arrow_type):
        return "boolean"
    if types.is_date(arrow_type) or types.is_timestamp(arrow_type):
        return "date"
    numbers = (types.is_integer, types.is_floating, types.is_decimal)
    return "numeric" if any(test(arrow_type) for test in numbers) else "categorical"


_BLANKS = {
    "numeric": "{ range = [] }",
    "categorical": "{ levels = [] }",
    "boolean": '"boolean"',
    "date": '{ kind = "date", range = [] }',
}
_HINT = """\
# From names and types alone; label, owner and person are left out.
# range: the lowest and the highest value that everybody may know, or the days.
# levels: all that are to be told apart; other = true keeps the rest as one.
# missing = true in every column that may have gaps."""


def skeleton(kinds: Mapping[str, str], without: Sequence[str | None]) -> list[str]:
    """A `[data.columns]` to be filled in, from names and types alone: no level and no range is read off."""
    columns = []
    for name, kind in kinds.items():
        key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
        columns += [f"{key} = {_BLANKS[kind]}"] if name not in without else []
    return [*_HINT.splitlines(), "[data.columns]", *columns]
