"""Convolutions of few channels, by loops over the taps of their kernel.

A library's convolution is made for many channels, and copying every window costs more than multiplying it where there
are eight. Here a record's padded planes lie flat, rows behind each other, so that one tap of the kernel is one shift:

    out[o, q] = Σ_c Σ_t w[o, c, t] · in[c, q + shift_t]        for q over all rows at once

The padding's columns are computed too and thrown away, a few per cent; in exchange every loop is long, without a branch
and without a copy. Gradients with respect to weights are kept record by record: their norms are what is asked for.

Where a 2 × 2 max pool follows, it is taken on the spot: the wide planes never leave the cache. Which entry of a window
is its maximum is kept as a number from 0 to 3; of equal ones it is the first, and what is not a number wins, as in
torch. Without gradients, `speed_up_pools` gives torch's numbers to the last bit, in a fifth of its time.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gossamer.kernels.threads import runs_compiled

MOST_WEIGHTS = 1 << 14  # of a layer: beyond, the library's convolution is the faster one,
WEIGHTS_PER_POSITION = 64  # and on small planes earlier
LEAST_PLANE = 36  # output positions: below, the loops are too short
MOST_PLANE = 1 << 16  # floats of the padded planes of all channels: they should stay in the cache

_FASTMATH = {"contract", "nsz", "reassoc"}  # but what is not a number must stay visible
Floats = NDArray[np.float32]
Pair = tuple[int, ...]  # along height and width
Places = NDArray[np.uint8]  # of the maxima of 2 × 2 windows; of length 0 where nothing is pooled


def suits(a: Tensor, kernel: tuple[int, ...], padding: tuple[int, ...], outputs: int) -> bool:
    """Is this faster than the library for records like a (N, C, H, W), stride 1, no dilation, no groups?"""
    if not runs_compiled(a) or a.dtype != torch.float32:
        return False
    channels, height, width = a.shape[1], a.shape[2] + 2 * padding[0], a.shape[3] + 2 * padding[1]
    positions = (height - kernel[0] + 1) * (width - kernel[1] + 1)
    return (
        all(p < k for p, k in zip(padding, kernel, strict=True))
        and positions >= LEAST_PLANE
        and max(channels, outputs) * height * width <= MOST_PLANE
        and outputs * channels * kernel[0] * kernel[1] <= min(MOST_WEIGHTS, WEIGHTS_PER_POSITION * positions)
    )


def forward(
    a: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, ...], *, pool: bool
) -> tuple[Tensor, Tensor]:
    """Outputs (N, O, …) of records a (N, C, H, W), nodes first, for stacked weights (m, O, C, kh, kw).

    With `pool`, only the maxima of 2 × 2 windows, and where they lie.
    """
    rows, columns = weight.shape[-2:]
    sides = a.shape[2] + 2 * padding[0] - rows + 1, a.shape[3] + 2 * padding[1] - columns + 1
    half = 2 if pool else 1
    out = a.new_empty(len(a), weight.shape[1], sides[0] // half, sides[1] // half)
    places = torch.empty(out.shape if pool else (0, 0, 0, 0), dtype=torch.uint8)
    given = a.new_zeros(weight.shape[:2]) if bias is None else bias
    of = _array(a), _array(weight.flatten(3)), _array(given)
    _convolve(*of, out.numpy(), places.numpy(), tuple(padding), (rows, columns))
    return out, places


def input_gradient(g: Tensor, places: Tensor, weight: Tensor, like: Tensor, padding: tuple[int, ...]) -> Tensor:
    """What output gradients g (N, O, …) are at the inputs."""
    rows, columns = weight.shape[-2:]
    gradients = torch.empty_like(like, memory_format=torch.contiguous_format)
    turned = weight.flip(-2, -1).transpose(1, 2).flatten(3)  # a convolution with kernels turned around
    outer = rows - 1 - padding[0], columns - 1 - padding[1]
    _convolve_back(_array(g), places.numpy(), _array(turned), gradients.numpy(), outer, (rows, columns))
    return gradients


def weight_gradients(a: Tensor, g: Tensor, places: Tensor, kernel: tuple[int, ...], padding: tuple[int, ...]) -> Tensor:
    """(N, O, C, kh, kw): each record's own."""
    gradients = a.new_empty(len(a), g.shape[1], a.shape[1], kernel[0] * kernel[1])
    _correlate(_array(a), _array(g), places.numpy(), gradients.numpy(), tuple(padding), tuple(kernel))
    return gradients.view(*gradients.shape[:3], *kernel)


