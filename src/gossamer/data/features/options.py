"""The options of a step are the keyword-only parameters of its class, which is set up for records of one shape."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gossamer.errors import UserError
from gossamer.options.registry import Option
from gossamer.options.sentences import short
from gossamer.options.words import type_words


def options_of(make: Callable[..., Any]) -> tuple[Option, ...]:
    return tuple(
        Option(p.name, p.annotation, p.default, required=p.default is p.empty, meaning="")
        for p in inspect.signature(make, eval_str=True).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    )


def check_options(table: str, kind: str, make: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Refuse, in one sentence, a key that `make` does not take, a value of the wrong type, or a key that is missing."""
    known = {option.name: option for option in options_of(make)}
    for name, value in given.items():
        if name not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes no options"
            raise UserError(f"{table}.{name} is not an option of kind '{kind}'; {takes}.")
        try:
            TypeAdapter(known[name].type).validate_python(value, strict=True)
        except ValidationError:
            wanted = type_words(known[name].type)
            raise UserError(
                f"{table}.{name} = {short(value)} does not fit; kind '{kind}' takes {wanted}."
            ) from None
    for option in known.values():
        if option.required and option.name not in given:
            raise UserError(f"{table}.{option.name} is missing; kind '{kind}' needs it.")
