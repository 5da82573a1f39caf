"""Clip parts: per-sample gradient norms → weights, and the bound that makes on one record's contribution.

A part says the norm no record exceeds after weighting (its *sensitivity*; infinite where nothing is enforced) and the
*reference* the noise is scaled to, which differs only where a paper believes in a bound instead of enforcing it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from gossamer.mechanism.schedules import Constant, Geometric, Stretches

Weigh = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ClipStep:
    weigh: Weigh
    reference: Tensor  # (m,) what the noise is scaled to
    enforced: bool  # is the reference also a bound on every record's contribution?
    unit: Tensor | None = (
        None  # (m,) what each node's norms are measured in before `weigh`; None: plain norms
    )


class Clip(Protocol):
    def at(self, k: int, nodes: int) -> ClipStep: ...


@dataclass(frozen=True)
class ClipTo:
    """g · min(1, C_k / ‖g‖), Dyn-D2P eq. (5)."""

    bound: Constant | Geometric | Stretches

    def at(self, k: int, nodes: int) -> ClipStep:
        C = self.bound(k)
        return ClipStep(
            lambda norms: _clip_weights(norms, C), torch.full((nodes,), C, dtype=torch.float64), enforced=True
        )


@dataclass(frozen=True)
class Normalise:
    """g / (‖g‖ + γ): every record contributes less than 1."""

    gamma: float

    def at(self, k: int, nodes: int) -> ClipStep:
        return ClipStep(lambda norms: 1 / (norms + self.gamma), torch.ones(nodes), enforced=True)


@dataclass(frozen=True)
class Unclipped:
    """Nothing is done to the gradients. With `believed`, noise is scaled to a bound that nothing enforces."""

    believed: float | None = None

    def at(self, k: int, nodes: int) -> ClipStep:
        reference = torch.full((nodes,), math.inf if self.believed is None else self.believed)
        return ClipStep(torch.ones_like, reference, enforced=False)


@dataclass
class QuantileClip:
    """C follows a quantile of the gradient norms through a noised count (Andrew et al. 2021, Algorithm 1).

    Of a draw with noise multiplier z, the count of norms below C, each record counted as ±½, takes its share with
    std σ_b, and the gradients the rest: z_Δ = (z⁻² − (2 σ_b)⁻²)^(−½). The pair is one Gaussian release at z. Each
    node follows its own C_i.
    """

    bounds: Tensor  # (m,) the current C_i: state, kept in checkpoints
    quantile: float
    lr: float
    count_noise: Tensor = field(default_factory=lambda: torch.tensor(0.0))  # (m,) σ_b

    def at(self, k: int, nodes: int) -> ClipStep:
        return ClipStep(lambda norms: _clip_weights(norms, 1.0), self.bounds, enforced=True, unit=self.bounds)

    def gradient_multiplier(self, z: Tensor) -> Tensor:
        return (z**-2 - (2 * self.count_noise) ** -2) ** -0.5

    def follow(self, norms: Tensor, mask: Tensor, noise: Tensor, lot: Tensor, active: Tensor) -> None:
        """C ← C · exp(−lr · (noised share of norms ≤ C − quantile)); `noise` is standard normal, (m,)."""
        below = ((norms <= self.bounds[:, None]).to(noise.dtype) - 0.5) * mask
        share = (below.sum(1) + self.count_noise * noise) / lot + 0.5
        step = torch.exp(-self.lr * (share.clamp(0, 1) - self.quantile))
        # Kept where float32 can say it: a bound that rounds to 0 or overflows would no longer clip.
        self.bounds = torch.where(active, self.bounds * step, self.bounds).clamp(1e-12, 1e12)


def _clip_weights(norms: Tensor, C: float) -> Tensor:
    # A zero gradient keeps weight 1; the tiny floor only avoids 0/0.
    return (C / norms.clamp_min(1e-30)).clamp_max(1.0)
