"""When an audit looks, what looking early costs, and what it must hold a run to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.configurations import configured

from gossamer.accounting.profiles import TradeOff, gdp_delta, gdp_epsilon
from gossamer.auditing.bounds import Coins
from gossamer.auditing.trainings import ScoreFile
from gossamer.auditing.verdict import (
    GUESSES,
    RATES,
    Attack,
    Promised,
    batch_sizes,
    promised,
    try_until_decided,
)


class Told(Attack):
    """Coins that are told with this probability: randomised response of ε = ln(p / (1 − p))."""

    told, notes, independent, runs = "coins", (), True, 64

    def __init__(self, right: float, *, looks: bool = True, at_once: int = 16, coins: int = 100):
        self.right, self.looks, self.at_once, self.coins = right, looks, at_once, coins
        self.batches: list[tuple[int, int]] = []

    def batch(self, number: int, runs: int) -> Coins:
        self.batches.append((number, runs))
        rng = np.random.default_rng(number)
        heads = rng.random(self.coins * runs) < 0.5
        scores = np.where(rng.random(len(heads)) < self.right, heads, ~heads).astype(float)
        return Coins(scores, heads, np.repeat(np.arange(runs), self.coins), runs, 0.5, 10.0 * runs, {"last": number})


sizes = st.tuples(st.integers(1, 500), st.integers(1, 64))


@given(sizes)
def test_looks_double_and_batches_fill_up_and_both_use_all_runs(given_: tuple[int, int]) -> None:
    runs, at_once = given_
    looks = batch_sizes(runs, at_once, doubling=True)
    for found in (looks, batch_sizes(runs, at_once)):
        assert sum(found) == runs
        assert 1 <= min(found) <= max(found) <= at_once
    done = 0
    for size in looks:
        assert size <= max(1, done)
        done += size


def test_a_broken_promise_ends_the_audit_early_and_a_kept_one_does_not() -> None:
    broken = Told(0.99)
    collected, verdict = try_until_decided(broken, 1e-6, 0.999, Promised({"proven": 0.5}), 64)
    assert verdict.violated == ("proven",)
    assert verdict.runs == collected.runs < 64
    assert verdict.looks == len(broken.batches)
    kept = Told(0.6)
    _, quiet = try_until_decided(kept, 1e-6, 0.999, Promised({"proven": 0.5, "claimed": 0.45}), 64)
    assert (quiet.violated, quiet.runs) == ((), 64)
    assert 0 < quiet.epsilon < np.log(0.6 / 0.4)


def test_what_may_not_look_early_looks_once_with_all_of_its_confidence() -> None:
    once, often = Told(0.6, looks=False), Told(0.6)
    _, one = try_until_decided(once, 1e-6, 0.999, Promised(), 32)
    _, many = try_until_decided(often, 1e-6, 0.999, Promised(), 32)
    assert once.batches == [(0, 16), (1, 16)]
    assert one.looks == 1
    assert many.looks == len(often.batches) > 1
    assert one.bounds[0].confidence == many.bounds[0].confidence == 0.999


def test_only_what_is_promised_can_be_broken() -> None:
    figures = {"epsilon_claimed": 1.0, "epsilon_proven": None}
    whole = TradeOff(((2.0, 1e-5),))
    assert promised(figures, "paper", whole) == Promised({"claimed": 1.0})
    assert promised(figures, "sound") == Promised()
    both = {"epsilon_claimed": 1.0, "epsilon_proven": 2.0}
    assert promised(both, "sound", whole) == Promised({"proven": 2.0}, whole)


class Gaussian(Told):
    """Normal scores of this μ."""

    def __init__(self, mu: float, **how: Any):
        super().__init__(0.5, **how)
        self.mu = mu

    def batch(self, number: int, runs: int) -> Coins:
        told = super().batch(number, runs)
        noise = np.random.default_rng(number + 100).standard_normal(len(told.heads))
        return replace(told, scores=noise + self.mu * told.heads)


@pytest.mark.slow
def test_what_is_proven_is_judged_by_the_curve_and_a_claim_by_its_point() -> None:
    """μ = 1.5 where 1 is proven: outside of the curve, while the bound at one point stays under both figures."""
    epsilons = np.linspace(0, 6, 60).tolist()
    whole = TradeOff.of(epsilons, [gdp_delta(1.0, epsilon) for epsilon in epsilons])
    figure = gdp_epsilon(1.0, 1e-5)
    limits = Promised({"claimed": figure, "proven": figure}, whole)
    for mu, violated in ((1.5, ("proven",)), (1.0, ())):
        _, verdict = try_until_decided(Gaussian(mu, looks=False, coins=250), 1e-5, 0.999, limits, 16)
        assert verdict.violated == violated
        assert verdict.above_one_point == ()
        assert verdict.epsilon < figure
        assert [test.name for test in verdict.curve_tests] == [RATES, GUESSES]
        assert [test.confidence for test in verdict.curve_tests] == [0.999, 0.999]
    tied = Gaussian(1.5, looks=False, coins=40)
    tied.independent = False  # type: ignore[misc]
    _, verdict = try_until_decided(tied, 1e-5, 0.999, limits, 16)
    assert verdict.violated == ()
    assert [test.name for test in verdict.curve_tests] == [GUESSES, RATES]
    _, point = try_until_decided(Gaussian(1.5, looks=False), 1e-5, 0.999, Promised({"proven": figure}), 16)
    assert point.curve_tests == []


def test_runs_of_later_batches_are_numbered_on() -> None:
    collected = Coins.join([Told(0.6).batch(number, 2) for number in range(3)])
    assert np.unique(collected.run).tolist() == [0, 1, 2, 3, 4, 5]
    assert (collected.runs, collected.seconds, collected.samples, collected.details) == (
        6,
        1.5,
        60.0,
        {"last": 2},
    )


def test_batches_on_disk_are_not_trained_again(tmp_path: Path) -> None:
    config = configured()
    first, again = (Told(0.6, coins=1) for _ in range(2))  # retraining: a coin a run
    _, one = try_until_decided(first, 1e-6, 0.999, Promised(), 8, saved=ScoreFile(tmp_path, config))
    seen: list[Any] = []
    _, two = try_until_decided(
        again, 1e-6, 0.999, Promised(), 8, lambda *at: seen.append(at), saved=ScoreFile(tmp_path, config)
    )
    assert first.batches
    assert again.batches == []
    assert two.epsilon == pytest.approx(one.epsilon)
    assert seen[-1] == (8, 8)
