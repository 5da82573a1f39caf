"""Noise that nodes share: who holds q nodes' secrets gets to what is proven against q, and not beyond it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.audits import on_axes, outlined, verdict_of
from tests.support.refusals import expect_refusal

from gossamer.accounting.observers import EVERYONE, colluders
from gossamer.auditing import verdict as verdicts
from gossamer.auditing.attacks import Axes, attack_of, observer_of
from gossamer.auditing.bounds import Coins
from gossamer.auditing.shared_noise import Secrets, proven_against
from gossamer.kernels.noise import Indices, Stream
from gossamer.mechanism.noise.base import NOISE
from gossamer.mechanism.noise.pairwise import PairwiseNoise

FULL = {"kind": "full"}


def shared(*, ratio: float = 100.0, colluders: int = 1, secrets: Any = "complete", **changes: Any) -> Any:
    family = {"kind": "pairwise", "colluders": colluders, "ratio": ratio, "secrets": secrets}
    usual = {"nodes": 4, "rounds": 2, "privacy__sampling": FULL, "privacy__epsilon": 2.0}
    return outlined(**{**usual, **changes}, privacy__noise__family=family)


def proven_mu(o: Any, observer: str = "all") -> float:
    """Of full lots, that is, of Gaussians alone."""
    view = observer_of(observer, o.topology)
    events = o.privacy.planned(proven_against(o.privacy, view)[0].worst)
    apart = 2 if o.privacy.adjacency == "replace-one" else 1
    return apart * math.sqrt(sum(event.release.seen_by(view).noise_multiplier ** -2 for event in events))


def coins_of(attack: Any, coins: int) -> Coins:
    runs = math.ceil(coins / len(attack.batch(0, 1).scores))
    coins: Coins = attack.batch(0, runs)
    return coins


def seen_mu(coins: Coins) -> float:
    one, other = coins.scores[coins.heads], coins.scores[~coins.heads]
    return float((one.mean() - other.mean()) / math.sqrt((one.var() + other.var()) / 2))


def is_outside(attack: Any, o: Any, observer: str = "all", coins: int = 20_000) -> bool:
    """By the test that decides, alone: a whole verdict takes longer."""
    plan, _ = proven_against(o.privacy, observer_of(observer, o.topology))
    return verdicts.rates(coins_of(attack, coins), plan.trade_off(), 0.999).violated


def test_of_any_so_many_nodes_the_worst_are_taken() -> None:
    o = shared(data__train_rows=1000)
    assert Secrets.held_by(EVERYONE, o.privacy) == Secrets((3,), 0)
    assert Secrets.held_by(colluders(0), o.privacy) == Secrets((), 0)
    assert Secrets.held_by(observer_of("coalition:0,2", o.topology), o.privacy) == Secrets((0, 2), 1)
    assert Secrets.held_by(EVERYONE, outlined().privacy) is None
    assert "secrets of nodes 3 and attacks the records of node 0" in Secrets((3,), 0).note


def test_what_is_unknown_is_the_covariance_that_is_priced() -> None:
    o = shared(nodes=5, ratio=3.0, secrets=[[0, 1], [1, 2], [2, 3], [3, 4], [4, 0], [0, 2]])
    for members in ((), (1,), (2, 4)):
        unknown = Secrets(members, 0).unknown(o.privacy)
        honest = [i for i in range(5) if i not in members]
        assert not np.delete(unknown, honest, axis=0).any()
        left = np.linalg.inv(unknown[np.ix_(honest, honest)])[0, 0]
        assert o.privacy.noise.secrets.effective_noise_against(members, 3.0, 0) == pytest.approx(left**-0.5, rel=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ratio": 1.0, "colluders": 2},
        {"secrets": [[0, 1], [1, 2], [2, 3], [3, 0]], "algorithm__kind": "dp-dsgd", "topology__kind": "ring"},
        {"privacy__adjacency": "replace-one"},
        {"rounds": 33, "colluders": 0},  # more sums than are learned together
    ],
)
def test_the_colluders_that_were_planned_for_reach_what_is_proven_and_no_more(
    changes: dict[str, Any],
) -> None:
    o = shared(**changes)
    attack = attack_of(o, "all", None)
    coins = coins_of(attack, 20_000)
    assert attack.independent
    # 20,000 coins: the measured μ spreads by 0.015 to 0.02, and is 1.4 or less
    assert 0.9 * proven_mu(o) <= seen_mu(coins) <= proven_mu(o) + 0.08
    assert not verdicts.rates(coins, o.privacy.trade_off(), 0.999).violated


@pytest.mark.slow
def test_lots_that_are_drawn_are_attacked_draw_by_draw() -> None:
    o = shared(privacy__sampling={"kind": "poisson", "rate": 0.25}, privacy__epsilon=4.0)
    verdict = verdict_of(attack_of(o, "all", None), o, runs=40)
    assert verdict.violated == ()
    assert verdict.epsilon > 0.5


@pytest.mark.parametrize("observer", ["all+0", "all+2", "coalition:1", "coalition:1,2", "neighbour", "final"])
def test_each_is_held_against_what_is_proven_against_it(observer: str) -> None:
    o = shared()
    assert not is_outside(attack_of(o, observer, None), o, observer, 5_000)


def test_the_filter_of_a_coalition_separates_as_it_expects() -> None:
    """Its Kalman filter starts from what the coalition knows of the noise, and from the covariance of the rest."""
    o = shared(rounds=4)
    attack = attack_of(o, "coalition:1,2", None)
    found = attack.batch(0, 40)
    coins = Coins(found.scores, found.heads, found.run)
    assert seen_mu(coins) == pytest.approx(found.details["mu_of_the_filter"], rel=0.05)
    assert seen_mu(coins) >= 0.9 * proven_mu(o, "coalition:1,2")  # two of four hear everything here


def test_two_figures_where_an_observer_holds_more_than_was_planned_for() -> None:
    o = shared()
    assert proven_against(o.privacy, EVERYONE) == (o.privacy, None)
    assert proven_against(o.privacy, colluders(1))[1] is None
    _, more = proven_against(o.privacy, colluders(2))
    _, fewer = proven_against(o.privacy, colluders(0))
    assert more["epsilon_proven_as_planned"] == fewer["epsilon_proven_as_planned"] == pytest.approx(2.0, rel=1e-3)
    assert fewer["epsilon_proven"] < 2.0 < more["epsilon_proven"]
    plain = outlined().privacy
    assert proven_against(plain, colluders(2)) == (plain, None)


def test_one_more_colluder_is_outside_of_what_was_planned_and_inside_of_what_holds() -> None:
    o = shared(rounds=1)
    coins = coins_of(attack_of(o, "all+2", None), 40_000)
    own = proven_against(o.privacy, colluders(2))[0]
    assert verdicts.rates(coins, o.privacy.trade_off(), 0.999).violated
    assert not verdicts.rates(coins, own.trade_off(), 0.999).violated


# --- mechanisms that are broken -------------------------------------------------------------------------------


@dataclass(frozen=True)
class UsedTwice(PairwiseNoise):
    """The masks of a draw are those of the draw before."""

    def _draw(self, stream: Stream, batch: Any, k: int, dimension: int) -> torch.Tensor:
        return PairwiseNoise._draw(self, stream, batch, 0, dimension)


@dataclass(frozen=True)
class Smaller(PairwiseNoise):
    """Masks of a tenth of their size."""

    def _draw(self, stream: Stream, batch: Any, k: int, dimension: int) -> torch.Tensor:
        return PairwiseNoise._draw(self, stream, batch, k, dimension) * 0.1


@dataclass(frozen=True)
class HalfTheRatio(PairwiseNoise):
    def __post_init__(self) -> None:
        object.__setattr__(self, "of", replace(self.of, ratio=RATIOS[HalfTheRatio] / 2))


@dataclass(frozen=True)
class NoneOfItsOwn(PairwiseNoise):
    """Node 1 adds masks and nothing else."""

    def add(self, stream: Stream, nodes: Indices, k: int, sums: torch.Tensor, **rest: Any) -> None:
        own = torch.zeros_like(sums)
        stream.normal_rows(NOISE, nodes, k, own, rest["multiplier"] * rest["bound"])
        PairwiseNoise.add(self, stream, nodes, k, sums, **rest)
        sums.view(-1, self.copies, sums.shape[1])[1] -= own.view(-1, self.copies, sums.shape[1])[1]


RATIOS = {UsedTwice: 100.0, Smaller: 1.0, HalfTheRatio: 0.5, NoneOfItsOwn: 100.0}
FALLING = {"kind": "growing-budget", "ratio": 16.0}  # a record shows in one draw more than in the other


def falling(broken: type, **changes: Any) -> Any:
    return shared(ratio=RATIOS[broken], privacy__noise__schedule=FALLING, privacy__epsilon=4.0, **changes)


def attack_on(o: Any, broken: type | None) -> Axes:
    parts = on_axes(o)
    if broken is not None:
        parts = replace(parts, noise=broken(parts.noise.levels, parts.noise.of))
    return Axes(parts, EVERYONE)


@pytest.mark.parametrize("broken", RATIOS, ids=lambda one: one.__name__)
def test_masks_that_are_not_what_they_should_be_are_found(broken: type) -> None:
    o = falling(broken)
    assert is_outside(attack_on(o, broken), o, coins=60_000)
    assert not is_outside(attack_on(o, None), o)


def test_what_cannot_be_audited_says_what_can() -> None:
    replaced = {"privacy__sampling": {"kind": "fixed-size", "lot": 8}, "privacy__adjacency": "replace-one"}
    replaced["data__train_rows"] = 1000
    for changes, observer, canary, words in (
        ({"nodes": 120}, "all", None, "nodes 120 --observer all 0"),
        ({"algorithm__kind": "dp-dinno", "topology__kind": "ring"}, "all", None, "privacy.sampling.kind --canary"),
        (replaced, "all", None, "privacy.sampling.kind --canary"),
        ({}, "all", "blank", "--canary blank --observer"),
    ):
        with expect_refusal(names=words):
            attack_of(shared(**changes), observer, canary)


# --- with power -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("planned_for", [0, 1, 2])
def test_with_300000_coins_and_two_seeds(planned_for: int) -> None:
    """One more than planned is above the planned ε itself, at one point and by the curve; as many never are."""
    for seed in range(2):
        o = shared(rounds=1, seed=seed, colluders=planned_for, privacy__epsilon=1.0, privacy__delta=0.05)
        planned, runs = o.privacy.figures()["epsilon_proven"], 836
        as_planned = coins_of(attack_of(o, "all", None), 300_000)
        # the measured μ spreads by 0.0037, and learning costs 0.001 of it
        assert seen_mu(as_planned) == pytest.approx(proven_mu(o), abs=0.02)
        verdict = verdict_of(attack_of(o, "all", None), o, runs)
        assert verdict.violated == ()
        assert verdict.epsilon <= planned
        more = f"all+{planned_for + 1}"
        own = proven_against(o.privacy, colluders(planned_for + 1))[0].figures()["epsilon_proven"]
        beyond = verdict_of(attack_of(o, more, None), o, runs, more)
        assert beyond.violated == ()
        assert planned < beyond.epsilon <= own


@pytest.mark.slow
@pytest.mark.parametrize("broken", RATIOS, ids=lambda one: one.__name__)
def test_masks_that_are_not_what_they_should_be_are_found_under_other_seeds(broken: type) -> None:
    for seed in (1, 2):
        o = falling(broken, seed=seed)
        assert verdict_of(attack_on(o, broken), o).violated == ("proven",)
        assert verdict_of(attack_on(o, None), o).violated == ()
