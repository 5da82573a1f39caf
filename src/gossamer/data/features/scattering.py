"""Wavelet scattering of images: local, stable, and nothing in it is learned.

    S₀ = u ⋆ φ,   S₁ = |u ⋆ ψ_jθ| ⋆ φ,   S₂ = ||u ⋆ ψ_jθ| ⋆ ψ_kϑ| ⋆ φ  for k > j

Bruna and Mallat 2013. ψ are Morlet wavelets at scales 2^j, j < J, in L directions; φ is a Gaussian of width ~2^J, after
which every 2^J-th value is kept. An image of 28 × 28 at J = 2, L = 8 becomes 81 channels of 7 × 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

_WIDTH, _FREQUENCY = 0.8, 0.75 * math.pi  # of the finest wavelet and, its width, of the low-pass filter
_ALIASES = range(-2, 3)  # a sampled filter's spectrum is periodic; further away nothing is left of a Gaussian


class Scattering:
    """(B, C, H, W) → (B, C · channels, H / 2^J, W / 2^J); H and W are multiples of 2^J."""

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
