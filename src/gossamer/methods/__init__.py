"""The methods. One that is an update rule only is a file in `algorithms`; one with parts of its own has a folder."""

from __future__ import annotations

from typing import Any

from gossamer.algorithms import registry
from gossamer.config.methods import PRESETS
from gossamer.config.schema import RunConfig
from gossamer.methods.base import Method


def rules() -> dict[str, Any]:
    """Every update rule by name."""
    from gossamer.methods.km.algorithm import KM
    from gossamer.methods.without_replacement.algorithm import WithoutReplacement

    return {**registry(), "km": KM, "without-replacement": WithoutReplacement}


def method_of(config: RunConfig) -> Method:
    """The method that `algorithm.kind` names."""
    from gossamer.methods.gossip import Gossip
    from gossamer.methods.km.method import OperatorMethod
    from gossamer.methods.without_replacement.method import SharedModel

    rule = PRESETS[config.algorithm.kind]["rule"]
    own = {"km": OperatorMethod, "without-replacement": SharedModel}
    return own.get(rule, Gossip)(config, rules()[rule])
