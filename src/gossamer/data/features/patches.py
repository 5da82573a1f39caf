"""Images → how much each of a dictionary of small patches is found in each part of the image.

Coates and Ng (2011, 2012): normalised and whitened patches, unit vectors as dictionary (spherical k-means), a two-sided
soft threshold, averages over a coarse grid. Everything fitted comes from a *public* set's patches. (A dictionary drawn
at random, with a fixed whitening, was four points below wavelet scattering on held-out Fashion-MNIST at ε = 0.3.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gossamer.data.features.steps import Shape, check_images, checked_rows
from gossamer.errors import UserError

_SAMPLED = 60_000  # public patches, from as many images as there are rows
_ITERATIONS = 15  # of k-means
_FLAT = 0.01  # added to a patch's variance: patches without contrast stay small
_RIDGE = 0.1  # added to the whitening's eigenvalues


class Patches:
    """√ of the mean of (±⟨d, x⟩ − threshold)⁺ over each cell of a pool × pool grid, for all d of the dictionary."""

    def __init__(
        self,
        before: Shape,
        *,
        public: Any,
        size: int = 6,
        filters: int = 150,
        pool: int = 5,
        threshold: float = 0.25,
        rows: int = 4000,
        seed: int = 0,
    ) -> None:
        check_images("patches", before)
        channels, height, width = before
        side = min(height, width)
        if not 2 <= size <= side:
            raise UserError(f"data.transform: patches has size = {size}; use 2 to {side} pixels a side.")
        if not 1 <= pool <= side - size + 1:
            raise UserError(
                f"data.transform: patches has pool = {pool}; use 1 to {side - size + 1}, the places for a patch."
            )
        if not 1 <= filters <= 10_000:
            raise UserError(f"data.transform: patches has filters = {filters}; use 1 to 10,000.")
        if not 0 <= threshold < math.inf:
            raise UserError(f"data.transform: patches has threshold = {threshold}; use a number from 0 on.")
        if not 0 <= seed < 2**63:
            raise UserError(f"data.transform: patches has seed = {seed}; use 0 to 2^63 − 1.")
        self.public, self.rows = public, checked_rows("patches", rows)
        self._drawn = -(-_SAMPLED // rows)
        self.shape: Shape = (2 * filters, pool, pool)
        self.widest = 2 * filters * (height - size + 1) * (width - size + 1)  # before they are averaged
        self._patch, self._pool, self._threshold = (channels, size, size), pool, threshold
        self._draw = torch.Generator().manual_seed(seed)
        self._kernels, self._offset = torch.zeros(filters, *self._patch), torch.zeros(filters, 1, 1)

    def fit(self, blocks: Callable[[], Any]) -> None:
        """On public images."""
        drawn = []
        for block in blocks():
            # In double precision: k-means magnifies rounding, which differs with threads.
            patches = self._normalised(block.double())
            pick = torch.randint(patches.shape[1], (len(block), self._drawn), generator=self._draw)
            drawn.append(patches.gather(1, pick[..., None].expand(-1, -1, patches.shape[2])).flatten(0, 1))
        patches = torch.cat(drawn)
        mean = patches.mean(0)
        values, vectors = torch.linalg.eigh(torch.cov((patches - mean).T))
        whiten = (vectors * (values.clamp_min(0) + _RIDGE).rsqrt()) @ vectors.T
        # ⟨d, whitened patch⟩ is a convolution: the patch's own mean is taken off inside the kernels.
        kernels = self._k_means((patches - mean) @ whiten) @ whiten
        self._offset = (kernels @ mean)[:, None, None].float()
        self._kernels = (kernels - kernels.mean(1, keepdim=True)).view(-1, *self._patch).float()

    def __call__(self, block: Tensor) -> Tensor:
        size = self._patch[1]
        block = block - block.mean((1, 2, 3), keepdim=True)  # no score depends on it, but rounding does
        mean = functional.avg_pool2d(block, size, 1).mean(1, keepdim=True)
        square = functional.avg_pool2d(block.square(), size, 1).mean(1, keepdim=True)
        scale = (square - mean.square()).clamp_(min=0).add_(_FLAT).rsqrt_()
        found = functional.conv2d(block, self._kernels).mul_(scale).sub_(self._offset)
        both = torch.cat([found - self._threshold, -found - self._threshold], 1).clamp_(min=0)
        return functional.adaptive_avg_pool2d(both, self._pool).sqrt_()

    def _normalised(self, block: Tensor) -> Tensor:
        """All patches of each image, every one with its own mean taken off and divided by its own deviation."""
        patches = functional.unfold(block, self._patch[1]).mT
        patches = patches - patches.mean(2, keepdim=True)
        return patches / (patches.var(2, keepdim=True, correction=0) + _FLAT).sqrt()

    def _k_means(self, patches: Tensor) -> Tensor:
        """Unit vectors that the patches' directions cluster around."""
        filters = self.shape[0] // 2
        if len(patches) < filters:
            raise UserError(
                f"data.transform: patches has filters = {filters}, more than the {len(patches)} public patches."
            )
        points = functional.normalize(patches)
        centres = points[torch.randperm(len(points), generator=self._draw)[:filters]]
        for _ in range(_ITERATIONS):
            near, which = (points @ centres.T).max(1)
            sums = torch.zeros_like(centres).index_add_(0, which, points * near[:, None])
            empty = torch.linalg.vector_norm(sums, dim=1) < 1e-6
            others = torch.randint(len(points), (len(sums),), generator=self._draw)
            centres = functional.normalize(torch.where(empty[:, None], points[others], sums))
        return centres
