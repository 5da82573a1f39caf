"""The ε that can be proven: a numerical upper bound on the composition of a node's releases.

Which dominating pair prices which release is said in `pairs`, how they are composed in `composer`. What
cannot be priced is not guessed: the figure is then ∞ and `because` says why.

* Full-batch Gaussians compose in closed form: one Gaussian of μ² = Σ (Δ_k/σ_k)², exact.
* Disjoint lots: a record is in one lot of each pass, so a pass costs its worst release, not the sum (parallel
  composition), each priced as a full batch; `passes` sorts them. Several releases from the same lot have to be
  recorded as one event with their joint sensitivity.
* Balls and bins: the better of that and of one pair for each pass, which prices that a record's lot is secret. The
  pair is for add/remove. Replacing a record is removing one and adding another, two such moves: if each is (ε, δ′),
  both are (2ε, (1 + e^ε) δ′).
* Noise in several `dimensions` is priced with the whole sensitivity in each coordinate, without amplification
  by sampling: an upper bound for any direction of the change. Laplace and truncated vectors are priced
  by the norm of the whole change, as what they were before truncation, wherever that proves something.
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from gossamer.accounting.composer import Composition
from gossamer.accounting.observers import EVERYONE, Observer
from gossamer.accounting.pairs import GaussianPair, NoisePair, Pair
from gossamer.accounting.passes import hidden_lots, sort
from gossamer.accounting.profiles import (
    check_delta,
    concentrated_delta,
    concentrated_epsilon,
    gdp_delta,
    gdp_epsilon,
)
from gossamer.accounting.releases import ADJACENCIES, Counted, Event, Release
from gossamer.errors import UserError

CLOSED_FORM = "closed form: composed Gaussians are one Gaussian"
NUMERICAL = "privacy-loss distributions composed by FFT"
CONCENTRATED = "concentrated differential privacy of Laplace vectors"
TWO_MOVES = "one record removed, another added: twice the add/remove figure at a smaller δ"
NOTHING = "nothing was released"
SOME = 12  # figures of a curve that are computed one by one


@dataclass(frozen=True)
class Proven:
    """`epsilon` is an upper bound; the composition of the same pairs costs at least `lower`.

    ε = ∞ comes with `because`; `lower` is None then.
    """

    epsilon: float
    method: str
    lower: float | None = None
    because: str | None = None


@dataclass
class _Load:
    """Releases to compose: the exact Gaussian part (Σ μ²) and the pairs that need numbers."""

    mu_squared: float = 0.0
    pairs: dict[Pair, int] = field(default_factory=dict)
    cut: float = 0.0  # of the probability space, where truncated noise counts as what it was before
    # Probability that noise, moved by one record, lands beyond its bound; ∞: not known.
    crossing: float = math.inf
    rho: float = 0.0  # concentrated differential privacy of the Laplace vectors, where they are counted so
    rounded: bool = False  # pairs stand for cheaper ones, so that their lower bound is none of the releases'

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
    releases: Iterable[Event | Release | Counted],
    delta: float,
    adjacency: str,
    *,
    observer: Observer = EVERYONE,
    tolerance: float = 0.01,
) -> Proven:
    """Price a node's releases: events, releases, or releases with counts as `collate` gives them.

    `tolerance`: how close upper and lower bound should come, as a share of ε. What each release is
    to the `observer`, it says itself (`seen_by`); an observer of less than all messages has the price of all of them.
    """
    check_terms(delta, adjacency)
    counted = _seen(releases, observer)
    if reason := next((r for one, _ in counted if (r := one.unpriceable(adjacency))), None):
        return Proven(math.inf, "not proven", because=reason)
    if not counted:
        return Proven(0.0, NOTHING, lower=0.0)
    bounds = []
    if any(release.by_norm(adjacency) for release, _ in counted):
        bounds = [_price_truncated(load, delta, tolerance) for load in _by_norm(counted, adjacency)]
    # Coordinate by coordinate only where the norm proves nothing: there it is never the better of the two by much.
    if not bounds or math.isinf(max(bounds, key=_epsilon).epsilon):
        bounds = [_compose(load, delta, tolerance) for load in _loads(counted, adjacency)]
    worst = max(bounds, key=_epsilon)
    if hidden_lots(release for release, _ in counted):
        worst = min(worst, _price_secret_lots(counted, delta, adjacency, tolerance), key=_epsilon)
    return worst


_epsilon = attrgetter("epsilon")


def _seen(releases: Iterable[Event | Release | Counted], observer: Observer) -> list[Counted]:
    return [(release.seen_by(observer), count) for release, count in map(_counted, releases) if count > 0]


def curve(
    releases: Sequence[Event | Release],
    at: Sequence[int],
    delta: float,
    adjacency: str,
    *,
    observer: Observer = EVERYONE,
    tolerance: float = 0.01,
) -> list[float]:
    """Proven ε after the first `at` releases (in order), sharing the work between them."""
    check_terms(delta, adjacency)
    plain = [_counted(release)[0].seen_by(observer) for release in releases]
    broken = next((k for k, one in enumerate(plain) if one.unpriceable(adjacency)), len(plain))
    marks = [min(k, len(plain)) for k in at]
    usable = [k for k in marks if 0 < k <= broken]
    figures = {0: 0.0}
    if usable:
        prefixes = _curve(plain[: max(usable)], usable, delta, adjacency, tolerance)
        figures |= dict(zip(usable, prefixes, strict=True))
    return [figures.get(k, math.inf) for k in marks]


def profile(
    releases: Iterable[Event | Release | Counted],
    epsilons: Sequence[float],
    delta: float,
    adjacency: str,
    *,
    observer: Observer = EVERYONE,
) -> list[float]:
    """Upper bounds on δ(ε) at each ε: all that is proven of a node's releases, not the one point of it at `delta`.

    The same bounds as `proven`, solved for δ. They hold both ways round, for the larger of the two is taken. Of what
    cannot be priced every δ is 1; `delta` says around which δ a numerical composition is sharp.
    """
    check_terms(delta, adjacency)
    counted = _seen(releases, observer)
    if any(release.unpriceable(adjacency) for release, _ in counted):
        return [1.0] * len(epsilons)
    if not counted:
        return [0.0] * len(epsilons)
    deltas = [math.inf]
    if any(release.by_norm(adjacency) for release, _ in counted):
        deltas = _largest(_by_norm(counted, adjacency), epsilons, delta)
    if min(deltas) > delta:  # the norm proves nothing there
        deltas = _largest(_loads(counted, adjacency), epsilons, delta)
    return deltas


def _largest(loads: "Iterable[_Load]", epsilons: Sequence[float], delta: float) -> list[float]:
    """Over the ways a record can be placed, at each ε."""
    by_load = [_deltas(load, epsilons, delta) for load in loads]
    return [min(1.0, max(deltas)) for deltas in zip(*by_load, strict=True)]


def _deltas(load: _Load, epsilons: Sequence[float], delta: float) -> list[float]:
    """The bounds of `_compose` and, where noise was cut, of `_price_truncated`, solved for δ."""
    if load.rho > 0:
        rho = load.rho + load.mu_squared / 2
        before = [1.0 if load.pairs else concentrated_delta(rho, epsilon) for epsilon in epsilons]
    elif not load.pairs:
        before = [gdp_delta(math.sqrt(load.mu_squared), epsilon) for epsilon in epsilons]
    else:
        before = load.composition().deltas(epsilons, delta)
    if not load.cut:
        return before
    share = max(1 - load.cut, 1e-300)
    return [
        min(d / share + load.crossing, (d + math.exp(min(epsilon, 700.0)) * load.cut) / share)
        for d, epsilon in zip(before, epsilons, strict=True)
    ]


def _counted(item: Event | Release | Counted) -> Counted:
    if isinstance(item, tuple):
        return item
    return (item.release if isinstance(item, Event) else item), 1


def _compose(load: _Load, delta: float, tolerance: float) -> Proven:
    if load.rho > 0:
        if load.pairs:
            return Proven(math.inf, CONCENTRATED, because="Laplace vectors among sampled releases")
        return Proven(concentrated_epsilon(load.rho + load.mu_squared / 2, delta), CONCENTRATED)
    if not load.pairs:
        epsilon = gdp_epsilon(math.sqrt(load.mu_squared), delta)
        return Proven(epsilon, CLOSED_FORM, lower=epsilon)
    bounds = load.composition().bounds(delta, tolerance)
    if math.isfinite(bounds.upper):
        method = f"{NUMERICAL}, step {bounds.step:.2g}, {bounds.groups} groups"
        return Proven(bounds.upper, method, lower=None if load.rounded else bounds.lower)
    shown = _identifying(load)
    much = f"probability {shown:.3g}, more than" if shown > delta else "a probability of nearly"
    because = f"outcomes that identify a record outright have {much} δ = {delta:g}"
    return Proven(math.inf, NUMERICAL, because=because)


def _price_truncated(load: _Load, delta: float, tolerance: float) -> Proven:
    """The better of two bounds by what is known of the noise before truncation; κ = 1 − τ of it was kept.

    * Truncated noise is the noise before, given an event E of probability κ; E′ for the neighbour. What lies in both
      costs δ_before(ε)/κ, and outside E′ lies only noise that the record's move carried beyond the bound:
      δ(ε) ≤ δ_before(ε)/κ + P(crossing).
    * Truncation moves a distribution by τ: δ(ε) ≤ (δ_before(ε) + e^ε τ)/κ. Also with sampling. ε is raised until what
      it says of the noise before, at the δ that is left, is no more than itself.
    """
    method = "as noise before truncation, at a δ less what was cut" if load.cut else CONCENTRATED
    share, best = 1 - load.cut, math.inf
    if (left := (delta - load.crossing) * share) > 0:
        best = _compose(load, left, tolerance).epsilon
    epsilon = 0.0
    while load.cut and epsilon < min(best, 700.0):
        left = delta * share - math.exp(epsilon) * load.cut
        if left <= 0:
            break
        before = _compose(load, left, tolerance).epsilon
        if before <= epsilon:
            best = min(best, epsilon)
            break
        epsilon = before * (1 + 1e-4)
    if math.isfinite(best):
        return Proven(best, method)
    because = f"the truncation cuts off {load.cut:.3g} of the probability, too much for δ = {delta:g}"
    return Proven(best, method, because=because)


def _price_secret_lots(counted: Sequence[Counted], delta: float, adjacency: str, tolerance: float) -> Proven:
    """With balls-and-bins passes as pairs."""
    loads = list(_loads(counted, "add-remove", amplified=True, tolerance=tolerance))

    def at(left: float) -> Proven:
        return max((_compose(load, left, tolerance) for load in loads), key=_epsilon)

    if adjacency == "add-remove":
        return at(delta)
    if any(release.sampling == "fixed-size" for release, _ in counted):
        return Proven(math.inf, TWO_MOVES, because="fixed-size lots have no record less")
    epsilon = at(delta / 2).epsilon
    while math.isfinite(epsilon):
        # (ε, δ / (1 + e^ε)) must hold; a larger ε leaves a smaller δ, so raise it until what it needs is no more.
        needed = at(delta / (1 + math.exp(min(epsilon, 700.0)))).epsilon
        if needed <= epsilon:
            return Proven(2 * epsilon, TWO_MOVES)
        epsilon = needed * (1 + 1e-4)
    return Proven(math.inf, TWO_MOVES, because=f"δ = {delta:g} is too small for two moves")


def _identifying(load: _Load) -> float:
    log_hidden = 0.0
    for pair, count in load.pairs.items():
        if isinstance(pair, NoisePair):
            once = pair.rate * pair.noise.identifying(pair.shift)
            log_hidden += count * math.log1p(-min(once, 1 - 1e-16))
    return -math.expm1(log_hidden)


def _by_norm(counted: Sequence[Counted], adjacency: str) -> Iterable[_Load]:
    """Vectors by the norm of the whole change, as what they were before truncation, and what was cut off."""
    tail = rho = crossing = 0.0
    plain: list[Counted] = []
    gaussians: list[Counted] = []
    for release, count in counted:
        norm = release.by_norm(adjacency)
        if norm is None:
            plain.append((release, count))
            continue
        tail += count * release.pair_count * norm.tail
        crossing += count * norm.crossing
        rho += count * norm.rho
        if norm.gaussian is not None:
            gaussians.append((norm.gaussian, count))
    for load in _loads([*plain, *gaussians], adjacency):
        load.cut, load.crossing, load.rho = min(tail, 1.0), crossing, rho
        yield load


def _loads(
    counted: Sequence[Counted], adjacency: str, *, amplified: bool = False, tolerance: float = 0.01
) -> Iterable[_Load]:
    """One load per way a record can be placed in disjoint lots; usually there is a single worst way."""
    passes = sort(counted, amplified=amplified, tolerance=tolerance)
    for chosen in itertools.product(*(_worst(lots) for lots in passes.disjoint)):
        load = _Load(rounded=passes.rounded)
        for release, count in [*passes.alone, *((release, 1) for release in chosen)]:
            load.add(release.pair(adjacency), count * release.pair_count)
        for pair in passes.hidden:
            load.add(pair, 1)
        yield load


def _worst(lots: Sequence[Release]) -> list[Release]:
    """The lots that may be worst: of each family the one with the least noise."""
    least: dict[object, Release] = {}
    for lot in lots:
        best = least.get(lot.family)
        if best is None or lot.noise_multiplier < best.noise_multiplier:
            least[lot.family] = lot
    return list(least.values())


def _curve(
    releases: Sequence[Release], at: Sequence[int], delta: float, adjacency: str, tolerance: float
) -> list[float]:
    priced = {one: one.pair(adjacency) for one in set(releases)}
    # Disjoint lots and vectors have no running total: a later one can change which of several bounds is the best.
    if any(
        one.by_norm(adjacency) or (one.in_passes and not isinstance(price, float)) or one.sampling == "balls-and-bins"
        for one, price in priced.items()
    ):
        return _one_by_one(releases, at, delta, adjacency, tolerance)
    order: list[Pair | None] = []
    ends = [0]  # of each release in `order`: a release in d dimensions takes d places
    exact = [0.0]  # Σ μ² of the closed-form part so far
    worst: dict[int, float] = {}  # pass → largest μ² of its lots
    for one in releases:
        price, repeat = priced[one], one.pair_count
        squared = exact[-1]
        if isinstance(price, float):
            if one.sampling == "one-pass":
                number = one.pass_number or 0
                before = worst.get(number, 0.0)
                worst[number] = max(before, price**2)
                squared += worst[number] - before
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


def _one_by_one(
    releases: Sequence[Release], at: Sequence[int], delta: float, adjacency: str, tolerance: float
) -> list[float]:
    """Price each by itself; of balls and bins, which take a while, some, and the next of them stands for others."""
    marks = sorted(set(at))
    if any(one.sampling == "balls-and-bins" for one in releases) and len(marks) > SOME:
        marks = sorted({marks[math.ceil(len(marks) * k / SOME) - 1] for k in range(1, SOME + 1)})
    figures = [proven(releases[:k], delta, adjacency, tolerance=tolerance).epsilon for k in marks]
    return [figures[bisect.bisect_left(marks, k)] for k in at]


def check_terms(delta: float, adjacency: str) -> None:
    check_delta(delta)
    if adjacency not in ADJACENCIES:
        raise UserError(f"adjacency = {adjacency!r} must be {' or '.join(ADJACENCIES)}.")
