"""Gaussian differential privacy: the profile of one Gaussian release and its inverses (Dong, Roth, Su 2022).

With what closed forms share: checks of ε and δ, and a root finder. scipy has one too, but importing `scipy.optimize`
takes a tenth of the time of importing torch, and every command that plans needs a root.
"""

import math
from collections.abc import Callable

from scipy.special import log_ndtr

from gossamer.errors import UserError


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise UserError(f"delta = {delta} must lie strictly between 0 and 1")


def check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon = {epsilon} must be a positive number")


MOST_STEPS = 100
SMALLEST_SHARE = 2.0**-50  # of the root: no closer than a double can say


def root(
    f: Callable[[float], float], low: float, high: float, *, xtol: float, rtol: float = SMALLEST_SHARE
) -> float:
    """An x within xtol + rtol·|x| of a root of f. f(low) and f(high) must differ in sign."""
    last, x = low, high
    f_last, f_x = f(last), f(x)
    if f_last == 0:
        return last
    if f_x != 0 and (f_last < 0) == (f_x < 0):
        raise ValueError(f"f has the same sign at {low} and at {high}")
    other, f_other, step, step_before = last, f_last, 0.0, 0.0  # the root lies between x and `other`
    for _ in range(MOST_STEPS):
        if f_last != 0 and f_x != 0 and (f_last < 0) != (f_x < 0):
            other, f_other = last, f_last
            step = step_before = x - last
        if abs(f_other) < abs(f_x):  # x is the better of the two ends
            last, x, other = x, other, x
            f_last, f_x, f_other = f_x, f_other, f_x
        near, half = (xtol + rtol * abs(x)) / 2, (other - x) / 2
        if f_x == 0 or abs(half) < near:
            return x
        tried = _interpolated(x, f_x, last, f_last, other, f_other) if abs(f_x) < abs(f_last) else None
        if (
            tried is not None
            and abs(step_before) > near
            and 2 * abs(tried) < min(abs(step_before), 3 * abs(half) - near)
        ):
            step_before, step = step, tried
        else:
            step_before = step = half
        last, f_last = x, f_x
        x += step if abs(step) > near else near if half > 0 else -near
        f_x = f(x)
    return x


def _interpolated(
    x: float, f_x: float, last: float, f_last: float, other: float, f_other: float
) -> float | None:
    """The step to where a line through two points, or an inverse parabola through three, is zero."""
    if last == other:
        return -f_x * (x - last) / (f_x - f_last)
    slope, slope_other = (f_last - f_x) / (last - x), (f_other - f_x) / (other - x)
    down = slope_other * slope * (f_other - f_last)
    return -f_x * (f_other * slope_other - f_last * slope) / down if down else None


LARGEST_MU = 1e6  # beyond it an upper bound within a hundred-thousandth is as good


def gdp_delta(mu: float, epsilon: float) -> float:
    """δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2): the exact profile of one Gaussian release."""
    if mu == 0:
        return max(0.0, -math.expm1(epsilon))
    if math.isinf(mu):
        return 1.0
    upper = float(log_ndtr(-epsilon / mu + mu / 2))
    lower = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return -math.exp(upper) * math.expm1(min(lower - upper, 0.0))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Smallest ε ≥ 0 with δ(ε) ≤ δ."""
    check_delta(delta)
    if math.isinf(mu):
        return math.inf
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    top = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9
    if mu > LARGEST_MU:  # the square alone decides, and the profile would be a difference of huge numbers
        return top
    return root(lambda e: gdp_delta(mu, e) - delta, 0.0, top, xtol=1e-12, rtol=1e-13)


def gdp_mu(epsilon: float, delta: float) -> float:
    """The μ whose profile passes through (ε, δ)."""
    check_delta(delta)
    check_epsilon(epsilon)
    top = 1.0
    while gdp_delta(top, epsilon) < delta:
        top *= 2
    return root(lambda mu: gdp_delta(mu, epsilon) - delta, 1e-12, top, xtol=1e-14, rtol=1e-13)
