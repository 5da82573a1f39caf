"""The papers' privacy formulas, and rules that say what of a run goes into one.

`privacy.claim` names a rule: it turns a planned run into the ε of a paper's formula, and a budget into its noise.
Formulas have their references and, as flags, the conditions they violate. Nothing here is a guarantee: `proven` is.
Where AdaD²P and Dyn-D²P write 1/J we take the sampling rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc, gammaln, log_ndtr, logsumexp

from gossamer.accounting.profiles import check_delta, check_epsilon, gdp_epsilon, gdp_mu, root
from gossamer.errors import UserError
from gossamer.mechanism.clipping import Schedule, extremes
from gossamer.mechanism.noise import NoiseKind
from gossamer.mechanism.sampling import SamplingKind


@dataclass(frozen=True)
class Claim:
    """A paper's figure: ε (None if the formula gives none), its reference, and what is wrong with it.

    Each flag is one sentence: a condition that is violated, or a constant that is ours and not the paper's.
    """

    epsilon: float | None
    reference: str
    flags: tuple[str, ...] = ()


# --- AdaD²P, Proposition 2

_ADAD2P = "AdaD²P, Proposition 2, eq. (5)"


def adad2p(sigma: float, rounds: int, records: float, delta: float) -> Claim:
    """ε = c₂ sqrt(K log(1/δ)) / (J σ), with c₂ = 1; `records` is J, or 1/rate for mini-batches."""
    check_delta(delta)
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
    check_delta(delta)
    check_epsilon(epsilon)
    return math.sqrt(rounds * math.log(1 / delta)) / (records * epsilon)


# --- Dyn-D²P (Zhu et al. 2025): Propositions 2 and 3, eqs. (4) and (6) to (10); eq. (4) is in `profiles.py`

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


def general_scale(clips: ArrayLike, shape: ArrayLike, rate: float, mu_tot: float) -> float:
    """σ̃ of the general form, noise σ̃ σ̃_k at clip C_k, eq. (10).

    The proof replaces e^{μ²} − 1 by 2μ², an upper bound only while μ_k = C_k / (σ̃ σ̃_k) ≤ 1.12: the rest is refused.
    """
    per_unit = np.asarray(clips, dtype=float) / np.asarray(shape, dtype=float)
    scale = float(rate / mu_tot * np.sqrt(2 * np.sum(per_unit**2)))
    largest = float(per_unit.max() / scale)
    if largest > EQ10_LARGEST_MU:
        raise UserError(
            f"eq. (10) holds only while every μ_k ≤ {EQ10_LARGEST_MU}; here the largest is {largest:.3g}: ask for a "
            "smaller ε, a higher rate or more rounds, or use eq. (8)"
        )
    return scale


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
        flags.append(f"the summed privacy loss has skewness {skewness:.2g} where the limit theorem needs nearly 0")
    return Claim(gdp_epsilon(mu_tot, delta), "Dyn-D²P, Propositions 2 and 3, eqs. (4) and (6)", tuple(flags))


# --- DP-DSGD, DP-DSGT and DP-DiNNO: Rényi accounting of the sampled Gaussian

# Orders nearer to 1 matter only for ε in the tens, and their series does not converge for little noise.
RDP_ORDERS = np.array([*(1.5 + k / 10 for k in range(45)), *range(6, 64), 80, 96, 128, 192, 256, 512, 1024])
_RDP = "DP-DSGD/DSGT/DiNNO, sampled Gaussian mechanism by RDP (Mironov, Talwar, Zhang 2019)"
_MOST_TERMS = 1000  # of a series; an order whose series has not converged by then is left out


@lru_cache(maxsize=4096)  # every seed of a table asks for the same ones
def rdp_sampled_gaussian(noise_multiplier: float, rate: float, steps: int, delta: float) -> Claim:
    """ε by the Rényi accountant of the Poisson-sampled Gaussian: what these papers print.

    From the divergence at each order α: ε = R_α + log(1 − 1/α) − log(δα) / (α − 1) (Canonne, Kamath, Steinke 2020), or
    0 where δ² > 1 − e^{−R_α}.
    """
    check_delta(delta)
    flag = "the formula is for add/remove neighbours; the paper defines privacy by replacing one record"
    if noise_multiplier == 0:
        return Claim(math.inf, _RDP, (flag, "σ = 0: no noise at all"))
    divergences = steps * _renyi_divergences(noise_multiplier, rate)
    epsilons = divergences + np.log1p(-1 / RDP_ORDERS) - np.log(delta * RDP_ORDERS) / (RDP_ORDERS - 1)
    epsilons[delta**2 + np.expm1(-divergences) > 0] = 0.0
    return Claim(max(0.0, float(epsilons.min())), _RDP, (flag,))


@lru_cache(maxsize=64)
def _renyi_divergences(noise_multiplier: float, rate: float) -> np.ndarray:
    """R_α((1 − q) N(0) + q N(1/σ) ‖ N(0)) at each order."""
    if rate == 1:
        return np.asarray(RDP_ORDERS / (2 * noise_multiplier**2))
    moments = [_log_moment(float(order), noise_multiplier, rate) for order in RDP_ORDERS]
    return np.asarray(np.maximum(moments, 0.0) / (RDP_ORDERS - 1))


def _log_moment(order: float, sigma: float, rate: float) -> float:
    """log E (P/Q)^α: the binomial sum of a whole order, else both series of Mironov, Talwar, Zhang 2019, section 3.3.

    The series are of the coefficients' sizes, without their signs, as in dp-accounting: an upper bound.
    """
    stay, go, half = math.log1p(-rate), math.log(rate), 1 / (2 * sigma**2)
    i = np.arange(order + 1 if order.is_integer() else _MOST_TERMS)
    j = order - i
    size = gammaln(order + 1) - gammaln(i + 1) - gammaln(j + 1)
    below = size + i * go + j * stay + (i * i - i) * half
    if order.is_integer():
        return float(logsumexp(below))
    middle = sigma**2 * (stay - go) + 0.5
    below = below + log_ndtr((middle - i) / sigma)
    above = size + j * go + i * stay + (j * j - j) * half + log_ndtr((j - middle) / sigma)
    total = np.logaddexp.accumulate(np.logaddexp(below, above))
    small = np.maximum(below, above)[1:] < total[1:] - 30
    ends = np.flatnonzero((np.diff(below) < 0) & (np.diff(above) < 0) & small)
    return float(total[1 + ends[0]]) if len(ends) else math.inf


@lru_cache(maxsize=4096)
def rdp_noise_multiplier(epsilon: float, rate: float, steps: int, delta: float) -> float:
    """The σ / C at which `rdp_sampled_gaussian` gives ε."""
    check_epsilon(epsilon)

    def excess(log_sigma: float) -> float:
        claimed = rdp_sampled_gaussian(math.exp(log_sigma), rate, steps, delta).epsilon
        assert claimed is not None
        return claimed - epsilon

    low, high = 0.0, 0.0
    while excess(low) < 0:
        low -= 1.0
    while excess(high) > 0:
        high += 1.0
    return 1.0 if low == high else math.exp(root(excess, low, high, xtol=1e-9))


# --- Without-replacement SGD: Theorems 1 and 2, Lemma 4


def lemma4_flags(learning_rate: float, smoothness: float) -> tuple[str, ...]:
    """Lemma 4 bounds the change by 2 η L / b for the largest η since the node's last global write, on a condition."""
    if learning_rate <= 1 / (2 * smoothness):
        return ()
    return (f"Lemma 4 needs every η ≤ 1/(2μ) = {1 / (2 * smoothness):.3g}; the largest is {learning_rate:.3g}",)


