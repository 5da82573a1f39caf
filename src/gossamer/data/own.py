"""The user's own records: CSV, Parquet or npz. Private until told otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.data import decode
from gossamer.data.dataset import Array, Dataset
from gossamer.data.digest import digest
from gossamer.data.scaling import Floats, to_ranges
from gossamer.data.values import one_of, whole
from gossamer.errors import UserError

TASKS = ("classification", "regression")


@dataclass(frozen=True)
class Records:
    """One file's features, raw labels and raw owners, before labels get their ids."""

    x: Floats
    y: Array
    owner: Array | None
    columns: list[str]  # empty for images


def table(
    file_kind: str,
    *,
    path: str,
    label: str,
    data_dir: Path | None = None,
    features: Sequence[str] | None = None,
    owner: str | None = None,
    test: str | None = None,
    task: str | None = None,
    classes: int | Sequence[Any] | None = None,
    ranges: Mapping[str, Sequence[float]] | None = None,
) -> Dataset:
    """A CSV or Parquet file, one record a line.

    Args:
        label: the column to predict.
        features: the columns to predict from; all but label and owner when absent.
        owner: a column whose values become the partition over nodes.
        test: a separate hold-out file that is declared public.
        task: inferred when absent: whole numbers, words and truth values are classes, other numbers targets.
        classes: their number (labels are already 0, 1, …) or the list of all labels. When absent it is read
            off the training labels, which makes it depend on private records.
        ranges: public [lo, hi] per column, mapped to [0, 1].
    """
    train = _read_table(file_kind, _existing("data.path", path, data_dir), label, features, owner)
    held_out = None
    if test is not None:
        held_out = _read_table(file_kind, _existing("data.test", test, data_dir), label, train.columns, None)
    return _assemble(
        file_kind, train, held_out, task=task, classes=classes, ranges=ranges, public_test=test is not None
    )


def arrays(
    *,
    path: str,
    data_dir: Path | None = None,
    owner: str | None = None,
    test: str | None = None,
    task: str | None = None,
    classes: int | Sequence[Any] | None = None,
    ranges: Mapping[str, Sequence[float]] | None = None,
) -> Dataset:
    """An npz file with x_train and y_train (or x and y), perhaps x_test and y_test; `owner` names an array.

    x is a table (N, p), or images (N, H, W), (N, C, H, W) or (N, H, W, C) with C = 1 or 3; uint8 images are
    divided by 255. A hold-out inside the file is used but not public; one in a file of its own (`test`) is.
    """
    file = _existing("data.path", path, data_dir)
    raw = _load_npz(file)
    train = _from_arrays(file, raw, ("x_train", "x"), ("y_train", "y"), owner)
    held_out = None
    if test is not None:
        public = _existing("data.test", test, data_dir)
        held_out = _from_arrays(public, _load_npz(public), ("x_test", "x"), ("y_test", "y"), None)
    elif "x_test" in raw:
        held_out = _from_arrays(file, raw, ("x_test",), ("y_test",), None)
    return _assemble(
        "npz", train, held_out, task=task, classes=classes, ranges=ranges, public_test=test is not None
    )


def _existing(key: str, value: str, data_dir: Path | None) -> Path:
    """A path as given, or inside the data folder."""
    path = Path(value).expanduser()
    if data_dir is not None and not path.exists():
        path = data_dir / path
    if not path.is_file():
        raise UserError(f"{key} = {str(value)!r} is no file: give the path of an existing one")
    return path


def _read_table(
    file_kind: str, path: Path, label: str, features: Sequence[str] | None, owner: str | None
) -> Records:
    columns = _columns(file_kind, path)
    for key, name in [("label", label), ("owner", owner), *(("features", name) for name in features or ())]:
        if name is not None and name not in columns:
            raise UserError(f"data.{key} = {name!r} is no column of {path.name}: it has {', '.join(columns)}")
    chosen = (
        list(features) if features is not None else [name for name in columns if name not in (label, owner)]
    )
    if not chosen:
        raise UserError(
            f"data.features leaves no column of {path.name} to learn from: it has {', '.join(columns)}"
        )
    if label in chosen:
        raise UserError(f"data.features must not contain the label {label!r}")
    if len(set(chosen)) < len(chosen):
        raise UserError(f"data.features = {chosen} names a column twice")

    rows = len(columns[label])
    if not rows:
        raise UserError(f"{path.name} has no rows: give a file with records")
    needed = {*chosen, label} | ({owner} if owner else set())
    _refuse_missing(path, rows, {name: columns[name].null_count for name in columns if name in needed})
    words = [name for name in chosen if not _is_numeric(columns[name].type)]
    if words:
        raise UserError(
            f"{path.name} has non-numeric feature columns {', '.join(words)}: name others in data.features"
        )
    x = np.empty((rows, len(chosen)), np.float32)
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite and is refused by name
        for position, name in enumerate(chosen):
            x[:, position] = _numpy(columns[name])
    _refuse_non_finite(path, x, chosen)
    y = _numpy(columns[label])
    if y.dtype.kind == "f":
        _refuse_non_finite(path, y[:, None], [label])
    return Records(x, y, _numpy(columns[owner]) if owner else None, chosen)


