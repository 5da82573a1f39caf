"""Gaussian differential privacy: the exact profile of one Gaussian release, and its inverses (Dong, Roth, Su 2022)."""

import math

from scipy.special import log_ndtr

from gossamer.accounting.checks import check_delta, check_epsilon
from gossamer.accounting.roots import root

LARGEST_MU = 1e6  # beyond it an upper bound within a hundred-thousandth is as good


def gdp_delta(mu: float, epsilon: float) -> float:
    """δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2): the exact profile of one Gaussian release."""
    if mu == 0:
        return max(0.0, -math.expm1(epsilon))
    if math.isinf(mu):
        return 1.0
    upper = float(log_ndtr(-epsilon / mu + mu / 2))
    lower = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return -math.exp(upper) * math.expm1(min(lower - upper, 0.0))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Smallest ε ≥ 0 with δ(ε) ≤ δ."""
    check_delta(delta)
    if math.isinf(mu):
        return math.inf
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    top = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9
    if mu > LARGEST_MU:  # the square alone decides, and the profile would be a difference of huge numbers
        return top
    return root(lambda e: gdp_delta(mu, e) - delta, 0.0, top, xtol=1e-12, rtol=1e-13)


def gdp_mu(epsilon: float, delta: float) -> float:
    """The μ whose profile passes through (ε, δ)."""
    check_delta(delta)
    check_epsilon(epsilon)
    top = 1.0
    while gdp_delta(top, epsilon) < delta:
        top *= 2
    return root(lambda mu: gdp_delta(mu, epsilon) - delta, 1e-12, top, xtol=1e-14, rtol=1e-13)
