"""In which numbers noise is added: float32 (fast), or integers on a lattice (for those who distrust float32).

A float32 sum of float32 noise leaves traces of its terms in the last digits, which no proof about real numbers sees.
On the lattice the sum is rounded to multiples of γ and the noise is an exact discrete Gaussian of whole multiples.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from gossamer.kernels.discrete import discrete_normal
from gossamer.kernels.noise import Indices, Stream

NOISE, LATTICE = 0, 3  # purpose fields of the stream; sampling has 1, counts have 2
ROUND_UP = 1 + 2**-20  # float32 noise is scaled up by this: never less of it than the ledger says


Parts = tuple[tuple[str, float], ...]


class Arithmetic(Protocol):
    def sensitivity(self, bound: Tensor, dimension: int) -> Tensor:
        """(m,) how far one record can move the released sum, if its contribution has norm at most `bound`."""
        ...

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor | None:
        """What can be drawn of a draw's noise before its scale is known; None if nothing."""
        ...

    def add(
        self,
        stream: Stream,
        nodes: Indices,
        k: int,
        sums: Tensor,
        scale: Tensor,
        bound: Tensor,
        ready: Tensor | None = None,
    ) -> None:
        """Add noise of std `scale` (m,) to `sums` (m, d) in place; `ready` is what `ahead` gave, and is used up."""
        ...

    def parts(self, i: int, sigma: float, dimension: int) -> Parts:
        """What the event of hosted node i must say of this noise beyond σ."""
        ...


class Floating:
    def parts(self, i: int, sigma: float, dimension: int) -> Parts:
        return ()

    def sensitivity(self, bound: Tensor, dimension: int) -> Tensor:
        return bound

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor | None:
        noise = torch.empty(np.size(nodes), dimension)
        stream.normal_rows(NOISE, nodes, k, noise, 1.0)
        return noise

    def add(
        self,
        stream: Stream,
        nodes: Indices,
        k: int,
        sums: Tensor,
        scale: Tensor,
        bound: Tensor,
        ready: Tensor | None = None,
    ) -> None:
        if ready is not None:
            sums += (ready * (ROUND_UP * scale).to(ready)[:, None]).to(sums)
        elif bool((scale > 0).all()):
            stream.normal_rows(NOISE, nodes, k, sums, ROUND_UP * scale, accumulate=True)
        else:
            # Noise of no size is not drawn: every node has its own range of the stream, so the others' stays the same.
            rows = scale.nonzero().flatten()
            some = sums[rows.to(sums.device)]
            few = np.atleast_1d(nodes)[rows.numpy()]
            stream.normal_rows(NOISE, few, k, some, ROUND_UP * scale[rows], accumulate=True)
            sums[rows.to(sums.device)] = some


class Lattice:
    """γ = bound / (1000 √d): rounding to it widens the sensitivity by γ √d, a thousandth, which the event includes.

    The discrete Gaussian is priced as the Gaussian; with σ/γ in the thousands the two differ by exp(−2π² σ²/γ²).
    What remains in float32 is the summation over a lot, before the rounding.
    """

    def parts(self, i: int, sigma: float, dimension: int) -> Parts:
        return ()

    def sensitivity(self, bound: Tensor, dimension: int) -> Tensor:
        return bound + self._step(bound, dimension) * math.sqrt(dimension)

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor | None:
        return None  # how many bits a sample takes depends on its variance

    def add(
        self,
        stream: Stream,
        nodes: Indices,
        k: int,
        sums: Tensor,
        scale: Tensor,
        bound: Tensor,
        ready: Tensor | None = None,
    ) -> None:
        steps = self._step(bound, sums.shape[1])
        for i, node in enumerate(np.atleast_1d(nodes).tolist()):
            if scale[i] == 0:
                continue
            ratio = Fraction(float(scale[i])) / Fraction(float(steps[i]))
            noise = discrete_normal(stream, LATTICE, node, k, count=sums.shape[1], variance=ratio * ratio)
            whole = torch.round(sums[i].double().cpu() / steps[i]).long() + torch.from_numpy(noise)
            sums[i] = (whole.double() * steps[i]).to(sums)

    @staticmethod
    def _step(bound: Tensor, dimension: int) -> Tensor:
        return bound / (1000 * math.sqrt(dimension))
