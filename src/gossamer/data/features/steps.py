"""The steps of `data.transform`: each sees one record at a time, and public constants.

A new one is a subclass of `StepKind` with `apply` (and `shape`), or with `build`, registered in `steps`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import AfterValidator, BeforeValidator, Field
from torch import Tensor
from torch.nn import functional

from gossamer.errors import UserError
from gossamer.options.registry import Registry
from gossamer.options.types import Count, Finite, Fraction, Positive

Shape = tuple[int, ...]
Apply = Callable[[Tensor], Tensor]
Blocks = Callable[[], Iterable[Tensor]]
_STEEPEST = 1.0  # columns per row: what slants by more than 45° is no slant
_NO_INK = 1e-6
_TINY = 1e-12
_TOGETHER = 1000  # rows of a product for the covariance
_EXACT, _SPARE, _PRODUCTS = 4096, 50, 6  # of `_leading`


def _unfitted(block: Tensor) -> Tensor:
    raise AssertionError("the step is fitted first")


@dataclass(kw_only=True)
class Step:
    """A step set up for records of one shape."""

    shape: Shape  # of a record afterwards
    apply: Apply = _unfitted  # of a step that is fitted: what `fit` returns
    fit: Callable[[Blocks], Apply] | None = None  # sees public records only
    of: StepKind
    widest: int = 0  # numbers that it holds for a record at a time, where that is more than its result
    branches: list[list[Step]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class StepKind:
    """A step as the configuration has it."""

    kind: ClassVar[str]
    costly: ClassVar[bool] = False  # takes minutes: what it computes is cached by itself
    branches: ClassVar[Sequence[Sequence[StepKind]]] = ()  # lists of steps inside of it

    def build(self, before: Shape, data_dir: Path | None = None) -> Step:
        """Set it up for records of this shape. data_dir: where weights may be, next to the cache."""
        return Step(of=self, shape=self.shape(before), apply=self.apply)

    def shape(self, before: Shape) -> Shape:
        """Of a record afterwards; refuses records that it is not for."""
        return before

    def apply(self, block: Tensor) -> Tensor:
        """The step of a block of records, each by itself; of a kind without `build`."""
        raise NotImplementedError

    def key(self) -> dict[str, Any]:
        """All that its result depends on, options left at their default included."""
        return {"kind": self.kind, **steps.options(self)}


steps: Registry[StepKind] = Registry("data.transform")


def as_table(step: Any) -> Any:
    return {"kind": step} if isinstance(step, str) else step


def _names_a_set(public: Any) -> Any:
    table = as_table(public)
    if not isinstance(table, Mapping) or not isinstance(table.get("kind"), str):
        raise ValueError("must name a data set, for example public = 'fashion-mnist'")
    changed = [key for key in ("transform", "pca", "pca_from", "scale", "bias") if key in table]
    if changed:  # records of another form cannot be compared
        raise ValueError(f"has {changed[0]}; leave it out, since a public set goes through the same steps")
    return public


Named = Annotated[StepKind, steps, BeforeValidator(as_table)]
Public = Annotated[Any, AfterValidator(_names_a_set)]
Rows = Annotated[int, Field(ge=2, le=10**9)]
Dimensions = Annotated[int, Field(ge=1, le=100_000)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


@dataclass(frozen=True, kw_only=True)
class FittedKind(StepKind):
    """A step that is fitted on so many rows of a public set."""

    public: Public
    rows: Rows = 20_000


def named_steps(transform: object) -> list[StepKind]:
    """The user's list, checked: every entry a table with a kind, or the kind alone."""
    if not isinstance(transform, list | tuple):
        raise UserError(f"data.transform = {transform!r} must be a list of steps, such as ['unit-norm'].")
    return [steps.parse(as_table(step)) for step in transform]


def set_up(kinds: Sequence[StepKind], shape: Shape, data_dir: Path | None = None) -> list[Step]:
    """The steps for records of that shape, not fitted yet."""
    built: list[Step] = []
    for kind in kinds:
        built.append(kind.build(built[-1].shape if built else shape, data_dir))
    return built


def through(built: Sequence[Step], block: Tensor) -> Tensor:
    for step in built:
        block = step.apply(block)
    return block


