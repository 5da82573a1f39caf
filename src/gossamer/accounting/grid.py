"""The loss grid on which pairs are composed: its window, the masses on it, their transforms and what these round."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import fft

from gossamer.accounting.pairs import Cells, Pair
from gossamer.accounting.profiles import FloatArray

ROUNDOFF = 2.0**-53
Weighted = tuple[Pair, int]


@dataclass(frozen=True)
class Window:
    """One period of the loss grid: `length` points from index `start`, composed with the weight e^{tilt·loss}.

    The mass outside is bounded by moments: of order `order_up` above and `order_down` below.
    """

    h: float
    start: int
    length: int
    order_up: float
    order_down: float
    tilt: float = 0.0

    @property
    def losses(self) -> FloatArray:
        return np.asarray(self.h * np.arange(self.start, self.start + self.length))

    @property
    def top(self) -> float:
        return self.h * (self.start + self.length - 1)


@dataclass(frozen=True)
class Slack:
    """What the evaluation of the cells may have rounded away, for all releases together.

    The special functions give masses within 512 u of themselves (the exponent of the Gaussian tail, up to 80, times
    u, and a few operations): δ is known up to n times that share. Outcomes and losses are within 64 u of the largest
    loss of a release: every composed loss may be larger by the sum of these.
    """

    releases: float = 0.0
    sizes: float = 0.0  # Σ (1 + largest |loss|) over all releases

    @property
    def share(self) -> float:
        return min(1.0, 512 * ROUNDOFF * self.releases)

    @property
    def loss(self) -> float:
        return 64 * ROUNDOFF * self.sizes

    def plus(self, largest: float, count: int) -> "Slack":
        return Slack(self.releases + count, self.sizes + count * (1 + largest))


def turned(cells: Cells, reverse: bool) -> Cells:
    return cells.reversed() if reverse else cells


def connect(cells: Cells, h: float = 1.0) -> tuple[FloatArray, FloatArray]:
    """Connect the dots: the masses that each cell puts at its first and at its last loss.

    A cell of loss range [a, b] and masses p, q becomes masses p_a + p_b = p with p_a e^{−a} + p_b e^{−b} = q.
    """
    high = cells.last * h
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        at_first = (cells.q * np.exp(np.minimum(high, 700.0)) - cells.p) / np.expm1(
            (cells.last - cells.first) * h
        )
    at_first = np.where(cells.last > cells.first, np.clip(at_first, 0.0, cells.p), cells.p)
    return at_first, cells.p - at_first


def dots(cells: Cells, h: float) -> tuple[int, FloatArray, float]:
    """(first index, masses on the grid, mass at infinity) of the connected dots."""
    at_first, at_last = connect(cells, h)
    first = int(cells.first.min())
    size = int(cells.last.max()) - first + 1
    mass = np.bincount(cells.first - first, at_first, size)
    mass += np.bincount(cells.last - first, at_last, size)
    mass[0] += cells.p_low
    return first, mass, cells.p_only + cells.p_cut


def log_moment(log_mass: FloatArray, losses: FloatArray, order: float) -> float:
    """log Σ m e^{tℓ} for the order t."""
    exponent = log_mass + order * losses
    largest = float(exponent.max())
    return largest + math.log(float(np.exp(exponent - largest).sum()))


def tilted(log_mass: FloatArray, losses: FloatArray, tilt: float) -> tuple[FloatArray, float]:
    """(m e^{tℓ} / Σ m e^{tℓ}, logarithm of that sum)."""
    exponent = log_mass + tilt * losses
    largest = float(exponent.max())
    weights = np.exp(exponent - largest)
    total = float(weights.sum())
    return weights / total, largest + math.log(total)


def norm(values: FloatArray) -> float:
    """ℓ₂. Not by BLAS: for so few numbers its threads take longer to wake than to multiply."""
    return math.sqrt(float(np.square(values).sum()))


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


def rounding_error(length: int, factors: int, norms: float) -> float:
    """Bound on the ℓ₂ norm of the error that the transforms leave in the composed masses.

    A transform of L points errs by at most e = u (8 log₂ L + 16) of its ℓ₂ norm (Higham 2002, Theorem 24.2: about
    7 u log₂ L with good roots of unity), so a spectrum X by e √L ‖m‖ for masses of norm ‖m‖. All spectra are at most 1
    in size, the masses being normalised, so the product of n of them errs by at most the sum of their errors and n
    roundings, times (1 + e)ⁿ; back by the inverse transform, which divides the norm by √L and errs once more.
    `norms`: Σ ‖m‖ over all factors.
    """
    each = ROUNDOFF * (8 * math.log2(length) + 16)
    return each * (norms + 1) * math.exp(min(factors * each, 700.0)) + 4 * ROUNDOFF * factors


def work_of(pairs: Sequence[Weighted], window: Window, tail: float) -> float:
    """Grid points to be filled and transformed."""
    return sum(pair.extent(tail) / window.h + window.length for pair, _ in pairs)
