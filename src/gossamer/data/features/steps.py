"""The steps of `data.transform`: each sees one record at a time, and public constants. A new one is a class, a line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from gossamer.data.features.scattering import Scattering
from gossamer.errors import UserError

_STEEPEST = 1.0  # columns per row: what slants by more than 45° is no slant
_NO_INK = 1e-6


class Straighten:
    """The ink's centre to the middle, its rows shifted until its columns and rows no longer vary together.

    By each image's own moments: values are weights, those below 0 count as 0, of all channels together. An image
    without ink, or with all of it in one row, is only centred. What leaves the frame is lost, what comes in is 0.
    """

    def __init__(self, before: Shape) -> None:
        check_images("straighten", before)
        self.shape = before
        _, height, width = before
        self._rows = torch.arange(height) - (height - 1) / 2  # from the middle
        self._columns = torch.arange(width) - (width - 1) / 2

    def __call__(self, block: Tensor) -> Tensor:
        ink = block.clamp_min(0).sum(1)
        ink = ink / ink.sum((1, 2), keepdim=True).clamp_min(_NO_INK)
        by_row, by_column = ink.sum(2), ink.sum(1)
        row, column = by_row @ self._rows, by_column @ self._columns
        down = self._rows - row[:, None]  # of every row from the centre
        across = self._columns - column[:, None]
        spread = (by_row * down**2).sum(1)
        together = torch.einsum("bhw,bh,bw->b", ink, down, across)
        slant = torch.where(spread > _NO_INK, together / spread.clamp_min(_NO_INK), 0.0).clamp(
            -_STEEPEST, _STEEPEST
        )
        # Where each pixel of the result is taken from, in halves of a side from the middle.
        _, height, width = self.shape
        from_row = (self._rows + row[:, None])[:, :, None].expand(-1, -1, width)
        from_column = self._columns + column[:, None, None] + slant[:, None, None] * self._rows[:, None]
        places = torch.stack([2 * from_column / width, 2 * from_row / height], -1)
        return functional.grid_sample(
            block, places, mode="bilinear", padding_mode="zeros", align_corners=False
        )


Shape = tuple[int, ...]
_TINY = 1e-12
_TOGETHER = 1000  # rows of a product for the covariance
_EXACT, _SPARE, _PRODUCTS = 4096, 50, 6  # of `_leading`


class Step(Protocol):
    """Set up for records of one shape; `fit`, where there is one, sees public records only."""

    shape: Shape  # of a record afterwards

    def __call__(self, block: Tensor) -> Tensor: ...


class Scatter:
    """Images → wavelet scattering coefficients, channels first."""

    def __init__(self, before: Shape, *, scales: int = 2, angles: int = 8) -> None:
        check_images("scattering", before)
        if not (1 <= scales <= 5 and 1 <= angles <= 32):
            raise UserError(
                f"data.transform: scattering has scales = {scales}, angles = {angles}; use 1 to 5 and 1 to 32."
            )
        channels, height, width = before
        if height % 2**scales or width % 2**scales or min(height, width) < 2 ** (scales + 1):
            raise UserError(
                f"data.transform: scattering over {scales} scales needs images with sides that are multiples of "
                f"{2**scales}, from {2 ** (scales + 1)} on; these are {height} x {width}."
            )
        self._scatter = Scattering(height, width, scales=scales, angles=angles)
        self.shape: Shape = (channels * self._scatter.channels, height // 2**scales, width // 2**scales)

    def __call__(self, block: Tensor) -> Tensor:
        return self._scatter(block)


class AveragePool:
    """Images in a coarser grain: every square of `size` × `size` pixels becomes its mean."""

    def __init__(self, before: Shape, *, size: int = 2) -> None:
        check_images("average-pool", before)
        channels, height, width = before
        if size < 1 or height % size or width % size:
            raise UserError(
                f"data.transform: average-pool has size = {size}; it must divide the sides, {height} and {width}."
            )
        self._size = size
        self.shape: Shape = (channels, height // size, width // size)

    def __call__(self, block: Tensor) -> Tensor:
        return torch.nn.functional.avg_pool2d(block, self._size)


class Logarithm:
    """ln(x + floor), values below 0 taken for 0: what is small in an image counts beside what is large."""

    def __init__(self, before: Shape, *, floor: float = 1e-3) -> None:
        if not 0 < floor < math.inf:
            raise UserError(f"data.transform: log has floor = {floor}; it must be above 0.")
        self.shape, self._floor = before, floor

    def __call__(self, block: Tensor) -> Tensor:
        return (block.clamp_min(0) + self._floor).log_()


class Affine:
    """(x − mean) / deviation with two given numbers: constants that everyone knows, and no record's own."""

    def __init__(self, before: Shape, *, mean: float = 0.0, deviation: float = 1.0) -> None:
        if not (math.isfinite(mean) and 0 < deviation < math.inf):
            raise UserError(
                f"data.transform: affine has mean = {mean}, deviation = {deviation}; deviation must be above 0."
            )
        self.shape, self._mean, self._deviation = before, mean, deviation

    def __call__(self, block: Tensor) -> Tensor:
        return (block - self._mean) / self._deviation


