"""Noise on the sums that leave a node. A new one is a file here; its import below registers it."""

from gossamer.mechanism.noise import gaussian, pairwise, shaped
from gossamer.mechanism.noise.base import (
    Levels,
    Mechanism,
    NoiseKind,
    NoiseSchedule,
    Participation,
    families,
    schedules,
)

__all__ = [
    "Levels", "Mechanism", "NoiseKind", "NoiseSchedule", "Participation", "families",
    "gaussian", "pairwise", "schedules", "shaped",
]  # fmt: skip
