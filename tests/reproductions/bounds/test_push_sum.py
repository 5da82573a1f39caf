"""The bounds scale as the papers say, agree with each other, and hold where the truth can be computed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.refusals import expect_refusal

from reproductions.bounds.push_sum import (
    Problem,
    adad2p_beta,
    adad2p_proposition3,
    adad2p_proposition4,
    adad2p_theorem1,
    dyn_d2p_corollary1,
    dyn_d2p_theorem1,
)

PROBLEM = Problem(gap=2.0, smoothness=1.5, nodes=4, within=0.5, between=0.3, start=1.0, network=1.2, q=0.4)
BUDGET: dict[str, Any] = {"J": 10**6, "dim": 100, "epsilon": 0.5, "delta": 1e-5}


@pytest.mark.parametrize(
    ("change", "factor"),
    [({"nodes": 16}, 1 / 2), ({"J": 2 * 10**6}, 1 / 2), ({"epsilon": 1.0}, 1 / 2), ({"dim": 400}, 2), ({"delta": 1e-20}, 2)],
)  # fmt: skip
def test_adad2p_theorem_scales_as_stated(change: dict[str, Any], factor: float) -> None:
    base = {**BUDGET, "nodes": 4}
    ratio = adad2p_theorem1(**{**base, **change}).bound / adad2p_theorem1(**base).bound
    assert ratio == pytest.approx(factor)


def bound_at_theorem(nodes: int, J: int, epsilon: float = 0.5) -> float:
    """Proposition 3 evaluated where Theorem 1 says to stop; gradients of norm 2 throughout."""
    budget = {**BUDGET, "J": J, "epsilon": epsilon}
    problem = replace(PROBLEM, nodes=nodes, start=PROBLEM.start * nodes)
    setting = adad2p_theorem1(**budget, nodes=nodes, largest_lr=0.02)
    # K equal terms: one of them, K times, instead of a list of millions.
    beta, K = adad2p_beta(**budget), setting.rounds
    one = adad2p_proposition3(problem, lr=setting.lr, beta=beta * K, mean_square_gradients=[4.0])
    first_round = replace(problem, gap=0.0, start=0.0)
    noise = adad2p_proposition3(first_round, lr=setting.lr, beta=beta * K, mean_square_gradients=[4.0])
    return (one - noise) / K + noise


def test_theorem_follows_from_the_proposition_at_its_setting() -> None:
    """K = 1/β and γ ≈ sqrt(nβ) turn eq. (11) into eq. (10): 1/√n, and 1/(Jε), for large J."""
    J = 10**10
    assert bound_at_theorem(16, J) / bound_at_theorem(4, J) == pytest.approx(1 / 2, rel=2e-3)
    assert bound_at_theorem(4, 2 * J) / bound_at_theorem(4, J) == pytest.approx(1 / 2, rel=2e-3)
    assert bound_at_theorem(4, J, epsilon=1.0) / bound_at_theorem(4, J) == pytest.approx(1 / 2, rel=2e-3)
    constant = 4 * PROBLEM.gap + 2 * PROBLEM.smoothness * (PROBLEM.within + 4.0)  # what the O hides at this problem
    assert bound_at_theorem(4, J) == pytest.approx(
        adad2p_theorem1(**{**BUDGET, "J": J}, nodes=4, constant=constant).bound, rel=2e-3
    )


def test_adaptive_noise_is_never_worse_than_constant_and_better_when_gradients_decay() -> None:
    beta, G, K = adad2p_beta(J=1000, dim=50, epsilon=1.0, delta=1e-5), 3.0, 400
    constant = adad2p_proposition4(PROBLEM, lr=0.01, beta=beta, rounds=K, bound=G)
    same = adad2p_proposition3(PROBLEM, lr=0.01, beta=beta, mean_square_gradients=[G**2] * K)
    assert same == pytest.approx(constant)
    decaying = [G**2 * 10 ** (-2 * k / K) for k in range(K)]
    adaptive = adad2p_proposition3(PROBLEM, lr=0.01, beta=beta, mean_square_gradients=decaying)
    silent = adad2p_proposition3(PROBLEM, lr=0.01, beta=0.0, mean_square_gradients=decaying)
    assert silent < adaptive < constant
    # The part that noise adds shrinks with the mean square of the gradients, here by (1 − 10⁻²) / (2 ln 10).
    assert (adaptive - silent) / (constant - silent) == pytest.approx((1 - 1e-2) / (2 * math.log(10)), rel=1e-2)


def dyn(nodes: int, J: int, mu: float, **changes: Any) -> Any:
    """Theorem 1 at Corollary 1's setting: gradients of norm 1 on every node."""
    K = changes.pop("rounds", 200)
    C = np.exp(-np.linspace(0, 1, K))
    problem = replace(PROBLEM, nodes=nodes, start=PROBLEM.start * nodes, q=changes.pop("q", 0.4))
    setting = dyn_d2p_corollary1(nodes=nodes, J=J, mu_total=mu, q=problem.q)
    arguments = {
        "lr": setting.lr, "J": J, "dim": 30, "mu_total": mu, "clip": C, "noise": C**1.5,
        "mean_square_gradients": [1.0] * K, "square_mean_gradients": [1.0] * K,
    }  # fmt: skip
    terms = dyn_d2p_theorem1(problem, **{**arguments, **changes})
    # The sequences here are a sample of K' of the K rounds the corollary prescribes: put K in place of K'.
    times = setting.rounds / K
    return terms._replace(
        start=terms.start / times, initial_spread=terms.initial_spread / times, noise=terms.noise * times
    )


