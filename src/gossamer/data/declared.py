"""The columns of a table as `[data.columns]` declares them all, and the numbers of its records.

Public: it stands in the configuration, in model.json and in the certificate, and is the same at every node whatever the
order of the columns in its own file.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field

from gossamer.data.columns import Categorical, Column, kinds
from gossamer.data.limits import MOST_COLUMNS, listed
from gossamer.data.scaling import Floats
from gossamer.data.values import is_day, plain
from gossamer.errors import UserError


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
