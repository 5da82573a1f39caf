"""The noise, the number of steps or the sampling rate that a budget (ε, δ) allows, by search on `proven`.

Every result has been evaluated, not extrapolated: the figure proven for it is at most the ε asked for.
"""

import math
from collections.abc import Callable, Sequence

from gossamer.accounting.checks import check_delta, check_epsilon
from gossamer.accounting.gaussian import gdp_mu
from gossamer.accounting.observers import EVERYONE, Observer
from gossamer.accounting.proven import curve, proven
from gossamer.accounting.releases import Event, Gaussian, Release, collate
from gossamer.errors import UserError

SLACK = 0.004  # how far below the budget a search may stop
COARSE, MIDDLE = 0.25, 0.05  # tolerances of the first, cheap evaluations
PATIENCE = 12  # evaluations of the last stage before a wider bracket is good enough
MARKS = 24  # prefixes looked at per round when searching for the number of steps


def common_factor(
    multipliers: Sequence[float],
    *,
    sampling: str,
    rate: float,
    adjacency: str,
    epsilon: float,
    delta: float,
    observer: Observer = EVERYONE,
    tolerance: float = 0.01,
) -> float:
    """Smallest factor on all noise multipliers σ_k / C_k with which the run is proven to cost at most ε."""
    _check_budget(epsilon, delta)
    if sampling in {"full", "one-pass"} or rate == 1:
        mus = [1 / m for m in multipliers]
        total = max(mus) if sampling == "one-pass" else math.sqrt(sum(mu * mu for mu in mus))
        swap = 2 if adjacency == "replace-one" or sampling == "fixed-size" else 1
        return swap * total / gdp_mu(epsilon, delta) * (1 + 1e-9)
    kinds = collate(_releases(multipliers, sampling, rate, adjacency))

    def spent(log_factor: float, tol: float) -> float:
        factor = math.exp(log_factor)
        return proven(
            [(kind.scaled(factor), n) for kind, n in kinds],
            delta,
            adjacency,
            observer=observer,
            tolerance=tol,
        ).epsilon

    return math.exp(_search(spent, epsilon, start=0.0, tolerance=tolerance, falling=True))


def least_scale(
    releases: Callable[[float], Sequence[Event | Release]],
    *,
    adjacency: str,
    epsilon: float,
    delta: float,
    observer: Observer = EVERYONE,
    tolerance: float = 0.01,
) -> float:
    """Smallest factor f for which `releases(f)`, which need not be Gaussian, are proven to cost at most ε."""
    _check_budget(epsilon, delta)

    def spent(log_factor: float, tol: float) -> float:
        return proven(
            collate(releases(math.exp(log_factor))), delta, adjacency, observer=observer, tolerance=tol
        ).epsilon

    start = math.log(common_start(len(releases(1.0)), epsilon, delta))
    return math.exp(_search(spent, epsilon, start=start, tolerance=tolerance, falling=True))


def common_start(count: int, epsilon: float, delta: float) -> float:
    """Where a search for noise begins: what a Gaussian would need."""
    return math.sqrt(count) / gdp_mu(epsilon, delta)


def largest_rate(
    multipliers: Sequence[float],
    *,
    sampling: str,
    adjacency: str,
    epsilon: float,
    delta: float,
    observer: Observer = EVERYONE,
    tolerance: float = 0.01,
) -> float:
    """Largest sampling rate at which the run is proven to cost at most ε (1 if even that is allowed)."""
    _check_budget(epsilon, delta)

    def spent(log_rate: float, tol: float) -> float:
        kinds = collate(_releases(multipliers, sampling, min(1.0, math.exp(log_rate)), adjacency))
        return proven(kinds, delta, adjacency, observer=observer, tolerance=tol).epsilon

    if spent(0.0, COARSE) <= epsilon:
        return 1.0
    return math.exp(
        _search(spent, epsilon, start=math.log(0.01), tolerance=tolerance, falling=False, top=0.0)
    )


