"""Right guesses against a trade-off curve: never rejected where some mechanism that keeps to the curve can do it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.optimize import linprog

from gossamer.accounting.profiles import TradeOff, gdp_delta
from gossamer.auditing import bounds


def pure(epsilon: float) -> TradeOff:
    return TradeOff(((epsilon, 0.0),))


def gaussian(mu: float) -> TradeOff:
    return TradeOff(tuple((e, gdp_delta(mu, e)) for e in (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)))


def best_chance(curve: TradeOff, canaries: int, guesses: int, correct: int) -> float:
    """The largest P[so many right] over all mechanisms that keep to every (ε, δ) of the curve, by a linear program.

    A mechanism gives a row of guesses (in, out or silent, `guesses` of them not silent) for each row of coins. That
    ends everything a mechanism with an attacker can do, for to guess is to look at what was released.
    """
    coins = list(itertools.product((0, 1), repeat=canaries))
    says = [g for g in itertools.product((0, 1, None), repeat=canaries) if sum(s is not None for s in g) == guesses]
    place = {(u, g): k for k, (u, g) in enumerate(itertools.product(coins, says))}
    rows: list[tuple[int, int, float]] = []
    limits: list[float] = []
    unknowns = len(place)

    def at_most(entries: dict[int, float], limit: float) -> None:
        rows.extend((len(limits), column, value) for column, value in entries.items())
        limits.append(limit)

    for (epsilon, delta), u, i in itertools.product(curve.points, coins, range(canaries)):
        other = (*u[:i], 1 - u[i], *u[i + 1 :])
        # Σ_g (P[g | u] − e^ε P[g | other])₊ ≤ δ, with an unknown for each positive part.
        for k, g in enumerate(says):
            above = {place[u, g]: 1.0, place[other, g]: -math.exp(epsilon), unknowns + k: -1.0}
            at_most(above, 0.0)
        at_most({unknowns + k: 1.0 for k in range(len(says))}, delta)
        unknowns += len(says)
    gain = np.zeros(unknowns)
    for (u, g), k in place.items():
        if sum(s == c for s, c in zip(g, u, strict=True)) >= correct:
            gain[k] = -1 / len(coins)
    sums = sparse.csr_matrix(
        ([1.0] * len(place), ([coins.index(u) for u, _ in place], list(place.values()))),
        (len(coins), unknowns),
    )
    where = sparse.csr_matrix(
        ([v for _, _, v in rows], ([r for r, _, _ in rows], [c for _, c, _ in rows])), (len(limits), unknowns)
    )
    found = linprog(gain, where, limits, sums, np.ones(len(coins)), bounds=(0, None), method="highs")
    assert found.success
    return float(-found.fun)


@pytest.mark.parametrize("curve", [pure(1.0), gaussian(0.5), gaussian(1.5), TradeOff(((0.5, 0.05),))])
@pytest.mark.parametrize(("canaries", "guesses"), [(1, 1), (2, 2), (2, 1), (3, 3), (3, 2)])
def test_nothing_is_rejected_that_some_mechanism_can_do(curve: TradeOff, canaries: int, guesses: int) -> None:
    for correct in range(1, guesses + 1):
        possible = best_chance(curve, canaries, guesses, correct)
        bound = bounds.guess_p_value(curve.least_false_alarms, canaries, guesses, correct, steps=40)
        assert bound >= possible - 1e-6
        if (canaries, guesses) == (1, 1) and bound < 1:  # a single canary is the definition itself
            assert bound == pytest.approx(possible, abs=1e-6)
        # A little below what is possible must not be rejected either way of asking.
        if possible < 0.5:
            assert not bounds.rejects(curve.least_false_alarms, canaries, guesses, correct, possible * (1 - 1e-6))


def test_the_published_form_of_the_recursion_says_the_same() -> None:
    """r and h of the paper's Algorithm 3, written down independently of the tails."""

    def published(curve: TradeOff, m: int, r: int, c: int, tau: float) -> bool:
        right, wrong = tau * c / m, tau * (r - c) / m
        for i in range(c - 1, -1, -1):
            below = max(wrong, curve.least_false_alarms(right))
            right += i / (r - i) * (below - wrong)
            wrong = below
            if right + wrong > r / m:
                return True
        return False

    for curve, (m, r) in itertools.product((pure(1.0), gaussian(0.7)), ((60, 60), (60, 25))):
        for tau in (0.05, 1e-3):
            ours = [bounds.rejects(curve.least_false_alarms, m, r, c, tau) for c in range(r + 1)]
            assert ours == [published(curve, m, r, c, tau) for c in range(r + 1)]
            assert ours == sorted(ours)  # more right guesses are never easier to explain
            assert bounds.most_correct(curve.least_false_alarms, m, r, tau) == ours.count(False) - 1


def test_it_agrees_with_the_exact_tail_of_randomised_response() -> None:
    """For pure ε-DP the worst case is known: a binomial. Only what that rejects may be rejected."""
    epsilon, guesses = 1.0, 200
    tail = stats.binom.sf(np.arange(guesses + 1) - 1, guesses, 1 / (1 + math.exp(-epsilon)))
    for tau in (0.05, 1e-3):
        inverse = pure(epsilon).least_false_alarms
        rejected = [bounds.rejects(inverse, guesses, guesses, c, tau) for c in range(guesses + 1)]
        first = rejected.index(True)
        assert tail[first] <= tau
        assert all(rejected[first:])
        assert first - int(np.argmax(tail <= tau)) <= 12  # and it is not far from it


def test_no_guess_and_no_right_guess_reject_nothing() -> None:
    inverse = pure(1.0).least_false_alarms
    assert not bounds.rejects(inverse, 10, 0, 0, 1e-3)
    assert not bounds.rejects(inverse, 10, 10, 0, 1e-3)
    assert bounds.guess_p_value(inverse, 10, 10, 5) == 1.0
