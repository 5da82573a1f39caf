"""DP-dKM's noises side by side: what its formulas claim of them, what is so, and what each would need to be proven.

Two comparisons, each at sensitivity 1. *Claimed*: every noise as the paper calibrates it to the same (ε, δ); its exact
profile in one coordinate, and what a run of many releases shows outright. *Proven*: every noise at the least scale with
which the run's releases are proven to cost ε at δ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.accounting import claimed
from gossamer.accounting.calibrate import least_scale
from gossamer.accounting.profiles import Noise
from gossamer.accounting.releases import Release, constants_of, release
from gossamer.errors import UserError

SHAPES = (1.5, 3.0)  # of the generalised Gaussian, beside the two cases that have names
MOST_NUMBERS = 5000  # that are priced one by one: beyond, it takes minutes and says little


@dataclass(frozen=True)
class Line:
    """Standard deviations and bounds are in units of the sensitivity; None where a formula does not apply."""

    noise: str
    claimed_std: float | None
    bound: float | None  # where the claimed noise ends
    true_delta: float | None  # of the claimed noise at ε, one release of one coordinate
    true_epsilon: float | None  # at δ; ∞ if outcomes that identify a record have more probability than δ
    identifying: (
        float | None
    )  # probability that the run shows a record outright that moves one coordinate each time
    proven_std: float | None  # with which the whole run is proven to cost ε
    remark: str | None = None


def noise_lines(*, epsilon: float, delta: float, releases: int, dimension: int, adjacency: str) -> list[Line]:
    """One line per noise of the paper."""
    kinds = [(name, name, shape) for name, shape in claimed.KM_FAMILIES.items()]
    kinds += [(f"truncated, b = {b:g}", "generalised-gaussian", b) for b in SHAPES]
    return [_line(name, kind, b, epsilon, delta, releases, dimension, adjacency) for name, kind, b in kinds]


def _line(
    name: str,
    kind: str,
    shape: float,
    epsilon: float,
    delta: float,
    releases: int,
    dimension: int,
    adjacency: str,
) -> Line:
    least = _proven_std(kind, shape, epsilon, delta, releases, dimension, adjacency)
    try:
        sigma, bound = claimed.km_noise(kind, epsilon, delta, 1.0, shape)
    except UserError as error:
        return Line(name, None, None, None, None, None, least, str(error))
    noise = density(kind, shape, sigma, bound)
    return Line(
        name,
        math.sqrt(noise.variance),
        None if math.isinf(bound) else bound,
        noise.delta(1.0, epsilon),
        noise.epsilon(1.0, delta),
        noise.identifying(1.0, releases),
        least,
        claimed.KM_FLAGS.get(kind),
    )


def _proven_std(
    kind: str, shape: float, epsilon: float, delta: float, releases: int, dimension: int, adjacency: str
) -> float | None:
    if kind == "generalised-gaussian" and releases * dimension > MOST_NUMBERS:
        return None
    if releases * dimension == 1:
        return _exact_std(kind, shape, epsilon, delta)
    far = density(kind, shape, 1.0, math.inf).reach(truncated_share(epsilon, delta, releases * dimension))

    def run(sigma: float) -> list[Release]:
        return [_release(kind, shape, sigma, far * sigma, dimension, adjacency)] * releases

    sigma = least_scale(run, adjacency=adjacency, epsilon=epsilon, delta=delta)
    return math.sqrt(density(kind, shape, sigma, far * sigma).variance)


def truncated_share(epsilon: float, delta: float, numbers: int) -> float:
    """How much of each number's noise to cut off for a twentieth of δ: more costs more than it gains."""
    return delta / (20 * numbers * (1 + math.exp(min(epsilon, 700.0))))


def _exact_std(kind: str, shape: float, epsilon: float, delta: float) -> float:
    """One release of one number, by the exact profile; a truncated noise ends where half of δ identifies."""
    truncated = "bound" in constants_of(kind)

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
        low, high = (low, middle) if noise(middle).epsilon(1.0, delta) <= epsilon else (middle, high)
    return math.sqrt(noise(high).variance)


def density(kind: str, shape: float, sigma: float, bound: float) -> Noise:
    """The noise that a release of this kind and scale has; the bound only where the kind is truncated."""
    noise = _release(kind, shape, sigma, bound, 1, "add-remove").density
    assert noise is not None, f"noise of kind {kind!r} depends on the records"
    return noise


def _release(kind: str, shape: float, sigma: float, bound: float, dimensions: int, adjacency: str) -> Release:
    given = {"shape": shape, "bound": bound, "dimensions": dimensions}
    constants = {name: given[name] for name in constants_of(kind)}
    return release(
        kind,
        sigma=sigma,
        sensitivity=1.0,
        sampling="full",
        rate=1.0,
        adjacency=adjacency,
        pass_number=None,
        lot_number=None,
        **constants,
    )
