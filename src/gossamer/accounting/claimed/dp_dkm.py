"""DP-dKM, the Krasnosel'skiĭ–Mann iteration: Theorems 1, 4, 6 and Definition 6."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammainc

from gossamer.accounting.claimed.base import Claim
from gossamer.accounting.claimed.without_replacement import classical_gaussian_sigma
from gossamer.accounting.gaussian import check_delta, check_epsilon, root
from gossamer.errors import UserError


def km_sensitivity(
    bound: float, steps: Sequence[float], records: int, nodes: int, mixing: float
) -> tuple[float, tuple[str, ...]]:
    """Theorem 1's bound on E Δ_K: residual bound B, relaxations α_k, N records on each of M nodes, λ < 1.

    2B Σ α_k / (NM) + 4B Σ_k (1 + 2α_k) Σ_{j<k} α_j λ^{k−1−j}
    """
    drift, spread = 0.0, 0.0
    for alpha in steps:
        spread += (1 + 2 * alpha) * drift
        drift = mixing * drift + alpha
    value = 2 * bound * sum(steps) / (records * nodes) + 4 * bound * spread
    return value, ("Theorem 1 bounds the expected sensitivity; privacy needs the worst case",)


def km_composition(epsilons: Sequence[float], deltas: Sequence[float], slack: float) -> Claim:
    """Theorem 4: (ε′, δ′) of all nodes together from each node's (ε_m, δ_m); `slack` is its free δ̃."""
    check_delta(slack)
    eps = np.asarray(epsilons, dtype=float)
    dels = np.asarray(deltas, dtype=float)
    squares = float(np.sum(eps**2))
    plain = float(np.sum(eps))
    drift = float(np.sum(np.tanh(eps / 2) * eps))
    advanced = drift + math.sqrt(2 * squares * math.log(math.e + math.sqrt(squares) / slack))
    divergence = float(np.sum(np.minimum(np.minimum(2.0, np.expm1(eps)) * eps, eps)))
    divergent = divergence + math.sqrt(2 * math.log(1 / slack) * squares)
    epsilon = min(plain, advanced, divergent)
    part = dels / (1 + np.exp(eps))
    shares = eps * (epsilon / plain) if plain > 0 else eps
    delta = (1 - np.prod(1 - np.exp(-shares) * part)) + (1 - np.prod(1 - part))
    return Claim(
        epsilon,
        "DP-dKM, Theorem 4",
        (
            "Theorem 4 leaves δ̃ and the a_m open: δ̃ is given here, a_m is taken proportional to ε_m",
            "Theorem 4 adds no δ̃ to δ′, though its second and third bound hold with probability 1 − δ̃ only",
        ),
        float(delta),
    )


def km_laplace(epsilon: float, sensitivity: float) -> float:
    """Scale b = Δ/ε of the untruncated Laplace the paper compares with."""
    check_epsilon(epsilon)
    return sensitivity / epsilon


def km_truncated_laplace(epsilon: float, delta: float, sensitivity: float) -> tuple[float, float]:
    """(scale λ, bound A) of Definition 6: λ = Δ/ε, A = λ log(1 + (e^ε − 1)/(2δ))."""
    check_epsilon(epsilon)
    check_delta(delta)
    scale = sensitivity / epsilon
    return scale, scale * math.log1p(math.expm1(epsilon) / (2 * delta))


def km_truncated_gaussian(epsilon: float, delta: float, sensitivity: float) -> tuple[float, float]:
    """(standard deviation, bound A) that Theorem 6 prescribes; `profiles` shows that its δ is far too small.

    The density is C exp(−(z/s)²) on [−A, A] with s² = Δ²/ε, so the standard deviation before truncation is
    s/√2; A makes the mass of the last Δ equal to δ.
    """
    scale, bound = km_truncated_generalised(epsilon, delta, sensitivity, 2.0)
    return scale / math.sqrt(2), bound


def km_truncated_generalised(
    epsilon: float, delta: float, sensitivity: float, shape: float
) -> tuple[float, float]:
    """(scale s, bound A) for the density exp(−(|z|/s)^b) between the paper's two cases, b = 1 and b = 2.

    Both are s = Δ ε^(−1/b), with A where the last Δ of the noise holds the mass δ; the paper gives no other b, and
    taking the same rule for it is ours.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if delta >= 0.5:
        raise UserError(f"delta = {delta} must be below 1/2: a truncated noise gives one side at most half")
    s = sensitivity * epsilon ** (-1 / shape)

    def excess(bound: float) -> float:
        inside = gammainc(1 / shape, (bound / s) ** shape)
        before = max(bound - sensitivity, 0.0)
        return float(inside - gammainc(1 / shape, (before / s) ** shape) - 2 * delta * inside)

    high = sensitivity
    while excess(high) > 0:
        high *= 2
    return s, root(excess, sensitivity / 2, high, xtol=1e-13 * sensitivity)


KM_FAMILIES = {"gaussian": 2.0, "laplace": 1.0, "truncated-laplace": 1.0, "truncated-gaussian": 2.0}
KM_FLAGS = {
    "laplace": "Laplace noise on every coordinate needs the ℓ₁ sensitivity; Theorem 1 is about the ℓ₂ norm",
    "truncated-laplace": "Definition 6 is for one coordinate; Theorem 1 is about the ℓ₂ norm of the whole vector",
    "truncated-gaussian": "Theorem 6 is false: at (0.5, 1e-3) the noise it prescribes has δ = 0.238",
    "generalised-gaussian": "the paper calibrates shapes 1 and 2 only; its rule is carried over to this one",
}


def km_noise(
    mechanism: str, epsilon: float, delta: float, sensitivity: float, shape: float = 2.0
) -> tuple[float, float]:
    """(σ as an event states it, bound A) by which the paper would make Δ private: Definition 6, Theorem 6, and the
    textbook's Laplace and Gaussian it compares with."""
    if mechanism == "gaussian":
        return classical_gaussian_sigma(epsilon, delta, sensitivity), math.inf
    if mechanism == "laplace":
        return km_laplace(epsilon, sensitivity), math.inf
    if mechanism == "truncated-laplace":
        return km_truncated_laplace(epsilon, delta, sensitivity)
    if mechanism == "truncated-gaussian":
        return km_truncated_gaussian(epsilon, delta, sensitivity)
    return km_truncated_generalised(epsilon, delta, sensitivity, shape)


def km(mechanism: str, sigma: float, delta: float, sensitivity: float, shape: float = 2.0) -> Claim:
    """The ε that the same formulas say of noise σ at sensitivity Δ."""
    check_delta(delta)
    ratio = math.inf if sigma == 0 else sensitivity / sigma
    if mechanism == "gaussian":
        epsilon = ratio * math.sqrt(2 * math.log(1.25 / delta))
    elif mechanism == "truncated-gaussian":
        epsilon = ratio**2 / 2
    else:
        epsilon = ratio ** (shape if mechanism == "generalised-gaussian" else 1.0)
    flags = (
        "Theorem 1 bounds the expected sensitivity; privacy needs the worst case",
        "Algorithm 1, line 11 gives out the last iterate without noise",
        *((KM_FLAGS[mechanism],) if mechanism in KM_FLAGS else ()),
    )
    return Claim(epsilon, "DP-dKM, Theorem 1 with Definition 6 or Theorem 6", flags)
