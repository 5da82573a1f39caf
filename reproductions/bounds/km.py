"""DP-dKM's utility bounds: Theorems 2, 3 and 5, and Theorem 4 on privacy. Theorems 1 and 6: `methods/claims.py`.

Two of the three are wrong as printed. The printed form is `printed=True`; the default is what holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gossamer.errors import UserError


def composition(epsilons: Sequence[float], deltas: Sequence[float], slack: float) -> tuple[float, float]:
    """Theorem 4: (ε′, δ′) of all nodes together from each node's (ε_m, δ_m); `slack` is its free δ̃.

    It leaves δ̃ and the a_m open: δ̃ is given here, a_m is taken proportional to ε_m. And it adds no δ̃ to δ′, though its
    second and third bound hold with probability 1 − δ̃ only.
    """
    eps, dels = np.asarray(epsilons, dtype=float), np.asarray(deltas, dtype=float)
    squares, plain = float(np.sum(eps**2)), float(np.sum(eps))
    drift = float(np.sum(np.tanh(eps / 2) * eps))
    advanced = drift + math.sqrt(2 * squares * math.log(math.e + math.sqrt(squares) / slack))
    divergence = float(np.sum(np.minimum(np.minimum(2.0, np.expm1(eps)) * eps, eps)))
    divergent = divergence + math.sqrt(2 * math.log(1 / slack) * squares)
    epsilon = min(plain, advanced, divergent)
    part = dels / (1 + np.exp(eps))
    shares = eps * (epsilon / plain) if plain > 0 else eps
    return epsilon, float((1 - np.prod(1 - np.exp(-shares) * part)) + (1 - np.prod(1 - part)))


def generalisation(*, epsilon: float, delta: float, nodes: int, largest_loss: float, printed: bool = False) -> float:
    """Theorem 2: |E[L − L̂]| ≤ (1 − e^{−ε}) R + e^{−ε} M δ R, for losses in [0, R].

    Printed without the last R, which cannot be: losses in another unit change the left side and R, not Mδ. A mechanism
    that publishes its data with probability δ and nothing otherwise is (0, δ)-private and overfits by up to δR.
    """
    _check(epsilon, delta)
    return -math.expm1(-epsilon) * largest_loss + math.exp(-epsilon) * nodes * delta * (
        1.0 if printed else largest_loss
    )


def finite_sample(
    *, deviation: float, epsilon: float, delta: float, nodes: int, largest_loss: float, printed: bool = False
) -> float:
    """Theorem 3: P(L ≤ L̂ + a) ≥ (a − g) / (a + R), g the bound of Theorem 2; Markov's inequality on L − L̂ + R.

    The paper writes ε for the deviation a and for the privacy budget at once: with a = ε and R ≥ 1 the numerator is at
    most ε − (1 − e^{−ε}), so the bound stays below ½ ε² / (ε + 1). Two symbols make it usable; it is never below 0.
    """
    if not deviation > 0:
        raise UserError(f"deviation = {deviation} must be positive.")
    gap = generalisation(epsilon=epsilon, delta=delta, nodes=nodes, largest_loss=largest_loss, printed=printed)
    return max(0.0, (deviation - gap) / (deviation + largest_loss))


def mixed_noise(
    *, dim: int, sigma: float, nodes: int, mixing: float, mean: float = 0.0, printed: bool = False
) -> float:
    """Theorem 5: E‖W(X̃ − X)‖² ≤ p (σ² [(M − 1) λ² + 1] + M μ²) for noise of mean μ and variance σ² in every entry.

    Printed with μ² beside σ² in front of the bracket: right for μ = 0, which every noise of the paper has. A mean that
    all nodes share is not reduced by mixing (W1 = 1), so μ² counts M times whatever λ is.
    """
    if not 0 <= mixing <= 1:
        raise UserError(f"mixing = {mixing} must lie in [0, 1].")
    shrunk = (nodes - 1) * mixing**2 + 1
    return dim * (sigma**2 * shrunk + mean**2 * (shrunk if printed else nodes))


def _check(epsilon: float, delta: float) -> None:
    if not epsilon >= 0 or not 0 <= delta <= 1:
        raise UserError(f"epsilon = {epsilon} must be at least 0 and delta = {delta} in [0, 1].")
