"""Independent Gaussian noise on the released sum."""

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