def affordable(
    multipliers: Sequence[float],
    *,
    sampling: str,
    rate: float,
    adjacency: str,
    epsilon: float,
    delta: float,
    observer: Observer = EVERYONE,
    tolerance: float = 0.01,
) -> int:
    """How many of the steps, from the first, are proven to cost at most ε together."""
    _check_budget(epsilon, delta)
    releases = _releases(multipliers, sampling, rate, adjacency)
    low, high = 0, len(releases)  # `low` steps are affordable; more than `high` are not
    tol = max(MIDDLE, tolerance)
    while low < high:
        marks = sorted({low + math.ceil((high - low) * k / MARKS) for k in range(1, MARKS + 1)})
        found = curve(releases, marks, delta, adjacency, observer=observer, tolerance=tol)
        by_mark = list(zip(marks, found, strict=True))
        low = max((k for k, figure in by_mark if figure <= epsilon), default=low)
        # a coarse figure may be too large by its tolerance
        over = epsilon if tol == tolerance else epsilon * (1 + 2 * tol)
        high = min((k for k, figure in by_mark if k > low and figure > over), default=high + 1) - 1
        tol = tolerance
    while (
        low
        and proven(collate(releases[:low]), delta, adjacency, observer=observer, tolerance=tolerance).epsilon
        > epsilon
    ):
        low -= max(1, low // 200)
    return max(low, 0)


def _search(
    spent: Callable[[float, float], float],
    epsilon: float,
    *,
    start: float,
    tolerance: float,
    falling: bool,
    top: float = math.inf,
) -> float:
    """The x where spent(x, tolerance) comes to ε from below.

    Secant steps on log ε, kept inside the bracket once there is one; the first stages are cheap and only
    bring x and the slope near.
    """
    sign = -1.0 if falling else 1.0
    x, slope = start, 2 * sign
    for stage in (COARSE, MIDDLE, tolerance):
        final = stage == tolerance
        safe, over = (-sign * math.inf, sign * math.inf)  # x known to be affordable, known not to be
        last: tuple[float, float] | None = None
        for tried in range(60):
            figure = spent(x, stage)
            gap = math.log(figure / epsilon) if figure > 0 else -math.inf
            if (final and -SLACK <= gap <= 0) or (not final and abs(gap) <= stage / 2):
                found = x
                break
            safe, over = (x, over) if gap <= 0 else (safe, x)
            # not closer than it matters to the next stage, nor for long where ε rises steeply
            near = 1e-6 if final and tried < PATIENCE else stage / 50
            if abs(safe - over) < near or (gap <= 0 and x == top):
                found = safe
                break
            if last is not None and math.isfinite(gap) and math.isfinite(last[1]) and x != last[0]:
                steepness = abs((gap - last[1]) / (x - last[0]))
                slope = sign * min(max(steepness, 0.2), 30.0)
            last = x, gap
            step = (gap + SLACK / 2) / slope if math.isfinite(gap) else math.copysign(1.0, gap) * sign
            x = min(top, x - min(max(step, -1.0), 1.0))
            if not min(safe, over) < x < max(safe, over):
                x = (safe + over) / 2
        else:
            if falling and math.isinf(over):
                raise UserError(
                    f"epsilon = {epsilon:g} is kept without any noise, as delta is larger than the probability that a "
                    "record is drawn at all; use a smaller delta"
                )
            raise UserError(f"epsilon = {epsilon:g} cannot be reached: nothing tried comes near it")
        x = found
    return x


def _releases(multipliers: Sequence[float], sampling: str, rate: float, adjacency: str) -> list[Gaussian]:
    if len(multipliers) == 0:
        raise UserError("multipliers is empty: at least one step is needed")
    return [
        Gaussian(sigma=float(m), sensitivity=1.0, sampling=sampling, rate=float(rate), adjacency=adjacency)
        for m in multipliers
    ]


def _check_budget(epsilon: float, delta: float) -> None:
    check_epsilon(epsilon)
    check_delta(delta)
