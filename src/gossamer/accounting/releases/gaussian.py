"""Independent Gaussian noise on the released sum."""

import math
from dataclasses import dataclass
from typing import ClassVar

from gossamer.accounting.pairs import GaussianPair, Pair
from gossamer.accounting.profiles import Noise, gaussian
from gossamer.accounting.releases.base import Noised, registered


@registered
@dataclass(frozen=True, slots=True, kw_only=True)
class Gaussian(Noised):
    kind: ClassVar[str] = "gaussian"

    def pair(self, adjacency: str) -> float | Pair:
        replace_one, rate = adjacency == "replace-one", self.amplifying_rate
        if rate < 1 and self.sampling == "poisson" and replace_one and self.clipped is None:
            return GaussianPair(self.sensitivity / self.sigma, rate, "two-sided")
        mu = self.shift(adjacency) / self.sigma
        if rate == 1:
            return mu
        return GaussianPair(mu, rate, "symmetrised" if replace_one else "one-sided")

    @property
    def family(self) -> object:
        return self.kind

    @property
    def density(self) -> Noise:
        return gaussian(self.sigma)


@registered
@dataclass(frozen=True, slots=True, kw_only=True)
class OneSided(Gaussian):
    """Of vectors that are at no obtuse angle to each other, as those without a negative entry are (counts, squares).

    One more or less moves the sum by the sensitivity as ever; one in the place of another by √2 times that, not 2:
    ‖v − w‖² = ‖v‖² + ‖w‖² − 2⟨v, w⟩. Of a sampled lot, or one that was clipped as a whole, it is priced as any other.
    """

    kind: ClassVar[str] = "one-sided"

    def shift(self, adjacency: str) -> float:
        alone = self.sampling == "full" and self.clipped is None
        if alone and adjacency == "replace-one":
            return self.sensitivity * math.sqrt(2)
        return Gaussian.shift(self, adjacency)
