"""Compiled products of small matrices, row after row: what a library's calls cost more than, and not slower when large.

A product of rows with rows keeps sixteen sums in registers and reads each number once for four of them; a combination
of rows adds eight of them at a time to where they go. Sums may be taken in any order: `rounding` pays for any. What a
product makes of a row does not depend on the other rows, nor on how many there are.
"""

from __future__ import annotations

import numba as nb
import numpy as np
from numpy.typing import NDArray

f32 = np.float32
Matrix = NDArray[np.float32]
Row = NDArray[np.float32]
Doubles = NDArray[np.float64]
# Never that there is no infinity and no NaN: they must come through.
ANY_ORDER = {"reassoc", "contract", "nsz", "arcp"}
# Eight products by twos: fewer roundings in a row, which `rounding` counts on.
AS_WRITTEN = {"contract", "nsz"}
CACHED_FLOATS = 1 << 16  # of the second factor at a time: fits into one core's L2 cache beside the rest


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=ANY_ORDER, error_model="numpy")
def rows_with_rows(a: Matrix, b: Matrix, out: Matrix) -> None:
    """out[r, o] = a[r] · b[o], every row in the same order of additions."""
    if a.shape[0] < 4:  # four rows at a time, always
        four, results = np.zeros((4, a.shape[1]), f32), np.empty((4, b.shape[0]), f32)
        for r in range(a.shape[0]):
            for k in range(a.shape[1]):
                four[r, k] = a[r, k]
        rows_of_four(four, b, results)
        for r in range(a.shape[0]):
            for o in range(b.shape[0]):
                out[r, o] = results[r, o]
    else:
        rows_of_four(a, b, out)


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=ANY_ORDER, error_model="numpy")
def rows_of_four(a: Matrix, b: Matrix, out: Matrix) -> None:
    step = max(4, CACHED_FLOATS // max(1, b.shape[1]) // 4 * 4)
    for low in range(0, b.shape[0], step):
        high = min(low + step, b.shape[0])
        some, into = b[low:high], out[:, low:high]
        r = 0
        while r + 4 <= a.shape[0]:
            _four_rows(a[r : r + 4], some, into[r : r + 4])
            r += 4
        if r < a.shape[0]:  # some of the last four for the second time
            _four_rows(a[-4:], some, into[-4:])


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=ANY_ORDER, error_model="numpy")
def _four_rows(a: Matrix, b: Matrix, out: Matrix) -> None:
    a0, a1, a2, a3 = a[0], a[1], a[2], a[3]
    o = 0
    while o + 4 <= b.shape[0]:
        b0, b1, b2, b3 = b[o], b[o + 1], b[o + 2], b[o + 3]
        s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = f32(0)
        s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = f32(0)
        for k in range(a0.shape[0]):
            p, q, r, s = a0[k], a1[k], a2[k], a3[k]
            u, v, w, x = b0[k], b1[k], b2[k], b3[k]
            s00, s01, s02, s03 = s00 + p * u, s01 + p * v, s02 + p * w, s03 + p * x
            s10, s11, s12, s13 = s10 + q * u, s11 + q * v, s12 + q * w, s13 + q * x
            s20, s21, s22, s23 = s20 + r * u, s21 + r * v, s22 + r * w, s23 + r * x
            s30, s31, s32, s33 = s30 + s * u, s31 + s * v, s32 + s * w, s33 + s * x
        out[0, o], out[0, o + 1], out[0, o + 2], out[0, o + 3] = s00, s01, s02, s03
        out[1, o], out[1, o + 1], out[1, o + 2], out[1, o + 3] = s10, s11, s12, s13
        out[2, o], out[2, o + 1], out[2, o + 2], out[2, o + 3] = s20, s21, s22, s23
        out[3, o], out[3, o + 1], out[3, o + 2], out[3, o + 3] = s30, s31, s32, s33
        o += 4
    while o < b.shape[0]:
        own = b[o]
        s00 = s10 = s20 = s30 = f32(0)
        for k in range(a0.shape[0]):
            u = own[k]
            s00, s10, s20, s30 = s00 + a0[k] * u, s10 + a1[k] * u, s20 + a2[k] * u, s30 + a3[k] * u
        out[0, o], out[1, o], out[2, o], out[3, o] = s00, s10, s20, s30
        o += 1


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=ANY_ORDER, error_model="numpy")
def dots_and_squares(rows: Doubles, points: Doubles, dots: Doubles, squares: Doubles) -> None:
    """rows[i, b] · points[i] and ‖rows[i, b]‖², every row in the same order of additions."""
    for i in range(rows.shape[0]):
        point = points[i]
        for b in range(rows.shape[1]):
            row, dot, square = rows[i, b], 0.0, 0.0
            for k in range(row.shape[0]):
                dot += row[k] * point[k]
                square += row[k] * row[k]
            dots[i, b], squares[i, b] = dot, square


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=AS_WRITTEN, error_model="numpy")
def added_up(weights: Doubles, rows: Doubles, out: Doubles) -> None:
    """out[i] = Σ_b weights[i, b] · rows[i, b], one row after the other."""
    out[:] = 0.0
    for i in range(rows.shape[0]):
        own = out[i]
        for b in range(rows.shape[1]):
            row, weight = rows[i, b], weights[i, b]
            for k in range(row.shape[0]):
                own[k] += weight * row[k]


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=ANY_ORDER, error_model="numpy")
def combined_rows(shares: Matrix, rows: Matrix, out: Matrix) -> None:
    """out[p] = Σ_q shares[q, p] · rows[q]."""
    step, last = max(1, CACHED_FLOATS // max(1, rows.shape[1])), rows.shape[0] - 1
    eight = np.zeros(8, f32)
    for low in range(0, out.shape[0], step):
        high, q = min(low + step, out.shape[0]), 0
        for p in range(low, high if last < 0 else low):
            for k in range(out.shape[1]):
                out[p, k] = f32(0)
        while q <= last:
            more = q > 0
            if last - q < 2:
                for p in range(low, high):
                    _one(shares[q, p], rows[q], out[p], more)
                q += 1
                continue
            a, b, c, d = rows[q], rows[q + 1], rows[q + 2], rows[min(q + 3, last)]
            e, f, g, h = (
                rows[min(q + 4, last)], rows[min(q + 5, last)], rows[min(q + 6, last)], rows[min(q + 7, last)]
            )  # fmt: skip
            for p in range(low, high):
                for k in range(8):  # the last row fills up what is missing, with a share of nothing
                    eight[k] = shares[q + k, p] if q + k <= last else f32(0)
                _eight(eight, a, b, c, d, e, f, g, h, out[p], more)
            q += 8


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=ANY_ORDER, error_model="numpy")
def combined_in_double(shares: Matrix, rows: Matrix, out: Matrix) -> None:
    """`combined_rows`, added up in double precision and rounded once."""
    step = max(1, CACHED_FLOATS // max(1, rows.shape[1]))
    for low in range(0, out.shape[0], step):
        high = min(low + step, out.shape[0])
        total = np.zeros((high - low, out.shape[1]), np.float64)
        for q in range(rows.shape[0]):
            row = rows[q]
            for p in range(low, high):
                share, into = np.float64(shares[q, p]), total[p - low]
                for k in range(row.shape[0]):
                    into[k] += share * np.float64(row[k])
        for p in range(low, high):
            for k in range(out.shape[1]):
                out[p, k] = f32(total[p - low, k])


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=AS_WRITTEN, error_model="numpy")
def _eight(shares: Row, a: Row, b: Row, c: Row, d: Row, e: Row, f: Row, g: Row, h: Row, out: Row, add: bool) -> None:
    p0, p1, p2, p3 = shares[0], shares[1], shares[2], shares[3]
    p4, p5, p6, p7 = shares[4], shares[5], shares[6], shares[7]
    if add:
        for k in range(out.shape[0]):
            first = (p0 * a[k] + p1 * b[k]) + (p2 * c[k] + p3 * d[k])
            out[k] += first + ((p4 * e[k] + p5 * f[k]) + (p6 * g[k] + p7 * h[k]))
    else:
        for k in range(out.shape[0]):
            first = (p0 * a[k] + p1 * b[k]) + (p2 * c[k] + p3 * d[k])
            out[k] = first + ((p4 * e[k] + p5 * f[k]) + (p6 * g[k] + p7 * h[k]))


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=ANY_ORDER, error_model="numpy")
def _one(share: float, a: Row, out: Row, add: bool) -> None:
    if add:
        for k in range(out.shape[0]):
            out[k] += share * a[k]
    else:
        for k in range(out.shape[0]):
            out[k] = share * a[k]