def _columns(file_kind: str, path: Path) -> dict[str, Any]:
    """The columns of a file by name, as Arrow arrays."""
    import pyarrow as pa

    try:
        if file_kind == "csv":
            from pyarrow import csv

            # One block: Arrow fixes a column's type by the first, and fractions may follow whole numbers.
            block = min(max(path.stat().st_size + 1, 1 << 20), 1 << 30)
            read = csv.ReadOptions(block_size=block)
            found: Any = csv.read_csv(
                path, read, convert_options=csv.ConvertOptions(strings_can_be_null=True)
            )
        else:
            from pyarrow import parquet

            with path.open("rb") as file:  # one file, whatever folder it lies in
                found = parquet.read_table(file)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0][:160]
        raise UserError(f"{path.name} is not readable as {file_kind}: {reason}") from error
    twice = sorted({name for name in found.column_names if found.column_names.count(name) > 1})
    if twice:
        raise UserError(f"{path.name} has two columns named {twice[0]!r}: give each a name of its own")
    return {name: found.column(name) for name in found.column_names}


def _is_numeric(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)


def _numpy(column: Any) -> Array:
    """A column without missing values as a numpy array of numbers, truth values or words."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_decimal(kind):
        kind = pa.float64()
    if not _is_numeric(kind):
        return np.asarray(column.cast(pa.string()).to_pylist(), dtype=np.str_)
    return np.asarray(column.cast(kind).to_numpy())


def _load_npz(path: Path) -> dict[str, Array]:
    try:
        return decode.npz(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path.name} is not readable as npz: {str(error).splitlines()[0][:160]}") from error


def _from_arrays(
    path: Path, raw: Mapping[str, Array], x_names: Sequence[str], y_names: Sequence[str], owner: str | None
) -> Records:
    def pick(names: Sequence[str]) -> Array:
        for name in names:
            if name in raw:
                return raw[name]
        raise UserError(f"{path.name} has no array {' or '.join(names)}: it has {', '.join(raw)}")

    x, y = pick(x_names), pick(y_names)
    owners = pick([owner]) if owner else None
    for name, array in [(y_names[0], y), *([(owner, owners)] if owner and owners is not None else [])]:
        if array.shape != (len(x),):
            raise UserError(
                f"{path.name}: {name} has shape {array.shape} where one value per row needs ({len(x)},)"
            )
    if x.ndim not in (2, 3, 4) or x.dtype.kind not in "iufb":
        raise UserError(
            f"{path.name}: x has shape {x.shape} and dtype {x.dtype}, give numbers as (N, p) or images"
        )
    if y.dtype.kind not in "iufbUS":
        raise UserError(f"{path.name}: y has dtype {y.dtype}, give numbers or words")
    if not len(x):
        raise UserError(f"{path.name} has no rows: give a file with records")
    columns = [str(column) for column in range(x.shape[1])] if x.ndim == 2 else []
    features = _images(x) if x.ndim > 2 else _float32(x)
    _refuse_non_finite(path, features.reshape(len(x), -1), columns or ["x"])
    if y.dtype.kind == "f":
        _refuse_non_finite(path, y[:, None], [y_names[0]])
    return Records(features, y, owners, columns)


def _images(x: Array) -> Floats:
    """(N, C, H, W), whichever of the common layouts came."""
    scaled = _float32(x) / np.float32(255) if x.dtype == np.uint8 else _float32(x)
    if x.ndim == 3:
        return scaled[:, None]
    if x.shape[1] not in (1, 3) and x.shape[3] in (1, 3):
        return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))
    return scaled


def _float32(x: Array) -> Floats:
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite and is refused by name
        return np.ascontiguousarray(x, dtype=np.float32)


def _refuse_missing(path: Path, rows: int, missing: Mapping[str, int]) -> None:
    for name, count in missing.items():
        if count:
            raise UserError(
                f"{path.name}: column {name!r} has no value in {count} of {rows} rows: fill or remove them"
            )


def _refuse_non_finite(path: Path, values: Array, columns: Sequence[str]) -> None:
    bad = ~np.isfinite(values.astype(np.float32, copy=False))
    if not bad.any():
        return
    column = int(bad.any(axis=0).argmax()) if len(columns) > 1 else 0
    count = int(bad[:, column].sum() if len(columns) > 1 else bad.any(axis=1).sum())
    raise UserError(
        f"{path.name}: column {columns[column]!r} is NaN or infinite in {count} of {len(values)} rows: "
        "fill or remove them"
    )


def _assemble(
    name: str,
    train: Records,
    held_out: Records | None,
    *,
    task: str | None,
    classes: int | Sequence[Any] | None,
    ranges: Mapping[str, Sequence[float]] | None,
    public_test: bool,
) -> Dataset:
    if held_out is None:
        held_out = replace(train, x=train.x[:0], y=train.y[:0], owner=None)
    if held_out.x.shape[1:] != train.x.shape[1:]:
        raise UserError(
            f"data.test holds records of shape {held_out.x.shape[1:]}: it must be {train.x.shape[1:]} as in "
            "training"
        )
    kind = "regression" if train.y.dtype.kind == "f" else "classification"
    if task is not None:
        kind = one_of("data.task", task, TASKS)
    labels: dict[str, Array] = {}
    count: int | None = None
    note = "private records: the digest stays on the node"
    if kind == "regression":
        labels = {"y_train": _targets(train.y), "y_test": _targets(held_out.y)}
    else:
        known = _known_labels(train.y, classes)
        labels["y_train"] = _ids(train.y, known, "data.label", "the declared data.classes")
        where = "the training labels" if classes is None else "the declared data.classes"
        labels["y_test"] = _ids(held_out.y, known, "data.test", where)
        count = len(known)
        note += "; classes declared" if classes is not None else "; classes read off the training labels"
    owner = None if train.owner is None else np.unique(train.owner, return_inverse=True)[1].astype(np.int64)
    parts = {
        "x_train": train.x,
        "y_train": labels["y_train"],
        "x_test": held_out.x,
        "y_test": labels["y_test"],
    }
    scaled = [train.x, held_out.x]
    if ranges:
        scaled = [to_ranges(x, train.columns, ranges) for x in scaled]
    return Dataset(
        name=name,
        x_train=scaled[0],
        y_train=labels["y_train"],
        x_test=scaled[1],
        y_test=labels["y_test"],
        classes=count,
        public_test=public_test,
        owner=owner,
        provenance={"source": "own file", "sha256": digest(parts), "note": note},
    )


def _targets(y: Array) -> npt.NDArray[np.float32]:
    if y.dtype.kind not in "iufb":
        raise UserError("data.task = 'regression' needs numbers as labels: the label column holds words")
    return y.astype(np.float32)


def _known_labels(y: Array, classes: int | Sequence[Any] | None) -> Array:
    """All labels in the order of their ids."""
    if classes is None:
        known = np.unique(_class_labels(y))
        if len(known) < 2:
            raise UserError(
                f"data.label has the one value {known[0].item()!r}: declare data.classes or choose another"
            )
        return known
    if isinstance(classes, (list, tuple)):
        declared = np.asarray(classes)
        if len(declared) < 2 or declared.ndim != 1 or len(np.unique(declared)) < len(declared):
            raise UserError(f"data.classes = {list(classes)} must list at least two different labels")
        return declared
    return np.arange(whole("data.classes", classes, at_least=2))


def _class_labels(y: Array) -> Array:
    if y.dtype.kind != "f":
        return y
    if not np.all(y == np.round(y)):
        raise UserError(
            "data.task = 'classification' needs whole numbers or words as labels: the column has fractions"
        )
    return y.astype(np.int64)


def _ids(y: Array, known: Array, key: str, where: str) -> npt.NDArray[np.int64]:
    """The position of every label in `known`."""
    y = _class_labels(y)
    if (y.dtype.kind in "US") != (known.dtype.kind in "US"):
        y, known = y.astype(np.str_), known.astype(np.str_)
    order = np.argsort(known)
    position = np.minimum(np.searchsorted(known, y, sorter=order), len(known) - 1)
    ids: npt.NDArray[np.int64] = order[position].astype(np.int64)
    strange = np.unique(y[known[ids] != y])
    if len(strange):
        shown = ", ".join(repr(value.item()) for value in strange[:5])
        raise UserError(f"{key} has labels that are not among {where}: {shown}")
    return ids
