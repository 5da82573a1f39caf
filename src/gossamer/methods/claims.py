"""What the papers claim: rules that turn a planned run into the ε of a paper's formula, and a budget into its noise.

The formulas are in `accounting.claimed`; a rule says what of a run goes into one. `privacy.claim` names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gossamer.accounting import claimed
from gossamer.accounting.claimed import Claim
from gossamer.accounting.profiles import gdp_mu
from gossamer.errors import UserError
from gossamer.mechanism.clipping import Schedule, extremes
from gossamer.mechanism.noise import NoiseKind
from gossamer.mechanism.sampling import SamplingKind


@dataclass(frozen=True)
class Draws:
    """The draws of a run: how many, with which noise, of which lots."""

    draws: int
    shape: Schedule  # of the noise multipliers, up to a node's factor
    noise: NoiseKind
    sampling: SamplingKind
    budget_ratio: float  # last per-step budget over first
    dimension: int


class ClaimRule(Protocol):
    """A frozen dataclass: equal rules give equal figures, which a comparison's cells share."""

    def covers(self, noise: NoiseKind) -> bool:
        """Does the paper speak of this noise at all?"""
        ...

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        """The figure after so many draws at noise multipliers factor · shape(k)."""
        ...

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        """(factor, where the noise ends if the paper says so) for this budget."""
        ...


class _OfGaussians:
    def covers(self, noise: NoiseKind) -> bool:
        return noise.exponent == 2.0 and not (noise.truncated or noise.cancels)


@dataclass(frozen=True)
class NoClaim:
    """No paper claims anything for this mechanism."""

    method: str = ""

    def covers(self, noise: NoiseKind) -> bool:
        return False

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        return Claim(None, "no paper claims an ε for this mechanism", ())

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        raise UserError(
            f"algorithm.kind = {self.method!r} has no formula of a paper that turns privacy.epsilon into noise; "
            'set privacy.noise.multiplier or mode = "sound".'
        )


@dataclass(frozen=True)
class DynD2P(_OfGaussians):
    """Dyn-D2P's central limit theorem for Gaussian differential privacy, with its growing budgets."""

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        return claimed.dyn_d2p([1 / (factor * run.shape(k)) for k in range(draws)], rate, delta)

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        total = gdp_mu(epsilon, delta)
        return 1 / claimed.initial_budget(total, rate, run.draws, run.budget_ratio), None


@dataclass(frozen=True)
class DynD2POfLots(DynD2P):
    """The same with a whole lot in the place of the paper's one sample: p = 1/J whatever the lot's size L."""

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        return super().claim(run, factor, rate / _lot_of(run), delta, draws)

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        return super().noise(run, rate / _lot_of(run), epsilon, delta)


def _lot_of(run: Draws) -> float:
    lot = getattr(run.sampling, "lot", None)
    if not lot:
        raise UserError("privacy.claim = 'gdp-clt-lot' divides by the lot; set privacy.sampling.lot.")
    return float(lot)


@dataclass(frozen=True)
class GeneralD2P(DynD2P):
    """Dyn-D2P's Algorithm 2: any sequences, the common scale by its eq. (10)."""

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        shapes = [run.shape(k) for k in range(run.draws)]
        total = gdp_mu(epsilon, delta)
        return claimed.general_scale([1.0] * run.draws, shapes, rate, total), None


@dataclass(frozen=True)
class AdaD2P(_OfGaussians):
    """AdaD2P's Proposition 2."""

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        return claimed.adad2p(factor * extremes(run.shape, draws).least, draws, 1 / rate, delta)

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        return claimed.adad2p_sigma(epsilon, run.draws, 1 / rate, delta), None


@dataclass(frozen=True)
class Renyi(_OfGaussians):
    """dp-consensus: Rényi accounting of the sampled Gaussian."""

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        # The formula is for equal noise in every draw: the least of it all the time is no less than what happens.
        least = extremes(run.shape, draws).least
        return claimed.rdp_sampled_gaussian(factor * least, rate, draws, delta)

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        return claimed.rdp_noise_multiplier(epsilon, rate, run.draws, delta), None


CLAIMS: dict[str, ClaimRule] = {
    "gdp-clt": DynD2P(),
    "gdp-clt-lot": DynD2POfLots(),
    "gdp-general": GeneralD2P(),
    "adad2p": AdaD2P(),
    "rdp": Renyi(),
}