@steps.register("scattering")
class Scatter(StepKind):
    """Images → wavelet scattering coefficients, channels first."""

    scales: Annotated[int, Field(ge=1, le=5)] = 2
    angles: Annotated[int, Field(ge=1, le=32)] = 8

    costly: ClassVar[bool] = True

    def build(self, before: Shape, data_dir: Path | None = None) -> Step:
        channels, height, width = check_images("scattering", before)
        step = 2**self.scales
        if height % step or width % step or min(height, width) < 2 * step:
            sides = f"sides that are multiples of {step}, from {2 * step} on; these are {height} x {width}"
            raise UserError(f"data.transform: scattering over {self.scales} scales needs {sides}.")
        scatter = Scattering(height, width, scales=self.scales, angles=self.angles)
        shape = (channels * scatter.channels, height // step, width // step)
        return Step(of=self, shape=shape, apply=scatter)


@steps.register("average-pool")
class AveragePool(StepKind):
    """Images in a coarser grain: every square of `size` × `size` pixels becomes its mean."""

    size: Count = 2

    def shape(self, before: Shape) -> Shape:
        channels, height, width = check_images("average-pool", before)
        if height % self.size or width % self.size:
            raise UserError(f"data.transform: average-pool.size = {self.size} must divide {height}, {width}")
        return channels, height // self.size, width // self.size

    def apply(self, block: Tensor) -> Tensor:
        return functional.avg_pool2d(block, self.size)


@steps.register("log")
class Logarithm(StepKind):
    """ln(x + floor), values below 0 taken for 0: what is small in an image counts next to what is large."""

    floor: Positive = 1e-3

    def apply(self, block: Tensor) -> Tensor:
        return (block.clamp_min(0) + self.floor).log_()


@steps.register("affine")
class Affine(StepKind):
    """(x − mean) / deviation with two given numbers: constants that everyone knows, and no record's own."""

    mean: Finite = 0.0
    deviation: Positive = 1.0

    def apply(self, block: Tensor) -> Tensor:
        return (block - self.mean) / self.deviation


@steps.register("group-norm")
class GroupNorm(StepKind):
    """Every record by itself: each group of channels to mean 0 and variance 1."""

    groups: Count = 27

    def shape(self, before: Shape) -> Shape:
        if before[0] % self.groups:
            raise UserError(f"data.transform: group-norm.groups = {self.groups} must divide {before[0]} channels")
        return before

    def apply(self, block: Tensor) -> Tensor:
        return functional.group_norm(block, self.groups)


@steps.register("unit-norm")
class UnitNorm(StepKind):
    """Every record by itself: x / ‖x‖."""

    def apply(self, block: Tensor) -> Tensor:
        flat = block.flatten(1)
        norms: Tensor = torch.linalg.vector_norm(flat, dim=1, keepdim=True).clamp_min_(_TINY)
        return (flat / norms).view_as(block)


@steps.register("random-fourier")
class RandomFourier(StepKind):
    """√(2/D) cos(Ω x + b): for many D the inner products are a Gaussian kernel's (Rahimi and Recht 2007).

    Ω and b follow from `seed` alone, and are public. `width` is the kernel's.
    """

    dimensions: Dimensions = 1000
    width: Positive = 1.0
    seed: Seed = 0

    def build(self, before: Shape, data_dir: Path | None = None) -> Step:
        draw = torch.Generator().manual_seed(self.seed)
        omega = torch.randn(math.prod(before), self.dimensions, generator=draw) / self.width
        phase = 2 * math.pi * torch.rand(self.dimensions, generator=draw)
        scale = math.sqrt(2 / self.dimensions)

        def apply(block: Tensor) -> Tensor:
            return scale * torch.cos(block.flatten(1) @ omega + phase)

        return Step(of=self, shape=(self.dimensions,), apply=apply)


@steps.register("random-projection")
class RandomProjection(StepKind):
    """R x with a Gaussian R of variance 1 / D: fewer numbers, inner products hardly change (Johnson, Lindenstrauss)."""

    dimensions: Dimensions = 1000
    seed: Seed = 0

    def build(self, before: Shape, data_dir: Path | None = None) -> Step:
        draw = torch.Generator().manual_seed(self.seed)
        matrix = torch.randn(math.prod(before), self.dimensions, generator=draw) / math.sqrt(self.dimensions)
        return Step(of=self, shape=(self.dimensions,), apply=lambda block: block.flatten(1) @ matrix)


@steps.register("standardise")
class Standardise(FittedKind):
    """(x − m) / s per column, m and s the mean and deviation over *public* records; |·| ≤ 5 where they do not fit."""

    def build(self, before: Shape, data_dir: Path | None = None) -> Step:
        return Step(of=self, shape=before, fit=self._fit)

    def _fit(self, blocks: Blocks) -> Apply:
        records = torch.cat(list(blocks()))
        mean, deviation = records.mean(0), records.std(0, correction=0)
        scale = torch.where(deviation > 1e-6, 1 / deviation, 0.0)  # a constant column says nothing
        return lambda block: ((block - mean) * scale).clamp_(-5, 5)


@steps.register("projection")
class Projection(FittedKind):
    """Vᵀ(x − m) λ^(−whitening / 2): the leading principal directions of *public* records, partly whitened.

    whitening = 0 is plain principal components; 1 makes the public records' covariance the identity.
    """

    dimensions: Dimensions = 1000
    whitening: Fraction = 0.6

    def build(self, before: Shape, data_dir: Path | None = None) -> Step:
        size = math.prod(before)
        if self.dimensions > size:
            raise UserError(f"data.transform: projection has dimensions = {self.dimensions}, of {size}.")
        return Step(of=self, shape=(self.dimensions,), fit=lambda blocks: self._fit(blocks, size))

    def key(self) -> dict[str, Any]:
        return {**super().key(), "version": 2}  # of what it computes

    def _fit(self, blocks: Blocks, size: int) -> Apply:
        count = 0
        total, products = torch.zeros(size, dtype=torch.float64), torch.zeros(size, size)
        for flat in _gathered(blocks(), _TOGETHER):
            count += len(flat)
            total += flat.double().sum(0)
            products.addmm_(flat.T, flat)
        mean = total / count
        covariance = products.double()
        del products  # wide records: half a gigabyte
        values, vectors = _leading(covariance.div_(count).addr_(mean, mean, alpha=-1), self.dimensions)
        if values[0] <= 0:
            raise UserError(f"data.transform: public = {self.public!r} has records that are all alike; name another.")
        # Directions the public records hardly have would be blown up: noise of the private ones.
        values = values.clamp_min(1e-6 * float(values[0]))
        centre, matrix = mean.float(), (vectors * values ** (-self.whitening / 2)).float()
        return lambda block: (block.flatten(1) - centre) @ matrix


@steps.register("straighten")
class Straighten(StepKind):
    """The ink's centre to the middle, its rows shifted until its columns and rows no longer vary together.

    By each image's own moments: values are weights, those below 0 count as 0, of all channels together. An image
    without ink, or with all of it in one row, is only centred. What leaves the frame is lost, what comes in is 0.
    """

    def shape(self, before: Shape) -> Shape:
        return check_images("straighten", before)

    def apply(self, block: Tensor) -> Tensor:
        rows, columns = (torch.arange(side) - (side - 1) / 2 for side in block.shape[2:])  # from the middle
        ink = block.clamp_min(0).sum(1)
        ink = ink / ink.sum((1, 2), keepdim=True).clamp_min(_NO_INK)
        by_row, by_column = ink.sum(2), ink.sum(1)
        row, column = by_row @ rows, by_column @ columns
        down, across = rows - row[:, None], columns - column[:, None]  # from the centre
        spread = (by_row * down**2).sum(1)
        together = torch.einsum("bhw,bh,bw->b", ink, down, across)
        slant = torch.where(spread > _NO_INK, together / spread.clamp_min(_NO_INK), 0.0)
        slant = slant.clamp(-_STEEPEST, _STEEPEST)
        # Where each pixel of the result is taken from, in halves of a side from the middle.
        from_row = (rows + row[:, None])[:, :, None].expand(-1, -1, len(columns))
        from_column = columns + column[:, None, None] + slant[:, None, None] * rows[:, None]
        places = torch.stack([2 * from_column / len(columns), 2 * from_row / len(rows)], -1)
        # Bilinear, and zeros beyond the frame.
        return functional.grid_sample(block, places, align_corners=False)


@steps.register("beside")
class Beside(StepKind):
    """The same record through several lists of steps, the results one after the other as one vector."""

    branches: Annotated[list[list[Named]], Field(min_length=1)]  # type: ignore[misc]

    def key(self) -> dict[str, Any]:
        return {"kind": self.kind, "branches": [[kind.key() for kind in branch] for branch in self.branches]}

    def build(self, before: Shape, data_dir: Path | None = None) -> Step:
        branches = [set_up(branch, before, data_dir) for branch in self.branches]
        return Step(
            of=self,
            shape=(sum(math.prod(branch[-1].shape if branch else before) for branch in branches),),
            apply=lambda block: torch.cat([through(branch, block).flatten(1) for branch in branches], 1),
            widest=max((widest(step) for branch in branches for step in branch), default=0),
            branches=branches,
        )


def widest(step: Step) -> int:
    """Return how many numbers it holds for a record at a time: of its result, or of what leads to it."""
    return max(math.prod(step.shape), step.widest)


def _gathered(blocks: Iterable[Tensor], rows: int) -> Iterator[Tensor]:
    """Small blocks put together, flat: a product as wide as the covariance is bound by memory unless it is deep."""
    waiting: list[Tensor] = []
    for block in blocks:
        waiting.append(block.flatten(1))
        if sum(map(len, waiting)) >= rows:
            yield torch.cat(waiting)
            waiting = []
    if waiting:
        yield torch.cat(waiting)


def _leading(covariance: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues, falling, and their vectors; of a wide matrix by subspace iteration from a fixed start.

    A full decomposition of 11,000 columns takes many minutes, a few products with a thin matrix one; of the directions
    near the cut any mixture serves as well.
    """
    size = len(covariance)
    if size <= _EXACT or 2 * count > size:
        values, vectors = torch.linalg.eigh(covariance)
    else:
        start = torch.randn(size, count + _SPARE, generator=torch.Generator().manual_seed(0))
        narrow = covariance.float()
        space, _ = torch.linalg.qr(start)
        for _ in range(_PRODUCTS):
            space, _ = torch.linalg.qr(narrow @ space)
        values, turned = torch.linalg.eigh((space.T @ narrow @ space).double())
        vectors = space.double() @ turned
    # Each vector with its largest entry positive: a sign must not depend on rounding, so on threads or machines.
    vectors = vectors[:, -count:].flip(1)
    largest = vectors.abs().argmax(0, keepdim=True)
    return values[-count:].flip(0), vectors * vectors.gather(0, largest).sign()


def check_images(kind: str, before: Shape) -> tuple[int, int, int]:
    """The channels, height and width of a record."""
    if len(before) != 3:
        raise UserError(f"data.transform: {kind} needs images; here a record has shape {before}.")
    return before[0], before[1], before[2]


_WIDTH, _FREQUENCY = 0.8, 0.75 * math.pi  # of the finest wavelet and, its width, of the low-pass filter
_ALIASES = range(-2, 3)  # a sampled filter's spectrum is periodic; further away nothing is left of a Gaussian


class Scattering:
    """Wavelet scattering of images: local, stable, and nothing in it is learned.

        S₀ = u ⋆ φ,   S₁ = |u ⋆ ψ_jθ| ⋆ φ,   S₂ = ||u ⋆ ψ_jθ| ⋆ ψ_kϑ| ⋆ φ  for k > j

    Bruna and Mallat 2013. ψ are Morlet wavelets at scales 2^j, j < J, in L directions; φ is a Gaussian of width ~2^J,
    after which every 2^J-th value is kept: (B, C, H, W) → (B, C · channels, H / 2^J, W / 2^J); H and W are multiples of
    2^J. An image of 28 × 28 at J = 2, L = 8 becomes 81 channels of 7 × 7.
    """

    def __init__(self, height: int, width: int, *, scales: int = 2, angles: int = 8) -> None:
        self.scales, self.angles = scales, angles
        step = 2**scales
        self.height, self.width = height, width
        # Mirrored at the borders, or the left edge would be a neighbour of the right one.
        self._pad = step
        self._grid = height + 2 * step, width + 2 * step

    @property
    def channels(self) -> int:
        """1 + L J + L² J (J − 1) / 2."""
        J, L = self.scales, self.angles
        return 1 + L * J + L * L * J * (J - 1) // 2

    @cached_property
    def _wavelets(self) -> list[Tensor]:
        """ψ̂ of every scale j, (L, H, W)."""
        turns = [math.pi * k / self.angles for k in range(self.angles)]
        return [
            torch.stack([morlet(self._grid, 2.0**j, turn, slant=4 / self.angles) for turn in turns])
            for j in range(self.scales)
        ]

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        p = self._pad
        u = torch.nn.functional.pad(images, (p, p, p, p), mode="reflect")
        spectrum = torch.fft.fft2(u)
        maps = [self._smooth(u[:, :, None], 0)]
        for j, bank in enumerate(self._wavelets):
            first = _modulus(spectrum[:, :, None], bank, j)
            maps.append(self._smooth(first, j))
            if j + 1 < self.scales:
                again = torch.fft.fft2(first)
                for k in range(j + 1, self.scales):
                    coarse = 4**j * _fold(self._wavelets[k], 2**j)  # the same wavelet on the coarser grid
                    second = _modulus(again[:, :, :, None], coarse, k - j)
                    maps.append(self._smooth(second.flatten(2, 3), k))
        return torch.cat(maps, dim=2).flatten(1, 2)

    def _smooth(self, u: Tensor, j: int) -> Tensor:
        """Low-pass, keep every 2^J-th value, drop the border; `u` has every 2^j-th value already."""
        rows, columns = (_low_pass(size, j, self.scales, self._pad) for size in (self.height, self.width))
        return torch.matmul(torch.matmul(rows.to(u), u), columns.to(u).T)


def morlet(grid: tuple[int, int], scale: float, turn: float, slant: float) -> Tensor:
    """ψ̂ of e^{iξ·x} times a Gaussian, stretched across its direction by 1/slant, minus what its mean needs."""
    sigma, xi = _WIDTH * scale, _FREQUENCY / scale
    cos, sin = math.cos(turn), math.sin(turn)

    def gaussian(centre: float) -> Callable[[Tensor, Tensor], Tensor]:
        def value(wy: Tensor, wx: Tensor) -> Tensor:
            along, across = cos * wx + sin * wy - centre, cos * wy - sin * wx
            return torch.exp(-0.5 * sigma**2 * (along**2 + (across / slant) ** 2))

        return value

    wave, envelope = _periodic(grid, gaussian(xi)), _periodic(grid, gaussian(0.0))
    return (wave - wave[0, 0] / envelope[0, 0] * envelope).float()


def _periodic(grid: tuple[int, int], spectrum: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    wy, wx = (2 * math.pi * torch.fft.fftfreq(n, dtype=torch.float64) for n in grid)
    shifts = [(2 * math.pi * a, 2 * math.pi * b) for a in _ALIASES for b in _ALIASES]
    return torch.stack([spectrum(wy[:, None] + a, wx[None, :] + b) for a, b in shifts]).sum(0)


def _modulus(spectrum: Tensor, bank: Tensor, octaves: int) -> Tensor:
    """|u ⋆ ψ|, every 2^octaves-th value: a wavelet at scale 2^j has next to nothing above π / 2^j."""
    wave: Tensor = torch.fft.ifft2(_fold(spectrum * bank, 2**octaves))
    return wave.abs()


def _fold(spectrum: Tensor, every: int) -> Tensor:
    """The spectrum of every `every`-th value: the mean over its aliases."""
    if every == 1:
        return spectrum
    *batch, height, width = spectrum.shape
    return spectrum.reshape(*batch, every, height // every, every, width // every).mean((-4, -2))


def _low_pass(size: int, j: int, scales: int, pad: int) -> Tensor:
    """A matrix: convolve (size + 2 pad) / 2^j values with φ and keep those at 0, 2^J, … of the image proper."""
    have, want = (size + 2 * pad) // 2**j, size // 2**scales
    sigma = _WIDTH * 2.0 ** (scales - 1)
    at = torch.arange(want, dtype=torch.float64)[:, None] * 2**scales + pad
    offset = at - torch.arange(have, dtype=torch.float64) * 2**j
    period = size + 2 * pad
    weights = torch.stack([torch.exp(-0.5 * ((offset + a * period) / sigma) ** 2) for a in _ALIASES]).sum(0)
    return (weights / weights.sum(1, keepdim=True)).float()
