"""What each paper's own formula says, with its reference and, as flags, the conditions it violates.

Nothing here is a guarantee: `proven` is. Papers: Dyn-D²P (Zhu et al. 2025), AdaD²P, DP-DSGD/DSGT/DiNNO,
without-replacement SGD with a deep-Q controller, DP-dKM. Where they write 1/J we take the sampling rate.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import erf, gammainc, log_ndtr

from gossamer.errors import UserError

EQ10_LARGEST_MU = 1.12  # e^x − 1 ≤ 2x, which eq. (10) rests on, holds up to x = μ² = 1.256
# Orders nearer to 1 matter only for ε in the tens, and their series does not converge for little noise.
RDP_ORDERS = (*(1.5 + k / 10 for k in range(45)), *range(6, 64), 80, 96, 128, 192, 256, 512, 1024)
SKEWNESS_LIMIT = 0.1  # above it the sum is visibly not yet normal in the tail that δ looks at


@dataclass(frozen=True)
class Claim:
    """A paper's figure: ε (None if the formula gives none), where it stands, and what is amiss with it.

    Each flag is one sentence: a condition that is violated, or a constant that is ours and not the paper's.
    """

    epsilon: float | None
    reference: str
    flags: tuple[str, ...] = ()
    delta: float | None = None


# --- Gaussian differential privacy (Dyn-D²P eqs. 4, 6, 8, 9, 10) --------------------------------------------


def gdp_delta(mu: float, epsilon: float) -> float:
    """δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2), eq. (4): the exact profile of one Gaussian release."""
    if mu == 0:
        return max(0.0, -math.expm1(epsilon))
    if math.isinf(mu):
        return 1.0
    upper = float(log_ndtr(-epsilon / mu + mu / 2))
    lower = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return -math.exp(upper) * math.expm1(min(lower - upper, 0.0))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Smallest ε ≥ 0 with δ(ε) ≤ δ."""
    _check_delta(delta)
    if math.isinf(mu):
        return math.inf
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    top = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9
    return float(brentq(lambda e: gdp_delta(mu, e) - delta, 0.0, top, xtol=1e-12, rtol=1e-13))


def gdp_mu(epsilon: float, delta: float) -> float:
    """The μ whose profile passes through (ε, δ): the inverse of eq. (4)."""
    _check_delta(delta)
    _check_epsilon(epsilon)
    top = 1.0
    while gdp_delta(top, epsilon) < delta:
        top *= 2
    return float(brentq(lambda mu: gdp_delta(mu, epsilon) - delta, 1e-12, top, xtol=1e-14, rtol=1e-13))


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
    return float(brentq(lambda mu: clt_mu(mu * growth, rate) - mu_tot, low, high, xtol=1e-15, rtol=1e-13))


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


# --- AdaD²P, Proposition 2 ----------------------------------------------------------------------------------

_ADAD2P = "AdaD²P, Proposition 2, eq. (5)"


def adad2p(sigma: float, rounds: int, records: float, delta: float) -> Claim:
    """ε = c₂ sqrt(K log(1/δ)) / (J σ), with c₂ = 1; `records` is J, or 1/rate for mini-batches."""
    _check_delta(delta)
    if sigma == 0:
        return Claim(math.inf, _ADAD2P, ("σ = 0: no noise at all",))
    epsilon = math.sqrt(rounds * math.log(1 / delta)) / (records * sigma)
    limit = rounds / records**2
    flags = (
        "constant not in the paper: c₂ = 1 is our convention",
        f"Proposition 2 asks for ε < c₁ K/J² = c₁ · {limit:.2g} and gives no c₁: it would have to exceed "
        f"{epsilon / limit:.2g} here",
    )
    return Claim(epsilon, _ADAD2P, flags)


def adad2p_sigma(epsilon: float, rounds: int, records: float, delta: float) -> float:
    """σ = c₂ sqrt(K log(1/δ)) / (J ε), with c₂ = 1."""
    _check_delta(delta)
    _check_epsilon(epsilon)
    return math.sqrt(rounds * math.log(1 / delta)) / (records * epsilon)


# --- Rényi accounting of the sampled Gaussian (DP-DSGD, DP-DSGT, DP-DiNNO) ---


def rdp_sampled_gaussian(noise_multiplier: float, rate: float, steps: int, delta: float) -> Claim:
    """ε by the Rényi accountant of the Poisson-sampled Gaussian: what these papers print."""
    import dp_accounting
    from dp_accounting import rdp

    _check_delta(delta)
    flag = "the formula is for add/remove neighbours; the paper defines privacy by replacing one record"
    if noise_multiplier == 0:
        return Claim(math.inf, _RDP, (flag, "σ = 0: no noise at all"))
    accountant = rdp.RdpAccountant(RDP_ORDERS)
    event = dp_accounting.GaussianDpEvent(noise_multiplier)
    sampled = event if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, event)
    with _quiet(
        "absl"
    ):  # an order whose series does not converge is left out, which is safe and no news to a user
        accountant.compose(sampled, steps)
    return Claim(float(accountant.get_epsilon(delta)), _RDP, (flag,))


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def rdp_noise_multiplier(epsilon: float, rate: float, steps: int, delta: float) -> float:
    """The σ / C at which `rdp_sampled_gaussian` gives ε."""
    _check_epsilon(epsilon)

    def excess(log_sigma: float) -> float:
        found = rdp_sampled_gaussian(math.exp(log_sigma), rate, steps, delta).epsilon
        assert found is not None
        return found - epsilon

    low, high = 0.0, 0.0
    while excess(low) < 0:
        low -= 1.0
    while excess(high) > 0:
        high += 1.0
    if low == high:
        return 1.0
    return math.exp(float(brentq(excess, low, high, xtol=1e-9)))