def speed_up_pools(module: nn.Module) -> None:
    """Give the module's own plain 2 × 2 max pools the fast way; all others stay as they are."""
    for layer in module.modules():
        if is_plain_pool(layer):
            layer.forward = _pooled


def is_plain_pool(pool: nn.Module) -> bool:
    """A 2 × 2 max pool without overlap, padding or anything else."""
    if type(pool) is not nn.MaxPool2d:
        return False
    two = all(size in (2, (2, 2)) for size in (pool.kernel_size, pool.stride))
    bare = pool.padding in (0, (0, 0)) and pool.dilation in (1, (1, 1))
    return two and bare and not pool.ceil_mode and not pool.return_indices


def _pooled(x: Tensor) -> Tensor:
    if not runs_compiled(x) or torch.is_grad_enabled() or min(x.shape[-2:]) < 2:
        return nn.functional.max_pool2d(x, 2)
    # What is left over at an odd side is in no window.
    height, width = (side // 2 * 2 for side in x.shape[-2:])
    a, b, c, d = (x[..., i:height:2, j:width:2] for i in (0, 1) for j in (0, 1))
    return torch.maximum(torch.maximum(a, b), torch.maximum(c, d))


def _array(values: Tensor) -> Any:
    return values.detach().contiguous().numpy()


@nb.njit(inline="always")
def _copy(source: Any, into: Any) -> None:
    """Four at a time: rows are too short for the compiler's own vectors."""
    length = len(source)
    whole = length - length % 4
    for i in range(0, whole, 4):
        a, b, c, d = source[i], source[i + 1], source[i + 2], source[i + 3]
        into[i], into[i + 1], into[i + 2], into[i + 3] = a, b, c, d
    for i in range(whole, length):
        into[i] = source[i]


@nb.njit(inline="always")
def _lay_flat(planes: Any, into: Any, top: int, left: int, width: int) -> None:
    """Planes (C, h, w) into the middle of flat rows of a width (C, L)."""
    for c in range(planes.shape[0]):
        for h in range(planes.shape[1]):
            at = (top + h) * width + left
            _copy(planes[c, h], into[c, at : at + planes.shape[2]])


@nb.njit(inline="always")
def _four_by_three(out: Any, o: int, a: Any, shifts: Any, weights: Any, length: int) -> None:
    p, q, r, s = out[o], out[o + 1], out[o + 2], out[o + 3]
    x, y, z = a[shifts[0] :], a[shifts[1] :], a[shifts[2] :]
    p0, p1, p2 = weights[0, 0], weights[0, 1], weights[0, 2]
    q0, q1, q2 = weights[1, 0], weights[1, 1], weights[1, 2]
    r0, r1, r2 = weights[2, 0], weights[2, 1], weights[2, 2]
    s0, s1, s2 = weights[3, 0], weights[3, 1], weights[3, 2]
    for i in range(length):
        u, v, w = x[i], y[i], z[i]
        p[i] += p0 * u + p1 * v + p2 * w
        q[i] += q0 * u + q1 * v + q2 * w
        r[i] += r0 * u + r1 * v + r2 * w
        s[i] += s0 * u + s1 * v + s2 * w


@nb.njit(inline="always")
def _one_by_three(out: Any, a: Any, shifts: Any, weights: Any, length: int) -> None:
    x, y, z = a[shifts[0] :], a[shifts[1] :], a[shifts[2] :]
    u, v, w = weights[0], weights[1], weights[2]
    for i in range(length):
        out[i] += u * x[i] + v * y[i] + w * z[i]


@nb.njit(inline="always")
def _one_by_one(out: Any, a: Any, weight: Any, length: int) -> None:
    for i in range(length):
        out[i] += weight * a[i]


@nb.njit(inline="always")
def _sum_taps(flat: Any, kernel: Any, shifts: Any, sums: Any) -> None:
    """sums (O, L) += Σ_c Σ_t kernel[o, c, t] · flat[c, shifted by t]."""
    (outputs, length), channels, taps = sums.shape, flat.shape[0], len(shifts)
    in_threes, in_fours = taps - taps % 3, outputs - outputs % 4
    for o in range(0, in_fours, 4):
        for c in range(channels):
            for t in range(0, in_threes, 3):
                own = kernel[o : o + 4, c, t : t + 3]
                _four_by_three(sums, o, flat[c], shifts[t : t + 3], own, length)
            for t in range(in_threes, taps):
                for k in range(o, o + 4):
                    _one_by_one(sums[k], flat[c, shifts[t] :], kernel[k, c, t], length)
    for o in range(in_fours, outputs):
        for c in range(channels):
            for t in range(0, in_threes, 3):
                _one_by_three(sums[o], flat[c], shifts[t : t + 3], kernel[o, c, t : t + 3], length)
            for t in range(in_threes, taps):
                _one_by_one(sums[o], flat[c, shifts[t] :], kernel[o, c, t], length)


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=_FASTMATH, error_model="numpy")
def _convolve(
    a: Floats, weights: Floats, bias: Floats, out: Floats, places: Places, padding: Pair, kernel: Pair
) -> None:
    """out (N, O, H', W') from a (N, C, H, W), weights (m, O, C, rows · columns) and bias (m, O)."""
    (top, left), (rows, columns) = padding, kernel
    outputs, lot = out.shape[1], a.shape[0] // weights.shape[0]
    height, width = a.shape[2] + 2 * top, a.shape[3] + 2 * left
    shifts = np.array([i * width + j for i in range(rows) for j in range(columns)])
    flat = np.zeros((a.shape[1], height * width), np.float32)
    sums = np.empty((outputs, (height - rows) * width + width - columns + 1), np.float32)
    for record in range(a.shape[0]):
        _lay_flat(a[record], flat, top, left, width)
        for o in range(outputs):
            sums[o] = bias[record // lot, o]
        _sum_taps(flat, weights[record // lot], shifts, sums)
        for o in range(outputs):
            for h in range(out.shape[2]):
                if len(places):
                    upper, lower = sums[o, 2 * h * width :], sums[o, (2 * h + 1) * width :]
                    _maxima(upper, lower, out[record, o, h], places[record, o, h])
                else:
                    _copy(sums[o, h * width : h * width + out.shape[3]], out[record, o, h])


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=_FASTMATH, error_model="numpy")
def _convolve_back(g: Floats, places: Places, turned: Floats, gradients: Floats, padding: Pair, kernel: Pair) -> None:
    """gradients (N, C, H, W) from output gradients g and turned kernels (m, C, O, rows · columns)."""
    (top, left), (rows, columns) = padding, kernel
    lot = g.shape[0] // turned.shape[0]
    height, width = gradients.shape[2] + rows - 1, gradients.shape[3] + columns - 1
    shifts = np.array([i * width + j for i in range(rows) for j in range(columns)])
    slopes = np.zeros((g.shape[1], height * width), np.float32)
    sums = np.empty((gradients.shape[1], (height - rows) * width + width - columns + 1), np.float32)
    for record in range(g.shape[0]):
        _lay_gradients(g, places, record, slopes, top, left, width)
        sums[:] = 0
        _sum_taps(slopes, turned[record // lot], shifts, sums)
        for c in range(gradients.shape[1]):
            for h in range(gradients.shape[2]):
                _copy(sums[c, h * width : h * width + gradients.shape[3]], gradients[record, c, h])


@nb.njit(inline="always")
def _lay_gradients(g: Any, places: Any, record: int, into: Any, top: int, left: int, width: int) -> None:
    """A record's g (O, h, w) in flat rows of a width (O, L): where maxima of 2 × 2 windows lie, if these were taken."""
    if len(places):
        into[:] = 0
        for o in range(g.shape[1]):
            for h in range(g.shape[2]):
                at = (top + 2 * h) * width + left
                for w in range(g.shape[3]):
                    place = int(places[record, o, h, w])
                    into[o, at + 2 * w + (place >> 1) * width + (place & 1)] = g[record, o, h, w]
    else:
        _lay_flat(g[record], into, top, left, width)


@nb.njit(inline="always")
def _maxima(upper: Any, lower: Any, best: Any, place: Any) -> None:
    for j in range(len(best)):
        a, b, c, d = upper[2 * j], upper[2 * j + 1], lower[2 * j], lower[2 * j + 1]
        # Not (a >= b) is also true where b is not a number; where a is none, a stays.
        right = (not (a >= b)) & (a == a)  # noqa: PLR0124
        top = b if right else a
        right_below = (not (c >= d)) & (c == c)  # noqa: PLR0124
        low = d if right_below else c
        below = (not (top >= low)) & (top == top)  # noqa: PLR0124
        best[j] = low if below else top
        place[j] = np.uint8(2 + right_below) if below else np.uint8(right)


@nb.njit(inline="always")
def _nine(gradients: Any, g: Any, a: Any, at: Any, length: int) -> None:
    b, c, d, e = a[at[0] :], a[at[1] :], a[at[2] :], a[at[3] :]
    f, h, k, m, n = a[at[4] :], a[at[5] :], a[at[6] :], a[at[7] :], a[at[8] :]
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = s8 = np.float32(0)
    for i in range(length):
        v = g[i]
        s0 += v * b[i]
        s1 += v * c[i]
        s2 += v * d[i]
        s3 += v * e[i]
        s4 += v * f[i]
        s5 += v * h[i]
        s6 += v * k[i]
        s7 += v * m[i]
        s8 += v * n[i]
    gradients[0], gradients[1], gradients[2], gradients[3], gradients[4] = s0, s1, s2, s3, s4
    gradients[5], gradients[6], gradients[7], gradients[8] = s5, s6, s7, s8


@nb.njit(inline="always")
def _dot(g: Any, a: Any, length: int) -> Any:
    total = np.float32(0)
    for i in range(length):
        total += g[i] * a[i]
    return total


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=_FASTMATH, error_model="numpy")
def _correlate(a: Floats, g: Floats, places: Places, gradients: Floats, padding: Pair, kernel: Pair) -> None:
    """gradients (N, O, C, taps) = Σ over positions of g (N, O, H', W') times a (N, C, H, W), shifted."""
    (top, left), (rows, columns) = padding, kernel
    channels, outputs, taps = a.shape[1], g.shape[1], rows * columns
    height, width = a.shape[2] + 2 * top, a.shape[3] + 2 * left
    length = (height - rows) * width + width - columns + 1
    shifts = np.array([i * width + j for i in range(rows) for j in range(columns)])
    flat = np.zeros((channels, height * width), np.float32)
    slopes = np.zeros((outputs, (height - rows + 1) * width), np.float32)  # 0 in the columns of the padding
    in_nines = taps - taps % 9
    for record in range(a.shape[0]):
        _lay_flat(a[record], flat, top, left, width)
        _lay_gradients(g, places, record, slopes, 0, 0, width)
        for o in range(outputs):
            for c in range(channels):
                own = gradients[record, o, c]
                for t in range(0, in_nines, 9):
                    _nine(own[t : t + 9], slopes[o], flat[c], shifts[t : t + 9], length)
                for t in range(in_nines, taps):
                    own[t] = _dot(slopes[o], flat[c, shifts[t] :], length)
