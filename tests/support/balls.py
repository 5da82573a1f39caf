"""Passes of balls and bins as releases, and the exact pair by brute force."""

import math
from collections.abc import Callable

import numpy as np

from gossamer.accounting.releases import Gaussian


def one_pass(
    lots: int,
    sigma: float | Callable[[int], float] = 1.0,
    *,
    released: int | None = None,
    number: int | None = 0,
    adjacency: str = "add-remove",
) -> list[Gaussian]:
    """The first `released` lots of a pass of so many, sensitivity 1."""
    return [
        Gaussian(
            sigma=sigma(k) if callable(sigma) else sigma,
            sensitivity=1.0,
            sampling="balls-and-bins",
            rate=1 / lots,
            adjacency=adjacency,
            pass_number=number,
            lot_number=k,
        )
        for k in range(lots if released is None else released)
    ]


def sampled_losses(mus: np.ndarray, lots: int, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses of the exact pair drawn at random, of (P, Q) and of (Q, P).

    Outcomes z of the released lots; under P one lot of all is chosen, and moved if it was released.
    """
    rng = np.random.default_rng(seed)

    def loss(z: np.ndarray) -> np.ndarray:
        terms = np.concatenate([mus * z - mus**2 / 2, np.zeros((runs, lots - len(mus)))], axis=1)
        return np.logaddexp.reduce(terms, axis=1) - math.log(lots)

    still = rng.standard_normal((runs, len(mus)))
    moved = rng.standard_normal((runs, len(mus)))
    chosen = rng.integers(0, lots, runs)
    inside = chosen < len(mus)
    moved[inside, chosen[inside]] += mus[chosen[inside]]
    return loss(moved), -loss(still)


def shown_delta(losses: np.ndarray, epsilon: float) -> tuple[float, float]:
    """δ(ε) = E (1 − e^{ε − loss})₊ by the sample, and its standard error."""
    values = np.maximum(-np.expm1(epsilon - losses), 0.0)
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))
