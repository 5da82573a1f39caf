"""The options of a registered kind are the keyword-only parameters of the function that makes it.

A leaf like `errors`: whoever keeps a registry checks a user's table with it; a new kind is one function and one line.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gossamer.errors import UserError


@dataclass(frozen=True)
class Option:
    """One setting of a kind; `type` is a Python annotation, `default` counts only if not `required`."""

    name: str
    type: Any
    default: Any
    required: bool


def options_of(make: Callable[..., Any]) -> tuple[Option, ...]:
    return tuple(
        Option(p.name, p.annotation, p.default, required=p.default is p.empty)
        for p in inspect.signature(make).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    )


def check_options(table: str, kind: str, make: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Refuse, in one sentence, a key that `make` does not take, a value of the wrong type, or a key that is missing."""
    known = {option.name: option for option in options_of(make)}
    for name, value in given.items():
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes no options"
            raise UserError(f"{table}.{name} is not an option of kind '{kind}'; {takes}")
        try:
            TypeAdapter(known[name].type).validate_python(value, strict=True)
        except ValidationError:
            annotation = known[name].type
            readable = annotation.__name__ if isinstance(annotation, type) else str(annotation)
            raise UserError(
                f"{table}.{name} = {_short(value)} does not fit; kind '{kind}' takes {readable}"
            ) from None
    for option in known.values():
        if option.required and option.name not in given:
            raise UserError(f"{table}.{option.name} is missing; kind '{kind}' needs it")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
