"""Every method keeps the contract, for each named algorithm in both modes."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from tests.support.configurations import configured
from tests.support.refusals import expect_refusal
from tests.support.without_replacement import DIGITS
from torch import Tensor

from gossamer.algorithms import RULES
from gossamer.algorithms.wrappers import FinalGossip, Mixes, Momentum, TailAverage, bare
from gossamer.config.checks import check
from gossamer.config.methods import algorithms
from gossamer.methods import method_of
from gossamer.methods.base import bytes_per_message, fitting, named
from gossamer.topology.kinds import build

WRITTEN = {"without-replacement", "with-replacement"}


def configuration_of(kind: str, mode: str) -> Any:
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
    config = configuration_of(kind, mode)
    method = method_of(config)
    assert method.config is config
    rule = type(method.bare())
    assert rule.weights in {"column", "doubly", "adjacency"}
    assert method.algorithm().draws >= 1
    assert method.noise_on_messages == (config.privacy.noise.on == "iterate")
    assert method.keeps_local_models == (kind in WRITTEN)
    assert method.takes_resolvents == (kind == "dp-dkm" or config.algorithm.rule == "km")
    assert method.noise.adds == config.privacy.noise.kind.adds


def test_pieces_go_around_the_rule_in_one_order_and_only_if_asked_for() -> None:
    plain = method_of(configured()).algorithm()
    assert bare(plain) is plain
    pieces = {"momentum": 0.5, "mixes": 2, "tail_average": 0.25, "final_gossip": 3}
    made: Any = method_of(configured(**{f"algorithm__{key}": value for key, value in pieces.items()})).algorithm()
    order = []
    while hasattr(made, "inner"):
        order.append(type(made))
        made = made.inner
    assert order == [FinalGossip, TailAverage, Mixes, Momentum]
    assert made == plain


# numbers a node sends over a link in a round, for a model of 10
MESSAGES = {
    "dyn-d2p": ("one-peer-exponential", 11), "dp-dsgd": ("ring", 10), "dp-dsgt": ("ring", 20), "dp-dinno": ("ring", 11),
    "dp-dkm": ("ring", 10),
}  # fmt: skip


@pytest.mark.parametrize("kind", list(MESSAGES))
def test_a_message_holds_what_the_rule_sends(kind: str) -> None:
    graph, numbers = MESSAGES[kind]
    changes = {"algorithm__kind": kind, "topology__kind": graph, "algorithm__lr": 0.5}
    method = method_of(configured(**changes))
    algorithm = method.algorithm()
    assert bytes_per_message(algorithm, 10) == 4 * numbers
    topology = build(graph, nodes=8, weights=algorithm.weights, seed=0)
    links = {"ring": 16, "one-peer-exponential": 8}[graph]
    assert method.bytes_per_round(algorithm, topology, 10) == 4 * numbers * links


def test_every_mixing_more_is_sent_too() -> None:
    algorithm = method_of(configured(algorithm__mixes=3)).algorithm()
    assert bytes_per_message(algorithm, 10) == 4 * 33


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"algorithm__mixes": 2}, "algorithm.kind dp-dinno"),
        ({"algorithm__final_gossip": 2}, "algorithm.kind dp-dinno algorithm.mixes algorithm.final_gossip"),
        ({"privacy__centre": 0.1}, "privacy.centre 0.1"),
    ],
)
def test_sums_over_neighbours_agree_on_no_mean(changes: dict[str, Any], says: str) -> None:
    method = method_of(configured(algorithm__kind="dp-dinno", topology__kind="ring", **changes))
    with expect_refusal(names=says):
        method.check(10)
    method_of(configured(algorithm__kind="dp-dsgd", topology__kind="ring", **changes)).check(10)
    method_of(configured(algorithm__kind="dp-dinno", topology__kind="ring")).check(10)


class State(NamedTuple):
    x: Tensor
    w: Tensor
    controller: object = None


class Reader:
    def __init__(self, draws: int) -> None:
        self.draws = draws

    def state(self) -> dict[str, Any]:
        return {"draws": torch.tensor(self.draws)}

    def restore(self, state: dict[str, Any]) -> None:
        self.draws = int(state["draws"])


def test_what_is_kept_comes_back() -> None:
    method, state = method_of(configured()), State(torch.randn(2, 3), torch.ones(2, 1))
    kept = method.checkpoint(state, Reader(7))
    assert set(kept) == {"x", "w", "gradient.draws"}
    fresh, reader = NamedPair(torch.zeros(2, 3), torch.zeros(2, 1)), Reader(0)
    back = method.restore(fresh, reader, kept)
    assert torch.equal(back.x, state.x)
    assert torch.equal(back.w, state.w)
    assert reader.draws == 7


class NamedPair(NamedTuple):
    x: Tensor
    w: Tensor


def test_a_tensor_of_another_shape_does_not_fit() -> None:
    fresh = torch.zeros(2, 3, dtype=torch.float64)
    assert fitting("x", fresh, {"x": torch.ones(2, 3)}).dtype == torch.float64
    for saved in ({}, {"x": torch.ones(3, 3)}):
        with expect_refusal(key="checkpoint", value="x"):
            fitting("x", fresh, saved)
    assert named({"a.x": 1, "b.x": 2, "a.y": 3}, "a.") == {"x": 1, "y": 3}


def test_only_passes_are_lost_at_a_stop() -> None:
    lots = {"poisson": False, "fixed-size": False, "one-pass": True, "balls-and-bins": True}
    for kind, lost in lots.items():
        method = method_of(configured(privacy__sampling={"kind": kind, "lot": 9}))
        assert method.resumable != lost


@pytest.mark.parametrize(
    ("refused", "says", "passes"),
    [
        ({"privacy__noise__on": "iterate"}, "privacy.noise.on iterate dp-dkm", {"privacy__noise__on": "gradient"}),
        (
            {"privacy__claim": "dp-dkm"},
            "privacy.claim dp-dkm",
            {"privacy__claim": "none"},
        ),
        (
            {"mode": "paper", "privacy__noise__family": {"kind": "laplace"}},
            "privacy.noise.family.kind laplace paper",
            {"mode": "sound", "privacy__noise__family": {"kind": "laplace"}},
        ),
    ],
)
def test_noise_and_claims_of_other_methods_are_refused(
    refused: dict[str, Any], says: str, passes: dict[str, Any]
) -> None:
    method = method_of(configured(**refused))
    with expect_refusal(names=says):
        method.check(10)
    method_of(configured(**passes)).check(10)


def test_a_method_without_a_paper_makes_no_papers_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "newcomer", "gossamer.algorithms.dsgd:DSGD")
    changes = {"algorithm__kind": "newcomer", "topology__kind": "ring"}
    method_of(configured(**changes)).check(10)
    # What a recipe says of another method's claim goes with that method; what is asked for in so many words is refused.
    for claim in ("rdp", "gdp-clt", "adad2p"):
        with expect_refusal("privacy.claim", claim, "newcomer"):
            check(configured(**changes, privacy__claim=claim))
