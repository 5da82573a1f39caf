"""Checks of single option values, each with the sentence a user needs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gossamer.errors import UserError


def whole(key: str, value: object, *, at_least: int, at_most: int | None = None) -> int:
    """A whole number within bounds."""
    wanted = f"at least {at_least}" if at_most is None else f"from {at_least} to {at_most}"
    # numpy's integers have __index__, true and false have too but are no counts
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UserError(f"{key} = {value!r} must be a whole number {wanted}")
    result = int(value.__index__())
    if result < at_least or (at_most is not None and result > at_most):
        raise UserError(f"{key} = {result} must be a whole number {wanted}")
    return result


def number(key: str, value: Any, *, at_least: float = -math.inf, above: float = -math.inf) -> float:
    """A finite number at least, or strictly above, a bound."""
    wanted = (
        f"a finite number above {above:g}" if above > -math.inf else f"a finite number, at least {at_least:g}"
    )
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__") or not math.isfinite(value):
        raise UserError(f"{key} = {value!r} must be {wanted}")
    if value < at_least or value <= above:
        raise UserError(f"{key} = {value!r} must be {wanted}")
    return float(value)


def fraction(key: str, value: Any) -> float:
    """A number in [0, 1]."""
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__") or not 0 <= value <= 1:
        raise UserError(f"{key} = {value!r} must lie in [0, 1]")
    return float(value)


def one_of(key: str, value: object, choices: Iterable[str]) -> str:
    """One of a few words."""
    choices = list(choices)
    if not isinstance(value, str) or value not in choices:
        raise UserError(f"{key} = {value!r} must be one of {', '.join(choices)}")
    return value


def flag(key: str, value: object) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise UserError(f"{key} = {value!r} must be true or false")
    return value


def refuse_unknown(
    prefix: str, function: Callable[..., Any], given: Mapping[str, Any], known: set[str]
) -> None:
    """The options are the keyword arguments of the function that serves them, and the `known` ones."""
    parameters = inspect.signature(function).parameters.values()
    own = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} - {"seed", "data_dir"}
    needed = [
        p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty and p.name in own
    ]
    for name in given:
        if name not in own | known:
            allowed = ", ".join(sorted(own | known)) or "none"
            raise UserError(f"{prefix}.{name} = {given[name]!r} is no option here: the options are {allowed}")
    for name in needed:
        if name not in given:
            raise UserError(f"{prefix}.{name} is missing")
