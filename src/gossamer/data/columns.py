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
from gossamer.options.types import Finite

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]
Level = bool | int | float | str

# Words for nothing, in a file that has words; one that is a declared level is that level.
MISSING_WORDS = ("", "na", "n/a", "#n/a", "nan", "-nan", "nat", "none", "null", "<na>", "?")
YES, NO = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
WORDS = ("string", "large_string", "string_view")
NUMBERS = ("integer", "floating", "decimal")


def is_type(arrow_type: Any, *names: str) -> bool:
    """Is it one of these, by the names that `pyarrow.types` has for them?"""
    from pyarrow import types

    return any(getattr(types, f"is_{name}")(arrow_type) for name in names)


def plain(values: Any) -> Any:
    """An Arrow column as one array of plain values."""
    values = values.combine_chunks() if hasattr(values, "chunks") else values
    return values.dictionary_decode() if is_type(values.type, "dictionary") else values


def texts(values: Any) -> Any:
    """As words without spaces around them, whole numbers without a point: next to a gap, programs write 1 as 1.0."""
    import pyarrow as pa
    from pyarrow import compute

    if is_type(values.type, "floating"):
        values = compute.if_else(compute.is_nan(values), pa.scalar(None, values.type), values)
    trimmed = compute.utf8_trim_whitespace(values.cast(pa.string()))
    return compute.replace_substring_regex(trimmed, r"^(-?[0-9]+)\.0*$", r"\1")


def level_text(level: Level) -> str:
    """A declared level as `texts` has it."""
    text = str(level).lower() if isinstance(level, bool) else str(level).strip()
    return re.sub(r"^(-?[0-9]+)\.0*$", r"\1", text)


def positions(words: Any, known: Sequence[str]) -> npt.NDArray[np.int32]:
    """The place of each word among those known, −1 for none."""
    import pyarrow as pa
    from pyarrow import compute

    places = compute.index_in(words, value_set=pa.array(known))
    return np.asarray(places.fill_null(-1).to_numpy(zero_copy_only=False))


def is_missing(words: Any) -> Mask:
    from pyarrow import compute

    null = compute.is_null(words).to_numpy(zero_copy_only=False)
    return np.asarray(null | (positions(compute.utf8_lower(words), MISSING_WORDS) >= 0))


def floats(values: Any, read: Callable[[str], float] = float) -> Numbers:
    """NaN where there is none; every different word is read once."""
    import pyarrow as pa

    if not is_type(values.type, *WORDS):
        numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        return np.asarray(numbers, np.float64)
    coded = values.cast(pa.string()).dictionary_encode()
    known = np.array([_number(word, read) for word in coded.dictionary.to_pylist()] + [math.nan])
    return np.asarray(known[coded.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)])


def _number(word: str | None, read: Callable[[str], float]) -> float:
    try:
        return math.nan if word is None else read(word)
    except ValueError:
        return math.nan


def day(word: str) -> float:
    """Days since 1970."""
    date = datetime.date.fromisoformat(word.strip()[:10])
    return float(date.toordinal() - datetime.date(1970, 1, 1).toordinal())


