"""The noise or the number of steps that a budget (ε, δ) allows, by search on `proven`.

Every result has been evaluated, not extrapolated: the figure proven for it is at most the ε asked for.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from gossamer.accounting.observers import EVERYONE, Observer
from gossamer.accounting.profiles import check_delta, check_epsilon, gdp_epsilon, gdp_mu
from gossamer.accounting.proven import curve, proven
from gossamer.accounting.releases import Counted, Event, Gaussian, Release, collate
from gossamer.errors import UserError

SLACK = 0.004  # how far below the budget a search may stop
COARSE, MIDDLE = 0.25, 0.05  # tolerances of the first, cheap evaluations
PATIENCE = 12  # evaluations of the last stage before a wider bracket is good enough
NARROW = 5e-4  # of a tiny ε such a bracket at once: it falls off a cliff, and no figure comes near the budget
LINE = 0.8  # dε/d log μ in units of μ where ε is next to nothing: δ = 2Φ(μ/2) − 1 there
MOST_LEVELS = 4000  # different amounts of noise that a search tells apart
MARKS = 24  # prefixes looked at per round when searching for the number of steps


@dataclass(frozen=True, kw_only=True)
class Target:
    """The ε that releases may cost, and all that it is about."""

    epsilon: float
    delta: float
    adjacency: str
    observer: Observer = EVERYONE
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    def cost(self, releases: Iterable[Event | Release | Counted], tolerance: float) -> float:
        """Proven ε, its bounds as close as the tolerance says."""
        return proven(releases, self.delta, self.adjacency, observer=self.observer, tolerance=tolerance).epsilon


def common_factor(multipliers: Sequence[float], target: Target, *, sampling: str, rate: float) -> float:
    """Smallest factor on all noise multipliers σ_k / C_k with which the run is proven to cost at most ε."""
    if sampling in {"full", "one-pass"} or rate == 1:
        mus = [1 / m for m in multipliers]
        total = max(mus) if sampling == "one-pass" else math.sqrt(sum(mu * mu for mu in mus))
        swap = 2 if target.adjacency == "replace-one" or sampling == "fixed-size" else 1
        return swap * total / gdp_mu(target.epsilon, target.delta) * (1 + 1e-9)
    levels = levelled(multipliers)
    every = kinds = collate(_releases(multipliers, sampling, rate, target.adjacency))
    shift, start, steepness = gdp_mu(target.epsilon, target.delta), 0.0, 2.0
    if is_tiny(target.epsilon, shift) or levels is not multipliers:  # where the central limit would put it
        start = math.log(rate * math.sqrt(math.fsum(m**-2 for m in multipliers)) / shift)
    if levels is not multipliers:
        kinds = collate(_releases(levels, sampling, rate, target.adjacency))
        # So many releases are nearly one Gaussian: ε falls with their noise as that one's does.
        steepness = math.log(gdp_epsilon(1.01 * shift, target.delta) / target.epsilon) / math.log(1.01)

    def spent(log_factor: float, tol: float) -> float:
        factor = math.exp(log_factor)
        scaled = [(kind.scaled(factor), n) for kind, n in (every if tol == target.tolerance else kinds)]
        return target.cost(scaled, tol)

    return math.exp(_search(spent, target, start, shift, steepness))


def levelled(multipliers: Sequence[float]) -> Sequence[float]:
    """Thousands of different noises as a few thousand, each at most as large as the one that it stands for.

    A search prices them again and again. Less noise costs more, so what is found for these is enough for those.
    """
    if len(multipliers) <= MOST_LEVELS:
        return multipliers
    logs = np.log(np.asarray(multipliers, dtype=float))
    width = max(float(logs.max() - logs.min()) / MOST_LEVELS, 1e-12)
    levels = logs.min() + np.floor((logs - logs.min()) / width) * width
    return [float(level) for level in np.minimum(np.exp(levels), multipliers)]


def least_scale(releases: Callable[[float], Sequence[Event | Release]], target: Target) -> float:
    """Smallest factor f for which `releases(f)`, which need not be Gaussian, are proven to cost at most ε."""

    def spent(log_factor: float, tol: float) -> float:
        return target.cost(collate(releases(math.exp(log_factor))), tol)

    shift = gdp_mu(target.epsilon, target.delta)
    start = math.log(math.sqrt(len(releases(1.0))) / shift)  # what a Gaussian would need
    return math.exp(_search(spent, target, start, shift))


def truncated_share(epsilon: float, delta: float, numbers: int) -> float:
    """Return the share of each number's noise to cut off for a twentieth of δ: more costs more than it gains."""
    return delta / (20 * numbers * (1 + math.exp(min(epsilon, 700.0))))


