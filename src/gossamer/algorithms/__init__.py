"""The algorithms. A new one is a file and a line in RULES; it is then a method of that name.

A rule is a frozen dataclass. Its fields are its options in the table [algorithm], but for those that a run gives it:
lr, seed and rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any, TypeVar

from gossamer.errors import UserError
from gossamer.options.registry import kind_name, same_definition

C = TypeVar("C", bound=type)

# Where each is: loaded when it is used, since all of them need torch. Methods with parts of their own have a folder.
RULES: dict[str, str | type[Any]] = {
    "push-sum": "gossamer.algorithms.push_sum:PushSum",
    "dsgd": "gossamer.algorithms.dsgd:DSGD",
    "dsgt": "gossamer.algorithms.dsgt:DSGT",
    "dinno": "gossamer.algorithms.dinno:DiNNO",
    "km": "gossamer.methods.km.algorithm:KM",
    "without-replacement": "gossamer.methods.without_replacement.algorithm:WithoutReplacement",
}


_PARTS = ("weights", "draws", "init", "step", "model")
_RESERVED: set[str] = set()  # names of methods that are no rules: what they mean must not change


def reserve(names: Iterable[str]) -> None:
    """No algorithm may be registered under these."""
    _RESERVED.update(names)


def register(name: str) -> Callable[[C], C]:
    """The same for an algorithm outside this package: a decorator of its class."""

    def add(rule: C) -> C:
        if name in RULES or name in _RESERVED:
            raise ValueError(f"an algorithm {name!r} is there already")
        has = {*dir(rule), *getattr(rule, "__dataclass_fields__", ())}
        missing = [part for part in _PARTS if part not in has]
        if missing or not is_dataclass(rule):
            lacks = ", ".join(missing) or "@dataclass(frozen=True, kw_only=True)"
            raise TypeError(f"the algorithm {name!r} lacks {lacks}: see gossamer.algorithms.base.Algorithm")
        RULES[name] = rule
        return rule

    return add


def adopt(made: type[Any]) -> str:
    """Register an algorithm of the caller's own, unless it is known, and return its name: see `Registry.adopt`."""
    name = vars(made).get("kind") or kind_name(made.__name__)
    known = RULES.get(name)
    taken = isinstance(known, str) or name in _RESERVED
    if taken or (known is not None and not same_definition(known, made)):
        raise UserError(f"an algorithm {name!r} is there already; give {made.__name__} another name.")
    try:
        RULES.pop(name, None)
        register(name)(made)
    except TypeError as error:
        raise UserError(f"{error}.") from None
    return str(name)


def rule(name: str) -> type[Any]:
    """The update rule of that name."""
    found = RULES[name]
    if not isinstance(found, str):
        return found
    module, _, cls = found.partition(":")
    made: type[Any] = getattr(import_module(module), cls)
    return made
