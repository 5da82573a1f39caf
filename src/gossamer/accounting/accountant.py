"""An accountant by itself: what was released goes in, the ε that can be proven comes out, or the noise that it takes.

It needs nothing else of this library, and no torch. A figure never stands alone: δ, the relation between neighbouring
data sets, the unit that is protected and who looks on are part of it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gossamer.accounting.calibrate import Target, common_factor, least_scale
from gossamer.accounting.observers import EVERYONE, UNIT, Observer
from gossamer.accounting.profiles import check_epsilon
from gossamer.accounting.proven import Proven, check_terms, profile, proven
from gossamer.accounting.releases import ADJACENCIES, Counted, Gaussian, Laplace, Release
from gossamer.errors import UserError


def gaussian_noise(
    multiplier: float, *, rate: float = 1.0, sampling: str | None = None, sensitivity: float = 1.0
) -> Release:
    """A sum with Gaussian noise of standard deviation `multiplier` · `sensitivity`.

    `sensitivity` is the largest norm of one record's contribution, and `rate` the probability that a record takes part:
    by an independent trial each ("poisson", by default), in a lot of fixed size ("fixed-size"), or for
    sure ("full", which a rate of 1 is).
    """
    return Gaussian(sigma=multiplier * sensitivity, **_lot(rate, sampling, sensitivity))


def laplace_noise(
    multiplier: float,
    *,
    rate: float = 1.0,
    sampling: str | None = None,
    sensitivity: float = 1.0,
    dimensions: int = 1,
) -> Release:
    """The same with noise of density exp(−|z|/b), b = `multiplier` · `sensitivity`, in each of so many coordinates."""
    lot = _lot(rate, sampling, sensitivity)
    return Laplace(sigma=multiplier * sensitivity, dimensions=dimensions, **lot)


def _lot(rate: float, sampling: str | None, sensitivity: float) -> dict[str, Any]:
    drawn = sampling or ("full" if rate == 1 else "poisson")
    return {"rate": rate, "sampling": drawn, "sensitivity": sensitivity, "adjacency": ADJACENCIES[0]}


@dataclass(frozen=True, kw_only=True, repr=False)
class Figure(Proven):
    """A proven ε with all that it is about. ε = ∞ comes with `because`; the true ε is at least `lower`, if known."""

    delta: float
    adjacency: str
    unit: str
    observer: str

    def __repr__(self) -> str:
        shown = f"ε ≤ {self.epsilon:.4g}" if math.isfinite(self.epsilon) else f"not proven, {self.because}"
        return (
            f"{shown} (δ = {self.delta:g}, {self.adjacency}, unit: {self.unit}; observer: {self.observer}; "
            f"by {self.method})"
        )


class Accountant:
    """Releases on the same records, composed.

    >>> from gossamer.accounting import Accountant, gaussian_noise
    >>> accountant = Accountant(delta=1e-5, adjacency="add-remove")
    >>> spent = accountant.add(gaussian_noise(1.0, rate=0.01), times=1000).epsilon()
    >>> 1.8 < spent.lower <= spent.epsilon < 1.85
    True
    >>> print(spent.delta, spent.adjacency, spent.unit)
    1e-05 add-remove one record of one node

    The noise that a budget takes, for the same releases:

    >>> enough = accountant.calibrated(epsilon=1.0)
    >>> 0.99 < enough.epsilon().epsilon <= 1.0
    True
    >>> round(enough.releases[0][0].noise_multiplier, 2)
    1.42
    """

    def __init__(
        self,
        *,
        delta: float,
        adjacency: str,
        unit: str = UNIT,
        observer: Observer = EVERYONE,
        tolerance: float = 0.01,
    ):
        """`adjacency`: "add-remove" or "replace-one"; `tolerance`: how close upper and lower bound should come."""
        check_terms(delta, adjacency)
        self.delta, self.adjacency, self.unit, self.observer = delta, adjacency, unit, observer
        self.tolerance = tolerance
        self._counted: list[Counted] = []

    @property
    def releases(self) -> tuple[Counted, ...]:
        """The releases that were added, with their counts."""
        return tuple(self._counted)

    def add(self, release: Release, times: int = 1) -> Accountant:
        """`release`, `times` over; the accountant itself is returned, so that calls can follow each other."""
        if not isinstance(release, Release):
            raise UserError(f"{release!r} is no release; make one with gaussian_noise(…), laplace_noise(…).")
        if not isinstance(times, int) or times < 0:
            raise UserError(f"times = {times!r} must be a whole number, 0 or more.")
        self._counted.append((replace(release, adjacency=self.adjacency), times))
        return self

    def epsilon(self) -> Figure:
        """The proven ε of all releases together."""
        terms = self.delta, self.adjacency
        price = proven(self._counted, *terms, observer=self.observer, tolerance=self.tolerance)
        return Figure(
            **vars(price),
            delta=self.delta,
            adjacency=self.adjacency,
            unit=self.unit,
            observer=self.observer.description,
        )

    def deltas(self, epsilons: Sequence[float]) -> list[float]:
        """The δ that is proven at each ε: the whole curve, of which `epsilon` is one point.

        >>> from gossamer.accounting import Accountant, gaussian_noise
        >>> curve = Accountant(delta=1e-5, adjacency="add-remove").add(gaussian_noise(2.0)).deltas([0.5, 1.0])
        >>> [round(delta, 4) for delta in curve]
        [0.0524, 0.0068]
        """
        return profile(self._counted, epsilons, self.delta, self.adjacency, observer=self.observer)

    def calibrated(self, epsilon: float) -> Accountant:
        """The same releases with all noise multiplied by the least factor that is proven to cost at most `epsilon`."""
        check_epsilon(epsilon)
        reason = next((why for one, _ in self._counted if (why := one.unpriceable(self.adjacency))), None)
        if reason is not None or not any(times for _, times in self._counted):
            raise UserError(f"epsilon = {epsilon:g} cannot be reached: {reason or 'nothing was added'}.")
        target = Target(
            epsilon=epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            observer=self.observer,
            tolerance=self.tolerance,
        )
        every = [one for one, times in self._counted for _ in range(times)]
        lots = {(one.sampling, one.rate) for one, _ in self._counted}
        if len(lots) == 1 and all(type(one) is Gaussian for one in every):
            ((sampling, rate),) = lots
            multipliers = [one.noise_multiplier for one in every]
            factor = common_factor(multipliers, target, sampling=sampling, rate=rate)
        else:
            factor = least_scale(lambda factor: [one.scaled(factor) for one in every], target)
        calibrated = copy.copy(self)
        calibrated._counted = [(one.scaled(factor), times) for one, times in self._counted]
        return calibrated

    def __repr__(self) -> str:
        count = sum(times for _, times in self._counted)
        return f"Accountant of {count:,} releases: {self.epsilon()!r}"


def noise_for(
    epsilon: float,
    *,
    delta: float,
    adjacency: str,
    steps: int,
    rate: float = 1.0,
    sampling: str | None = None,
) -> float:
    """The least noise multiplier at which so many Gaussian releases are proven to cost at most `epsilon` together.

    >>> from gossamer.accounting import noise_for
    >>> round(noise_for(1.0, delta=1e-5, adjacency="add-remove", steps=1000, rate=0.01), 2)
    1.42
    """
    accountant = Accountant(delta=delta, adjacency=adjacency)
    accountant.add(gaussian_noise(1.0, rate=rate, sampling=sampling), times=steps)
    return accountant.calibrated(epsilon).releases[0][0].noise_multiplier
