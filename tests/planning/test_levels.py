"""Noise that a budget buys, and draws that noise leaves: by the paper's formula or by the accountant."""

from __future__ import annotations

import math

import pytest
from scipy.stats import norm
from tests.support import without_replacement
from tests.support.configurations import outlined
from tests.support.full_lots import DIGITS

from gossamer.accounting.gaussian import gdp_mu
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.errors import UserError
from gossamer.training.outline import outline


def test_a_fixed_multiplier_stops_hard() -> None:
    stopped = outlined(rounds=200, privacy__noise__multiplier=2.0).plan
    allowance = stopped.nodes[0].allowance
    assert 0 < allowance < 200
    assert stopped.nodes[0].proven.epsilon <= 8.0
    more = outlined(rounds=200, privacy__noise__multiplier=2.0, privacy__epsilon=8.2).plan
    assert more.nodes[0].allowance >= allowance
    assert stopped.epsilon_after([200])[0][1] <= 8.0


def test_no_noise_without_budget_or_multiplier() -> None:
    recipe = recipes.read("quickstart")
    del recipe["privacy"]["epsilon"]
    with pytest.raises(UserError, match=r"privacy\.epsilon"):
        outline(resolve(recipe))


def test_other_noises_stop_at_the_budget_too() -> None:
    changes = {"privacy__noise__multiplier": 40.0, "privacy__noise__family": {"kind": "laplace"}}
    node = outlined("dp-dkm/lasso", **changes).plan.nodes[0]
    assert 1 < node.allowance < 80
    assert node.proven.epsilon <= 0.5
    more = outlined("dp-dkm/lasso", **changes, rounds=node.allowance + 1, privacy__epsilon=9.0).plan.nodes[0]
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
        planned = outlined(rounds=20, privacy__noise__multiplier=3.0, privacy__epsilon=None, **changes).plan
        node = planned.nodes[0]
        assert node.factor * planned.shape(planned.draws_before) == pytest.approx(3.0, rel=1e-12)
        assert node.allowance == planned.draws


@pytest.mark.parametrize("sampling", [{"kind": "poisson"}, {"kind": "full"}])
def test_a_delta_below_the_rounding_of_a_plain_transform_is_planned_for(sampling: dict[str, str]) -> None:
    node = outlined(rounds=5, privacy__delta=1e-15, privacy__sampling=sampling).plan.nodes[0]
    assert 7.0 <= node.proven.epsilon <= 8.0


def test_truncated_noise_ends_where_asked_or_where_it_costs_next_to_nothing() -> None:
    family = {"kind": "truncated-gaussian"}
    own = outlined("dp-dkm/lasso", rounds=4, privacy__noise__family={**family, "bound": 9.0}).plan.nodes[0]
    assert own.end == 9.0
    free = outlined("dp-dkm/lasso", rounds=4, privacy__noise__family=family).plan
    node = free.nodes[0]
    # The mass beyond the end, over all numbers of all draws, costs (1 + e^ε) times itself of δ: a twentieth of it.
    cut = 2 * norm.sf(node.end) * free.draws * free.run.dimension
    assert cut * (1 + math.exp(0.5)) == pytest.approx(node.delta / 20, rel=1e-3)


def test_several_runs_that_share_a_budget_cost_it_together() -> None:
    one, four = (
        outlined(rounds=20, privacy__sampling={"kind": "full"}, privacy__runs=runs).plan for runs in (1, 4)
    )
    assert four.nodes[0].factor == pytest.approx(2 * one.nodes[0].factor, rel=1e-6)


def test_full_lots_are_priced_by_the_closed_form() -> None:
    p = outlined(DIGITS).plan
    assert p.nodes[0].factor == pytest.approx(math.sqrt(30) / gdp_mu(8.0, 1e-4), rel=1e-6)
    assert p.figures()["epsilon_proven"] == pytest.approx(8.0, rel=1e-6)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
def test_the_mean_is_one_more_draw_with_its_share_of_the_budget(share: float) -> None:
    p = outlined(DIGITS, privacy__centre=share).plan
    spent = [(p.nodes[0].factor * p.shape(k)) ** -2 for k in range(p.draws)]
    assert p.draws == 31
    assert math.fsum(spent) == pytest.approx(gdp_mu(8.0, 1e-4) ** 2, rel=1e-6)
    assert spent[0] / math.fsum(spent) == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize("mode", ["sound", "paper"])
def test_a_multiplier_that_pays_for_no_round_is_refused_not_trained_with(mode: str) -> None:
    with pytest.raises(
        UserError, match=r"privacy\.noise\.multiplier = 0\.01 is too small for privacy\.epsilon = 8"
    ):
        outlined(mode=mode, privacy__noise__multiplier=0.01)
    with pytest.raises(UserError, match="the first round alone"):  # pays for some of its draws
        outlined(
            mode=mode, algorithm__kind="dp-dinno", algorithm__steps=50, topology__kind="ring",
            privacy__noise__multiplier=1.0, privacy__sampling={"kind": "full"},
        )  # fmt: skip
