"""One exchange with the neighbours: P @ A for the stacked values of all nodes.

On a processor a row is added up in the order of its neighbours, four at a time, whichever other rows are mixed with it:
one process of all nodes and several with a part of them get the same numbers to the last bit.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.kernels import threads
from gossamer.kernels.threads import runs_compiled

TILE_BYTES = 1 << 20  # of all nodes' columns that one tile works on: fits into one core's L2 cache,
LEAST_TILE = 4096  # unless that would leave rows too short to stream
PARALLEL_TERMS = 1 << 22


class MixPlan:
    """A mixing matrix made ready: cast once, and read by rows.

    P: (n, n), or (m, n) for the rows hosted here; dense or any scipy sparse format.
    """

    def __init__(self, P: Any) -> None:
        matrix = scipy.sparse.csr_array(P, dtype=np.float64)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        self.shape: tuple[int, int] = matrix.shape
        self.matrix = matrix
        self.starts, self.neighbours = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
        self.weights = {torch.float64: matrix.data, torch.float32: matrix.data.astype(np.float32)}
        self._tensors: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        # At most one row each, as it is: rows only change places.
        self.moves = bool((np.diff(self.starts) <= 1).all() and (matrix.data == 1.0).all())

    def __call__(self, values: Tensor, out: Tensor | None = None) -> Tensor:
        """P @ values for values (n, ...) of float32 or float64; into `out` if given, never in place.

        A P that only moves rows takes whole numbers too.
        """
        if values.dtype not in self.weights and not (self.moves and values.dtype == torch.int64):
            raise ValueError(f"mixing needs float32 or float64, not {values.dtype}")
        if len(values) != self.shape[1]:
            raise ValueError(f"a mixing matrix of shape {self.shape} cannot mix {len(values)} rows")
        shape = (self.shape[0], *values.shape[1:])
        if out is None:
            out = values.new_empty(shape)
        elif not out.is_contiguous() or out.shape != shape or out.dtype != values.dtype:
            raise ValueError("the output of mixing must be contiguous and have the result's shape and dtype")
        elif out.data_ptr() == values.data_ptr() and out.device.type != "meta":
            raise ValueError("mixing cannot work in place: neighbours still need the old values")
        rows = values.detach().reshape(len(values), -1).contiguous()
        into = out.detach().view(self.shape[0], -1)
        if self.moves:
            self._move(rows, into)
        elif runs_compiled(values):
            self._sparse(rows, into)
        else:
            self._product(rows, into)
        return out

    def _move(self, rows: Tensor, into: Tensor) -> None:
        sources = torch.from_numpy(self.neighbours).to(rows.device)
        if len(sources) == len(into):
            torch.index_select(rows, 0, sources, out=into)
            return
        targets = torch.from_numpy(np.flatnonzero(np.diff(self.starts))).to(rows.device)
        into.zero_().index_copy_(0, targets, rows.index_select(0, sources))

    def _product(self, rows: Tensor, into: Tensor) -> None:
        key = (rows.device, rows.dtype)
        if key not in self._tensors:
            self._tensors[key] = torch.from_numpy(self.matrix.toarray()).to(*key)
        torch.mm(self._tensors[key], rows, out=into)

    def _sparse(self, rows: Tensor, into: Tensor) -> None:
        width = rows.shape[1]
        tile = max(LEAST_TILE, TILE_BYTES // (rows.element_size() * max(1, len(rows))))
        source, target, weights = rows.numpy(), into.numpy(), self.weights[rows.dtype]

        def mix_part(part: tuple[slice, slice]) -> None:
            into, columns = part
            own = self.starts[into.start : into.stop + 1]
            _mix(own, self.neighbours, weights, source, target[into], columns.start, columns.stop, tile)

        parts, cores = [(slice(0, len(target)), slice(0, width))], threads.cores()
        shared = len(self.neighbours) * width >= PARALLEL_TERMS and cores > 1
        if shared and width >= cores * LEAST_TILE:
            parts = [(parts[0][0], part) for part in threads.even_slices(width, cores, multiple=64)]
        elif shared:
            parts = [(part, parts[0][1]) for part in threads.even_slices(len(target), cores)]
        threads.run_all(mix_part, parts)


Row = NDArray[Any]


@nb.njit(inline="always")
def _one(out: Row, p: float, a: Row, add: bool) -> None:
    if add:
        for j in range(out.shape[0]):
            out[j] += p * a[j]
    else:
        for j in range(out.shape[0]):
            out[j] = p * a[j]


@nb.njit(inline="always")
def _two(out: Row, weights: Row, a: Row, b: Row, add: bool) -> None:
    p, q = weights[0], weights[1]
    if add:
        for j in range(out.shape[0]):
            out[j] += p * a[j] + q * b[j]
    else:
        for j in range(out.shape[0]):
            out[j] = p * a[j] + q * b[j]


@nb.njit(inline="always")
def _four(out: Row, weights: Row, a: Row, b: Row, c: Row, d: Row, add: bool) -> None:
    p, q, r, s = weights[0], weights[1], weights[2], weights[3]
    if add:
        for j in range(out.shape[0]):
            out[j] += (p * a[j] + q * b[j]) + (r * c[j] + s * d[j])
    else:
        for j in range(out.shape[0]):
            out[j] = (p * a[j] + q * b[j]) + (r * c[j] + s * d[j])


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath={"contract", "nsz"}, error_model="numpy")
def _mix(
    starts: NDArray[np.int64],
    neighbours: NDArray[np.int64],
    weights: NDArray[Any],
    source: NDArray[Any],
    target: NDArray[Any],
    first: int,
    last: int,
    tile: int,
) -> None:
    """target[:, first:last] = P @ source[:, first:last], by tiles of columns, four neighbours at a time."""
    for low in range(first, last, tile):
        high = min(low + tile, last)
        for i in range(target.shape[0]):
            out = target[i, low:high]
            k, end = starts[i], starts[i + 1]
            if k == end:
                out[:] = 0
            while k < end:
                add = k > starts[i]  # the first to come overwrites what was there
                a = source[neighbours[k], low:high]
                if k + 4 <= end:
                    b, c = source[neighbours[k + 1], low:high], source[neighbours[k + 2], low:high]
                    d = source[neighbours[k + 3], low:high]
                    _four(out, weights[k : k + 4], a, b, c, d, add)
                    k += 4
                elif k + 2 <= end:
                    _two(out, weights[k : k + 2], a, source[neighbours[k + 1], low:high], add)
                    k += 2
                else:
                    _one(out, weights[k], a, add)
                    k += 1
