"""Types and defaults of options in plain words."""

from __future__ import annotations

import dataclasses
import json
import re
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from gossamer.options.registry import Registry, Table


def type_words(annotation: Any) -> str:
    """What a value may be, in plain words."""
    return " or ".join(dict.fromkeys(_alternatives(annotation, ())))


def default_words(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "kind"):
        return str(value.kind)
    if dataclasses.is_dataclass(value) or isinstance(value, BaseModel):
        return "as below"
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def _alternatives(annotation: Any, limits: Sequence[Any]) -> Iterator[str]:
    noted = extras(annotation)
    for extra in noted:
        if isinstance(extra, Registry):
            yield f"table with a kind, see [{extra.table}]"
            return
        if isinstance(extra, Table):
            yield "table"
            return
    if get_origin(annotation) is Annotated:
        yield from _alternatives(get_args(annotation)[0], [*_limits(noted), *limits])
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            if member is not type(None):
                yield from _alternatives(member, limits)
    elif get_origin(annotation) is Literal:
        *choices, last = map(str, get_args(annotation))
        yield f"{', '.join(choices)} or {last}" if choices else last
    elif get_origin(annotation) is list:
        inner = type_words(get_args(annotation)[0])
        for one in ("number", "text", "list"):
            inner = re.sub(rf"\b{one}\b", f"{one}s", inner)
        yield "list" if inner == "anything" or " or " in inner else f"list of {inner}"
    elif get_origin(annotation) is dict or is_model(annotation):
        yield "table"
    else:
        names = {int: "whole number", float: "number", bool: "true or false", str: "text"}
        yield " ".join([names.get(annotation, "anything"), *_limit_words(limits)])


def _limits(extras: Sequence[Any]) -> list[Any]:
    return [limit for extra in extras for limit in (extra, *getattr(extra, "metadata", ()))]


def _limit_words(limits: Sequence[Any]) -> Iterator[str]:
    """Limits as far as a person cares: what only keeps numbers finite is left out."""
    for limit in limits:
        for key, word in (("gt", "above"), ("ge", "from"), ("lt", "below"), ("le", "up to")):
            value = getattr(limit, key, None)
            if isinstance(value, int | float) and abs(value) < 1e9:
                yield f"{word} {0 if 0 < value < 1e-9 else value:g}"


def extras(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__metadata__", ()) if get_origin(annotation) is Annotated else ()


def members(annotation: Any) -> list[Any]:
    """The types of a union, without None; of anything else itself."""
    plain = bare(annotation)
    if get_origin(plain) in (Union, types.UnionType):
        return [m for member in get_args(plain) if member is not type(None) for m in members(member)]
    return [annotation]


def bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
