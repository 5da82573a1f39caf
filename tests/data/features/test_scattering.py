"""Scattering against its known properties and against a direct computation at full resolution."""

from __future__ import annotations

import math

import pytest
import torch

from gossamer.data.features.steps import Scattering, morlet


def images(count: int = 3, size: int = 28, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, 1, size, size, generator=torch.Generator().manual_seed(seed))


def directly(x: torch.Tensor, scales: int, angles: int) -> torch.Tensor:
    """Every convolution at full resolution, subsampled only at the very end; paths in the same order."""
    step = 2**scales
    height, width = x.shape[-2:]
    u = torch.nn.functional.pad(x, (step,) * 4, mode="reflect")[:, 0].double()
    grid = u.shape[-2:]
    wy, wx = (2 * math.pi * torch.fft.fftfreq(n, dtype=torch.float64) for n in grid)
    sigma = 0.8 * 2 ** (scales - 1)
    low = torch.exp(-0.5 * sigma**2 * (wy[:, None] ** 2 + wx[None] ** 2))

    def smooth(v: torch.Tensor) -> torch.Tensor:
        full = torch.fft.ifft2(torch.fft.fft2(v) * low).real
        return full[:, step : step + height : step, step : step + width : step]

    def wave(v: torch.Tensor, j: int, k: int) -> torch.Tensor:
        filter_ = morlet(tuple(grid), 2.0**j, math.pi * k / angles, 4 / angles)
        return torch.fft.ifft2(torch.fft.fft2(v) * filter_).abs()

    paths = [smooth(u)]
    for j in range(scales):
        first = [wave(u, j, k) for k in range(angles)]
        paths += [smooth(v) for v in first]
        for i in range(j + 1, scales):
            paths += [smooth(wave(v, i, k)) for v in first for k in range(angles)]
    return torch.stack(paths, 1).float()


def test_28_by_28_becomes_81_channels_of_7_by_7() -> None:
    scatter = Scattering(28, 28)
    assert scatter.channels == 81
    assert scatter(images()).shape == (3, 81, 7, 7)
    assert Scattering(32, 32, scales=3)(images(size=32)).shape == (3, 217, 4, 4)


@pytest.mark.parametrize(("size", "scales", "angles"), [(28, 2, 8), (32, 3, 4)])
def test_agrees_with_convolutions_at_full_resolution(size: int, scales: int, angles: int) -> None:
    x = images(size=size)
    ours, direct = Scattering(size, size, scales=scales, angles=angles)(x), directly(x, scales, angles)
    # What is left is what subsampling folds back.
    assert float((ours - direct).norm() / direct.norm()) < 5e-3
    details = slice(1, None)
    assert float((ours - direct)[:, details].norm() / direct[:, details].norm()) < 0.03


def test_of_a_constant_only_the_mean_is_left() -> None:
    out = Scattering(28, 28)(torch.full((1, 1, 28, 28), 0.7))
    assert torch.allclose(out[0, 0], torch.tensor(0.7))
    assert float(out[0, 1:].abs().max()) < 1e-5


def test_wavelets_have_mean_zero_and_keep_at_most_all_energy() -> None:
    grid = (36, 36)
    energy = torch.zeros(grid)
    for j in range(2):
        for k in range(8):
            psi = morlet(grid, 2.0**j, math.pi * k / 8, 0.5)
            assert abs(float(psi[0, 0])) < 1e-6
            energy += 0.5 * (psi**2 + torch.roll(psi.flip(0, 1), (1, 1), (0, 1)) ** 2)
    assert float(energy.max()) <= 1.0


def test_a_wavelet_is_largest_at_its_own_frequency() -> None:
    psi = morlet((64, 64), 2.0, math.pi / 2, 0.5)
    at = divmod(int(psi.argmax()), 64)
    assert at == (12, 0)  # ξ = ¾π / 2 on a grid of 2π / 64, along y


def test_does_not_expand_distances() -> None:
    scatter, x, y = Scattering(28, 28), images(seed=1), images(seed=2)
    # Each map is smoothed by a filter of sum 1 and every 16th value kept; mirrored borders count twice at most.
    distance = (scatter(x) - scatter(y)).flatten(1).norm(dim=1)
    assert bool((distance <= (x - y).flatten(1).norm(dim=1)).all())


def test_a_shift_by_one_cell_shifts_the_maps_by_one() -> None:
    scatter = Scattering(32, 32)
    x = torch.zeros(1, 1, 32, 32)
    x[0, 0, 12:18, 12:18] = images(1, 6)[0, 0]
    moved = torch.roll(x, 4, dims=3)
    assert torch.allclose(scatter(moved)[..., 1:], scatter(x)[..., :-1], atol=1e-4)


def test_a_mirror_image_swaps_directions() -> None:
    x = images(1, 32)
    one, other = Scattering(32, 32, angles=8)(x).mean((2, 3)), Scattering(32, 32)(x.flip(3)).mean((2, 3))
    swapped = [1 + (8 - k) % 8 for k in range(8)]
    assert torch.allclose(one[0, 1:9], other[0, swapped], rtol=0.1)
    assert not torch.allclose(one[0, 1:9], other[0, 1:9], rtol=1e-3)
