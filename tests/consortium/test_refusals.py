from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gossamer.config.layers import resolve
from gossamer.config.methods import PRESETS
from gossamer.consortium.refusals import SURVIVES, refuse_for_peers
from gossamer.errors import UserError

RECIPE: dict[str, Any] = {
    "nodes": 3,
    "rounds": 5,
    "data": {"kind": "csv", "path": "site-{node}.csv", "label": "y", "classes": 2, "records": 50},
    "model": {"kind": "softmax"},
    "topology": {"kind": "complete"},
    "algorithm": {"kind": "dyn-d2p"},
    "privacy": {"epsilon": 4.0},
}


def refuse(changes: dict[str, Any], *, for_science: bool = False) -> None:
    refuse_for_peers(resolve(RECIPE, changes), for_science=for_science)


def test_what_peers_can_run() -> None:
    refuse({})
    refuse({"data.path": "all.csv", "data.owner": "clinic"})
    refuse({"algorithm.kind": "full-lot", "privacy.centre": 0.1})
    for kind in ("dp-dsgd", "dp-dsgt", "dp-dinno", "dp-dkm"):
        refuse({"algorithm.kind": kind})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"data.kind": "digits"}, "data.kind = 'digits' does not go with peers"),
        ({"data.path": "all.csv"}, "data.path = 'all.csv' is one file for all"),
        ({"data.classes": None}, "data.classes is not set"),
        ({"data.train_rows": 10}, "data.train_rows = 10 draws among the records of all"),
        ({"data.held_out": 10}, "data.held_out = 10 draws among the records of all"),
        ({"data.pca": 2}, "data.pca_from = 'train' fits components"),
        ({"data.pca": 2, "data.pca_from": "private"}, "data.pca_from = 'private' fits components"),
        ({"data.class_weights": "private"}, "takes the sum of all sites' releases"),
        ({"baseline": "central"}, "baseline = 'central'"),
        ({"algorithm.mixes": "exact"}, "algorithm.mixes = 'exact' needs every site"),
        ({"privacy.centre": 0.1, "algorithm.kind": "dp-dsgd"}, "privacy.centre = 0.1 agrees by push-sum"),
        (
            {"algorithm.final_gossip": 3, "algorithm.kind": "dp-dsgt"},
            "algorithm.final_gossip = 3 agrees by push-sum",
        ),
        ({"privacy.noise.on": "iterate", "algorithm.kind": "dp-dkm"}, "'iterate' puts noise on messages"),
        ({"privacy.noise.kind": "pairwise"}, "'pairwise' cancels only if every message arrives"),
        ({"evaluation.diagnostics": True}, "evaluation.diagnostics = true"),
        ({"evaluation.private": 0.2}, "evaluation.private = 0.2 releases figures when all nodes"),
        ({"privacy.sampling": {"kind": "balls-and-bins", "lots": 5}}, "cannot go on after a crash"),
    ],
)
def test_what_peers_cannot_run_also_not_for_science(changes: dict[str, Any], why: str) -> None:
    for science in (False, True):
        with pytest.raises(UserError, match=why):
            refuse(changes, for_science=science)


@pytest.mark.parametrize("kind", [kind for kind in PRESETS if PRESETS[kind]["rule"] not in SURVIVES])
def test_every_method_that_does_not_survive_is_refused_by_name_with_its_reason(kind: str) -> None:
    with pytest.raises(UserError, match=rf"algorithm\.kind = '{kind}' cannot run among peers: its model"):
        refuse({"algorithm.kind": kind}, for_science=True)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"privacy.noise.source": "seeded"}, "'seeded' is noise that everyone can draw"),
        ({"mode": "paper"}, "mode = 'paper' claims"),
        ({"algorithm.kind": "sgp"}, "protects nobody"),
    ],
)
def test_what_protects_nobody_is_for_science_alone(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        refuse(changes)
    refuse(changes, for_science=True)


def test_a_rule_that_nobody_has_looked_at_is_refused() -> None:
    asked = resolve(RECIPE, {})
    unknown = SimpleNamespace(kind="mine", rule="mine", mixes=1, final_gossip=0)
    with pytest.raises(UserError, match="'mine' cannot run among peers: nobody has shown"):
        refuse_for_peers(asked.model_copy(update={"algorithm": unknown}), for_science=True)


def test_no_code_travels() -> None:
    config = resolve(RECIPE, {})
    from gossamer.models.networks import Own

    own = config.model_copy(update={"model": Own(path="net.py:make")})
    with pytest.raises(UserError, match=r"model\.kind = 'own' is code"):
        refuse_for_peers(own, for_science=True)
