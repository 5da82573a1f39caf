"""Runs as releases, for tests of what they cost."""

from collections import Counter
from collections.abc import Sequence

from gossamer.accounting.composer import Composition
from gossamer.accounting.pairs import NoisePair
from gossamer.accounting.profiles import Noise, gdp_mu
from gossamer.accounting.releases import Event, Gaussian
from gossamer.methods import claims

RATE, DELTA, ROUNDS = 1 / 2500, 1e-4, 3500  # Dyn-D²P on CIFAR-10


def gaussian(
    sigma: float,
    *,
    sensitivity: float = 1.0,
    sampling: str = "poisson",
    rate: float = 0.01,
    pass_number: int | None = None,
) -> Gaussian:
    return Gaussian(
        sigma=sigma,
        sensitivity=sensitivity,
        sampling=sampling,
        rate=rate,
        adjacency="add-remove",
        pass_number=pass_number,
    )


def dyn_d2p(epsilon: float, ratio: float, sampling: str = "poisson") -> list[Gaussian]:
    mu_0 = claims.initial_budget(gdp_mu(epsilon, DELTA), RATE, ROUNDS, ratio)
    mus = claims.schedule(mu_0, ROUNDS, ratio)
    return [gaussian(1 / mu, sampling=sampling, rate=RATE) for mu in mus]


def event(step: int = 0, sigma: float = 1.0) -> Event:
    return Event(step, gaussian(sigma, rate=0.02))


def composed_delta(noise: Noise, shifts: Sequence[float], epsilon: float, step: float = 1e-3) -> float:
    """Upper bound on δ(ε) of independent releases, one per shift: K steps, or the coordinates of a vector."""
    counts = Counter(abs(shift) for shift in shifts if shift != 0)
    return Composition([(NoisePair(noise, shift), count) for shift, count in counts.items()]).delta(epsilon, step)
