"""Images → how much each of a dictionary of small patches is found in each part of the image.

Coates and Ng (2011, 2012): normalised and whitened patches, unit vectors as dictionary (spherical k-means), a two-sided
soft threshold, averages over a coarse grid. Everything fitted comes from a *public* set's patches. (A dictionary drawn
at random, with a fixed whitening, was four points below wavelet scattering on held-out Fashion-MNIST at ε = 0.3.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gossamer.errors import UserError

Shape = tuple[int, ...]
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
        if len(before) != 3:
            raise UserError(
                f"data.transform: patches needs images; here a record is {' x '.join(map(str, before))} values."
            )
        channels, height, width = before
        places = min(height, width) - size + 1
        if not (size >= 2 and 1 <= pool <= places):
            raise UserError(
                f"data.transform: patches has size = {size}, pool = {pool}; in images of {height} x {width} a patch "
                "has from 2 pixels a side on, and the grid no more cells a side than places for a patch."
            )
        if not (1 <= filters <= 10_000 and threshold >= 0 and rows >= 2 and seed >= 0):
            raise UserError(
                f"data.transform: patches has filters = {filters}, threshold = {threshold}, rows = {rows}, "
                f"seed = {seed}; use 1 to 10,000 filters, at least 0, at least 2 rows and at least 0."
            )
        self.public, self.rows, self._drawn = public, rows, -(-_SAMPLED // rows)
        self.shape: Shape = (2 * filters, pool, pool)
        self._patch, self._pool, self._threshold = (channels, size, size), pool, threshold
        self._draw = torch.Generator().manual_seed(seed)
        self._kernels, self._offset = torch.zeros(filters, *self._patch), torch.zeros(filters, 1, 1)

    def fit(self, blocks: Callable[[], Any]) -> None:
        """On public images."""
        drawn = []
        for block in blocks():
            patches = self._normalised(block)
            pick = torch.randint(patches.shape[1], (len(block), self._drawn), generator=self._draw)
            drawn.append(patches.gather(1, pick[..., None].expand(-1, -1, patches.shape[2])).flatten(0, 1))
        patches = torch.cat(drawn)
        mean = patches.mean(0)
        values, vectors = torch.linalg.eigh(torch.cov((patches - mean).T))
        whiten = (vectors * (values.clamp_min(0) + _RIDGE).rsqrt()) @ vectors.T
        # ⟨d, whitened patch⟩ is a convolution: the patch's own mean is taken off inside the kernels.
        kernels = self._k_means((patches - mean) @ whiten) @ whiten
        self._offset = (kernels @ mean)[:, None, None]
        self._kernels = (kernels - kernels.mean(1, keepdim=True)).view(-1, *self._patch)

    def __call__(self, block: Tensor) -> Tensor:
        size = self._patch[1]
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
