"""What another rank states is its own word until its form has been looked at: types, ranges, lengths, characters.

A form takes what JSON gave and returns it, or raises a `FormError` that says what was due and repeats nothing of what
came: a rank's mistake may hold what must not be shown here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

Form = Callable[[Any], Any]
LONGEST = 400  # characters of a sentence
_HEX = re.compile(r"[0-9a-f]+")


class FormError(Exception):
    """The text says what was due."""


def parsed(text: bytes) -> list[Any]:
    """The JSON list of a rank."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise FormError("it is not JSON") from None
    if not isinstance(found, list):
        raise FormError("it is not a list")
    return found


def number(value: Any) -> float:
    """Finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise FormError("a finite number was due")
    return value


def bound(value: Any) -> float:
    """From 0 to ∞: an ε, which is infinite where nothing is proven."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise FormError("a number from 0 to ∞ was due")
    return value


def any_number(value: Any) -> float:
    """NaN and ∞ too: figures of a run that went astray."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormError("a number was due")
    return value


def count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise FormError("a count was due")
    return value


def yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise FormError("true or false was due")
    return value


def sentence(value: Any) -> str:
    """Short, printable: no control characters, which a terminal would obey, and no mark-up."""
    if (
        not isinstance(value, str)
        or len(value) > LONGEST
        or not value.isprintable()
        or set(value) & set("<>")
    ):
        raise FormError(f"a sentence of at most {LONGEST} printable characters was due")
    return value


def file_name(value: Any) -> str:
    """Of a file in a folder that is given: it leads nowhere else."""
    if sentence(value) in ("", ".", "..") or set(value) & set("/\\"):
        raise FormError("a file's name was due")
    return str(value)


def shown(text: str) -> str:
    """Of a note that anybody of the run may have written: without what a terminal would obey, and not too much."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: 5 * LONGEST])


def words(value: Any) -> str:
    """Any text, of a process of this machine."""
    if not isinstance(value, str):
        raise FormError("a text was due")
    return value


def one_of(*known: str) -> Form:
    def form(value: Any) -> str:
        if value not in known:
            raise FormError(f"one of {', '.join(known)} was due")
        return str(value)

    return form


def hexadecimal(digits: int) -> Form:
    def form(value: Any) -> str:
        if not isinstance(value, str) or len(value) != digits or not _HEX.fullmatch(value):
            raise FormError(f"{digits} hexadecimal digits were due")
        return value

    return form


def maybe(form: Form) -> Form:
    return lambda value: None if value is None else form(value)


def list_of(form: Form) -> Form:
    def lists(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise FormError("a list was due")
        return [form(item) for item in value]

    return lists


def row(*forms: Form) -> Form:
    def rows(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) != len(forms):
            raise FormError(f"{len(forms)} items were due")
        return [form(item) for form, item in zip(forms, value, strict=True)]

    return rows


def record(forms: Mapping[str, Form]) -> Form:
    """Exactly these keys."""

    def records(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or value.keys() != forms.keys():
            raise FormError(f"a record of {', '.join(forms)} was due")
        found = {}
        for key, form in forms.items():
            try:
                found[key] = form(value[key])
            except FormError as error:
                raise FormError(f"{key}: {error}") from None
        return found

    return records
