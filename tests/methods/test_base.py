"""Every method keeps the contract, for each named algorithm in both modes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from tests.support.configurations import configured
from tests.support.without_replacement import DIGITS

from gossamer.config.algorithm import algorithms
from gossamer.methods import method_of
from gossamer.methods.base import Method
from gossamer.methods.gossip import Gossip
from gossamer.methods.km.method import OperatorMethod
from gossamer.methods.without_replacement.method import SharedModel

WRITTEN = {"without-replacement", "with-replacement"}


def named(kind: str, mode: str) -> Any:
    base: Any = DIGITS if kind in WRITTEN else "quickstart"
    changes: dict[str, Any] = {"algorithm__kind": kind, "algorithm__lr": 0.3, "mode": mode}
    if kind not in WRITTEN:
        changes["topology__kind"] = "ring"
    if kind == "general-d2p":
        changes["privacy__clip"] = {"kind": "sequence", "values": [1.0]}
        changes["privacy__noise__schedule"] = {"kind": "sequence", "values": [1.0]}
    return configured(base, **changes)


@pytest.mark.parametrize("mode", ["sound", "paper"])
@pytest.mark.parametrize("kind", list(algorithms))
def test_the_method_of_every_algorithm_names_its_rule_and_its_noise(kind: str, mode: str) -> None:
    config = named(kind, mode)
    method = method_of(config)
    assert method.config is config
    rule = type(method.bare())
    assert rule.weights in {"column", "doubly", "adjacency"}
    assert method.algorithm().draws >= 1
    assert method.noise_on_messages == (config.privacy.noise.on == "iterate")
    assert method.keeps_local_models == (kind in WRITTEN)
    assert method.takes_resolvents == (kind == "dp-dkm" or config.algorithm.rule == "km")
    assert method.noise.adds == config.privacy.noise.kind.adds


@pytest.mark.parametrize("made", [Gossip, OperatorMethod, SharedModel])
def test_every_method_takes_what_the_protocol_gives(made: type[Any]) -> None:
    for name, wanted in inspect.getmembers(Method, inspect.isfunction):
        if name.startswith("_"):
            continue
        given = list(inspect.signature(getattr(made, name)).parameters)
        assert given == list(inspect.signature(wanted).parameters), name
