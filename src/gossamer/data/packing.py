"""Records of several parts, such as tokens and a mask, as rows of numbers with a public layout.

Everything behind this takes one tensor x (N, p). What a module takes, in its arguments' order or by their names, is
split out of x again right before it is called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from gossamer.data.arrays import Array, Floats, at_most, listed
from gossamer.data.tables import array_of
from gossamer.errors import UserError
from gossamer.options.sentences import whole_number
from gossamer.options.types import Count

Type = Literal["float", "int", "bool"]
MASK = "mask"
MOST_EXACT = 1 << 24  # whole numbers up to this are exact in float32


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a record, one of a module's arguments."""

    name: Annotated[str | int, "the argument's name, or its place"]
    type: Annotated[Type, "of its numbers"] = "float"
    shape: Annotated[list[Count], "of one record's; of sequences, the first is the declared length"]
    padded: Annotated[bool, "are they sequences that are filled up with 0 or cut to that length?"] = False
    marks: Annotated[bool, "is it the mask of the padded ones, True where they have an entry?"] = False


def is_several(x: Any, rows: int | None = None) -> bool:
    """Is it a dictionary of arrays by name, a tuple of arrays, or sequences of different lengths?"""
    if isinstance(x, Mapping):
        return True
    if isinstance(x, tuple) and x and rows is not None:
        return len(x) != rows and all(map(_is_array, x))
    return _is_ragged(x)


def unnested(x: Any) -> Any:
    """A list of sequences in place of a nested tensor, also where it is a part of x."""
    if isinstance(x, Mapping):
        return {name: unnested(part) for name, part in x.items()}
    if isinstance(x, tuple):
        return tuple(map(unnested, x))
    return [*x.unbind()] if getattr(x, "is_nested", False) else x


def layout_of(x: Any, length: int | None) -> list[Part]:
    """The parts of records; `length`: the declared one of their sequences, which is not read off them."""
    if length is None:
        refuse_undeclared_length(x, None, "data=")
    alone = not isinstance(x, Mapping | tuple)  # one array is sequences too, where a length is declared
    parts = [_part(name, value, length, alone) for name, value in _named(x)]
    padded = [part for part in parts if part.padded]
    if padded and not any(MASK in str(part.name) for part in parts):
        named = MASK if isinstance(x, Mapping) else len(parts)
        parts.append(Part(name=named, type="bool", shape=padded[0].shape[:1], marks=True))
    return parts


def packed(x: Any, layout: Sequence[Part], where: str) -> Floats:
    """(N, p): the parts of each record side by side."""
    due, given = [part for part in layout if not part.marks], dict(_named(x))
    names = [part.name for part in due]
    if {*given} != {*names} or len(given) != len(due):
        raise UserError(f"{where} has the parts {listed(given)}; it must have {listed(names)}.")
    values = [given[name] for name in names]
    records = len(values[0])
    columns, lengths = [], None
    for part, value in zip(due, values, strict=True):
        name = f"{where}: part {part.name}"
        numbers = array_of(name, value) if not part.padded else _filled(name, value, part)
        if numbers.dtype.kind not in "iufb" or numbers.shape != (records, *part.shape):
            wanted = ", ".join(map(str, (records, *part.shape)))
            raise UserError(f"{name} is {numbers.dtype} of shape {numbers.shape}; give numbers ({wanted}).")
        if part.type == "int" and numbers.size and np.abs(numbers).max() > MOST_EXACT:
            raise UserError(f"{name} has numbers above {MOST_EXACT:,}, not kept exactly; give others.")
        floats = numbers.reshape(records, math.prod(part.shape)).astype(np.float32)
        if not np.isfinite(floats).all():
            raise UserError(f"{name} has values that are NaN or infinite; fill them, or leave their records out.")
        columns.append(floats)
        if part.padded and len(due) < len(layout):
            own = [len(row) for row in value]
            if lengths is not None and own != lengths:
                raise UserError(f"{where} has records with sequences of two lengths; give a part named mask.")
            lengths = own
    if lengths is not None:
        places = np.arange(layout[-1].shape[0])
        columns.append((places < np.array(lengths).reshape(-1, 1)).astype(np.float32))
    return np.hstack(columns)


def refuse_undeclared_length(x: Any, layout: Sequence[Part] | None, where: str) -> None:
    """Refuse sequences of different lengths: the longest of private records is private, so no length is read off."""
    if any(part.padded for part in layout or ()):
        return
    for name, value in _named(x):
        if _is_ragged(value):
            remedy = "declare the length that they are cut or filled up to, gossamer.Data(…, length=…)"
            raise UserError(f"{where}: part {name} has sequences of different lengths; {remedy}.")


def _named(x: Any) -> list[tuple[str | int, Any]]:
    """Each part with its name or its place."""
    if isinstance(x, Mapping):
        return [(str(name), value) for name, value in x.items()]
    return [*enumerate(x if isinstance(x, tuple) else (x,))]


def _part(name: str | int, value: Any, length: int | None, alone: bool) -> Part:
    what = f"data=: part {name}"
    if length is not None:
        at_most("length", whole_number("length", length), 1 << 20)
    if not hasattr(value, "__len__"):
        raise UserError(f"{what} is of type {type(value).__name__}; give an array with a row a record.")
    if len(value) == 0:
        raise UserError(f"{what} has no rows; give each node at least one record.")
    first = array_of(what, value[0]) if isinstance(value, list) else array_of(what, value[:1])[0]
    first = np.asarray(first)  # of objects it may be a list
    kinds: dict[str, Type] = {"b": "bool", "i": "int", "u": "int"}
    kind: Type = kinds.get(first.dtype.kind, "float")
    if length is not None and first.ndim > 0 and (alone or isinstance(value, list) or _is_ragged(value)):
        return Part(name=name, type=kind, shape=[length, *first.shape[1:]], padded=True)
    return Part(name=name, type=kind, shape=[*first.shape])


def _filled(name: str, value: Any, part: Part) -> Array:
    """Sequences filled up with 0, or cut."""
    rows = [array_of(name, one) for one in value]
    numbers = np.zeros((len(rows), *part.shape), np.result_type(*rows) if rows else np.float32)
    for place, row in zip(numbers, rows, strict=True):
        if row.shape[1:] != place.shape[1:]:
            raise UserError(f"{name} has entries of shapes {row.shape[1:]} and {place.shape[1:]}.")
        place[: len(row)] = row[: len(place)]
    return numbers


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and len(value.shape) > 0


def _is_ragged(x: Any) -> bool:
    """Sequences, one a record, of which two have different lengths."""
    listing = isinstance(x, list) or (isinstance(x, np.ndarray) and x.dtype.kind == "O")
    if not listing or not all(isinstance(one, list | tuple) or _is_array(one) for one in x):
        return False
    return len({len(one) for one in x}) > 1
