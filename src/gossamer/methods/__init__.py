"""The methods. One that is an update rule only is a file in `algorithms`; one with parts of its own has a folder."""

from __future__ import annotations

from importlib import import_module

from gossamer.algorithms import rule, rules
from gossamer.config.schema import RunConfig
from gossamer.methods.base import Method

__all__ = [
    "Method",
    "base",
    "claims",
    "km",
    "method_of",
    "objective",
    "rules",
    "without_replacement",
]


# Methods with parts of their own, by their rule: imported only for a run that uses them.
_OWN = {
    "km": ("gossamer.methods.km.method", "OperatorMethod"),
    "without-replacement": ("gossamer.methods.without_replacement.method", "SharedModel"),
}


def method_of(config: RunConfig) -> Method:
    """The method that `algorithm.kind` names."""
    name = config.algorithm.rule
    module, cls = _OWN.get(name, ("gossamer.methods.base", "Method"))
    method: Method = getattr(import_module(module), cls)(config, rule(name))
    return method
