"""Images → how much each of a dictionary of small patches is found in each part of the image.

Coates and Ng (2011, 2012): normalised and whitened patches, unit vectors as dictionary (spherical k-means), a two-sided
soft threshold, averages over a coarse grid. Everything fitted comes from a *public* set's patches. (A dictionary drawn
at random, with a fixed whitening, was four points below wavelet scattering on held-out Fashion-MNIST at ε = 0.3.)
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from gossamer.data.features.steps import Apply, Blocks, FittedKind, Rows, Seed, Step, check_images, steps
from gossamer.errors import UserError
from gossamer.options.types import Count, NonNegative

_SAMPLED = 60_000  # public patches, from as many images as there are rows
_ITERATIONS = 15  # of k-means
_FLAT = 0.01  # added to a patch's variance: patches without contrast stay small
_RIDGE = 0.1  # added to the whitening's eigenvalues


@steps.register("patches")
class Patches(FittedKind):
    """√ of the mean of (±⟨d, x⟩ − threshold)⁺ over each cell of a pool × pool grid, for all d of the dictionary."""

    size: Annotated[int, Field(ge=2, le=10_000)] = 6
    filters: Annotated[int, Field(ge=1, le=10_000)] = 150
    pool: Count = 5
    threshold: NonNegative = 0.25
    rows: Rows = 4000
    seed: Seed = 0

    costly: ClassVar[bool] = True

    def build(self, before: tuple[int, ...], data_dir: Path | None = None) -> Step:
        _, height, width = check_images("patches", before)
        rows, columns = height - self.size + 1, width - self.size + 1  # of places for a patch
        if self.pool > (least := min(rows, columns)):
            what = f"patches.pool = {self.pool}, and images of {height} x {width} have {max(least, 0)} places"
            raise UserError(f"data.transform: {what} for a patch of {self.size} x {self.size}; use smaller ones.")
        return Step(
            of=self,
            shape=(2 * self.filters, self.pool, self.pool),
            fit=self._fit,
            widest=2 * self.filters * rows * columns,  # before the averages
        )

    def _fit(self, blocks: Blocks) -> Apply:
        kernels, offset = self.learn(blocks)
        return partial(self.pooled, kernels=kernels, offset=offset)

    def learn(self, blocks: Blocks) -> tuple[Tensor, Tensor]:
        """The dictionary as kernels (filters, C, size, size) and offsets, from public images."""
        generator = torch.Generator().manual_seed(self.seed)
        drawn = []
        for block in blocks():
            # In double precision: k-means magnifies rounding, which differs with threads.
            patches = normalised(block.double(), self.size)
            shape = (len(block), -(-_SAMPLED // self.rows))
            pick = torch.randint(patches.shape[1], shape, generator=generator)
            drawn.append(patches.gather(1, pick[..., None].expand(-1, -1, patches.shape[2])).flatten(0, 1))
        patches = torch.cat(drawn)
        mean = patches.mean(0)
        values, vectors = torch.linalg.eigh(torch.cov((patches - mean).T))
        whiten = (vectors * (values.clamp_min(0) + _RIDGE).rsqrt()) @ vectors.T
        # ⟨d, whitened patch⟩ is a convolution: the patch's own mean is taken off inside the kernels.
        kernels = k_means((patches - mean) @ whiten, self.filters, generator) @ whiten
        offset = (kernels @ mean)[:, None, None].float()
        centred = kernels - kernels.mean(1, keepdim=True)
        return centred.view(self.filters, -1, self.size, self.size).float(), offset

    def pooled(self, block: Tensor, kernels: Tensor, offset: Tensor) -> Tensor:
        block = block - block.mean((1, 2, 3), keepdim=True)  # no score depends on it, but rounding does
        mean = functional.avg_pool2d(block, self.size, 1).mean(1, keepdim=True)
        square = functional.avg_pool2d(block.square(), self.size, 1).mean(1, keepdim=True)
        scale = (square - mean.square()).clamp_(min=0).add_(_FLAT).rsqrt_()
        scores = functional.conv2d(block, kernels).mul_(scale).sub_(offset)
        both = torch.cat([scores - self.threshold, -scores - self.threshold], 1).clamp_(min=0)
        return functional.adaptive_avg_pool2d(both, self.pool).sqrt_()


def normalised(block: Tensor, size: int) -> Tensor:
    """All patches of each image, every one with its own mean taken off and divided by its own deviation."""
    patches = functional.unfold(block, size).mT
    patches = patches - patches.mean(2, keepdim=True)
    return patches / (patches.var(2, keepdim=True, correction=0) + _FLAT).sqrt()


def k_means(patches: Tensor, filters: int, generator: torch.Generator) -> Tensor:
    """Unit vectors that the patches' directions cluster around."""
    if len(patches) < filters:
        raise UserError(f"data.transform: patches has filters = {filters}, of {len(patches)} public patches.")
    points = functional.normalize(patches)
    centres = points[torch.randperm(len(points), generator=generator)[:filters]]
    for _ in range(_ITERATIONS):
        near, which = (points @ centres.T).max(1)
        sums = torch.zeros_like(centres).index_add_(0, which, points * near[:, None])
        empty = torch.linalg.vector_norm(sums, dim=1) < 1e-6
        others = torch.randint(len(points), (len(sums),), generator=generator)
        centres = functional.normalize(torch.where(empty[:, None], points[others], sums))
    return centres
