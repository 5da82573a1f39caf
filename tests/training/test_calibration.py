"""Noise that a budget buys, and draws that noise leaves: by the paper's formula or by the accountant."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from tests.support import without_replacement
from tests.support.configurations import configured, outlined
from tests.support.full_lots import DIGITS
from tests.support.refusals import expect_refusal

from gossamer.accounting.profiles import gdp_mu
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Gaussian
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.training.plan import Plan
from gossamer.training.preprocess import paid_event
from gossamer.training.privacy import pool


def test_a_fixed_multiplier_stops_hard() -> None:
    stopped = outlined(rounds=200, privacy__noise__multiplier=2.0).privacy
    allowance = stopped.nodes[0].allowance
    assert 0 < allowance < 200
    assert stopped.nodes[0].proven.epsilon <= 8.0
    more = outlined(rounds=200, privacy__noise__multiplier=2.0, privacy__epsilon=8.2).privacy
    assert more.nodes[0].allowance >= allowance
    assert stopped.epsilon_after([200])[0][1] <= 8.0


def test_no_noise_without_budget_or_multiplier() -> None:
    recipe = recipes.read("quickstart")
    del recipe["privacy"]["epsilon"]
    with expect_refusal(key="privacy.epsilon"):
        Plan.of(resolve(recipe))


def test_other_noises_stop_at_the_budget_too() -> None:
    changes = {"privacy__noise__multiplier": 40.0, "privacy__noise__family": {"kind": "laplace"}}
    node = outlined("dp-dkm/lasso", **changes).privacy.nodes[0]
    assert 1 < node.allowance < 80
    assert node.proven.epsilon <= 0.5
    more = outlined("dp-dkm/lasso", **changes, rounds=node.allowance + 1, privacy__epsilon=9.0).privacy.nodes[0]
    assert more.allowance == node.allowance + 1
    assert more.proven.epsilon > 0.5


def test_a_fixed_multiplier_stops_after_whole_passes() -> None:
    once = without_replacement.plan(algorithm__controller="global").nodes[0].factor
    stopped = without_replacement.plan(
        algorithm__controller="global", rounds=360, privacy__noise__multiplier=1.5 * once
    )
    assert stopped.nodes[0].allowance == 2 * 36


def test_a_multiplier_is_that_of_the_first_round() -> None:
    for changes in ({}, {"privacy__centre": 0.1, "privacy__clip": {"kind": "constant", "bound": 1.0}}):
        planned = outlined(rounds=20, privacy__noise__multiplier=3.0, privacy__epsilon=None, **changes).privacy
        node = planned.nodes[0]
        assert node.factor * planned.shape(planned.draws_before) == pytest.approx(3.0, rel=1e-12)
        assert node.allowance == planned.draws


@pytest.mark.parametrize("sampling", [{"kind": "poisson"}, {"kind": "full"}])
def test_a_delta_below_the_rounding_of_a_plain_transform_is_planned_for(sampling: dict[str, str]) -> None:
    node = outlined(rounds=5, privacy__delta=1e-15, privacy__sampling=sampling).privacy.nodes[0]
    assert 7.0 <= node.proven.epsilon <= 8.0


def test_truncated_noise_ends_where_asked_or_where_it_costs_next_to_nothing() -> None:
    family = {"kind": "truncated-gaussian"}
    own = outlined("dp-dkm/lasso", rounds=4, privacy__noise__family={**family, "bound": 9.0}).privacy.nodes[0]
    assert own.end == 9.0
    free = outlined("dp-dkm/lasso", rounds=4, privacy__noise__family=family).privacy
    node = free.nodes[0]
    # The mass beyond the end, over all numbers of all draws, costs (1 + e^ε) times itself of δ: a twentieth of it.
    cut = 2 * norm.sf(node.end) * free.draws * free.dimension
    assert cut * (1 + math.exp(0.5)) == pytest.approx(node.delta / 20, rel=1e-3)


def test_several_runs_that_share_a_budget_cost_it_together() -> None:
    one, four = (outlined(rounds=20, privacy__sampling={"kind": "full"}, privacy__runs=runs).privacy for runs in (1, 4))
    assert four.nodes[0].factor == pytest.approx(2 * one.nodes[0].factor, rel=1e-6)


def test_full_lots_are_priced_by_the_closed_form() -> None:
    p = outlined(DIGITS).privacy
    assert p.nodes[0].factor == pytest.approx(math.sqrt(30) / gdp_mu(8.0, 1e-4), rel=1e-6)
    assert p.figures()["epsilon_proven"] == pytest.approx(8.0, rel=1e-6)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
def test_the_mean_is_one_more_draw_with_its_share_of_the_budget(share: float) -> None:
    p = outlined(DIGITS, privacy__centre=share).privacy
    spent = [(p.nodes[0].factor * p.shape(k)) ** -2 for k in range(p.draws)]
    assert p.draws == 31
    assert math.fsum(spent) == pytest.approx(gdp_mu(8.0, 1e-4) ** 2, rel=1e-6)
    assert spent[0] / math.fsum(spent) == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize("mode", ["sound", "paper"])
def test_a_multiplier_that_pays_for_no_round_is_refused_not_trained_with(mode: str) -> None:
    with expect_refusal(key="privacy.noise.multiplier", value="0.01", names="privacy.epsilon 8"):
        outlined(mode=mode, privacy__noise__multiplier=0.01)
    with expect_refusal(key="privacy.noise.multiplier", value="1"):  # pays for some of its draws
        outlined(
            mode=mode, algorithm__kind="dp-dinno", algorithm__steps=50, topology__kind="ring",
            privacy__noise__multiplier=1.0, privacy__sampling={"kind": "full"},
        )  # fmt: skip


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("times", [1, 3])
def test_alone_it_costs_its_share(adjacency: str, times: int) -> None:
    event = paid_event(10, Gaussian, adjacency, epsilon=1.0, delta=1e-5, times=times)
    assert event.draw == 10
    found = proven([event] * times, 1e-5, adjacency)
    assert found.epsilon == pytest.approx(1.0, rel=0.01)
    assert found.epsilon <= 1.0 + 1e-6
    silent = paid_event(1, Gaussian, adjacency, epsilon=None, delta=1e-5, times=1)
    assert silent.release.noise_multiplier == 0


def test_training_gets_what_is_left_and_the_last_round_says_all(tmp_path: object) -> None:
    """Full lots: μ² of all releases add up, so the noise of the draws has a closed form."""
    from dataclasses import replace

    plain = outlined(rounds=6, privacy__sampling={"kind": "full"}, privacy__epsilon=2.0).privacy
    node = plain.nodes[0]
    event = paid_event(plain.draws, Gaussian, plain.adjacency, epsilon=0.6, delta=node.delta, times=1)
    paid = replace(plain, after=(event,))
    assert len(paid.planned(node)) == plain.draws + 1
    assert plain.after == ()
    mu = gdp_mu(2.0, node.delta)
    of_draws = math.sqrt(sum((node.factor * plain.shape(k)) ** -2 for k in range(plain.draws)))
    assert of_draws == pytest.approx(mu, rel=0.01)
    both = math.hypot(mu, gdp_mu(0.6, node.delta))
    total = proven(paid.planned(node), node.delta, plain.adjacency).epsilon
    assert gdp_mu(total, node.delta) == pytest.approx(both, rel=0.01)
    before, last = paid.epsilon_after([5, 6])
    assert before[1] is not None
    assert before[1] < 2.0
    assert last[1] == pytest.approx(total, rel=1e-6)  # no ε beside the figures that does not cover them


UNEVEN = [30, 50, 120]
BY_WEIGHTING = {weighting: configured(weighting=weighting) for weighting in ("uniform", "size")}


def pairs(records: list[int], rate: float) -> list[tuple[float, float]]:
    return [(rate, rate * J) for J in records]


@given(records=st.lists(st.integers(20, 500), min_size=1, max_size=6), rate=st.floats(0.001, 0.05))
def test_a_rounds_records_are_those_of_all_nodes_and_every_node_has_its_say(records: list[int], rate: float) -> None:
    for weighting, config in BY_WEIGHTING.items():
        made = pool(config, records, pairs(records, rate))
        assert made.records == sum(records)
        assert made.lot == pytest.approx(rate * sum(records))
        drawn = [q * J for q, J in zip(made.rates, records, strict=True)]
        assert sum(drawn) == pytest.approx(made.lot)
        assert made.rate == max(made.rates)
        if weighting == "uniform" and max(records) - min(records) > 1:
            assert drawn == pytest.approx([made.lot / len(records)] * len(records))
        else:
            assert len(set(made.rates)) == 1


def test_an_even_split_that_differs_by_one_has_one_rate() -> None:
    assert len(set(pool(configured(), [10, 11, 10], pairs([10, 11, 10], 0.1)).rates)) == 1


@pytest.mark.parametrize(
    ("changes", "rate", "says"),
    [
        (
            {"privacy__sampling": {"kind": "fixed-size", "lot": 3}},
            0.1,
            "privacy.sampling.kind fixed-size",
        ),
        ({}, 0.9, "weighting uniform 2 times"),
    ],
)
def test_what_cannot_have_the_nodes_objective_is_refused(changes: Any, rate: float, says: str) -> None:
    with expect_refusal(names=says):
        pool(configured(**changes), UNEVEN, pairs(UNEVEN, rate))
    pool(configured(**changes, weighting="size"), UNEVEN, pairs(UNEVEN, rate))
