"""DP-dKM's claim: the sensitivity of Theorem 1, and its calibrations of six noises."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.accounting import claimed
from gossamer.accounting.claimed import Claim
from gossamer.mechanism.noise import NoiseKind
from gossamer.methods.claims import Draws


@dataclass(frozen=True)
class Theorem1:
    """Δ_K for a residual bound B = γ: what one record moves, in units of the clip's bound."""

    relaxations: tuple[float, ...]  # α_k
    gamma: float
    mixing: float  # λ, the second largest eigenvalue of W in size
    records: int  # N·M

    def covers(self, noise: NoiseKind) -> bool:
        return True

    def sensitivity(self, draws: int) -> float:
        relaxations = self.relaxations[:draws]
        return claimed.km_sensitivity(self.gamma, relaxations, self.records, 1, self.mixing)[0]

    def claim(self, run: Draws, factor: float, rate: float, delta: float, draws: int) -> Claim:
        return claimed.km(run.noise.release_kind, factor, delta, self.sensitivity(draws), run.noise.exponent)

    def noise(self, run: Draws, rate: float, epsilon: float, delta: float) -> tuple[float, float | None]:
        """(σ in units of the clip's bound, A/σ)."""
        unit = self.sensitivity(run.count)
        sigma, bound = claimed.km_noise(run.noise.release_kind, epsilon, delta, unit, run.noise.exponent)
        return sigma, bound / sigma
