"""The root of a function of one variable between two points where it has different signs, by Brent's method (1973).

scipy has it too, but importing `scipy.optimize` takes a tenth of the time of importing torch, and every command that
plans needs a root.
"""

from collections.abc import Callable

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
