"""Gaussian noise, independent noise in every coordinate, and releases that nothing protects."""

import math
from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

from scipy.special import ndtr

from gossamer.accounting.pairs import GaussianPair, NoisePair, Pair
from gossamer.accounting.profiles import Noise, crossing, gaussian, laplace
from gossamer.accounting.releases.base import WITHOUT_NOISE, ByNorm, Noised, Release, registered


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Independent(Noised):
    """Not Gaussian: noise of its own in each of the `dimensions`, each priced at the whole sensitivity."""

    dimensions: int = 1

    def unpriceable(self, adjacency: str) -> str | None:
        if reason := Noised.unpriceable(self, adjacency):
            return reason
        if self.density.shape < 1:
            return "noise of shape below 1 is not log-concave: the largest change need not be the worst one"
        if 2 * self.density.bound <= self.shift(adjacency):
            return "the noise is narrower than the change it should hide: each release identifies a record"
        return None

    def pair(self, adjacency: str) -> float | Pair:
        # Without amplification in several dimensions: an upper bound whatever direction the change takes.
        rate = self.amplifying_rate if self.dimensions == 1 else 1.0
        kind = "symmetrised" if adjacency == "replace-one" and rate < 1 else "one-sided"
        return NoisePair(self.density, self.shift(adjacency), rate, kind)

    @property
    def pair_count(self) -> int:
        return self.dimensions

    @property
    @abstractmethod
    def density(self) -> Noise: ...


@registered
@dataclass(frozen=True, slots=True, kw_only=True)
class Laplace(Independent):
    kind: ClassVar[str] = "laplace"

    @property
    def density(self) -> Noise:
        return laplace(self.sigma)

    @property
    def family(self) -> object:
        return self.kind, self.dimensions

    def by_norm(self, adjacency: str) -> ByNorm | None:
        # A coordinate that moves by v is v/b-DP, hence ½(v/b)²-zCDP (Bun and Steinke 2016); the squares add up to
        # the norm's.
        if self.dimensions == 1:
            return None
        return ByNorm(rho=(self.shift(adjacency) / self.sigma) ** 2 / 2)


@registered
@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedLaplace(Independent):
    kind: ClassVar[str] = "truncated-laplace"

    bound: float

    @property
    def density(self) -> Noise:
        return laplace(self.sigma, self.bound)

    def scaled(self, factor: float) -> Self:
        return replace(self, sigma=self.sigma * factor, bound=self.bound * factor)

    def by_norm(self, adjacency: str) -> ByNorm | None:
        if self.dimensions == 1:
            return None
        shift, tail = self.shift(adjacency), math.exp(-self.bound / self.sigma)

        def density(z: float) -> float:
            return math.exp(-(z / self.sigma)) / (2 * self.sigma)

        over = crossing(shift, self.bound, self.rate, self.dimensions, density, tail)
        return ByNorm(tail=tail, crossing=over, rho=(shift / self.sigma) ** 2 / 2)


@registered
@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedGaussian(Independent):
    kind: ClassVar[str] = "truncated-gaussian"

    bound: float

    @property
    def density(self) -> Noise:
        return gaussian(self.sigma, self.bound)

    def scaled(self, factor: float) -> Self:
        return replace(self, sigma=self.sigma * factor, bound=self.bound * factor)

    def by_norm(self, adjacency: str) -> ByNorm | None:
        if self.dimensions == 1:
            return None
        shift, tail = self.shift(adjacency), float(2 * ndtr(-self.bound / self.sigma))

        def density(z: float) -> float:
            return math.exp(-((z / self.sigma) ** 2) / 2) / (self.sigma * math.sqrt(2 * math.pi))

        over = crossing(shift, self.bound, self.rate, self.dimensions, density, tail)
        # Lots of different passes hold the same records: which pass it was must outlive the truncation.
        before = Gaussian(**{field.name: getattr(self, field.name) for field in fields(Gaussian)})
        return ByNorm(tail=tail, crossing=over, gaussian=before)


@registered
@dataclass(frozen=True, slots=True, kw_only=True)
class GeneralisedGaussian(Independent):
    kind: ClassVar[str] = "generalised-gaussian"

    shape: float
    bound: float = math.inf

    @property
    def density(self) -> Noise:
        return Noise(self.sigma, self.shape, self.bound)

    def scaled(self, factor: float) -> Self:
        return replace(self, sigma=self.sigma * factor, bound=self.bound * factor)


@registered
@dataclass(frozen=True, slots=True, kw_only=True)
class OwnNormGaussian(Noised):
    """Gaussian noise of σ times the norm of the very sum that it should hide."""

    kind: ClassVar[str] = "own-norm-gaussian"

    def unpriceable(self, adjacency: str) -> str | None:
        return "the noise is scaled by the record's own gradient norm, so its size reveals the record"


@registered
@dataclass(frozen=True, slots=True, kw_only=True)
class RawDecision(Release):
    """Who writes, decided on losses without noise."""

    kind: ClassVar[str] = "raw-decision"

    def unpriceable(self, adjacency: str) -> str | None:
        return "who writes the shared model when is decided on raw losses, and everyone sees it"


@registered
@dataclass(frozen=True, slots=True, kw_only=True)
class Unnoised(Release):
    """A value as it is."""

    kind: ClassVar[str] = "none"

    def unpriceable(self, adjacency: str) -> str | None:
        return WITHOUT_NOISE