def classical_gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """σ = Δ sqrt(2 ln(1.25/δ)) / ε; its proof ends at ε = 1, so beyond it is refused."""
    check_delta(delta)
    check_epsilon(epsilon)
    if epsilon > 1:
        raise UserError(
            f"epsilon = {epsilon} is outside the classical Gaussian mechanism, which holds for ε ≤ 1: "
            "calibrate with the numerical accountant instead"
        )
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def without_replacement(sigma: float, sensitivity: float, delta: float, visits: float = 1) -> Claim:
    """ε = Δ sqrt(2 ln(1.25/δ)) / σ of the worst release; each record enters one release only.

    With several visits of a record, as in the paper's baseline: each is (ε/v, δ/v), and they are added up.
    """
    check_delta(delta)
    epsilon = math.inf
    if sigma > 0:
        epsilon = visits * sensitivity * math.sqrt(2 * math.log(1.25 * visits / delta)) / sigma
    flags: tuple[str, ...] = ()
    if epsilon / visits >= 1 - 1e-12:
        flags = ("Theorem 1 holds for ε < 1 only",)
    if visits > 1:
        flags += (f"a record's {visits:g} visits are added up, (ε/{visits:g}, δ/{visits:g}) each",)
    return Claim(epsilon, "Without-replacement SGD with deep-Q, Theorems 1 and 2, Lemma 4", flags)