class GroupNorm:
    """Every record by itself: each group of channels to mean 0 and variance 1."""

    def __init__(self, before: Shape, *, groups: int = 27) -> None:
        if groups < 1 or before[0] % groups:
            raise UserError(
                f"data.transform: group-norm has groups = {groups}, which does not divide the {before[0]} channels."
            )
        self.shape, self._groups = before, groups

    def __call__(self, block: Tensor) -> Tensor:
        return torch.nn.functional.group_norm(block, self._groups)


class UnitNorm:
    """Every record by itself: x / ‖x‖."""

    def __init__(self, before: Shape) -> None:
        self.shape = before

    def __call__(self, block: Tensor) -> Tensor:
        flat = block.flatten(1)
        norms = torch.linalg.vector_norm(flat, dim=1, keepdim=True).clamp_min_(_TINY)
        scaled: Tensor = flat / norms
        return scaled.view_as(block)


class RandomFourier:
    """√(2/D) cos(Ω x + b): for many D the inner products are a Gaussian kernel's (Rahimi and Recht 2007).

    Ω and b follow from `seed` alone, and are public. `width` is the kernel's.
    """

    def __init__(self, before: Shape, *, dimensions: int = 1000, width: float = 1.0, seed: int = 0) -> None:
        _dimensions("random-fourier", dimensions)
        if not 0 < width < math.inf or seed < 0:
            raise UserError(
                f"data.transform: random-fourier has width = {width}, seed = {seed}; width is above 0, seed at least 0."
            )
        draw = torch.Generator().manual_seed(seed)
        self._omega = torch.randn(math.prod(before), dimensions, generator=draw) / width
        self._phase = 2 * math.pi * torch.rand(dimensions, generator=draw)
        self.shape: Shape = (dimensions,)

    def __call__(self, block: Tensor) -> Tensor:
        return math.sqrt(2 / len(self._phase)) * torch.cos(block.flatten(1) @ self._omega + self._phase)


class RandomProjection:
    """R x with a Gaussian R of variance 1 / D: fewer numbers, inner products hardly change (Johnson, Lindenstrauss)."""

    def __init__(self, before: Shape, *, dimensions: int = 1000, seed: int = 0) -> None:
        _dimensions("random-projection", dimensions)
        if seed < 0:
            raise UserError(f"data.transform: random-projection has seed = {seed}; use at least 0.")
        draw = torch.Generator().manual_seed(seed)
        self._map = torch.randn(math.prod(before), dimensions, generator=draw) / math.sqrt(dimensions)
        self.shape: Shape = (dimensions,)

    def __call__(self, block: Tensor) -> Tensor:
        return block.flatten(1) @ self._map


class Standardise:
    """(x − m) / s per column, m and s the mean and deviation over *public* records; |·| ≤ 5 where they do not fit."""

    def __init__(self, before: Shape, *, public: Any, rows: int = 20_000) -> None:
        self.public, self.rows, self.shape = public, checked_rows("standardise", rows), before
        self._mean = self._scale = torch.zeros(before)

    def fit(self, blocks: Callable[[], Any]) -> None:
        records = torch.cat(list(blocks()))
        self._mean = records.mean(0)
        deviation = records.std(0, correction=0)
        self._scale = torch.where(deviation > 1e-6, 1 / deviation, 0.0)  # a constant column says nothing

    def __call__(self, block: Tensor) -> Tensor:
        return ((block - self._mean) * self._scale).clamp_(-5, 5)


