"""Principal components: a fixed linear map, fitted once on records that are public, or that somebody pays for."""

from __future__ import annotations

import numpy as np

from gossamer.data.scaling import Floats


def fit_components(x: Floats, count: int) -> tuple[Floats, Floats]:
    """(mean (p,), basis (count, p)): the directions of largest variance, each with its largest entry positive."""
    rows = x.reshape(len(x), -1)
    mean = rows.mean(0, dtype=np.float64)
    # E[x xᵀ] − m mᵀ in blocks: a centred double-precision copy of the whole set would take gigabytes.
    moment = np.zeros((rows.shape[1], rows.shape[1]))
    for block in np.array_split(rows, max(1, len(rows) // 10_000)):
        centred = np.asarray(block - mean, dtype=np.float64)
        moment += centred.T @ centred
    basis = np.linalg.eigh(moment)[1][:, ::-1][:, :count].T
    signs = np.sign(basis[np.arange(len(basis)), np.abs(basis).argmax(1)])
    return mean.astype(np.float32), (basis * signs[:, None]).astype(np.float32)


def project(x: Floats, mean: Floats, basis: Floats) -> Floats:
    rows = x.reshape(len(x), len(mean))  # also of a hold-out without rows
    return np.asarray((rows - mean) @ basis.T, dtype=np.float32)
