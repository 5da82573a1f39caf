"""DP-dKM's noises side by side: the paper's claims, the exact profiles, and the noise that a proof needs.

    python -m reproductions.noises     80 releases of 10 numbers, ε = 0.5, δ = 10⁻³, add-remove; half a minute

Two comparisons, each at sensitivity 1. *Claimed*: every noise as the paper calibrates it to the same (ε, δ); its exact
profile in one coordinate, and the probability that a run of many releases shows a record outright. *Proven*: every
noise at the least scale with which the run's releases are proven to cost ε at δ.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.special import gammainc, gammaln

from gossamer.accounting.calibrate import Target, least_scale, truncated_share
from gossamer.accounting.profiles import Noise
from gossamer.accounting.releases import KINDS, Release, release
from gossamer.errors import UserError
from gossamer.methods.claims import KM_FLAGS, km_noise
from gossamer.results.terminal import Table

KM_FAMILIES = {"gaussian": 2.0, "laplace": 1.0, "truncated-laplace": 1.0, "truncated-gaussian": 2.0}
SHAPES = (1.5, 3.0)  # of the generalised Gaussian, next to the two cases that have names
MOST_NUMBERS = 5000  # that are priced one by one: beyond, it takes minutes and says little


@dataclass(frozen=True)
class NoiseLine:
    """Standard deviations and bounds are in units of the sensitivity; None where a formula does not apply."""

    noise: str
    claimed_std: float | None
    bound: float | None  # where the claimed noise ends
    true_delta: float | None  # of the claimed noise at ε, one release of one coordinate
    true_epsilon: float | None  # at δ; ∞ if outcomes that identify a record have more probability than δ
    identifying: float | None  # probability that the run shows a record that moves one coordinate each time
    proven_std: float | None  # with which the whole run is proven to cost ε
    remark: str | None = None


def noise_lines(*, epsilon: float, delta: float, releases: int, dimension: int, adjacency: str) -> list[NoiseLine]:
    """One line per noise of the paper."""
    kinds = [(name, name, shape) for name, shape in KM_FAMILIES.items()]
    kinds += [(f"truncated, b = {b:g}", "generalised-gaussian", b) for b in SHAPES]
    return [noise_line(name, kind, b, epsilon, delta, releases, dimension, adjacency) for name, kind, b in kinds]


def noise_line(
    name: str,
    kind: str,
    shape: float,
    epsilon: float,
    delta: float,
    releases: int,
    dimension: int,
    adjacency: str,
) -> NoiseLine:
    least = proven_std(kind, shape, epsilon, delta, releases, dimension, adjacency)
    try:
        sigma, bound = km_noise(kind, epsilon, delta, 1.0, shape)
    except UserError as error:
        return NoiseLine(name, None, None, None, None, None, least, str(error))
    noise = density(kind, shape, sigma, bound)
    return NoiseLine(
        name,
        math.sqrt(variance(noise)),
        None if math.isinf(bound) else bound,
        exact_delta(noise, 1.0, epsilon),
        exact_epsilon(noise, 1.0, delta),
        noise.identifying(1.0, releases),
        least,
        KM_FLAGS.get(kind),
    )


def proven_std(
    kind: str, shape: float, epsilon: float, delta: float, releases: int, dimension: int, adjacency: str
) -> float | None:
    if kind == "generalised-gaussian" and releases * dimension > MOST_NUMBERS:
        return None
    if releases * dimension == 1:
        return exact_std(kind, shape, epsilon, delta)
    far = density(kind, shape, 1.0, math.inf).reach(truncated_share(epsilon, delta, releases * dimension))

    def run(sigma: float) -> list[Release]:
        return [_release(kind, shape, sigma, far * sigma, dimension, adjacency)] * releases

    sigma = least_scale(run, Target(epsilon=epsilon, delta=delta, adjacency=adjacency))
    return math.sqrt(variance(density(kind, shape, sigma, far * sigma)))


def exact_std(kind: str, shape: float, epsilon: float, delta: float) -> float:
    """One release of one number, by the exact profile; a truncated noise ends where half of δ identifies."""
    truncated = "bound" in _fields(kind)

    def noise(sigma: float) -> Noise:
        bound = math.inf
        if truncated:
            low, high = 0.5, 50.0 * sigma
            for _ in range(60):
                bound = (low + high) / 2
                far = density(kind, shape, sigma, bound).identifying(1.0) <= delta / 2
                low, high = (low, bound) if far else (bound, high)
            bound = high
        return density(kind, shape, sigma, bound)

    low, high = 1e-2, 1e3
    while high > low * (1 + 1e-5):
        middle = math.sqrt(low * high)
        enough = exact_epsilon(noise(middle), 1.0, delta) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
    return math.sqrt(variance(noise(high)))


def density(kind: str, shape: float, sigma: float, bound: float) -> Noise:
    """The noise that a release of this kind and scale has; the bound only where the kind is truncated."""
    noise = _release(kind, shape, sigma, bound, 1, "add-remove").density
    assert noise is not None, f"noise of kind {kind!r} depends on the records"
    return noise


def _release(kind: str, shape: float, sigma: float, bound: float, dimensions: int, adjacency: str) -> Release:
    given = {"shape": shape, "bound": bound, "dimensions": dimensions}
    constants: dict[str, Any] = {name: value for name, value in given.items() if name in _fields(kind)}
    return release(kind, sigma=sigma, sensitivity=1.0, sampling="full", rate=1.0, adjacency=adjacency, **constants)


def _fields(kind: str) -> set[str]:
    return {field.name for field in fields(KINDS[kind])}


def variance(noise: Noise) -> float:
    b = noise.shape
    full = noise.scale**2 * math.exp(gammaln(3 / b) - gammaln(1 / b))
    if math.isinf(noise.bound):
        return full
    x = (noise.bound / noise.scale) ** b
    return full * float(gammainc(3 / b, x) / gammainc(1 / b, x))


def exact_delta(noise: Noise, shift: float, epsilon: float) -> float:
    """The exact profile δ(ε) = ∫ (f(x − Δ) − e^ε f(x))₊ dx.

    Between 0, Δ and the ends of the two supports the likelihood ratio is monotone in x, so each piece holds at most one
    crossing, found by bisection; the rest is differences of the distribution function.
    """
    reach = noise.reach()
    ends = [-reach, reach, shift - reach, shift + reach]
    edges = np.unique(np.clip([*ends, 0.0, shift], shift - reach, shift + reach))

    def gain(x: float) -> float:
        moved, still = noise.log_weight(np.array([x - shift, x]))
        return math.inf if still == -np.inf else float(moved - still - epsilon)

    total = 0.0
    for begin, end in itertools.pairwise(edges):
        inset = (end - begin) * 1e-12
        gaining = gain(begin + inset) > 0, gain(end - inset) > 0
        low, high = begin, end
        if gaining == (False, True):
            low = _crossing(gain, begin, end)
        elif gaining == (True, False):
            high = _crossing(gain, end, begin)
        elif gaining == (False, False):
            continue
        still, moved = noise.between(np.array([low, low - shift]), np.array([high, high - shift]))
        # where the unmoved noise cannot be, e^ε may be beyond floating point and must not matter
        total += float(moved - (math.exp(min(epsilon, 700.0)) * still if still > 0 else 0.0))
    return min(max(total, 0.0), 1.0)


def _crossing(gain: Callable[[float], float], losing: float, gaining: float) -> float:
    """Where a monotone function changes sign, by bisection."""
    for _ in range(100):
        middle = (losing + gaining) / 2
        losing, gaining = (middle, gaining) if gain(middle) <= 0 else (losing, middle)
    return gaining


def exact_epsilon(noise: Noise, shift: float, delta: float) -> float:
    """Smallest ε ≥ 0 with δ(ε) ≤ δ; ∞ if the identifying mass alone is larger."""
    delta *= 1 + 1e-9  # a noise that ends where exactly δ identifies must not fail by rounding
    if exact_delta(noise, shift, 0.0) <= delta:
        return 0.0
    if noise.identifying(shift) > delta:
        return math.inf
    low, high = 0.0, 1.0
    while exact_delta(noise, shift, high) > delta:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exact_delta(noise, shift, middle) > delta else (low, middle)
    return high


def noise_table(*, epsilon: float, delta: float, releases: int, dimension: int, adjacency: str) -> Table:
    """The comparison as the page on DP-dKM has it."""
    lines = noise_lines(epsilon=epsilon, delta=delta, releases=releases, dimension=dimension, adjacency=adjacency)
    heads = (
        "noise",
        "claimed: std",
        "ends at",
        f"δ at ε = {epsilon:g}",
        f"ε at δ = {delta:g}",
        "shows a record outright",
        "proven: std needed",
    )
    rows = [
        (line.noise, *(map(_figure, (line.claimed_std, line.bound, line.true_delta, line.true_epsilon))),
         _figure(line.identifying), _figure(line.proven_std))
        for line in lines
    ]  # fmt: skip
    budget = f"ε = {epsilon:g}, δ = {delta:g}, {adjacency}, unit: one record of one node; observer: everyone"
    caption = f"{releases} releases of {dimension} numbers, full batches ({budget}); in units of the sensitivity."
    remarks = [f"{line.noise}: {line.remark}" for line in lines if line.remark]
    return Table(heads, tuple(rows), (caption, *remarks))


def _figure(value: float | None) -> str:
    if value is None:
        return "—"
    return "∞" if math.isinf(value) else f"{value:.3g}"


if __name__ == "__main__":
    print(noise_table(epsilon=0.5, delta=1e-3, releases=80, dimension=10, adjacency="add-remove").markdown())
