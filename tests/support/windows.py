"""Schedules of exact means, written down anew, and noise with secrets."""

from __future__ import annotations

import numpy as np

from gossamer.accounting.network import Covariance, Exchanges, Floats, Ints


def steps_of(n: int) -> tuple[tuple[int, int], ...]:
    """Doubling windows, then those of the set bits of n: written down anew."""
    steps, covered = [], 1
    while 2 * covered <= n:
        steps.append((covered, covered))
        covered *= 2
    for bit in range(covered.bit_length() - 2, -1, -1):
        if n >> bit & 1:
            steps.append((covered, 1 << bit))
            covered += 1 << bit
    return tuple(steps)


def exchanges_of(n: int, seed: int, means: int = 1) -> Exchanges:
    rng = np.random.default_rng(seed)
    return Exchanges(n, steps_of(n), np.stack([rng.permutation(n) for _ in range(means)]))


def with_secrets(ratio: float) -> Covariance:
    """I + r L of complete secrets among the honest."""

    def among(mean: int, honest: Ints) -> Floats:
        m = len(honest)
        return np.eye(m) + ratio * (m * np.eye(m) - np.ones((m, m)))

    return among
