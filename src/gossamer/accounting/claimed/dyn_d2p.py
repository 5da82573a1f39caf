"""Dyn-D²P (Zhu et al. 2025): Propositions 2 and 3, eqs. (4) and (6) to (10).

Eq. (4) is the profile of one Gaussian, `accounting/gaussian.py`. Where the paper writes 1/J we take the sampling rate.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from gossamer.accounting.claimed.base import Claim
from gossamer.accounting.gaussian import gdp_epsilon, root
from gossamer.errors import UserError

EQ10_LARGEST_MU = 1.12  # e^x − 1 ≤ 2x, which eq. (10) rests on, holds up to x = μ² = 1.256
SKEWNESS_LIMIT = 0.1  # above it the sum is visibly not yet normal in the tail that δ looks at


def clt_mu(mus: ArrayLike, rate: float) -> float:
    """μ_tot = p sqrt(Σ (e^{μ_k²} − 1)), eq. (6)."""
    with np.errstate(over="ignore"):
        return float(rate * np.sqrt(np.sum(np.expm1(np.square(np.asarray(mus, dtype=float))))))


def initial_budget(mu_tot: float, rate: float, rounds: int, ratio: float) -> float:
    """μ_0 of the schedule μ_k = μ_0 ρ^(k/K) that spends μ_tot: the root of eq. (8)."""
    growth = schedule(1.0, rounds, ratio)
    flat = uniform_budget(mu_tot, rate, rounds)
    low, high = flat / growth.max(), flat / growth.min()
    if low == high:
        return flat
    return root(lambda mu: clt_mu(mu * growth, rate) - mu_tot, low, high, xtol=1e-15, rtol=1e-13)


def schedule(mu_0: float, rounds: int, ratio: float) -> np.ndarray:
    """μ_k = μ_0 ρ^(k/K), k = 0 … K − 1, eq. (7)."""
    if rounds < 1 or not ratio > 0:
        raise UserError(f"rounds = {rounds} must be at least 1 and ratio = {ratio} positive")
    return np.asarray(mu_0 * ratio ** (np.arange(rounds) / rounds))


def uniform_budget(mu_tot: float, rate: float, rounds: int) -> float:
    """μ̄ = sqrt(log(μ_tot² / (p² K) + 1)), eq. (9)."""
    return math.sqrt(math.log1p((mu_tot / rate) ** 2 / rounds))


def general_scale(
    clips: ArrayLike, shape: ArrayLike, rate: float, mu_tot: float, *, strict: bool = True
) -> tuple[float, tuple[str, ...]]:
    """σ̃ of the general form, noise σ̃ σ̃_k at clip C_k, eq. (10), and its flags.

    The proof replaces e^{μ²} − 1 by 2μ², an upper bound only while μ_k = C_k / (σ̃ σ̃_k) ≤ 1.12: outside it is
    refused, or flagged where `strict` is off.
    """
    per_unit = np.asarray(clips, dtype=float) / np.asarray(shape, dtype=float)
    scale = float(rate / mu_tot * np.sqrt(2 * np.sum(per_unit**2)))
    largest = float(per_unit.max() / scale)
    if largest <= EQ10_LARGEST_MU:
        return scale, ()
    flag = f"eq. (10) holds only while every μ_k ≤ {EQ10_LARGEST_MU}; here the largest is {largest:.3g}"
    if strict:
        raise UserError(f"{flag}: ask for a smaller ε, a higher rate or more rounds, or use eq. (8)")
    return scale, (flag,)


def dyn_d2p(mus: ArrayLike, rate: float, delta: float) -> Claim:
    """ε of a run with per-step budgets μ_k = C_k / σ_k at Poisson rate p: eqs. (4) and (6)."""
    mus = np.asarray(mus, dtype=float)
    mu_tot = clt_mu(mus, rate)
    flags = ["eq. (6) is a central-limit approximation, not an upper bound"]
    # third central moment of p·(e^{μz − μ²/2} − 1): how far the sum is from the normal law eq. (6) assumes
    with np.errstate(over="ignore", invalid="ignore"):
        third = rate**3 * np.sum(np.exp(3 * mus**2) - 3 * np.exp(mus**2) + 2)
    skewness = float(third / mu_tot**3) if mu_tot > 0 else 0.0
    if not skewness <= SKEWNESS_LIMIT:
        flags.append(
            f"the summed privacy loss has skewness {skewness:.2g} where the limit theorem needs nearly 0"
        )
    return Claim(gdp_epsilon(mu_tot, delta), "Dyn-D²P, Propositions 2 and 3, eqs. (4) and (6)", tuple(flags))
