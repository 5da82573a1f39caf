"""Bounds on vectors of independent noises, by the ℓ₂ norm of the whole change and what is known before truncation."""

import math
from collections.abc import Callable

import numpy as np


def crossing(
    shift: float, bound: float, rate: float, dimensions: int, density: Callable[[float], float], tail: float
) -> float:
    """Σ_j P(z_j > A − |v_j|) ≤ Σ_j |v_j| f(A − Δ) ≤ √d Δ f(A − Δ), for a density f that falls and ‖v‖ ≤ Δ < A.

    `density` is f before truncation, which took `tail` of a coordinate's mass. Of sampled releases not known:
    there the other data set's noise is not the same noise moved.
    """
    if rate < 1 or bound <= shift:
        return math.inf
    return math.sqrt(dimensions) * shift * density(bound - shift) / (1 - tail)


def concentrated_epsilon(rho: float, delta: float) -> float:
    """ε(δ) of ρ-zCDP: the least over orders α of ρα + (log(1/δ) − log α) / (α − 1) + log(1 − 1/α).

    Canonne, Kamath, Steinke 2020, Proposition 12; any order gives a bound, so a coarse search is safe.
    """
    orders = 1 + np.geomspace(1e-3, 1e5, 4000)
    return max(
        0.0, float(np.min(rho * orders - np.log(delta * orders) / (orders - 1) + np.log1p(-1 / orders)))
    )


def concentrated_delta(rho: float, epsilon: float) -> float:
    """δ(ε) of ρ-zCDP, by the same proposition: the least over orders α of e^{(α−1)(αρ−ε)} (1 − 1/α)^α / (α − 1)."""
    orders = 1 + np.geomspace(1e-3, 1e5, 4000)
    logs = (orders - 1) * (orders * rho - epsilon) + orders * np.log1p(-1 / orders) - np.log(orders - 1)
    return float(np.exp(min(0.0, float(np.min(logs)))))