# --- DP-dKM, the Krasnosel'skiĭ–Mann iteration: Theorems 1 and 6, Definition 6

KM_FLAGS = {
    "laplace": "Laplace noise on every coordinate needs the ℓ₁ sensitivity; Theorem 1 is about the ℓ₂ norm",
    "truncated-laplace": "Definition 6 is for one coordinate; Theorem 1 is about the ℓ₂ norm of the whole vector",
    "truncated-gaussian": "Theorem 6 is false: at (0.5, 1e-3) the noise it prescribes has δ = 0.238",
    "generalised-gaussian": "the paper calibrates shapes 1 and 2 only; its rule is carried over to this one",
}


def km_sensitivity(bound: float, steps: Sequence[float], records: int, nodes: int, mixing: float) -> float:
    """Theorem 1's bound on E Δ_K: residual bound B, relaxations α_k, N records on each of M nodes, λ < 1.

    2B Σ α_k / (NM) + 4B Σ_k (1 + 2α_k) Σ_{j<k} α_j λ^{k−1−j}
    """
    drift, spread = 0.0, 0.0
    for alpha in steps:
        spread += (1 + 2 * alpha) * drift
        drift = mixing * drift + alpha
    return 2 * bound * sum(steps) / (records * nodes) + 4 * bound * spread


def km_noise(
    mechanism: str, epsilon: float, delta: float, sensitivity: float, shape: float = 2.0
) -> tuple[float, float]:
    """(σ as an event states it, bound A) with which the paper makes Δ private.

    Definition 6 (truncated Laplace): λ = Δ/ε, A = λ log(1 + (e^ε − 1)/(2δ)). Theorem 6 (truncated Gaussian): the
    density C exp(−(z/s)²) with s² = Δ²/ε, so that σ = s/√2, and A where the last Δ of the noise holds the mass δ. Other
    shapes b between the two follow the same rule, s = Δ ε^(−1/b), which is ours; Laplace and
    Gaussian are the textbook's.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    scale = sensitivity / epsilon
    if mechanism == "gaussian":
        return classical_gaussian_sigma(epsilon, delta, sensitivity), math.inf
    if mechanism == "laplace":
        return scale, math.inf
    if mechanism == "truncated-laplace":
        return scale, scale * math.log1p(math.expm1(epsilon) / (2 * delta))
    if delta >= 0.5:
        raise UserError(f"delta = {delta} must be below 1/2: a truncated noise gives one side at most half")
    b = 2.0 if mechanism == "truncated-gaussian" else shape
    s = sensitivity * epsilon ** (-1 / b)

    def excess(bound: float) -> float:
        inside = gammainc(1 / b, (bound / s) ** b)
        before = max(bound - sensitivity, 0.0)
        return float(inside - gammainc(1 / b, (before / s) ** b) - 2 * delta * inside)

    high = sensitivity
    while excess(high) > 0:
        high *= 2
    bound = root(excess, sensitivity / 2, high, xtol=1e-13 * sensitivity)
    return s / math.sqrt(2) if mechanism == "truncated-gaussian" else s, bound


def km(mechanism: str, sigma: float, delta: float, sensitivity: float, shape: float = 2.0) -> Claim:
    """The ε that the same formulas give for noise σ at sensitivity Δ."""
    check_delta(delta)
    ratio = math.inf if sigma == 0 else sensitivity / sigma
    if mechanism == "gaussian":
        epsilon = ratio * math.sqrt(2 * math.log(1.25 / delta))
    elif mechanism == "truncated-gaussian":
        epsilon = ratio**2 / 2
    else:
        epsilon = ratio ** (shape if mechanism == "generalised-gaussian" else 1.0)
    flags = [
        "Theorem 1 bounds the expected sensitivity; privacy needs the worst case",
        "Algorithm 1, line 11 gives out the last iterate without noise",
    ]
    if mechanism in KM_FLAGS:
        flags.append(KM_FLAGS[mechanism])
    return Claim(epsilon, "DP-dKM, Theorem 1 with Definition 6 or Theorem 6", tuple(flags))


@dataclass(frozen=True)
class Draws:
    """The draws of a run: how many, with which noise, of which lots."""

    draws: int
    shape: Schedule  # of the noise multipliers, up to a node's factor
    noise: NoiseKind
    sampling: SamplingKind
    budget_ratio: float  # last per-step budget over first
    dimension: int


class ClaimRule(Protocol):
    """A frozen dataclass: equal rules give equal figures, which a comparison's cells share."""

    def covers(self, noise: NoiseKind) -> bool:
        """Does the paper speak of this noise at all?"""
        ...

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        """The figure after so many draws at noise multipliers factor · shape(k)."""
        ...

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        """(factor, where the noise ends if the paper says so) for this budget."""
        ...


