"""The algorithms. A new one is a file and a line in RULES; it is then a method of that name.

A rule is a frozen dataclass. Its fields are its options in the table [algorithm], but for those that a run gives it:
lr, seed and rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any, TypeVar

from gossamer.errors import UserError
from gossamer.options.registry import kind_name, same_definition

# The modules that others may import; the rest is private to this folder.
__all__ = [
    "RULES",
    "adopt",
    "base",
    "dinno",
    "dsgd",
    "dsgt",
    "means",
    "push_sum",
    "register",
    "rule",
    "rules",
    "wrappers",
]

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


def register(name: str) -> Callable[[C], C]:
    """The same for an algorithm outside this package: a decorator of its class."""

    def add(rule: C) -> C:
        if name in RULES:
            raise ValueError(f"an algorithm {name!r} is there already")
        RULES[name] = rule
        return rule

    return add


def adopt(made: type[Any]) -> str:
    """Register an algorithm of the caller's own, unless it is known, and return its name: see `Registry.adopt`."""
    if not is_dataclass(made):
        raise UserError(
            f"{made.__name__} must be a frozen dataclass: its fields are the algorithm's options."
        )
    missing = [name for name in ("weights", "draws", "init", "step", "model") if not hasattr(made, name)]
    if missing:
        raise UserError(
            f"{made.__name__} has no {missing[0]}; an algorithm has weights, draws, init, step and model."
        )
    name = vars(made).get("kind") or kind_name(made.__name__)
    known = RULES.get(name)
    if isinstance(known, str) or (known is not None and not same_definition(known, made)):
        raise UserError(f"an algorithm {name!r} is there already; give {made.__name__} another name.")
    RULES[name] = made
    return str(name)


def rule(name: str) -> type[Any]:
    """The update rule of that name."""
    found = RULES[name]
    if not isinstance(found, str):
        return found
    module, _, cls = found.partition(":")
    made: type[Any] = getattr(import_module(module), cls)
    return made


def rules() -> dict[str, type[Any]]:
    """Every update rule by name."""
    return {name: rule(name) for name in RULES}