class Projection:
    """Vᵀ(x − m) λ^(−whitening / 2): the leading principal directions of *public* records, partly whitened.

    whitening = 0 is plain principal components; 1 makes the public records' covariance the identity.
    """

    def __init__(
        self,
        before: Shape,
        *,
        public: Any,
        dimensions: int = 1000,
        whitening: float = 0.6,
        rows: int = 20_000,
    ) -> None:
        _dimensions("projection", dimensions)
        if not 0 <= whitening <= 1:
            raise UserError(f"data.transform: projection has whitening = {whitening}; it must lie in [0, 1].")
        size = math.prod(before)
        if dimensions > size:
            raise UserError(f"data.transform: projection has dimensions = {dimensions}, of {size} there are.")
        self.public, self.rows, self._power = public, checked_rows("projection", rows), whitening
        self.shape: Shape = (dimensions,)
        self._mean, self._map = torch.zeros(size), torch.zeros(size, dimensions)

    def fit(self, blocks: Callable[[], Any]) -> None:
        count, size = 0, len(self._mean)
        total, products = torch.zeros(size, dtype=torch.float64), torch.zeros(size, size)
        for flat in _gathered(blocks(), _TOGETHER):
            count += len(flat)
            total += flat.double().sum(0)
            products.addmm_(flat.T, flat)
        mean = total / count
        covariance = products.double()
        del products  # wide records: half a gigabyte
        values, vectors = _leading(covariance.div_(count).addr_(mean, mean, alpha=-1), self.shape[0])
        if values[0] <= 0:
            raise UserError(f"data.transform: public = {self.public!r} has records that are all alike.")
        # Directions the public records hardly have would be blown up: noise of the private ones.
        values = values.clamp_min(1e-6 * float(values[0]))
        self._mean = mean.float()
        self._map = (vectors * values ** (-self._power / 2)).float()

    def __call__(self, block: Tensor) -> Tensor:
        return (block.flatten(1) - self._mean) @ self._map


STEPS: dict[str, Callable[..., Step]] = {
    "scattering": Scatter,
    "average-pool": AveragePool,
    "log": Logarithm,
    "affine": Affine,
    "group-norm": GroupNorm,
    "unit-norm": UnitNorm,
    "random-fourier": RandomFourier,
    "random-projection": RandomProjection,
    "standardise": Standardise,
    "projection": Projection,
}


def _gathered(blocks: Any, rows: int) -> Iterator[Tensor]:
    """Small blocks put together, flat: a product as wide as the covariance is bound by memory unless it is deep."""
    held: list[Tensor] = []
    for block in blocks:
        held.append(block.flatten(1))
        if sum(map(len, held)) >= rows:
            yield torch.cat(held)
            held = []
    if held:
        yield torch.cat(held)


def _leading(covariance: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues, falling, and their vectors; of a wide matrix by subspace iteration from a fixed start.

    A full decomposition of 11,000 columns takes many minutes, a few products with a thin matrix one; of the directions
    near the cut any mixture serves as well.
    """
    size = len(covariance)
    if size <= _EXACT or 2 * count > size:
        values, vectors = torch.linalg.eigh(covariance)
        return _falling(values, vectors, count)
    start = torch.randn(size, count + _SPARE, generator=torch.Generator().manual_seed(0))
    narrow = covariance.float()
    space, _ = torch.linalg.qr(start)
    for _ in range(_PRODUCTS):
        space, _ = torch.linalg.qr(narrow @ space)
    values, turned = torch.linalg.eigh((space.T @ narrow @ space).double())
    return _falling(values, space.double() @ turned, count)


def _falling(values: Tensor, vectors: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Each vector with its largest entry positive: a sign must not depend on rounding, so on threads or machines."""
    vectors = vectors[:, -count:].flip(1)
    largest = vectors.abs().argmax(0, keepdim=True)
    return values[-count:].flip(0), vectors * vectors.gather(0, largest).sign()


def check_images(kind: str, before: Shape) -> None:
    if len(before) != 3:
        raise UserError(
            f"data.transform: {kind} needs images; here a record is {' x '.join(map(str, before))} values."
        )


def _dimensions(kind: str, dimensions: int) -> None:
    if not 1 <= dimensions <= 100_000:
        raise UserError(f"data.transform: {kind} has dimensions = {dimensions}; use 1 to 100,000.")


def checked_rows(kind: str, rows: int) -> int:
    if rows < 2:
        raise UserError(f"data.transform: {kind} has rows = {rows}; use at least 2 public rows.")
    return rows
