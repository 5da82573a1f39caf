"""The ε that can be proven: a numerical upper bound on the composition of a node's releases.

Which dominating pair prices which release is said in `pairs`, how they are composed in `composer`. What
cannot be priced is not guessed: the figure is then ∞ and `because` says why.

* Full-batch Gaussians compose in closed form: one Gaussian of μ² = Σ (Δ_k/σ_k)², exact.
* One-pass lots are disjoint: a record is in one lot of each pass, so a pass costs its worst release, not the
  sum (parallel composition), each priced as a full batch. Several releases from the same lot have to be
  recorded as one event with their joint sensitivity.
* Noise in several `dimensions` is priced with the whole sensitivity in each coordinate, without amplification
  by sampling: an upper bound whatever direction the change takes. Laplace and truncated vectors are priced
  by the norm of the whole change, as what they were before truncation, wherever that proves something.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import ndtr

from gossamer.accounting.composer import Composition
from gossamer.accounting.gaussian import gdp_epsilon
from gossamer.accounting.pairs import GaussianPair, NoisePair, Pair
from gossamer.accounting.profiles import Noise, gaussian, laplace
from gossamer.accounting.releases import ADJACENCIES, Event, Release
from gossamer.errors import UserError

CLOSED_FORM = "closed form: composed Gaussians are one Gaussian"
NUMERICAL = "privacy-loss distributions composed by FFT"
CONCENTRATED = "concentrated differential privacy of Laplace vectors"
NOTHING = "nothing was released"


@dataclass(frozen=True)
class Proven:
    """`epsilon` is an upper bound; the composition of the same pairs costs at least `lower`.

    ε = ∞ comes with `because`; `lower` is None then.
    """

    epsilon: float
    lower: float | None
    delta: float
    adjacency: str
    because: str | None
    method: str


@dataclass
class _Load:
    """What is to be composed: the exact Gaussian part (Σ μ²) and the pairs that need numbers."""

    mu_squared: float = 0.0
    pairs: dict[Pair, int] = field(default_factory=dict)
    cut: float = 0.0  # of the probability space, where truncated noise counts as what it was before
    crossing: float = (
        math.inf
    )  # probability that noise, moved by one record, lands beyond its bound; ∞: not known
    rho: float = 0.0  # concentrated differential privacy of the Laplace vectors, where they are counted so

    def add(self, priced: "float | Pair", count: int) -> None:
        if isinstance(priced, float):
            self.mu_squared += count * priced**2
        else:
            self.pairs[priced] = self.pairs.get(priced, 0) + count

    def composition(self) -> Composition:
        pairs = list(self.pairs.items())
        if self.mu_squared > 0:
            pairs.append((GaussianPair(math.sqrt(self.mu_squared)), 1))
        return Composition(pairs)


def proven(
    releases: Iterable[Release | tuple[Release, int]],
    delta: float,
    adjacency: str,
    *,
    tolerance: float = 0.01,
) -> Proven:
    """Price a node's releases: events, kinds, or kinds with counts as `collate` gives them.

    `tolerance`: how close upper and lower bound should come, as a share of ε.
    """
    _check(delta, adjacency)
    counted = [item if isinstance(item, tuple) else (item, 1) for item in releases]
    counted = [(release, count) for release, count in counted if count > 0]
    reason = next((r for release, _ in counted if (r := unpriceable(release, adjacency))), None)
    if reason is not None:
        return Proven(math.inf, None, delta, adjacency, reason, "not proven")
    if not counted:
        return Proven(0.0, 0.0, delta, adjacency, None, NOTHING)
    results = []
    if any(_is_vector(release) for release, _ in counted):
        loads = _loads(counted, adjacency, by_norm=True)
        results = [_despite_the_cut(load, delta, adjacency, tolerance) for load in loads]
    # Coordinate by coordinate only where the norm proves nothing: there it is never the better of the two by much.
    if not results or math.isinf(max(result.epsilon for result in results)):
        results = [_compose(load, delta, adjacency, tolerance) for load in _loads(counted, adjacency)]
    return max(results, key=lambda result: result.epsilon)


def curve(
    releases: Sequence[Release], at: Sequence[int], delta: float, adjacency: str, *, tolerance: float = 0.01
) -> list[float]:
    """Proven ε after the first `at` releases (in order), sharing the work between them."""
    _check(delta, adjacency)
    kinds = [r.release if isinstance(r, Event) else r for r in releases]
    broken = next((k for k, kind in enumerate(kinds) if unpriceable(kind, adjacency)), len(kinds))
    marks = [min(k, len(kinds)) for k in at]
    usable = [k for k in marks if 0 < k <= broken]
    found: dict[int, float] = {0: 0.0}
    if usable:
        found.update(
            zip(usable, _curve(kinds[: max(usable)], usable, delta, adjacency, tolerance), strict=True)
        )
    return [found.get(k, math.inf) for k in marks]


def unpriceable(release: Release, adjacency: str) -> str | None:
    """Why nothing can be proven about this release, or None if something can."""
    reason: str | None = None
    if release.mechanism == "own-norm-gaussian":
        reason = "the noise is scaled by the record's own gradient norm, so its size reveals the record"
    elif release.mechanism == "raw-decision":
        reason = "who writes the shared model when is decided on raw losses, and everyone sees it"
    elif release.mechanism == "none" or release.sigma == 0:
        reason = "a value was released without noise"
    elif math.isinf(release.sensitivity):
        reason = "nothing bounds how far one record can move the released value"
    elif release.mechanism != "gaussian":
        noise = _noise(release)
        if noise.shape < 1:
            reason = "noise of shape below 1 is not log-concave: the largest change need not be the worst one"
        elif 2 * noise.bound <= _shift(release, adjacency):
            reason = "the noise is narrower than the change it should hide: each release identifies a record"
    return reason


def _compose(load: _Load, delta: float, adjacency: str, tolerance: float) -> Proven:
    if load.rho > 0:
        if load.pairs:
            return Proven(
                math.inf, None, delta, adjacency, "Laplace vectors among sampled releases", CONCENTRATED
            )
        epsilon = concentrated_epsilon(load.rho + load.mu_squared / 2, delta)
        return Proven(epsilon, None, delta, adjacency, None, CONCENTRATED)
    if not load.pairs:
        epsilon = gdp_epsilon(math.sqrt(load.mu_squared), delta)
        return Proven(epsilon, epsilon, delta, adjacency, None, CLOSED_FORM)
    bounds = load.composition().bounds(delta, tolerance)
    if math.isfinite(bounds.upper):
        method = f"{NUMERICAL}, step {bounds.step:.2g}, {bounds.groups} groups"
        return Proven(bounds.upper, bounds.lower, delta, adjacency, None, method)
    shown = _identifying(load)
    because = (
        f"outcomes that identify a record outright have probability {shown:.3g}, more than δ = {delta:g}"
        if shown > delta
        else f"δ = {delta:g} is too small for this composition in double precision"
    )
    return Proven(math.inf, None, delta, adjacency, because, NUMERICAL)


def _despite_the_cut(load: _Load, delta: float, adjacency: str, tolerance: float) -> Proven:
    """The better of two bounds by what is known of the noise before truncation; κ = 1 − τ of it was kept.

    * Truncated noise is the noise before, given an event E of probability κ; E′ for the neighbour. What lies in both
      costs δ_before(ε)/κ, and outside E′ lies only noise that the record's move carried beyond the bound:
      δ(ε) ≤ δ_before(ε)/κ + P(crossing).
    * Truncation moves a distribution by τ: δ(ε) ≤ (δ_before(ε) + e^ε τ)/κ. Also with sampling. ε is raised until what
      it says of the noise before, at the δ that is left, is no more than itself.
    """
    method = "as noise before truncation, at a δ less what was cut" if load.cut else CONCENTRATED
    kept, found = 1 - load.cut, math.inf
    if (left := (delta - load.crossing) * kept) > 0:
        found = _compose(load, left, adjacency, tolerance).epsilon
    epsilon = 0.0
    while load.cut and epsilon < min(found, 700.0):
        left = delta * kept - math.exp(epsilon) * load.cut
        if left <= 0:
            break
        before = _compose(load, left, adjacency, tolerance).epsilon
        if before <= epsilon:
            found = min(found, epsilon)
            break
        epsilon = before * (1 + 1e-4)
    because = f"the truncation cuts off {load.cut:.3g} of the probability, too much for δ = {delta:g}"
    return Proven(found, None, delta, adjacency, because if math.isinf(found) else None, method)


def concentrated_epsilon(rho: float, delta: float) -> float:
    """ε(δ) of ρ-zCDP: the least over orders α of ρα + (log(1/δ) − log α) / (α − 1) + log(1 − 1/α).

    Canonne, Kamath, Steinke 2020, Proposition 12; any order gives a bound, so a coarse search is safe.
    """
    orders = 1 + np.geomspace(1e-3, 1e5, 4000)
    return max(
        0.0, float(np.min(rho * orders - np.log(delta * orders) / (orders - 1) + np.log1p(-1 / orders)))
    )


def _is_vector(release: Release) -> bool:
    """Is this a vector of independent noises that can be priced by the ℓ₂ norm of the whole change?"""
    return (
        release.mechanism in {"truncated-gaussian", "laplace", "truncated-laplace"}
        and _dimensions(release) > 1
    )


def _identifying(load: _Load) -> float:
    log_hidden = 0.0
    for pair, count in load.pairs.items():
        if isinstance(pair, NoisePair):
            once = pair.rate * pair.noise.identifying(pair.shift)
            log_hidden += count * math.log1p(-min(once, 1 - 1e-16))
    return -math.expm1(log_hidden)


def _loads(
    counted: Sequence[tuple[Release, int]], adjacency: str, *, by_norm: bool = False
) -> Iterable[_Load]:
    """One load per way a record can be placed in the one-pass lots; usually there is a single worst way.

    `by_norm`: vectors as what they were before truncation, with what was cut off beside them: Gaussians as
    Gaussians; Laplace of scale b as ½(Δ/b)²-zCDP, for a coordinate that moves by v is v/b-DP, hence ½(v/b)²-zCDP (Bun
    and Steinke 2016), and the squares add up to the norm's.
    """
    cut = rho = crossing = 0.0
    if by_norm:
        vectors = [(release, count) for release, count in counted if _is_vector(release)]
        for release, count in vectors:
            cut += count * _dimensions(release) * _tail(release)
            crossing += count * _crossing(release, adjacency)
            if release.mechanism != "truncated-gaussian":
                rho += count * (_shift(release, adjacency) / release.sigma) ** 2 / 2
        gaussians = [(r, n) for r, n in vectors if r.mechanism == "truncated-gaussian"]
        counted = [
            *((release, count) for release, count in counted if not _is_vector(release)),
            *(
                (replace(release, mechanism="gaussian", parts=_only_pass(release)), count)
                for release, count in gaussians
            ),
        ]
    passes: dict[float, list[Release]] = {}
    for release, _ in counted:
        if release.sampling == "one-pass":
            passes.setdefault(release.part("pass", 0.0), []).append(release)
    for chosen in itertools.product(*(_worst(lots) for lots in passes.values())):
        load = _Load(cut=min(cut, 1.0), crossing=crossing, rho=rho)
        for release, count in counted:
            if release.sampling != "one-pass":
                load.add(_pair(release, adjacency), count * _dimensions(release))
        for release in chosen:
            load.add(_pair(release, adjacency), _dimensions(release))
        yield load


def _only_pass(release: Release) -> tuple[tuple[str, float], ...]:
    """Lots of different passes hold the same records: which pass it was must outlive every other constant."""
    return tuple(part for part in release.parts if part[0] == "pass")


def _tail(release: Release) -> float:
    """The mass that truncation took from one coordinate."""
    if release.mechanism == "laplace":
        return 0.0
    far = release.part("bound") / release.sigma
    return float(2 * ndtr(-far)) if release.mechanism == "truncated-gaussian" else math.exp(-far)


def _crossing(release: Release, adjacency: str) -> float:
    """Σ_j P(z_j > A − |v_j|) ≤ Σ_j |v_j| f(A − Δ) ≤ √d Δ f(A − Δ), for a density f that falls and ‖v‖ ≤ Δ < A.

    Of sampled releases not known: there the other data set's noise is not the same noise moved.
    """
    if release.mechanism == "laplace":
        return 0.0
    shift, bound, sigma = _shift(release, adjacency), release.part("bound"), release.sigma
    if release.rate < 1 or bound <= shift:
        return math.inf
    near = (bound - shift) / sigma
    if release.mechanism == "truncated-gaussian":
        density = math.exp(-(near**2) / 2) / (sigma * math.sqrt(2 * math.pi))
    else:
        density = math.exp(-near) / (2 * sigma)
    return math.sqrt(_dimensions(release)) * shift * density / (1 - _tail(release))


def _worst(lots: Sequence[Release]) -> list[Release]:
    """The lots that may be worst: per mechanism (and its constants) the one with the least noise."""
    least: dict[object, Release] = {}
    for lot in lots:
        # less noise is worse for Gaussian and Laplace; truncated noises are all kept
        key = lot.mechanism if lot.mechanism in {"gaussian", "laplace"} else lot
        if key not in least or lot.noise_multiplier < least[key].noise_multiplier:
            least[key] = lot
    return list(least.values())


def _curve(
    kinds: Sequence[Release], at: Sequence[int], delta: float, adjacency: str, tolerance: float
) -> list[float]:
    if any(_is_vector(k) or (k.sampling == "one-pass" and k.mechanism != "gaussian") for k in kinds):
        return [proven(kinds[:k], delta, adjacency, tolerance=tolerance).epsilon for k in at]
    priced = {kind: _pair(kind, adjacency) for kind in set(kinds)}
    order: list[Pair | None] = []
    ends = [0]  # of each release in `order`: a release in d dimensions takes d places
    exact = [0.0]  # Σ μ² of the closed-form part so far
    worst: dict[float, float] = {}  # pass → largest μ² of its lots
    for kind in kinds:
        price, repeat = priced[kind], _dimensions(kind)
        squared = exact[-1]
        if isinstance(price, float):
            if kind.sampling == "one-pass":
                before = worst.get(kind.part("pass", 0.0), 0.0)
                worst[kind.part("pass", 0.0)] = max(before, price**2)
                squared += max(before, price**2) - before
            else:
                squared += price**2 * repeat
        order.extend([None if isinstance(price, float) else price] * repeat)
        exact.append(squared)
        ends.append(ends[-1] + repeat)
    extra = [math.sqrt(exact[k]) for k in at]
    if all(pair is None for pair in order):
        return [gdp_epsilon(mu, delta) for mu in extra]
    load = _Load(mu_squared=exact[-1])
    for pair in order:
        if pair is not None:
            load.add(pair, 1)
    return load.composition().prefixes(order, [ends[k] for k in at], extra, delta, tolerance)


def _pair(release: Release, adjacency: str) -> "float | Pair":
    """The dominating pair, or for a Gaussian at rate 1 just its μ."""
    replace_one = adjacency == "replace-one"
    rate = 1.0 if release.sampling in {"full", "one-pass"} else release.rate
    if release.mechanism == "gaussian":
        if rate < 1 and release.sampling == "poisson" and replace_one:
            return GaussianPair(release.sensitivity / release.sigma, rate, "two-sided")
        mu = _shift(release, adjacency) / release.sigma
        if rate == 1:
            return mu
        return GaussianPair(mu, rate, "symmetrised" if replace_one else "one-sided")
    if _dimensions(release) > 1:
        rate = 1.0
    kind = "symmetrised" if replace_one and rate < 1 else "one-sided"
    return NoisePair(_noise(release), _shift(release, adjacency), rate, kind)


def _shift(release: Release, adjacency: str) -> float:
    """How far the released sum can move: twice the sensitivity if a record is exchanged for another."""
    swap = adjacency == "replace-one" or release.sampling == "fixed-size"
    return release.sensitivity * (2 if swap else 1)


def _noise(release: Release) -> Noise:
    if release.mechanism == "laplace":
        return laplace(release.sigma)
    if release.mechanism == "truncated-laplace":
        return laplace(release.sigma, release.part("bound"))
    if release.mechanism == "truncated-gaussian":
        return gaussian(release.sigma, release.part("bound"))
    return Noise(release.sigma, release.part("shape"), release.part("bound", math.inf))


def _dimensions(release: Release) -> int:
    return 1 if release.mechanism == "gaussian" else int(release.part("dimensions", 1.0))


def _check(delta: float, adjacency: str) -> None:
    if not 0 < delta < 1:
        raise UserError(f"delta = {delta} must lie strictly between 0 and 1")
    if adjacency not in ADJACENCIES:
        raise UserError(f"adjacency = {adjacency!r} is not one of {', '.join(ADJACENCIES)}")
