"""The methods. One that is an update rule only is a file in `algorithms`; one with parts of its own has a folder."""

from __future__ import annotations

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


def method_of(config: RunConfig) -> Method:
    """The method that `algorithm.kind` names."""
    from gossamer.methods.km.method import OperatorMethod
    from gossamer.methods.without_replacement.method import SharedModel

    name = config.algorithm.rule
    own = {"km": OperatorMethod, "without-replacement": SharedModel}
    return own.get(name, Method)(config, rule(name))
