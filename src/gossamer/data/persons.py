"""Persons: the ids of their records, and how their records are grouped and dealt out to nodes."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
import numpy.typing as npt

from gossamer.data.arrays import Array
from gossamer.errors import UserError

Numbers = npt.NDArray[np.int64]


def person_ids(ids: Array, column: str, table: str) -> Numbers:
    """One number for each id, the same in every table; no message names an id."""
    different, inverse = np.unique(ids, return_inverse=True)
    forms = [_normal_form(value) for value in different.tolist()]
    if None in forms:
        raise UserError(f"{table}: column {column!r} names nobody in some rows: fill or remove them")
    known = np.array([_hash(b"", (form or "").encode(), signed=True) for form in forms], dtype=np.int64)
    return known[inverse.reshape(-1)]


def _normal_form(value: object) -> str | None:
    """The form in which ids are compared; None where there is no id."""
    text = unicodedata.normalize("NFKC", str(value))
    seen = "".join(" " if c.isspace() else c for c in text if unicodedata.category(c) != "Cf")
    text = " ".join(seen.split()).casefold()
    if not text or text in ("nan", "none", "null", "na", "n/a", "<na>", "nat"):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    if not number.is_finite():
        return None if number.is_nan() else text
    return str(int(number)) if abs(number) < 10**40 and number == int(number) else text


def _hash(key: bytes, content: bytes, *, signed: bool = False) -> int:
    digest = hashlib.blake2b(content, digest_size=8, key=key).digest()
    return int.from_bytes(digest, "big", signed=signed)


def group_rows(rows: Numbers, person: Numbers, most: int) -> tuple[Numbers, Numbers]:
    """Order one node's rows by person, at most `most` of each; return them and the number of each person's.

    Persons come in the order of their first row and keep their rows' order: which rows of a person are used follows
    from its own alone.
    """
    place = _places(person[rows])
    order = np.argsort(place, kind="stable")
    sorted_place = place[order]
    within = np.arange(len(rows)) - np.searchsorted(sorted_place, sorted_place)
    chosen = order[within < most]
    return rows[chosen], np.bincount(place[chosen], minlength=count_persons(person[rows])).astype(np.int64)


def rows_of_persons(pieces: Sequence[Numbers], person: Numbers) -> list[Numbers]:
    """The rows of every node, sorted, from the places of its persons in the order of their first rows."""
    place = _places(person)
    return [np.flatnonzero(np.isin(place, piece)) for piece in pieces]


def _places(person: Numbers) -> Numbers:
    """The place of each row's person in the order of the persons' first rows."""
    _, first, inverse = np.unique(person, return_index=True, return_inverse=True)
    places: Numbers = np.argsort(np.argsort(first))[inverse.reshape(-1)]
    return places


def count_persons(person: Numbers) -> int:
    return len(np.unique(person))


def most_sites(pieces: Sequence[Numbers], person: Numbers) -> int:
    """The largest number of nodes that hold records of one person; 0 without records."""
    each = np.concatenate([person[:0], *(np.unique(person[rows]) for rows in pieces)])
    return int(np.unique(each, return_counts=True)[1].max(initial=0))


def held_out_rows(
    x: Array, y: Array, person: Numbers | None, rows: Numbers, part: float, seed: int
) -> npt.NDArray[np.bool_]:
    """Of these training rows, those for evaluation, about this part: by each record's, or person's, own hash."""
    key = f"kept out {seed}".encode()
    limit = int(part * 2**64)
    if person is None:
        return np.array([_hash(key, x[row].tobytes() + y[row].tobytes()) < limit for row in rows], dtype=bool)
    ids, inverse = np.unique(person[rows], return_inverse=True)
    drawn = np.array([_hash(key, number.tobytes()) < limit for number in ids], dtype=bool)
    return drawn[inverse.reshape(-1)] if len(rows) else np.zeros(0, bool)
