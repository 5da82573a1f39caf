"""The error neighbourhood of the consensus family under noise."""

from __future__ import annotations

import math

from gossamer.errors import UserError


def neighbourhood(
    *, contraction: float, lr: float, sigma: float, dim: int, lipschitz: float = 1.0, scale: float = 1.0
) -> float:
    """dp-consensus, Theorem 5.1 by eq. (23): where E‖M(θ) − M(θ*)‖ ends, of order σ.

    `contraction` is ρ, by which the method without noise shrinks the error each round; `dim` counts the entries of
    all nodes' noise together, `sigma` is its std; `lipschitz` is K of M and `scale` C_σ.
    """
    if not 0 <= contraction < 1:
        raise UserError(f"contraction = {contraction} must be at least 0 and below 1.")
    mean_norm = sigma * math.sqrt(2) * math.exp(math.lgamma((dim + 1) / 2) - math.lgamma(dim / 2))
    return lipschitz * scale * lr * mean_norm / (1 - contraction)