def affordable(multipliers: Sequence[float], target: Target, *, sampling: str, rate: float) -> int:
    """Return the number of steps, from the first, that are proven to cost at most ε together."""
    releases = _releases(multipliers, sampling, rate, target.adjacency)
    epsilon, tolerance = target.epsilon, target.tolerance
    low, high = 0, len(releases)  # `low` steps are affordable; more than `high` are not
    tol = max(MIDDLE, tolerance)
    while low < high:
        marks = sorted({low + math.ceil((high - low) * k / MARKS) for k in range(1, MARKS + 1)})
        terms = target.delta, target.adjacency
        figures = curve(releases, marks, *terms, observer=target.observer, tolerance=tol)
        by_mark = list(zip(marks, figures, strict=True))
        low = max((k for k, figure in by_mark if figure <= epsilon), default=low)
        # a coarse figure may be too large by its tolerance
        over = epsilon if tol == tolerance else epsilon * (1 + 2 * tol)
        high = min((k for k, figure in by_mark if k > low and figure > over), default=high + 1) - 1
        tol = tolerance
    while low and target.cost(collate(releases[:low]), tolerance) > epsilon:
        low -= max(1, low // 200)
    return max(low, 0)


def is_tiny(epsilon: float, shift: float) -> bool:
    """Is ε next to nothing compared with the Gaussian shift that has it?"""
    return epsilon < shift / 20


def _search(
    spent: Callable[[float, float], float],
    target: Target,
    start: float,
    shift: float,
    steepness: float = 2.0,
) -> float:
    """The x where spent(x, tolerance) comes to ε from below; x is the logarithm of the noise that is searched.

    Secant steps on log ε, kept inside the bracket once there is one; the first stages are cheap and only
    bring x and the slope near. `shift` is the Gaussian shift that has this ε: where ε is tiny compared with it,
    log ε falls off a cliff while ε itself is a straight line of known slope. `steepness` is a guess of |d log ε / dx|.
    """
    epsilon, tolerance = target.epsilon, target.tolerance
    x, slope = start, -steepness
    line = LINE * shift if is_tiny(epsilon, shift) else None
    for stage in (COARSE, tolerance) if line else (COARSE, MIDDLE, tolerance):
        final = stage == tolerance
        safe, over = math.inf, -math.inf  # x known to be affordable, known not to be
        last: tuple[float, float] | None = None
        for tried in range(60):
            figure = spent(x, stage)
            gap = math.log(figure / epsilon) if figure > 0 else -math.inf
            if (final and -SLACK <= gap <= 0) or (not final and abs(gap) <= stage / 2):
                break
            safe, over = (x, over) if gap <= 0 else (safe, x)
            # not closer than it matters to the next stage, nor for long where ε rises steeply
            near = (NARROW if line else 1e-6) if final and tried < PATIENCE else stage / 50
            if safe - over < near:
                x = safe
                break
            if last is not None and math.isfinite(gap) and math.isfinite(last[1]) and x != last[0]:
                slope = -min(max(abs((gap - last[1]) / (x - last[0])), 0.2), 30.0)
            last = x, gap
            step = (gap + SLACK / 2) / slope if math.isfinite(gap) else -math.copysign(1.0, gap)
            reach = 1.0
            if line and figure > 0:
                step = -((figure - epsilon) / line + math.copysign(near / 3, gap))
            elif line:  # short steps first: the start is near, and nothing says how far to go
                reach = min(1.0, 0.9 * near if math.isfinite(over) else 4 * near * 2**tried)
            x -= min(max(step, -reach), reach)
            if not over < x < safe:
                x = (safe + over) / 2
        else:
            if math.isinf(over):
                raise UserError(
                    f"epsilon = {epsilon:g} is kept without any noise, as delta is larger than the probability that a "
                    "record is drawn at all; use a smaller delta"
                )
            raise UserError(f"epsilon = {epsilon:g} cannot be reached: nothing tried comes near it")
    return x


def _releases(multipliers: Sequence[float], sampling: str, rate: float, adjacency: str) -> list[Gaussian]:
    if len(multipliers) == 0:
        raise UserError("multipliers is empty: at least one step is needed")
    return [
        Gaussian(sigma=float(m), sensitivity=1.0, sampling=sampling, rate=float(rate), adjacency=adjacency)
        for m in multipliers
    ]
