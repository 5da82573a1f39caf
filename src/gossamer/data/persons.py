"""Whose a record is. Ids are compared as people would: spaces, case, leading zeros and ".0" make no other person.

Two ids that are taken for one are protected together, as one person: never less. Two ids of one person that are taken
for two would be, so wherever a form of writing may be the same, it is. A record without an id may be anybody's and is
refused. From an id comes a number by a hash, the same in every file, so that persons can be found again across them.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
import numpy.typing as npt

from gossamer.data.dataset import Array
from gossamer.errors import UserError

Numbers = npt.NDArray[np.int64]


def numbers_of(ids: Array, name: str, where: str) -> Numbers:
    """One number for each id; a sentence where one is missing. No id is ever named."""
    different, inverse = np.unique(ids, return_inverse=True)
    forms = [_form(value) for value in different.tolist()]
    missing = np.array([form is None for form in forms], dtype=bool)
    if missing.any():
        raise UserError(
            f"{where}: column {name!r} names nobody in some rows, and such a row may be anybody's: fill or remove them"
        )
    known = np.array([_number(form or "") for form in forms], dtype=np.int64)
    return known[inverse.reshape(-1)]


def _form(value: object) -> str | None:
    """The id in the one form in which ids are compared; None where there is none."""
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


def _number(form: str) -> int:
    return int.from_bytes(hashlib.blake2b(form.encode(), digest_size=8).digest(), "big", signed=True)


def grouped(rows: Numbers, person: Numbers, most: int) -> tuple[Numbers, Numbers]:
    """(one node's rows, person after person and at most so many of each; how many each has).

    Persons come in the order of their first row and keep their rows' order: which rows of a person are used follows
    from its own alone.
    """
    own = person[rows]
    _, first, inverse = np.unique(own, return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(first))[inverse.reshape(-1)]  # of the person, by its first row
    order = np.argsort(place, kind="stable")
    sorted_place = place[order]
    within = np.arange(len(rows)) - np.searchsorted(sorted_place, sorted_place)
    kept = order[within < most]
    return rows[kept], np.bincount(place[kept], minlength=len(first)).astype(np.int64)


def dealt(pieces: Sequence[Numbers], person: Numbers) -> list[Numbers]:
    """Rows of every node, sorted, from its persons: places in the order of the persons' first rows."""
    _, first, inverse = np.unique(person, return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(first))[inverse.reshape(-1)]
    return [np.flatnonzero(np.isin(place, piece)) for piece in pieces]


def count(person: Numbers) -> int:
    return len(np.unique(person))


def most_sites(pieces: Sequence[Numbers], person: Numbers) -> int:
    """At how many nodes the same person is, at the most; 0 while a study is packed, without records."""
    each = np.concatenate([person[:0], *(np.unique(person[rows]) for rows in pieces)])
    return int(np.unique(each, return_counts=True)[1].max(initial=0))
