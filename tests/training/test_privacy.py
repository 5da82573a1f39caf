"""The plan: budgets are met, stops are hard, and the published pairs of claimed and proven ε come out."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.stats import norm
from tests.support.configurations import outlined
from tests.support.refusals import expect_refusal

from gossamer.accounting.observers import colluders
from gossamer.accounting.profiles import TradeOff, gdp_epsilon, gdp_mu
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.training.plan import Plan
from gossamer.training.privacy import most_nodes

QUICK = {"rounds": 40}


def plan(recipe: str = "quickstart", **changes: Any) -> Any:
    return outlined(recipe, **changes).privacy


SOUND_METHODS = (
    "dyn-d2p",
    "dyn-c-d2p",
    "dyn-mu-d2p",
    "const-d2p",
    "clipd2p",
    "constd2p",
    "adad2p",
    "general-d2p",
)


@pytest.mark.parametrize("kind", SOUND_METHODS)
def test_sound_mode_proves_at_most_what_is_asked(kind: str) -> None:
    figures = plan(rounds=30, algorithm__kind=kind, privacy={"epsilon": 2.0, "delta": 1e-5}).figures()
    assert 1.8 < figures["epsilon_proven"] <= 2.0
    assert figures["not_proven_because"] is None


@pytest.mark.parametrize("kind", ["dyn-d2p", "dyn-c-d2p", "dyn-mu-d2p", "const-d2p"])
def test_paper_mode_meets_the_claim_and_not_the_proof(kind: str) -> None:
    figures = plan("dyn-d2p/fashion-mnist", mode="paper", algorithm__kind=kind, rounds=300).figures()
    assert figures["epsilon_claimed"] == pytest.approx(1.0, rel=1e-6)
    assert figures["epsilon_proven"] > 1.5


def test_general_form_is_refused_outside_the_range_of_its_formula() -> None:
    with expect_refusal(key="eq.", names="1.12"):
        plan("dyn-d2p/fashion-mnist", mode="paper", algorithm__kind="general-d2p", privacy={"epsilon": 1.0})


def test_every_inner_step_of_dinno_is_priced() -> None:
    dinno = {"algorithm__kind": "dp-dinno", "topology__kind": "ring", "rounds": 12}
    once, thrice = plan(**dinno), plan(**dinno, algorithm__steps=3)
    assert (once.draws, thrice.draws) == (12, 36)
    assert thrice.nodes[0].factor > 1.3 * once.nodes[0].factor
    assert thrice.nodes[0].factor == pytest.approx(
        plan(algorithm__kind="dp-dsgd", topology__kind="ring", rounds=36).nodes[0].factor
    )


def test_what_has_no_proof_has_no_figure() -> None:
    ada = plan("adad2p/mnist", mode="paper").figures()
    assert ada["epsilon_claimed"] == pytest.approx(1.0)
    assert ada["epsilon_proven"] is None
    assert "norm" in ada["not_proven_because"]
    assert any("constant not in the paper" in flag for flag in ada["claim_flags"])
    believed = plan("adad2p/mnist", mode="paper", algorithm__kind="constd2p").figures()
    assert believed["epsilon_proven"] is None
    assert "bounds" in believed["not_proven_because"]
    open_ = plan(algorithm__kind="sgp", privacy={"delta": 1e-5}).figures()
    assert open_["epsilon_proven"] is None
    assert "without noise" in open_["not_proven_because"]


def test_claims_come_out_as_published() -> None:
    """AdaD2P: ε = 1 is σ = 0.053 on MNIST and 0.080 on CIFAR-10 (Prop. 2 with c_2 = 1)."""
    assert plan("adad2p/mnist", mode="paper").nodes[0].factor == pytest.approx(0.053, abs=5e-4)
    cifar = plan("adad2p/cifar10", mode="paper", model__kind="softmax")
    assert cifar.nodes[0].factor == pytest.approx(0.080, abs=5e-4)


def test_each_node_may_have_its_own_budget() -> None:
    budgets = [1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0]
    planned = plan(**QUICK, privacy__epsilon=budgets, privacy__delta=[1e-5] * 4 + [1e-4] * 4)
    for asked, node in zip(budgets, planned.nodes, strict=True):
        assert 0.9 * asked < node.proven.epsilon <= asked
    factors = [node.factor for node in planned.nodes]
    assert factors[0] > factors[1] > factors[2] > factors[3] > factors[4]


def test_all_that_is_proven_goes_through_the_printed_point_and_covers_every_node() -> None:
    planned = plan(
        **QUICK, privacy__epsilon=[1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0], privacy__sampling={"kind": "full"}
    )
    whole = planned.trade_off()
    figures = planned.figures()
    point = TradeOff(((figures["epsilon_proven"], figures["delta"]),))
    for alarms in (0.0, 1e-3, 0.1, 0.5):
        assert whole.most_hits(alarms) <= point.most_hits(alarms) + 1e-9
        for node in planned.nodes:
            mu = gdp_mu(node.proven.epsilon, node.delta)
            assert whole.most_hits(alarms) >= norm.cdf(norm.ppf(alarms) + mu) - 1e-6
    assert whole.most_hits(0.1) < 0.9 * point.most_hits(0.1)
    assert plan(**QUICK, mode="paper", algorithm__kind="adad2p", algorithm__lr=0.03).trade_off() is None


def test_the_same_noise_has_other_figures_against_other_observers() -> None:
    family = {"kind": "pairwise", "colluders": 1}
    planned = plan(nodes=4, rounds=2, privacy__noise__family=family)
    for other, more in ((0, False), (2, True), (3, True)):
        seen = planned.against(colluders(other))
        assert (seen.figures()["epsilon_proven"] > planned.figures()["epsilon_proven"]) is more
        assert [node.factor for node in seen.nodes] == [node.factor for node in planned.nodes]
    assert planned.against(colluders(1)).figures() == planned.figures()


def test_public_constants_come_from_the_declaration() -> None:
    planned = plan(**QUICK, data__records=200, privacy__sampling={"kind": "poisson", "lot": 50})
    assert {(node.records, node.rate, node.lot) for node in planned.nodes} == {(200, 0.25, 50)}


def test_a_curve_to_be_looked_at_is_never_below_the_fine_one_nor_above_the_whole() -> None:
    made = plan(rounds=60)
    at = [1, 10, 30, 60]
    fine, drawn = ([p for _, p in curve(at)] for curve in (made.epsilon_after, made.drawn_after))
    whole = made.worst.proven.epsilon
    assert all(0.99 * min(f, whole) <= d <= min(1.06 * f, whole) for f, d in zip(fine, drawn, strict=True))
    assert [c for c, _ in made.drawn_after(at)] == [c for c, _ in made.epsilon_after(at)]


PAIRWISE = {
    "privacy__epsilon": 1.0, "privacy__noise__kind": "pairwise", "privacy__sampling": {"kind": "full"}, "rounds": 20,
}  # fmt: skip


def test_a_plan_with_shared_noise_has_the_whole_curve() -> None:
    plan = outlined(**PAIRWISE).privacy
    found = plan.by_observer()
    curve = {point["colluders"]: point["epsilon"] for point in found["epsilon_by_colluders"]}
    assert list(curve) == list(range(8))
    assert curve[1] == plan.worst.proven.epsilon == pytest.approx(1.0)
    assert list(curve.values()) == sorted(curve.values())
    assert curve[7] > 2 * curve[1]
    assert [line["planned"] for line in found["epsilon_by_observer"]] == [False, True, False, False]
    shared, spent = plan.sharing()
    assert shared is not None
    assert (shared.nodes, shared.planned, len(spent)) == (8, 1, 8)
    assert spent[0] is spent[4] is not spent[7]  # equal nodes are priced once


def test_a_plan_with_noise_of_each_nodes_own_has_one_observer() -> None:
    plan = outlined(rounds=5, privacy__sampling={"kind": "full"}).privacy
    found = plan.by_observer()
    (line,) = found["epsilon_by_observer"]
    assert line["words"] == plan.observer.description
    assert line["epsilon"] == plan.worst.proven.epsilon
    assert found["epsilon_by_colluders"] == []
    assert plan.sharing() == (None, [])


FULL = {"privacy.sampling": {"kind": "full"}, "privacy.clip": {"kind": "constant", "bound": 1.0}, "rounds": 4,
        "privacy.noise.schedule": {"kind": "constant"}, "privacy.noise.multiplier": 8.0, "privacy.epsilon": None}  # fmt: skip


def test_a_group_is_priced_for_runs_that_protect_records_alone() -> None:
    plan = Plan.of(resolve(recipes.read("quickstart"), FULL)).privacy
    assert plan.by_group()[5] == pytest.approx(gdp_epsilon(5 * math.sqrt(4) / 8, 1e-4))
    assert Plan.of(resolve(recipes.read("quickstart"), {**FULL, "privacy.unit": "node"})).privacy.by_group() == {}


def test_sites_are_no_more_than_nodes() -> None:
    unit = {"column": "p", "max_sites": 50}
    assert most_nodes(resolve(recipes.read("quickstart"), {"nodes": 3, "privacy.unit": unit})) == 3


def test_unlike_nodes_have_no_joint_price() -> None:
    asked = {**FULL, "nodes": 2, "data.persons": 100, "privacy.unit": {"column": "p", "max_sites": 2},
             "privacy.sampling": {"kind": "poisson", "rate": [0.1, 0.2]}}  # fmt: skip
    with expect_refusal(key="privacy.unit.max_sites", value="2"):
        Plan.of(resolve(recipes.read("quickstart"), asked))
