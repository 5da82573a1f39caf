"""Floating-point numbers in clipped sums: how far rounding may carry them, norms, and what is not finite.

The clip
--------
A release pays for sensitivity C (1 + EXCESS), C the clip. That covers the floats that are added up, by two facts.

**What a record adds does not depend on the other records.** Lots are computed in calls of one shape, `room` for a
public expected lot, and in such a call a record's gradient is the same to the last bit wherever it stands and whoever
else is there: `steady` looks whether that is so, on this processor, for this module and this shape.

**The sum of n terms is off by little.** Let u be float32's unit roundoff, w_b the weight of record b and S_b the sum
of the norms of the terms that it consists of. In whatever order n terms are added up, their sum is off by at most
γ_n Σ_b w_b S_b, γ_n = n u / (1 − n u), so that the sums of two neighbouring lots of at most B records differ by the
clip and at most 2 B γ_n max w_b S_b, which shall not be more than EXCESS C.

- Where a record is one term, S_b is its norm and w_b S_b ≤ C: `share` ≤ 1 is enough (`fits`).
- Where it is many, they may cancel. Then `share` times S_b is a lower bound of the norm by which a record is weighed,
  so that γ_n w_b S_b stays as it must whatever the terms do. B is public, and so is n: a weight depends on nothing but
  its record. A share above `MOST_SHARE` could clip records whose terms do not cancel.

Layers of both kinds together must stay within EXCESS: see `beside`. Where float32 would not do, fewer terms are added
up at a time (`records_at_a_time`), or all in double precision, as always for lots of more than B. What was added up
in parts is added in double precision; for the last roundings to float32, and that of w_b v_b, γ has four terms more.

Norms
-----
A record whose norm is read too small is not clipped, so rounding never makes one too small. Let u be the unit roundoff.
Adding n products in *any* order keeps a relative part of at least (1 − u)^(n+1) of a sum of squares, and the root and
the square after it take two more factors; what underflows loses at most the smallest normal number a term, also where
the processor flushes to zero. So for a computed square norm s of a vector of length n

    ‖v‖² ≤ s · (1 + 2 (n + 8) u) + 2 n · tiny        as long as (n + 8) u ≤ ¼,

the factor 2 paying for the rounding of this very line. The error grows with the length, and a library's loop may add in
one long row: of 4 million float32 numbers it read 0.8% too little. Long vectors are therefore cut into blocks whose
square norms are added in double precision, where n u stays below 10⁻⁹: a relative part of 1.3 · 10⁻⁴ at most is added.

What is not finite
------------------
A record whose gradient has no finite norm cannot be clipped, so it is left out of the sum. Inputs of 1e20 overflow
float32's squares, and one NaN would make the whole sum NaN: no noise hides that. Leaving the record out bounds what it
does to the sum, by 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numba as nb
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.errors import UserError

EXCESS = 0.0025
MOST_SHARE = 0.4  # a ResNet-18's gradients: √Σ S_b² over its layers is 1.3 norms, 2.5 at its first weights
_U = 2.0**-24  # float32's unit roundoff


def share(terms: int, lot: float) -> float:
    """2 B γ / EXCESS: what part of S_b a record's norm must be, if so many terms are added up in float32."""
    lost = (terms + 4) * _U
    return 2 * lost / (1 - lost) * lot / EXCESS if lost < 1 else math.inf


def fits(terms: int, lot: float) -> bool:
    """May sums of so many terms, of which each is a record, be added up in float32, for lots of so many?"""
    return share(terms, lot) <= 1


def beside(count: int, lot: int) -> float:
    """B for layers whose terms cancel, next to others that add up so many records: what these leave of EXCESS.

    Layers have coordinates of their own, so that what they are off by adds up by squares.
    """
    for terms in (max(count, 9 + count // 8), 9 + count // 8):
        if (others := share(terms, lot)) < 1:
            return lot / math.sqrt(1 - others**2)
    return lot


def records_at_a_time(positions: int, lot: float) -> int:
    """Of how many records float32 may add up the terms, so many of each, which may cancel; 0: of none."""
    lost = MOST_SHARE * EXCESS / (2 * lot)
    return max(0, int(lost / (1 + lost) / _U) - 4) // positions


def most(places: int) -> int:
    """Records of a lot that has so many `places` (`room`), above which sums are added up in double precision alone."""
    return math.ceil(1.25 * places)


def room(lot: float, *, varies: bool) -> int:
    """Places for an expected lot, seldom too few where lots vary: a public number, that no lot has a say in."""
    most = math.ceil(lot + (3 * math.sqrt(lot) if varies else 0))
    step = 4 if most <= 16 else 32
    return -(-most // step) * step


def even(records: int, nodes: int) -> int:
    """As many records or more, so that calls have a multiple of 32: torch computes what is left of 32 another way."""
    unit = 32 // math.gcd(32, nodes)
    return -(-records // unit) * unit


def excess(lot: float) -> float:
    """What a release pays for besides the clip C, as a share of it.

    A lot of thousands is not a quarter longer than `room` says, but with a probability below e⁻¹⁰⁰.
    """
    return max(EXCESS, 4 * _U * 1.25 * room(lot, varies=True))


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


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")
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


class NotFiniteError(Exception):
    """Some records have no finite gradient norm; `records` (m, B) says which. Nothing was written yet."""

    def __init__(self, records: Tensor) -> None:
        self.records = records


def refuse_infinite(norms: Tensor) -> None:
    if norms.device.type == "meta":  # shapes only, nothing to look at
        return
    finite = torch.isfinite(norms)
    if not bool(finite.all()):
        raise NotFiniteError(~finite)


def outputs_or_nan(compute: Callable[[Tensor], Tensor], x: Tensor, shape: Sequence[int] | None = None) -> Tensor:
    """compute(x (B, …)), and not a number for records on which it fails.

    `shape` is that of one record's outputs; without it, a module that fails on every record is refused.
    """
    try:
        return compute(x)
    except Exception as reason:
        rows: list[Tensor | None] = []
        for b in range(len(x)):
            try:
                rows.append(compute(x[b : b + 1]))
            except Exception:
                rows.append(None)
        like = next((row for row in rows if row is not None), None)
        if like is None and shape is None:
            raise UserError(f"model: it fails on every record of the hold-out ({reason}).") from None
        like = torch.empty(1, *(shape or ())) if like is None else like
        return torch.cat([torch.full_like(like, torch.nan) if row is None else row for row in rows])


def all_finite(values: Tensor) -> bool:
    if values.device.type == "meta":  # shapes only, nothing to look at
        return True
    return bool(values.sum().isfinite()) or bool(values.isfinite().all())  # a finite sum tells at once