class _OfGaussians:
    def covers(self, noise: NoiseKind) -> bool:
        return noise.exponent == 2.0 and not (noise.truncated or noise.cancels)


@dataclass(frozen=True)
class NoClaim:
    """No paper claims anything for this mechanism."""

    method: str = ""

    def covers(self, noise: NoiseKind) -> bool:
        return False

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        return Claim(None, "no paper claims an ε for this mechanism", ())

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        raise UserError(
            f"algorithm.kind = {self.method!r} has no formula of a paper that turns privacy.epsilon into noise; "
            'set privacy.noise.multiplier or mode = "sound".'
        )


@dataclass(frozen=True)
class DynD2P(_OfGaussians):
    """Dyn-D2P's central limit theorem for Gaussian differential privacy, with its growing budgets."""

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        return dyn_d2p([1 / (factor * run.shape(k)) for k in range(draws)], rate, delta)

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        total = gdp_mu(epsilon, delta)
        return 1 / initial_budget(total, rate, run.draws, run.budget_ratio), None


@dataclass(frozen=True)
class DynD2POfLots(DynD2P):
    """The same with a whole lot in the place of the paper's one sample: p = 1/J for any lot size L."""

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        return super().claim(run, factor, rate / _lot_of(run), delta, draws)

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        return super().noise(run, rate / _lot_of(run), epsilon, delta)


def _lot_of(run: Draws) -> float:
    lot = getattr(run.sampling, "lot", None)
    if not lot:
        raise UserError("privacy.claim = 'gdp-clt-lot' divides by the lot; set privacy.sampling.lot.")
    return float(lot)


@dataclass(frozen=True)
class GeneralD2P(DynD2P):
    """Dyn-D2P's Algorithm 2: any sequences, the common scale by its eq. (10)."""

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        shapes = [run.shape(k) for k in range(run.draws)]
        total = gdp_mu(epsilon, delta)
        return general_scale([1.0] * run.draws, shapes, rate, total), None


@dataclass(frozen=True)
class AdaD2P(_OfGaussians):
    """AdaD2P's Proposition 2."""

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        return adad2p(factor * extremes(run.shape, draws).least, draws, 1 / rate, delta)

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        return adad2p_sigma(epsilon, run.draws, 1 / rate, delta), None


@dataclass(frozen=True)
class Renyi(_OfGaussians):
    """dp-consensus: Rényi accounting of the sampled Gaussian."""

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        # The formula is for equal noise in every draw: the least of it all the time is no less than what happens.
        least = extremes(run.shape, draws).least
        return rdp_sampled_gaussian(factor * least, rate, draws, delta)

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        return rdp_noise_multiplier(epsilon, rate, run.draws, delta), None


CLAIMS: dict[str, ClaimRule] = {
    "gdp-clt": DynD2P(),
    "gdp-clt-lot": DynD2POfLots(),
    "gdp-general": GeneralD2P(),
    "adad2p": AdaD2P(),
    "rdp": Renyi(),
}
