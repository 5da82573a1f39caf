"""Does a file hold what was declared of it? For whoever holds it: names, types and facts, never a value of a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.data.columns import Column, plain
from gossamer.data.tables import (
    ARROW,
    BATCH,
    column_names,
    declared_csv,
    first_types,
    in_parts,
    refuse_twice,
    unreadable,
)

_GAPS = "has gaps, or values that are not {kind}: set missing = true"


@dataclass(frozen=True)
class Finding:
    """About one column, or about the file; `must`: a run would refuse it."""

    column: str
    kind: str  # as it was declared, else the type of its values
    said: str
    must: bool = False


def fits(file_kind: str, path: Path, schema: Mapping[str, Column]) -> list[Finding]:
    """Every declared column of the file, one after the other."""
    names = column_names(file_kind, path)
    refuse_twice(path, names)
    absent = [Finding(n, c.kind, "is not in the file", True) for n, c in schema.items() if n not in names]
    there = {name: column for name, column in schema.items() if name in names}
    said: dict[str, dict[str, bool]] = {name: {} for name in there}
    for batch in _parts(file_kind, path, there) if there else ():
        for name, column in there.items():
            for sentence, must in _of_values(column, plain(batch[name])):
                said[name][sentence] = must
    found = [
        Finding(name, there[name].kind, sentence, must)
        for name, sentences in said.items()
        for sentence, must in (sentences or {"fits": False}).items()
    ]
    return [*absent, *found]


def _of_values(column: Column, values: Any) -> Iterator[tuple[str, bool]]:
    if not column.fits(values.type):
        yield f"holds values of type {values.type}, which cannot be {column.kind}", True
        return
    missing = column.encode(values, np.zeros((len(values), len(column.numbers(""))), np.float32))
    if missing.all() and len(values):
        yield f"has no value that is {column.kind}", not column.missing
    elif missing.any() and not column.missing:
        yield _GAPS.format(kind=column.kind), True
    if (surprise := column.surprise(values)) is not None:
        yield surprise, False


def _parts(file_kind: str, path: Path, schema: Mapping[str, Column]) -> Iterator[Mapping[str, Any]]:
    if file_kind == "csv":
        yield declared_csv(path, schema, [])
        return

    try:
        with path.open("rb") as file:
            for batch in in_parts(file).iter_batches(BATCH, columns=list(schema)):
                yield {name: batch.column(name) for name in schema}
    except ARROW as error:
        raise unreadable("parquet", path, error) from None  # its words may quote a record


def types_of(file_kind: str, path: Path) -> dict[str, str]:
    """Column → numeric, categorical, boolean or date, by its type alone."""
    return {name: _kind_of(arrow_type) for name, arrow_type in first_types(file_kind, path).items()}


def _kind_of(arrow_type: Any) -> str:
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
# From names and types alone; what is label, owner or person is left out.
# range: the lowest and the highest that everybody may know, or the days.
# levels: all that are to be told apart; other = true keeps the rest as one.
# missing = true in every column that may have gaps."""


def skeleton(kinds: Mapping[str, str], without: Sequence[str | None]) -> list[str]:
    """A `[data.columns]` to be filled in, from names and types alone: no level and no range is read off."""
    columns = [f"{_key(name)} = {_BLANKS[kind]}" for name, kind in kinds.items() if name not in without]
    return [*_HINT.splitlines(), "[data.columns]", *columns]


def _key(name: str) -> str:
    """As TOML writes it."""
    if name and name.isascii() and name.replace("_", "").replace("-", "").isalnum():
        return name
    plain_enough = "".join(
        f"\\u{ord(c):04x}" if c in '"\\' or ord(c) < 32 or ord(c) == 127 else c for c in name
    )
    return f'"{plain_enough}"'
