"""Tables as Arrow has them: which columns a file or a frame has, and their values by name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gossamer.data.columns import Column, Numeric
from gossamer.data.declared import encode_into, number_names
from gossamer.data.limits import room_for
from gossamer.data.mapped import zeros
from gossamer.data.scaling import Floats
from gossamer.data.values import NOTHING
from gossamer.errors import UserError

# What Arrow raises on files that are not what they say: its own exceptions are ValueErrors, KeyErrors and so on.
ARROW = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    NotImplementedError,
    IndexError,
    MemoryError,
    OverflowError,
)


def column_names(file_kind: str, path: Path) -> list[str]:
    """All names, in the order of the file, without reading its records."""
    return [name for name, _ in _named_types(file_kind, path)]


def first_types(file_kind: str, path: Path) -> dict[str, Any]:
    """Column → Arrow's type; of a CSV file as far as its first lines tell."""
    found = _named_types(file_kind, path)
    refuse_twice(path, [name for name, _ in found])
    return dict(found)


def _named_types(file_kind: str, path: Path) -> list[tuple[str, Any]]:
    try:
        if file_kind == "csv":
            from pyarrow import csv

            with csv.open_csv(path) as reader:
                return [(field.name, field.type) for field in reader.schema]
        from pyarrow import parquet

        with path.open("rb") as file:
            return [(field.name, field.type) for field in parquet.read_schema(file)]
    except ARROW as error:
        raise unreadable(file_kind, path, error) from None  # its words may quote a record


def unreadable(file_kind: str, path: Path, error: Exception) -> UserError:
    if isinstance(error, UserError):
        return error
    return UserError(f"{path.name} is not readable as {file_kind}: {_without_values(error)}")


def _without_values(error: Exception) -> str:
    """Arrow's reasons quote the line or the value that they stumbled over, and it may be anybody's."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    counted = re.search(r"Expected (\d+) columns, got (\d+)", reason)
    if counted:
        return f"a line has {counted[2]} columns where the first has {counted[1]}"
    if "conversion error" in reason:
        return "a value is of another type than those before it in its column"
    return re.sub(r"'[^']*'|\"[^\"]*\"", "…", reason)[:160]


def declared_csv(path: Path, schema: Mapping[str, Column], beside: Sequence[str]) -> dict[str, Any]:
    """The columns that are needed; words stay what they are, whatever Arrow would take for nothing or for a number."""
    import pyarrow as pa
    from pyarrow import compute, csv

    words = {name: pa.string() for name, column in schema.items() if not isinstance(column, Numeric)}
    convert = csv.ConvertOptions(
        strings_can_be_null=False, column_types=words, include_columns=[*dict.fromkeys([*schema, *beside])]
    )
    refuse_twice(path, column_names("csv", path))
    try:
        room_for(path.name, 3.0 * path.stat().st_size)
        found = columns_of(path, csv.read_csv(path, _one_block(path), convert_options=convert))
    except ARROW as error:
        raise unreadable("csv", path, error) from None  # its words may quote a record
    for name in beside:
        if pa.types.is_string(found[name].type):
            nothing = compute.is_in(compute.utf8_lower(found[name]), value_set=pa.array(NOTHING))
            found[name] = compute.if_else(nothing, pa.scalar(None, pa.string()), found[name])
    return found


def _one_block(path: Path) -> Any:
    """Arrow fixes a column's type by the first block, and fractions may follow whole numbers."""
    from pyarrow import csv

    return csv.ReadOptions(block_size=min(max(path.stat().st_size + 1, 1 << 20), 1 << 30))


BATCH = 1 << 16  # rows of a Parquet file that are turned into numbers at a time


def in_parts(file: Any) -> Any:
    """An open Parquet file, to be read in batches. Arrow would otherwise keep all bytes of it that it has read."""
    from pyarrow import parquet

    return parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 16)


def in_batches(path: Path, schema: Mapping[str, Column], *, mapped: bool | None = False) -> Floats:
    """The numbers of a Parquet file's declared columns; its records are never in memory all at once."""
    try:
        with path.open("rb") as opened:
            file = in_parts(opened)
            rows, names = file.metadata.num_rows, file.schema_arrow.names
            refuse_twice(path, names)
            out, at = zeros(path.name, (rows, len(number_names(schema))), mapped=mapped), 0
            for batch in file.iter_batches(BATCH, columns=[name for name in names if name in schema]):
                part = out[at : at + batch.num_rows]
                encode_into(path.name, schema, {name: batch.column(name) for name in schema}, part)
                at += batch.num_rows
            return out
    except ARROW as error:
        raise unreadable("parquet", path, error) from None  # its words may quote a record


def rows_in(path: Path) -> int:
    """Of a Parquet file, without reading a record."""
    from pyarrow import parquet

    try:
        with path.open("rb") as opened:
            return int(parquet.ParquetFile(opened).metadata.num_rows)
    except ARROW as error:
        raise unreadable("parquet", path, error) from None  # its words may quote a record


def columns_in(file_kind: str, path: Path, only: Sequence[str] | None = None) -> dict[str, Any]:
    """The columns of a file by name, as Arrow arrays; `only` these of a Parquet file, if not None."""
    try:
        if file_kind == "csv":
            from pyarrow import csv

            room_for(path.name, 3.0 * path.stat().st_size)
            convert = csv.ConvertOptions(strings_can_be_null=True)
            found: Any = csv.read_csv(path, _one_block(path), convert_options=convert)
        else:
            from pyarrow import parquet

            with path.open("rb") as file:  # one file, whatever folder it lies in
                facts = parquet.ParquetFile(file).metadata
                if only is None:
                    groups = [facts.row_group(i).total_byte_size for i in range(facts.num_row_groups)]
                    # As arrays of eight bytes a number, or as large as its parts say they are unpacked.
                    room_for(path.name, max(8.0 * facts.num_rows * facts.num_columns, 2.0 * sum(groups)))
                found = parquet.read_table(file, columns=None if only is None else list(only))
    except ARROW as error:
        raise unreadable(file_kind, path, error) from None  # its words may quote a record
    return columns_of(path, found)


def columns_of(path: Path, table: Any) -> dict[str, Any]:
    """The columns of an Arrow table by name."""
    refuse_twice(path, table.column_names)
    return {name: table.column(name) for name in table.column_names}


def refuse_twice(path: Path, names: Sequence[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise UserError(f"{path.name} has two columns named {twice!r}: give each a name of its own")


def of_frame(frame: Any, where: str) -> Any:
    """polars brings its own way to Arrow; of pandas Arrow knows one, and leaves the index out."""
    import pyarrow as pa

    try:
        if hasattr(frame, "to_arrow"):
            return frame.to_arrow()
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError):
        raise UserError(
            f"{where} holds a column whose values are neither all numbers nor all words: give each one type"
        ) from None


def is_frame(value: Any) -> bool:
    return hasattr(value, "columns") and (hasattr(value, "to_arrow") or hasattr(value, "iloc"))
