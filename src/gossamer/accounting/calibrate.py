"""The noise, the number of steps or the sampling rate that a budget (ε, δ) allows, by search on `proven`.

Every result has been evaluated, not extrapolated: the figure proven for it is at most the ε asked for.
"""

import math
from collections.abc import Callable, Sequence

from gossamer.accounting.claimed import gdp_mu
from gossamer.accounting.events import Release, collate
from gossamer.accounting.proven import curve, proven
from gossamer.errors import UserError

SLACK = 0.004  # how far below the budget a search may stop
COARSE = 0.25  # tolerance of the first, cheap evaluations
MARKS = 24  # prefixes looked at per round when searching for the number of steps


def common_factor(
    multipliers: Sequence[float],
    *,
    sampling: str,
    rate: float,
    adjacency: str,
    epsilon: float,
    delta: float,
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
            [(kind.scaled(factor), n) for kind, n in kinds], delta, adjacency, tolerance=tol
        ).epsilon

    return math.exp(_search(spent, epsilon, start=0.0, tolerance=tolerance, falling=True))


def largest_rate(
    multipliers: Sequence[float],
    *,
    sampling: str,
    adjacency: str,
    epsilon: float,
    delta: float,
    tolerance: float = 0.01,
) -> float:
    """Largest sampling rate at which the run is proven to cost at most ε (1 if even that is allowed)."""
    _check_budget(epsilon, delta)

    def spent(log_rate: float, tol: float) -> float:
        kinds = collate(_releases(multipliers, sampling, min(1.0, math.exp(log_rate)), adjacency))
        return proven(kinds, delta, adjacency, tolerance=tol).epsilon

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
    tolerance: float = 0.01,
) -> int:
    """How many of the steps, from the first, are proven to cost at most ε together."""
    _check_budget(epsilon, delta)
    releases = _releases(multipliers, sampling, rate, adjacency)
    low, high = 0, len(releases)  # `low` steps are affordable; more than `high` are not
    while low < high:
        marks = sorted({low + math.ceil((high - low) * k / MARKS) for k in range(1, MARKS + 1)})
        found = curve(releases, marks, delta, adjacency, tolerance=tolerance)
        fits = [k for k, figure in zip(marks, found, strict=True) if figure <= epsilon]
        low = max(fits, default=low)
        high = min((k for k in marks if k > low), default=low + 1) - 1
    while low and proven(collate(releases[:low]), delta, adjacency, tolerance=tolerance).epsilon > epsilon:
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
    """The x where spent(x) comes to ε from below: secant steps on log ε, coarse, then at the tolerance."""
    sign = -1.0 if falling else 1.0  # of the slope
    x = start
    for tol in (COARSE, tolerance):
        safe: tuple[float, float] | None = None  # (x, log ε − target) on the affordable side
        over: tuple[float, float] | None = None
        for _ in range(60):
            figure = spent(x, tol)
            gap = math.log(figure / epsilon) if figure > 0 else -math.inf
            if gap <= 0:
                safe = (x, gap)
                if gap >= -(SLACK if tol == tolerance else COARSE / 4):
                    break
            else:
                over = (x, gap)
            x = _next(safe, over, sign, top)
            if safe is not None and over is not None and abs(safe[0] - over[0]) < 1e-6:
                break
        if safe is not None:
            x = safe[0]
    if safe is None:
        raise UserError(f"epsilon = {epsilon} cannot be reached: no noise or rate tried is private enough")
    return x


def _next(
    safe: tuple[float, float] | None, over: tuple[float, float] | None, sign: float, top: float
) -> float:
    """Inside a bracket the secant, kept away from its ends; outside a step in the needed direction."""
    if safe is not None and over is not None:
        if math.isfinite(safe[1]) and math.isfinite(over[1]):
            aim = -SLACK / 2  # a little inside the budget, so that the search ends
            share = min(max((over[1] - aim) / (over[1] - safe[1]), 0.02), 0.98)
        else:
            share = 0.5
        return over[0] + share * (safe[0] - over[0])
    x, gap = safe or over or (0.0, 0.0)
    reach = min(max(abs(gap) / 2, 0.02), 1.0) if math.isfinite(gap) else 1.0
    return min(top, x - sign * reach if over else x + sign * reach)


def _releases(multipliers: Sequence[float], sampling: str, rate: float, adjacency: str) -> list[Release]:
    if len(multipliers) == 0:
        raise UserError("multipliers is empty: at least one step is needed")
    return [Release("gaussian", float(m), 1.0, sampling, float(rate), adjacency) for m in multipliers]


def _check_budget(epsilon: float, delta: float) -> None:
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon = {epsilon} must be a positive number")
    if not 0 < delta < 1:
        raise UserError(f"delta = {delta} must lie strictly between 0 and 1")