def is_day(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 10 and not math.isnan(_number(value, day))


def _ordered(ends: list[float]) -> list[float]:
    if len(ends) != 2 or not -math.inf < ends[0] < ends[1] < math.inf:
        raise ValueError("must be [lo, hi] with lo < hi")
    return ends


Interval = Annotated[list[float], AfterValidator(_ordered)]


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

    missing: Annotated[bool, "a number of its own is 1 where there is no value; else that is refused"] = False

    kind: ClassVar[str]
    types: ClassVar[tuple[str, ...]] = (*NUMBERS, "boolean", "null", *WORDS)  # words are read one by one

    def numbers(self, name: str) -> list[str]:
        """The names of the numbers that encode a value, without the indicator of a missing one."""
        return [name]

    def all_numbers(self, name: str) -> list[str]:
        return [*self.numbers(name), *([f"{name} missing"] if self.missing else [])]

    def fits(self, arrow_type: Any) -> bool:
        """May values of this type be such a column?"""
        return is_type(arrow_type, *self.types)

    @abstractmethod
    def encode(self, values: Any, out: Floats) -> tuple[Mask, Mask]:
        """Write the numbers of an Arrow array into `out`, which is zero; return what is missing, what is unexpected."""

    @property
    def unexpected(self) -> str:
        """A remark on values that are encoded but probably not meant."""
        return "values outside the range count as the nearer end"

    def remarks(self, values: Any) -> dict[str, bool]:
        """What the holder of these values should know, and whether a run would refuse them; names no value."""
        if not self.fits(values.type):
            return {f"holds values of type {values.type}, which cannot be {self.kind}": True}
        remarks = {}
        missing, odd = self.encode(values, np.zeros((len(values), len(self.numbers(""))), np.float32))
        if missing.all() and len(values):
            remarks[f"has no value that is {self.kind}"] = not self.missing
        elif missing.any() and not self.missing:
            remarks[f"has gaps, or values that are not {self.kind}: set missing = true"] = True
        return {**remarks, **({self.unexpected: False} if odd.any() else {})}


class _Interval(Column):
    """One number within two public ends; beyond them the nearer end counts."""

    @abstractmethod
    def _raw(self, values: Any) -> Numbers:
        """NaN where there is no value."""

    @abstractmethod
    def _affine(self) -> tuple[float, float, float, float]:
        """What is subtracted, what is divided by, and the least and the largest result."""

    def encode(self, values: Any, out: Floats) -> tuple[Mask, Mask]:
        raw, (shift, scale, least, most) = self._raw(values), self._affine()
        with np.errstate(over="ignore"):  # beyond all numbers is beyond the ends
            scaled = (raw - shift) / scale
        missing = np.isnan(raw)
        out[:, 0] = np.where(missing, 0, np.clip(scaled, least, most))
        return missing, (scaled < least) | (scaled > most)


kinds: Registry[Column] = Registry("data.columns.NAME")


@kinds.register("numeric")
class Numeric(_Interval):
    """A number with a public range, which becomes [0, 1], or with a public mean and scale."""

    range: Annotated[Interval | None, "public [lo, hi], mapped to [0, 1]; values outside are clipped"] = None
    mean: Annotated[Finite | None, "public; (value − mean)/scale in place of the value"] = None
    scale: Annotated[Finite | None, Field(gt=0), "public; goes with mean"] = None
    clip: Annotated[Finite | None, Field(gt=0), "with mean: at most so many scales; 5 if not set"] = None

    def __post_init__(self) -> None:
        if (self.range is None) == (self.mean is None) or (self.mean is None) != (self.scale is None):
            raise ValueError("a numeric column has either range = [lo, hi] or mean and scale")
        if self.range is not None and self.clip is not None:
            raise ValueError("clip goes with mean and scale; a range is clipped at its ends")

    def _raw(self, values: Any) -> Numbers:
        return floats(values)

    def _affine(self) -> tuple[float, float, float, float]:
        if self.range is not None:
            return self.range[0], self.range[1] - self.range[0], 0.0, 1.0
        clip = self.clip or 5.0
        return self.mean or 0.0, self.scale or 1.0, -clip, clip


@kinds.register("categorical")
class Categorical(Column):
    """One of some declared levels: a 0 or 1 for each."""

    levels: Annotated[list[Level], Field(min_length=1), "public; values that are told apart"]
    other: Annotated[bool, "a number more, 1 for values that are no level; else these are all 0"] = False

    types: ClassVar[tuple[str, ...]] = (*Column.types, "date")

    def __post_init__(self) -> None:
        if len(set(self._texts())) < len(self.levels):
            raise ValueError("levels must differ, also in more than spaces around them")

    def _texts(self) -> list[str]:
        return [level_text(level) for level in self.levels]

    def numbers(self, name: str) -> list[str]:
        return [*(f"{name}={level}" for level in self._texts()), *([f"{name} other"] if self.other else [])]

    def encode(self, values: Any, out: Floats) -> tuple[Mask, Mask]:
        words = texts(values)
        at = positions(words, self._texts())
        known = at >= 0
        missing = ~known & is_missing(words)
        other = ~known & ~missing
        out[np.flatnonzero(known), at[known]] = 1
        if self.other:
            out[other, len(self.levels)] = 1
        return missing, other

    @property
    def unexpected(self) -> str:
        return f"values that are no level {'count as other' if self.other else 'are 0 in all'}"


@kinds.register("boolean")
class Boolean(Column):
    """True or false (also 1 or 0, yes or no): 1 or 0."""

    def encode(self, values: Any, out: Floats) -> tuple[Mask, Mask]:
        from pyarrow import compute

        at = positions(compute.utf8_lower(texts(values)), [*YES, *NO])
        out[:, 0] = (at >= 0) & (at < len(YES))
        return at < 0, np.zeros(len(at), bool)


@kinds.register("date")
class Date(_Interval):
    """A day in a public range of days, which becomes [0, 1]; of a time of day the day counts."""

    range: Annotated[list[str], Field(min_length=2, max_length=2), "public first and last day: 2024-01-31"]

    types: ClassVar[tuple[str, ...]] = ("date", "timestamp", "null", *WORDS)

    def __post_init__(self) -> None:
        if not _number(self.range[0], day) < _number(self.range[1], day):
            raise ValueError("range must be two days as 2024-01-31, the earlier first")

    def _raw(self, values: Any) -> Numbers:
        import pyarrow as pa

        if is_type(values.type, "date", "timestamp"):
            values = values.cast(pa.date32(), safe=False).cast(pa.int32())
        return floats(values, day)

    def _affine(self) -> tuple[float, float, float, float]:
        first, last = map(day, self.range)
        return first, last - first, 0.0, 1.0


def _in_full(value: Any) -> Any:
    """The table of a short form: `"boolean"`, `[lo, hi]`, `["a", "b"]`, or a table without a kind."""
    if isinstance(value, str):
        return {"kind": value}
    if isinstance(value, Sequence):
        value = {"levels" if any(isinstance(_iso(one), str) for one in value) else "range": value}
        if len(value.get("levels", ())) == 2 and all(is_day(_iso(one)) for one in value["levels"]):
            value = {"range": value["levels"]}
    if not isinstance(value, Mapping):
        return value
    table = {key: [*map(_iso, v)] if isinstance(v, list | tuple) else v for key, v in value.items()}
    if "kind" not in table and {"levels", "range", "mean", "scale"} & set(table):
        ends = table.get("range")
        dates = isinstance(ends, list) and bool(ends) and all(map(is_day, ends))
        return {"kind": "categorical" if "levels" in table else "date" if dates else "numeric", **table}
    return table


def _iso(value: Any) -> Any:
    """TOML has dates of its own."""
    if isinstance(value, datetime.datetime):
        value = value.date()
    return value.isoformat() if isinstance(value, datetime.date) else value


def _bounded(schema: dict[str, Column]) -> dict[str, Column]:
    if not schema:
        raise UserError("data.columns declares no column; name at least one, or leave the table out")
    width = sum(len(column.levels) if isinstance(column, Categorical) else 1 for column in schema.values())
    if width > MOST_COLUMNS:
        what = f"data.columns makes {width} numbers of a record, and at most {MOST_COLUMNS} are taken"
        raise UserError(f"{what}; declare fewer levels, and let the rest be other")
    return schema


Schema = Annotated[dict[str, Annotated[Column, kinds, BeforeValidator(_in_full)]], AfterValidator(_bounded)]
Columns = Annotated[Schema | None, "what each column may hold, its range or levels: see docs/tables.md"]


def check_declared_once(data: Any) -> None:
    """Refuse a table [data] with two declarations of one column."""
    schema = data.schema
    if schema is None:
        return
    for key in ("ranges", "features"):
        if getattr(data, key, None) is not None:
            raise UserError(f"data.{key} is part of data.columns, by name; leave it out")
    for key in ("label", "owner", "person"):
        named = getattr(data, key, None)
        for name in named if isinstance(named, list) else [named]:
            if name in schema:
                raise UserError(f"data.columns.{name} is data.{key}, no feature; leave it out there")


def number_names(schema: Mapping[str, Column]) -> list[str]:
    """The numbers of a record, in the order of the declaration, not of a file."""
    return [number for name, column in schema.items() for number in column.all_numbers(name)]


def encode_into(where: str, schema: Mapping[str, Column], table: Mapping[str, Any], out: Floats) -> Floats:
    """Write the numbers of a table's Arrow columns, by name, into an array of zeros: (rows, numbers)."""
    at = 0
    for name, column in schema.items():
        values = plain(table[name])
        if not column.fits(values.type):
            what = f"{where}: column {name!r} holds values of type {values.type}"
            raise UserError(f"{what}, and data.columns.{name} is {column.kind}; declare it as what it is")
        width = len(column.numbers(name))
        missing, _ = column.encode(values, out[:, at : at + width])
        at += width
        if column.missing:
            out[:, at] = missing
            at += 1
        elif missing.any():
            what = f"{where}: column {name!r} has rows without a value, or with one that is not {column.kind}"
            raise UserError(f"{what}; set data.columns.{name}.missing = true, or fill them")
    return out


def kind_of(arrow_type: Any) -> str:
    """The kind of column that Arrow's type suggests."""
    suggested = {"boolean": ("boolean",), "date": ("date", "timestamp"), "numeric": NUMBERS}
    return next((kind for kind, names in suggested.items() if is_type(arrow_type, *names)), "categorical")


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
