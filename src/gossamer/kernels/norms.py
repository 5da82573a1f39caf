"""Norms that rounding never makes too small: a record whose norm is read too small is not clipped.

Let u be the unit roundoff. Adding n products in *any* order keeps a relative part of at least (1 − u)^(n+1) of a sum of
squares, and the root and the square after it take two more factors; what underflows loses at most the smallest normal
number a term, also where the processor flushes to zero. So for a computed square norm s of a vector of length n

    ‖v‖² ≤ s · (1 + 2 (n + 8) u) + 2 n · tiny        as long as (n + 8) u ≤ ¼,

the factor 2 paying for the rounding of this very line. The error grows with the length, and a library's loop may add in
one long row: of 4 million float32 numbers it read 0.8% too little. Long vectors are therefore cut into blocks whose
square norms are added in double precision, where n u stays below 10⁻⁹: a relative part of 1.3 · 10⁻⁴ at most is added.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 1024
EPS, TINY = float(np.finfo(np.float32).eps), float(np.finfo(np.float32).tiny)


def square_norms(vectors: Tensor) -> Tensor:
    """Upper bounds (N,) on the squared norms of vectors (N, …), a few 10⁻⁵ above them at most."""
    rows = vectors.flatten(1)
    length = rows.shape[1]
    info = torch.finfo(rows.dtype)
    if length <= BLOCK:
        square = torch.linalg.vector_norm(rows, dim=1).square_()
    else:
        whole = length - length % BLOCK
        blocks = torch.linalg.vector_norm(rows[:, :whole].view(len(rows), -1, BLOCK), dim=2)
        rest = torch.linalg.vector_norm(rows[:, whole:], dim=1, keepdim=True)
        square = torch.cat([blocks, rest], dim=1).double().square_().sum(1).to(rows.dtype)
    bound: Tensor = square.mul_(1 + (min(length, BLOCK) + 8) * info.eps).add_(2 * length * info.tiny)
    return bound


def norms_of(vectors: Tensor) -> Tensor:
    """Upper bounds (N,) on the norms of vectors (N, …)."""
    return root(square_norms(vectors))


def root(squares: Tensor, terms: int = 1) -> Tensor:
    """√s, where s was added up from so many parts: never below the root of their exact sum."""
    return squares.sqrt().mul_(1 + (terms + 4) * torch.finfo(squares.dtype).eps)


@nb.njit(
    nogil=True, cache=True, boundscheck=False, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy"
)
def square_norm(vector: NDArray[np.float32]) -> float:
    """`square_norms` of one vector, for compiled loops: blocks added in double precision, and the same is added."""
    length, square = vector.shape[0], 0.0
    for low in range(0, length, BLOCK):
        block, part = vector[low : low + BLOCK], np.float32(0)
        for k in range(block.shape[0]):
            part += block[k] * block[k]
        square += np.float64(part)
    bound: float = square * (1 + (min(length, BLOCK) + 8) * EPS) + 2 * length * TINY
    return bound


@nb.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")
def norm_of_squares(square: float, terms: int) -> np.float32:
    """`root` of one number, for compiled loops."""
    return np.float32(np.sqrt(square) * (1 + (terms + 4) * EPS))