_RDP = "DP-DSGD/DSGT/DiNNO, sampled Gaussian mechanism by RDP (Mironov, Talwar, Zhang 2019)"

# --- without-replacement SGD: Lemma 4 and the classical Gaussian (Theorem 1, eq. 4) ---


def lemma4_sensitivity(
    learning_rates: Sequence[float], lipschitz: float, batch: int, smoothness: float
) -> tuple[float, tuple[str, ...]]:
    """max 2 η_k L / b over the steps since the node's last global write, and the flags of its conditions.

    This is the distance under *replacing* a record: an event's sensitivity is half of it.
    """
    largest = max(learning_rates)
    flags: tuple[str, ...] = ()
    if largest > 1 / (2 * smoothness):
        flags = (
            f"Lemma 4 needs every η ≤ 1/(2μ) = {1 / (2 * smoothness):.3g}; the largest is {largest:.3g}",
        )
    return 2 * largest * lipschitz / batch, flags


def classical_gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """σ = Δ sqrt(2 ln(1.25/δ)) / ε; its proof ends at ε = 1, so beyond it is refused."""
    _check_delta(delta)
    _check_epsilon(epsilon)
    if epsilon > 1:
        raise UserError(
            f"epsilon = {epsilon} is outside the classical Gaussian mechanism, which holds for ε ≤ 1: "
            "calibrate with the numerical accountant instead"
        )
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def without_replacement(sigma: float, sensitivity: float, delta: float) -> Claim:
    """ε = Δ sqrt(2 ln(1.25/δ)) / σ of the worst release; each record enters one release only."""
    _check_delta(delta)
    epsilon = math.inf if sigma == 0 else sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / sigma
    flags = ("Theorem 1 holds for ε < 1 only",) if epsilon >= 1 else ()
    return Claim(epsilon, "Without-replacement SGD with deep-Q, Theorems 1 and 2, Lemma 4", flags)


# --- Krasnosel'skiĭ–Mann: Theorems 1, 4, 6 and Definition 6 -------------------------------------------------


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
    _check_delta(slack)
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
    _check_epsilon(epsilon)
    return sensitivity / epsilon


def km_truncated_laplace(epsilon: float, delta: float, sensitivity: float) -> tuple[float, float]:
    """(scale λ, bound A) of Definition 6: λ = Δ/ε, A = λ log(1 + (e^ε − 1)/(2δ))."""
    _check_epsilon(epsilon)
    _check_delta(delta)
    scale = sensitivity / epsilon
    return scale, scale * math.log1p(math.expm1(epsilon) / (2 * delta))


def km_truncated_gaussian(epsilon: float, delta: float, sensitivity: float) -> tuple[float, float]:
    """(standard deviation, bound A) that Theorem 6 prescribes; `profiles` shows that its δ is far too small.

    The density is C exp(−(z/s)²) on [−A, A] with s² = Δ²/ε, so the standard deviation before truncation is
    s/√2; A makes the mass of the last Δ equal to δ: erf(A/s) − erf((A − Δ)/s) = 2δ erf(A/s).
    """
    _check_epsilon(epsilon)
    _check_delta(delta)
    if delta >= 0.5:
        raise UserError(f"delta = {delta} must be below 1/2: a truncated noise gives one side at most half")
    s = sensitivity / math.sqrt(epsilon)

    def excess(bound: float) -> float:
        return float(erf(bound / s) - erf((bound - sensitivity) / s) - 2 * delta * erf(bound / s))

    high = sensitivity
    while excess(high) > 0:
        high *= 2
    return s / math.sqrt(2), float(brentq(excess, sensitivity / 2, high, xtol=1e-13))


def km_truncated_generalised(
    epsilon: float, delta: float, sensitivity: float, shape: float
) -> tuple[float, float]:
    """(scale s, bound A) for the density exp(−(|z|/s)^b) between the paper's two cases, b = 1 and b = 2.

    Both are s = Δ ε^(−1/b), with A where the last Δ of the noise holds the mass δ; the paper gives no other b, and
    taking the same rule for it is ours.
    """
    _check_epsilon(epsilon)
    _check_delta(delta)
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
    return s, float(brentq(excess, sensitivity / 2, high, xtol=1e-13 * sensitivity))


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
    _check_delta(delta)
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


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise UserError(f"delta = {delta} must lie strictly between 0 and 1")


def _check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon = {epsilon} must be a positive number")