def test_dyn_d2p_corollary_follows_from_the_theorem_at_its_setting() -> None:
    """1/√n and 1/(J μ_tot), for J μ_tot large against √n."""
    J = 10**8
    base = dyn(4, J, 0.5).total
    assert dyn(16, J, 0.5).total / base == pytest.approx(1 / 2, rel=2e-3)
    assert dyn(4, 2 * J, 0.5).total / base == pytest.approx(1 / 2, rel=2e-3)
    assert dyn(4, J, 1.0).total / base == pytest.approx(1 / 2, rel=2e-3)
    # The network's (1 − q)^−2 multiplies terms of higher order: the stated bound holds with room.
    bad = dyn(4, 10**4, 0.5, q=0.99)
    assert base < bad.total
    ratio = (dyn(4, 10**4, 0.5, q=0.98).drift, bad.drift)
    assert ratio[1] / ratio[0] == pytest.approx(4.0)
    values = [dyn_d2p_corollary1(nodes=n, J=10**5, mu_total=0.3, q=0.5).bound for n in (4, 16, 64)]
    np.testing.assert_allclose(np.divide(values[:-1], values[1:]), 2.0)


def test_noise_term_prefers_falling_clips_and_noise_that_follows_their_root() -> None:
    K = 300
    C = 3.0 ** (-np.arange(K) / K)

    def noise(clip: np.ndarray, level: np.ndarray) -> float:
        silent = {"mean_square_gradients": [0.0], "square_mean_gradients": [0.0]}
        return dyn_d2p_theorem1(PROBLEM, lr=0.01, J=1000, dim=30, mu_total=0.5, clip=clip, noise=level, **silent).noise

    constant, dynamic = noise(np.ones(K), np.ones(K)), noise(C, C * 2.0 ** (-np.arange(K) / K))
    assert dynamic < 0.75 * constant
    assert noise(C, 7 * C) == pytest.approx(noise(C, C))  # the scale is σ̃'s
    best = noise(C, np.sqrt(C))
    assert best == pytest.approx(constant * C.mean() ** 2)  # Cauchy–Schwarz with equality
    rng = np.random.default_rng(0)
    for _ in range(50):
        assert noise(C, np.sqrt(C) * np.exp(0.3 * rng.normal(size=K))) > best


def test_bias_is_the_clipped_share_and_does_not_shrink_with_data() -> None:
    K = 10
    share = {"largest_gradient": 5.0, "gradient_norms": [2.0] * K, "clipped_shares": [0.1] * K, "rounds": K}
    assert dyn(4, 10**6, 0.5, **share).bias == dyn(4, 10**8, 0.5, **share).bias == pytest.approx(2 * 5 * 2 * 0.1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: adad2p_theorem1(**{**BUDGET, "J": 100}, nodes=4), "J 100"),
        (lambda: dyn_d2p_corollary1(nodes=100, J=10, mu_total=0.5), "J 10 21"),
        (lambda: adad2p_proposition4(PROBLEM, lr=1.0, beta=0.1, rounds=5, bound=1.0), "lr 1"),
        (lambda: replace(PROBLEM, q=1.0), "q 1.0"),
    ],
)
def test_outside_their_conditions_they_refuse(call: Any, words: str) -> None:
    with expect_refusal(names=words):
        call()
    least = math.ceil(100 / 0.5 / 10) + 1
    assert dyn_d2p_corollary1(nodes=100, J=least, mu_total=0.5).bound > 0
