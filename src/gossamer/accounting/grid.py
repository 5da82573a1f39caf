"""The loss grid on which pairs are composed: its window, the masses on it, their transforms and moments."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import fft

from gossamer.accounting.pairs import Cells, Pair
from gossamer.accounting.profiles import FloatArray

ORDERS = np.geomspace(0.02, 200.0, 20)  # of the Chernoff bounds
ROUNDOFF = 2.0**-53
Weighted = tuple[Pair, int]


@dataclass(frozen=True)
class Window:
    """One period of the loss grid: `length` points from index `start`; the orders bound the mass outside."""

    h: float
    start: int
    length: int
    order_up: float
    order_down: float

    @property
    def losses(self) -> FloatArray:
        return np.asarray(self.h * np.arange(self.start, self.start + self.length))

    @property
    def top(self) -> float:
        return self.h * (self.start + self.length - 1)


def turned(cells: Cells, reverse: bool) -> Cells:
    return cells.reversed() if reverse else cells


def dots(cells: Cells, h: float) -> tuple[int, FloatArray, float]:
    """Connect the dots: (first index, masses on the grid, mass at infinity).

    A cell of loss range [a, b] and masses p, q becomes masses p_a + p_b = p with p_a e^{−a} + p_b e^{−b} = q.
    """
    high = cells.last * h
    with np.errstate(over="ignore", invalid="ignore"):
        at_first = (cells.q * np.exp(np.minimum(high, 700.0)) - cells.p) / np.expm1(
            (cells.last - cells.first) * h
        )
    at_first = np.where(cells.last > cells.first, np.clip(at_first, 0.0, cells.p), cells.p)
    first = int(cells.first.min())
    size = int(cells.last.max()) - first + 1
    mass = np.bincount(cells.first - first, at_first, size)
    mass += np.bincount(cells.last - first, cells.p - at_first, size)
    return first, mass, cells.p_only + cells.p_cut


def loss_moments(
    pairs: Iterable[Weighted], step: float, reverse: bool, orders: Sequence[float] | FloatArray = ORDERS
) -> tuple[FloatArray, FloatArray]:
    """Σ log E e^{tℓ} and Σ log E e^{−tℓ} of the pessimistic losses, for each order t."""
    up, down = np.zeros(len(orders)), np.zeros(len(orders))
    for pair, count in pairs:
        first, mass, _ = dots(turned(pair.cells(step, centred=False), reverse), step)
        some = mass > 0
        log_mass, losses = np.log(mass[some]), step * (first + np.flatnonzero(some))
        up += count * log_moments(log_mass, losses, orders)
        down += count * log_moments(log_mass, -losses, orders)
    return up, down


def log_moments(log_mass: FloatArray, losses: FloatArray, orders: Sequence[float] | FloatArray) -> FloatArray:
    """log Σ m e^{tℓ} for each order t."""
    found = np.empty(len(orders))
    for k, order in enumerate(orders):
        exponent = log_mass + order * losses
        largest = exponent.max()
        found[k] = largest + math.log(np.exp(exponent - largest).sum())
    return found


def transform(mass: FloatArray, length: int) -> FloatArray:
    """Spectrum of the masses on a circle of `length` points."""
    if len(mass) > length:
        mass = np.pad(mass, (0, -len(mass) % length)).reshape(-1, length).sum(axis=0)
    return np.asarray(fft.rfft(mass, length))


def back(spectrum: FloatArray, window: Window, first: int) -> FloatArray:
    """Masses on the window from a spectrum whose index 0 stands for the loss first·h."""
    mass = fft.irfft(spectrum, window.length)
    return np.asarray(np.roll(mass, (first - window.start) % window.length))


def power(spectrum: FloatArray, count: int) -> FloatArray:
    """By repeated squaring: faster than complex ** and no worse in rounding."""
    result = None
    while True:
        if count & 1:
            result = spectrum if result is None else result * spectrum
        count >>= 1
        if not count:
            return np.ones_like(spectrum) if result is None else result
        spectrum = spectrum * spectrum


def rounding_error(mass: FloatArray, factors: int) -> float:
    return float(
        4 * factors * ROUNDOFF * math.log2(len(mass) + 2) * math.sqrt(len(mass)) * np.linalg.norm(mass)
    )


def work_of(pairs: Sequence[Weighted], window: Window) -> float:
    """Grid points to be filled and transformed."""
    return sum(pair.span / window.h + window.length for pair, _ in pairs)
