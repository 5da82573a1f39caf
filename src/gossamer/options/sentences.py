"""Mistakes in a configuration and in arguments of the Python API, as one sentence each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from gossamer.errors import UserError, compose, ending, nearest, short
from gossamer.options.plugins import broken_plugins

# The types of the registry's own errors.
UNKNOWN_KIND, UNKNOWN_KEY = "unknown_kind", "unknown_key"

_UNKNOWN = (UNKNOWN_KEY, "extra_forbidden")
# By pydantic's name of the mistake: its own words are about Python and about itself.
_PHRASES = {
    "greater_than": "be greater than {gt}",
    "greater_than_equal": "be at least {ge}",
    "less_than": "be less than {lt}",
    "less_than_equal": "be at most {le}",
    "too_short": "have at least {min_length} entries",
    "too_long": "have at most {max_length} entries",
    "literal_error": "be {expected}",
    "finite_number": "be a finite number",
    "string_too_short": "have at least {min_length} characters",
}
# The others by the type that they are about, which their names begin with.
_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "dict": "a table",
    "mapping": "a table",
    "dataclass": "a table",
    "model": "a table",
}


def user_error(
    error: ValidationError,
    given: Any,
    table: str = "",
    model: type[BaseModel] | None = None,
    elsewhere: Callable[[str], str | None] = lambda key: None,
    where: str | None = None,
) -> UserError:
    """The first mistake in `given`, which is under the key `table`; `model` knows the keys of plain tables.

    `elsewhere`: the key of another table that an unknown one was probably meant to be. `where`: the file.
    """
    mistakes = error.errors(include_url=False)
    # A misspelt key explains a missing one.
    mistakes.sort(key=lambda mistake: mistake["type"] not in _UNKNOWN)
    places = [_place(mistake, given) for mistake in mistakes]
    # A value that may be one thing or another has a mistake for each: the one that gets deepest says most.
    start = len(places[0])
    place = max((place for place in places if place[:start] == places[0]), key=len)
    alike = [mistake for mistake, its in zip(mistakes, places, strict=True) if its == place]
    first = alike[0]
    key: str | None = ".".join([table, *place] if table else place).replace(".[", "[") or None
    name, value, context = first["type"], first["input"], first.get("ctx", {})
    remedy = None
    if name == UNKNOWN_KIND:
        key, value, problem, remedy = _unknown_kind(key or table, value, context["kinds"].split(", "))
    elif name in _UNKNOWN:
        keys = context["keys"].split(", ") if name == UNKNOWN_KEY else _keys(model, place[:-1])
        kind = _kind_of(given, place[:-1])
        problem = f"is not a key of kind '{kind}'" if kind else "is not a key I know"
        value, remedy = None, _known_keys(key or "", [k for k in keys if k], elsewhere)
    elif name == "missing":
        kind = _kind_of(given, place[:-1])
        value, problem, remedy = None, "is missing", f"kind '{kind}' needs it" if kind else "it must be set"
    elif name == "value_error":
        cause, problem = context.get("error"), first["msg"].removeprefix("Value error, ").rstrip(".")
        if key is None or isinstance(cause, UserError):  # a sentence with its own key
            sentence = problem if problem.endswith("?") else f"{problem}."
            return UserError(f"{where}: {sentence}" if where else sentence)
        problem, remedy = "does not fit", problem
    else:
        wanted = list(dict.fromkeys(_expected(mistake) for mistake in alike))
        problem = f"must {' or '.join([wanted[0], *(w.removeprefix('be ') for w in wanted[1:])])}"
    shown = None if isinstance(value, Mapping) else value
    sentence = compose(key, shown, problem, remedy)
    return UserError(f"{where}: {sentence}" if where else sentence)


def as_path(name: str, value: Any) -> Path | None:
    """An argument of the Python API that names a file or folder."""
    if value is None or (isinstance(value, str | Path) and "\0" not in str(value)):
        return None if value is None else Path(value)
    raise UserError(f"{name} = {short(value)} must be a path, as text or pathlib.Path.")


def as_mapping(name: str, value: Any) -> dict[str, Any]:
    """An argument of the Python API with dotted keys."""
    if not isinstance(value or {}, Mapping) or any(not isinstance(key, str) for key in value or {}):
        raise UserError(f'{name} = {short(value)} must be a dictionary by dotted keys, for example {{"rounds": 50}}.')
    return dict(value or {})


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """An argument of the Python API that counts something; numpy's whole numbers are some."""
    if not isinstance(value, bool) and isinstance(value, int | np.integer) and value >= least:
        return int(value)
    key = f"{name} " if name.startswith("--") else f"{name} = "
    raise UserError(f"{key}{short(value)} must be a whole number of at least {least}.")


def _expected(mistake: Any) -> str:
    name, limits = mistake["type"], mistake.get("ctx", {})
    if name not in _PHRASES:
        return f"be {_EXPECTED.get(name.split('_')[0], 'something else')}"
    phrase = _PHRASES[name].format(**{k: f"{v:g}" if isinstance(v, float) else v for k, v in limits.items()})
    return re.sub(r"\b1 (entr|character)(ies|s)$", lambda m: f"1 {m[1]}{'y' if m[2] == 'ies' else ''}", phrase)


def _unknown_kind(key: str, value: Any, kinds: Sequence[str]) -> tuple[str, Any, str, str | None]:
    """(key, value, problem, remedy) of a table whose `kind` is none of these."""
    if not isinstance(value, Mapping):
        return key, value, f'must be a table, for example {key}.kind = "{kinds[0]}"', None
    known = f"it can be {', '.join(kinds)}"
    if "kind" not in value:
        return f"{key}.kind", None, "is missing", known
    remedy = known + ending(value["kind"], kinds)
    return f"{key}.kind", value["kind"], "is not known", " ".join([remedy, *broken_plugins()])


def _known_keys(key: str, known: Sequence[str], elsewhere: Callable[[str], str | None]) -> str:
    """The key that was probably meant, or those that there are."""
    table, _, name = key.rpartition(".")
    close, meant = nearest(name, known), elsewhere(key)
    if meant is not None and meant.rpartition(".")[0] == table:
        meant = None  # what another kind of this table has is not to be had here
    if close and not (meant and meant.endswith(f".{name}")):  # the very name in another table says more
        meant = f"{table}.{close}" if table else close
    if meant is not None:
        return f"did you mean {meant}?"
    return f"the keys here are {', '.join(known)}" if known else "there are none here"


def _place(mistake: Any, given: Any) -> list[str]:
    """The keys that the user wrote: pydantic's location without the names of the types it tried."""
    where: list[str] = []
    current = given
    for part in mistake["loc"]:
        if isinstance(current, Mapping) and part in current:
            where.append(str(part))
            current = current[part]
        elif isinstance(current, list) and isinstance(part, int) and part < len(current):
            where.append(f"[{part}]")
            current = current[part]
    if mistake["type"] == "missing":
        where.append(str(mistake["loc"][-1]))
    return where


def _kind_of(given: Any, place: Sequence[str]) -> str | None:
    for part in place:
        given = given.get(part) if isinstance(given, Mapping) else None
    kind = given.get("kind") if isinstance(given, Mapping) else given
    return kind if isinstance(kind, str) else None


def _keys(model: Any, place: Sequence[str]) -> list[str]:
    for part in place:
        model = getattr(getattr(model, "model_fields", {}).get(part), "annotation", None)
    return sorted(getattr(model, "model_fields", {}))
