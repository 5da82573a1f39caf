"""Gaussian noise from an AES counter stream: secret, addressable, and rounded as if it were a real number.

A stream is AES-128 of counter blocks that never repeat. One block is two little-endian words:

    low  64 bits:  plane (2)   | depth (22) | block (40)
    high 64 bits:  purpose (8) | node (24)  | step (32)

so every (purpose, node, step) has its own range, and any place in it can be read without what comes before.
Samples 2j and 2j+1 of a range are one Box–Muller pair, √(−2 ln U)·(cos θ, sin θ). U has as many bits as are asked for:
the j-th 32-bit word of the high plane, then the j-th of the low plane at depth 0, 1, …; θ likewise has those of the
angle plane at depth 0, 1, …. The fourth plane holds uniform bits.

`whole_rows` gives Δ·round((g + σ z)/Δ) for the *real* z of infinitely many bits (docs/privacy.md): z is computed in
float32 with a known error; where that leaves two integers possible it is computed again in double precision from 64
bits, and where that still does, by interval arithmetic from as many bits as it takes. So the integers do not depend on
the processor, and no approximation of a logarithm or a cosine is part of the proof.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import numba as nb
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

PURPOSES, NODES, STEPS, BLOCKS = 1 << 8, 1 << 24, 1 << 32, 1 << 40
HIGH_PLANE, LOW_PLANE, ANGLE_PLANE, UNIFORM_PLANE = range(4)
# High words outside of these need more bits than float32 has.
RARE_LOW, RARE_HIGH = 1 << 18, (1 << 32) - (1 << 8)
PER_BLOCK = 8  # samples that one block of the high and of the angle plane give: four pairs
PARALLEL_SAMPLES = 1 << 17  # from here on every core draws a part
CHUNK = 1 << 16  # samples between two calls into AES: many against a call, few against the L2 cache
PART = 1 << 10  # samples that are drawn and rounded in one go, in the first cache
RATIO = 128.0  # σ/Δ of a release: rounding adds 5e-6 of the variance
MOST_RATIO = 2.0**24
# |z − float32(z)| of a pair that is not rare. By rounding errors of u = 2⁻²⁴: the 32 bits of U leave 2⁻³³/(U r) ≤
# 4.4e-7; the logarithm, to 2 of its last digits, 4.4e-7; root, cosine or sine and their product, at r ≤ 4.41, 5 u r =
# 1.3e-6. Together 2.2e-6; tests find 9e-7 at most.
SINGLE_ERROR = 2.0**-18
MOST_DEPTH = 40  # words of U and θ: 2⁻¹²⁰⁰ is left to chance

f32, f64, i32, u32, u64 = np.float32, np.float64, np.int32, np.uint32, np.uint64
Indices = int | Sequence[int] | NDArray[np.int64]
Sums = NDArray[np.float32] | NDArray[np.float64]
Scales = float | Sequence[float] | NDArray[np.float64]
_ALL = (1 << 32) - 1
_FAST = {"contract", "nsz", "arcp"}


class Stream:
    """A keyed noise stream. Equal keys give equal noise, so a system key never leaves its object."""

    def __init__(self, key: bytes, *, is_seeded: bool) -> None:
        self._key = key
        self._process = os.getpid()
        self._thread = threading.local()
        self.is_seeded = is_seeded

    @classmethod
    def system(cls) -> Stream:
        """Keyed by the operating system: secret, never written, bound to this process."""
        return cls(os.urandom(16), is_seeded=False)

    @classmethod
    def seeded(cls, seed: int) -> Stream:
        """Keyed by a public seed. For science: everyone can draw this noise, so it gives no privacy."""
        return cls(hashlib.sha256(f"gossamer seeded noise, version 1: {seed}".encode()).digest()[:16], is_seeded=True)

    def __repr__(self) -> str:
        return "Stream(seeded: no privacy)" if self.is_seeded else "Stream(system)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a noise stream cannot be copied or pickled: its key must not leave the process")

    def normal_rows(
        self,
        purpose: int,
        nodes: Indices,
        steps: Indices,
        out: NDArray[np.float32] | Tensor,
        scales: Scales | Tensor,
    ) -> None:
        """Add N(0, scale²) in float32 to every row of `out` (m, d).

        Row i is node nodes[i] at steps[i] with scales[i]. For noise about which nothing is proven.
        """
        high, scale = self._ranges(purpose, nodes, steps, len(out)), _row_scales(scales, len(out))
        _check_blocks(0, -(-out.shape[1] // PER_BLOCK))
        with _as_array(out) as array:
            if array.dtype != f32:
                raise ValueError(f"noise needs a float32 array (m, d), not {array.dtype}")

            def fill(rows: slice, columns: slice) -> None:
                part, own = array[rows, columns], scale[rows].astype(f32)
                flagged = [np.zeros((2, 0), np.int64)]
                for some, at, samples in self._samples(high[rows], part.shape[1], columns.start):
                    _add_scaled(samples, part[some, at], own[some])
                    row, column = np.divmod(np.flatnonzero(np.isnan(samples)), samples.shape[1])
                    flagged.append(np.stack([row + some.start, column + at.start]))
                row, column = np.concatenate(flagged, axis=1)
                z = self._precise(high[rows][row], column + columns.start)[0]
                part[row, column] += own[row] * z.astype(f32)

            _over_cores(fill, *array.shape)

    def whole_rows(
        self,
        purpose: int,
        nodes: Indices,
        steps: Indices,
        sums: Sums | Tensor,
        units: Scales | Tensor,
        ratio: float = RATIO,
        *,
        ready: NDArray[np.float32] | Tensor | None = None,
        count: bool = False,
    ) -> None:
        """Replace every row g of `sums` (m, d) by Δ·round(g/Δ + ratio·z), rounded as real numbers are.

        z are standard normals, row i those of node nodes[i] at steps[i], and Δ is units[i]: the noise has deviation
        ratio·Δ. `ready` are the z as `standard` gave them; with `count` the integers are written, without Δ.
        """
        high, unit = self._ranges(purpose, nodes, steps, len(sums)), _row_scales(units, len(sums))
        if not (unit > 0).all() or not 0 < ratio < MOST_RATIO:
            raise ValueError(f"whole-number noise needs positive units and a ratio below {MOST_RATIO:g}")
        _check_blocks(0, -(-sums.shape[1] // PER_BLOCK))
        with _as_array(sums) as array:

            def fill(rows: slice, columns: slice) -> None:
                part, own = array[rows, columns], unit[rows]
                figures = _figures(own, np.ones_like(own) if count else own, ratio, array.dtype)
                drawn = None if ready is None else np.asarray(ready)[rows, columns]
                keystream, unsure = self._keystream(_kept.counters), _kept.unsure
                flagged = [np.zeros((2, 0), np.int64)]
                for some, at in _tiles(*part.shape):
                    to = part[some, at], own[some], figures[some], ratio, some.start, at.start, unsure
                    if drawn is None:
                        words = keystream.pairs(high[rows][some], columns.start + at.start, at.stop - at.start)
                        left = _release(words, *to)
                    else:
                        left = _write_whole(drawn[some, at], *to)
                    flagged.append(unsure[:, :left].copy())
                row, column = np.concatenate(flagged, axis=1)
                if len(row):
                    sums, places = part[row, column].astype(f64), column + columns.start
                    whole = self._whole(sums, own[row], ratio, high[rows][row], places)
                    part[row, column] = whole.astype(array.dtype) * figures[row, 2] + 0

            _over_cores(fill, *array.shape)

    def standard(self, purpose: int, nodes: Indices, steps: Indices, width: int) -> NDArray[np.float32]:
        """Return (m, width) standard normals to hand to `whole_rows` later; NaN where it will need more bits."""
        high = self._ranges(purpose, nodes, steps, np.size(nodes))
        out = np.empty((len(high), width), f32)
        for some, at, samples in self._samples(high, width, 0):
            out[some, at] = samples
        return out

    def _samples(
        self, high: NDArray[np.uint64], width: int, offset: int
    ) -> Iterator[tuple[slice, slice, NDArray[np.float32]]]:
        """Yield rows, columns and their standard normals, NaN of rare pairs, chunk by chunk."""
        keystream = self._keystream(_kept.counters)
        for some, at in _tiles(len(high), width):
            words = keystream.pairs(high[some], offset + at.start, at.stop - at.start)
            samples = _kept.samples[: words.size].reshape(len(words), -1)
            _box_muller(words, samples)
            yield some, at, samples[:, : at.stop - at.start]

    def _precise(
        self, high: NDArray[np.uint64], places: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return these samples in double precision from 64 bits of U and 61 of θ, and how far each may be off."""
        z, error = np.empty(len(places)), np.empty(len(places))
        if len(places):
            _refine(*self._words(high, places, 2), places, z, error)
        return z, error

    def _whole(
        self,
        g: NDArray[np.float64],
        units: NDArray[np.float64],
        ratio: float,
        high: NDArray[np.uint64],
        places: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Return round(g/unit + ratio·z): in double precision, by interval arithmetic where that does not tell."""
        z, error = self._precise(high, places)
        value = g / units + ratio * z
        whole = np.rint(value)
        margin = ratio * error + (np.abs(g / units) + ratio * np.abs(z)) * 2.0**-50
        # A sum of 2⁴⁰ steps is 10⁹ deviations of its noise, which hides nothing: then doubles will do.
        undecided = ~(np.abs(value - whole) + margin < 0.5) & (np.abs(value) < 2.0**40)
        for k in np.flatnonzero(undecided):
            whole[k] = self._exact(g[k], units[k], [ratio], high[k : k + 1], places[k])
        return whole

    def mixed_rows(
        self,
        purpose: int,
        nodes: Indices,
        steps: Indices,
        sums: Tensor,
        units: Tensor,
        matrix: NDArray[np.float64],
    ) -> None:
        """Replace every row g of `sums` (m, d) by Δ·round(g/Δ + RATIO·(matrix z)): noise correlated over the rows."""
        high, ratios = self._ranges(purpose, nodes, steps, len(sums)), RATIO * matrix
        columns = max(1, CHUNK // len(sums))
        for first in range(0, sums.shape[1], columns):
            part = sums[:, first : first + columns]
            g = part.double().cpu().numpy() / units.numpy()[:, None]
            places = np.tile(np.arange(first, first + g.shape[1]), len(high))
            z, error = (own.reshape(g.shape) for own in self._precise(np.repeat(high, g.shape[1]), places))
            value = g + ratios @ z
            margin = np.abs(ratios) @ (error + np.abs(z) * 2.0**-48) + np.abs(g) * 2.0**-50
            whole = np.rint(value)
            for i, k in np.argwhere(~(np.abs(value - whole) + margin < 0.5)):
                own = float(part[i, k]), float(units[i])
                whole[i, k] = self._exact(*own, ratios[i].tolist(), high, first + k)
            part.copy_(part.new_tensor(whole * units.numpy()[:, None] + 0))

    def _exact(self, g: float, unit: float, ratios: Sequence[float], high: NDArray[np.uint64], place: int) -> float:
        """Return round(g/unit + Σ ratio·z), by as many words of the ranges as it takes."""
        from mpmath.ctx_iv import MPIntervalContext
        from mpmath.libmp import round_floor, to_int

        iv, low, places = MPIntervalContext(), 0, np.full(len(high), place)
        for depth in range(3, MOST_DEPTH):
            bits = 32 * depth
            iv.prec = 2 * bits
            radius, angle = self._words(high, places, depth)
            swap, negative = _axis(angle[:, 0], places)
            value = iv.mpf(g) / iv.mpf(unit) + iv.mpf(0.5)
            for i, ratio in enumerate(ratios):
                below, turned = 0, int(angle[i, 0]) >> 3
                for word in radius[i].tolist():
                    below = below << 32 | word
                for word in angle[i, 1:].tolist():
                    turned = turned << 32 | word
                uniform = iv.mpf([max(below, 1), below + 1]) / iv.mpf(2) ** bits  # 0 is once in 2⁹⁶ times
                turn = iv.mpf([turned, turned + 1]) / iv.mpf(2) ** (bits - 3) * iv.pi / 4
                z = iv.sqrt(-2 * iv.log(uniform)) * (iv.sin(turn) if swap[i] else iv.cos(turn))
                value += iv.mpf(ratio) * (-z if negative[i] else z)
            low, up = (to_int(end, round_floor) for end in value._mpi_)
            if low == up:
                break
        return float(low)

    def _words(
        self, high: NDArray[np.uint64], places: NDArray[np.int64], depth: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first `depth` words (N, depth) of U, and those of θ, of the pairs of these samples."""
        keystream = self._keystream(np.empty((2 * depth * len(places) + 1, 2), u64))
        _write_word_counters(keystream.counters, high, places, depth)
        words = np.empty((2, len(places), depth), np.int64)
        _pick(keystream(2 * depth * len(places)), places, words)
        return words[0], words[1]

    def uniform_bits(self, purpose: int, node: int, step: int, count: int, *, offset: int = 0) -> NDArray[np.uint64]:
        """`count` uniform 64-bit words of this range, from `offset` on."""
        bits: NDArray[np.uint64] = self.uniform_bits_rows(purpose, [node], step, count, offset=offset)[0]
        return bits

    def uniform_bits_rows(
        self, purpose: int, nodes: Indices, steps: Indices, count: int, *, offset: int = 0
    ) -> NDArray[np.uint64]:
        """`uniform_bits` for many nodes: (m, count)."""
        rows = np.broadcast(np.asarray(nodes), np.asarray(steps)).size
        high = self._ranges(purpose, nodes, steps, rows)
        first, skip = divmod(offset, 2)
        blocks = -(-(skip + count) // 2)
        _check_blocks(offset, first + blocks)
        keystream = self._keystream(np.empty((rows * blocks + 1, 2), u64))
        counters = keystream.counters.reshape(rows, blocks, 2)
        counters[:, :, 0] = np.arange(first, first + blocks, dtype=u64) | u64(UNIFORM_PLANE << 62)
        counters[:, :, 1] = high[:, None]
        words = keystream(rows * blocks).view(u64).reshape(rows, 2 * blocks)
        return words[:, skip : skip + count]

    def _ranges(self, purpose: int, nodes: Indices, steps: Indices, rows: int) -> NDArray[np.uint64]:
        """The high counter word of every row."""
        node = np.broadcast_to(np.asarray(nodes, dtype=np.int64), (rows,))
        step = np.broadcast_to(np.asarray(steps, dtype=np.int64), (rows,))
        for name, value, bound in (
            ("node", node, NODES),
            ("step", step, STEPS),
            ("purpose", np.int64(purpose), PURPOSES),
        ):
            if ((value < 0) | (value >= bound)).any():
                raise ValueError(f"the noise stream's {name} must be in 0 … {bound - 1}, not {value}")
        return (u64(purpose << 56) | (node.astype(u64) << u64(32)) | step.astype(u64)).astype(u64)

    def _keystream(self, buffer: NDArray[np.uint64]) -> _Keystream:
        if not self.is_seeded and os.getpid() != self._process:
            raise RuntimeError("a system noise stream was carried into another process: make a new one there")
        if not hasattr(self._thread, "encrypt"):  # making the cipher takes as long as thousands of samples
            # ECB of distinct counters is counter mode; with our own counters one call serves many rows.
            self._thread.encrypt = Cipher(algorithms.AES(self._key), modes.ECB()).encryptor().update_into
        return _Keystream(self._thread.encrypt, buffer)


class _Keystream:
    """Encrypts the counters in a buffer, in place, to 32-bit words. One per call, so one per thread."""

    def __init__(self, encrypt: Callable[[memoryview, memoryview], int], buffer: NDArray[np.uint64]) -> None:
        self._encrypt = encrypt
        self._buffer = buffer.reshape(-1)  # one block longer than it is filled: update_into wants that
        self.counters = buffer[:-1]

    def __call__(self, blocks: int) -> NDArray[np.uint32]:
        room = self._buffer[: 2 * blocks + 2].view(np.uint8)
        self._encrypt(room[:-16].data, room.data)
        return room[:-16].view(u32)

    def pairs(self, high: NDArray[np.uint64], offset: int, width: int) -> NDArray[np.uint32]:
        """Return the words (m, 2, ·) of U and of θ of the samples from `offset` on, which begins a block."""
        blocks = -(-width // PER_BLOCK)
        _write_counters(self.counters, high, offset // PER_BLOCK, blocks)
        return self(2 * len(high) * blocks).reshape(len(high), 2, 4 * blocks)


class _Buffers(threading.local):
    """What a chunk needs, one of each per thread: fresh memory would cost as much as the noise."""

    def __init__(self) -> None:
        self.counters = np.empty((2 * CHUNK // PER_BLOCK + 1, 2), u64)
        self.samples = np.empty(CHUNK, f32)
        self.unsure = np.empty((2, CHUNK), np.int64)


_kept = _Buffers()


def _row_scales(scales: Scales | Tensor, rows: int) -> NDArray[np.float64]:
    if hasattr(scales, "detach"):
        scales = scales.detach().double().cpu().numpy()
    scale = np.broadcast_to(np.asarray(scales, dtype=f64), (rows,))
    if not (np.isfinite(scale).all() and (scale >= 0).all()):
        raise ValueError("noise scales must be finite and not negative")
    return scale


@contextmanager
def _as_array(rows: NDArray[Any] | Tensor) -> Iterator[NDArray[Any]]:
    """Give the rows of a tensor as an array; of another device or precision a copy, which is written back."""
    if isinstance(rows, np.ndarray):
        yield rows
        return
    import torch

    own = rows.detach()
    if own.device.type == "cpu" and own.dtype in (torch.float32, torch.float64):
        yield own.numpy()
        return
    copy = own.cpu().float()
    yield copy.numpy()
    own.copy_(copy)


def _tiles(rows: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Cut (rows, width) into chunks: some short rows, or a part of a long one."""
    tile = min(CHUNK, -(-width // PER_BLOCK) * PER_BLOCK)
    some = max(1, CHUNK // max(tile, 1))
    for row in range(0, rows, some):
        for first in range(0, width, max(tile, 1)):
            yield slice(row, min(row + some, rows)), slice(first, min(first + tile, width))


def _axis(angle: NDArray[np.int64], places: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether each sample takes the sine, and a minus: the last three bits of its angle's first word."""
    second = places % 2 == 1
    return ((angle & 1) == 1) ^ second, (angle & np.where(second, 4, 2)) != 0


def _over_cores(fill: Callable[[slice, slice], None], rows: int, width: int) -> None:
    """Call fill(rows, columns) on parts of (rows, width), one for each core where that is worth it."""
    from gossamer.kernels import threads

    cores = threads.cores() if rows * width >= PARALLEL_SAMPLES else 1
    if cores == 1:
        fill(slice(0, rows), slice(0, width))
    elif rows >= cores:
        threads.run_all(lambda some: fill(some, slice(0, width)), threads.even_slices(rows, cores))
    else:
        columns = threads.even_slices(width, cores, multiple=PER_BLOCK)
        threads.run_all(lambda some: fill(slice(0, rows), some), columns)


def _check_blocks(offset: int, end: int) -> None:
    if offset < 0 or end > BLOCKS:
        raise ValueError(f"the noise stream's offset {offset} leads out of its range of {BLOCKS} blocks")


@nb.njit(nogil=True, cache=True, boundscheck=False)
def _write_counters(counters: NDArray[np.uint64], high: NDArray[np.uint64], first: int, blocks: int) -> None:
    """Counters of `blocks` blocks from `first` on: each row's high and angle plane, row after row."""
    at = 0
    for row in range(high.shape[0]):
        for plane in (HIGH_PLANE, ANGLE_PLANE):
            own, low, same = counters[at : at + blocks], (u64(plane) << u64(62)) | u64(first), high[row]
            for k in range(blocks):
                own[k, 0] = low + u64(k)
                own[k, 1] = same
            at += blocks


@nb.njit(nogil=True, cache=True, boundscheck=False)
def _write_word_counters(
    counters: NDArray[np.uint64], high: NDArray[np.uint64], places: NDArray[np.int64], depth: int
) -> None:
    """Counters of the blocks of each sample's pair: those of U from the first word on, then those of θ."""
    at = 0
    for i in range(places.shape[0]):
        block = u64(places[i] // PER_BLOCK)
        for k in range(depth):
            plane, deeper = (HIGH_PLANE, 0) if k == 0 else (LOW_PLANE, k - 1)
            counters[at, 0], counters[at, 1] = u64(plane) << u64(62) | u64(deeper) << u64(40) | block, high[i]
            at += 1
        for k in range(depth):
            counters[at, 0] = u64(ANGLE_PLANE) << u64(62) | u64(k) << u64(40) | block
            counters[at, 1] = high[i]
            at += 1


@nb.njit(nogil=True, cache=True, boundscheck=False)
def _pick(blocks: NDArray[np.uint32], places: NDArray[np.int64], words: NDArray[np.int64]) -> None:
    """words[0] ← the words of U and words[1] ← those of θ, of each block the one of its pair."""
    at, depth = 0, words.shape[2]
    for i in range(places.shape[0]):
        for part in range(2):
            for k in range(depth):
                words[part, i, k] = blocks[4 * at + places[i] // 2 % 4]
                at += 1


@nb.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")
def _refine(
    radius: NDArray[np.int64],
    angle: NDArray[np.int64],
    places: NDArray[np.int64],
    z: NDArray[np.float64],
    error: NDArray[np.float64],
) -> None:
    """Samples in double precision from two words of U and of θ, and how far each may be off."""
    unit = 2.0**-32
    for i in range(places.shape[0]):
        u = (radius[i, 0] + (radius[i, 1] + 0.5) * unit) * unit
        v = (_ALL - radius[i, 0] + (_ALL - radius[i, 1] + 0.5) * unit) * unit
        square = -2 * (np.log1p(-v) if u > 0.7 else np.log(u))
        r = np.sqrt(square)
        open_bits = 2.0**-64 / u  # of the square: 2⁻⁶⁵ of U is not known
        sure = open_bits < 0.25 and open_bits < square / 4
        error[i] = 2 * open_bits / r + r * 2.0**-48 if sure else np.inf
        t = ((angle[i, 0] >> 3) + (angle[i, 1] + 0.5) * unit) * (2.0**-29 * np.pi / 4)
        second = places[i] % 2
        axis = np.sin(t) if (angle[i, 0] ^ second) & 1 else np.cos(t)
        z[i] = -r * axis if angle[i, 0] & (4 if second else 2) else r * axis


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=_FAST, error_model="numpy")
def _box_muller(words: NDArray[np.uint32], out: NDArray[np.float32]) -> None:
    """out[i, 2j], out[i, 2j+1] = a pair with U = (high + ½)/2³²; NaN where the pair is rare."""
    for row in range(words.shape[0]):
        _fill_pairs(words[row, 0], words[row, 1], out[row])


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=_FAST, error_model="numpy")
def _fill_pairs(high: NDArray[np.uint32], angle: NDArray[np.uint32], out: NDArray[np.float32]) -> None:
    unit, half = f32(2.0**-32), f32(2.0**-33)
    for j in range(high.shape[0]):
        u, v = f32(high[j]) * unit + half, f32(~high[j]) * unit + half
        out[2 * j], out[2 * j + 1] = _pair(u, v, angle[j])
    for start in range(0, high.shape[0], 64):
        group, rare = high[start : min(start + 64, high.shape[0])], False
        for j in range(group.shape[0]):
            rare |= group[j] < u32(RARE_LOW) or group[j] >= u32(RARE_HIGH)
        for j in range(group.shape[0] if rare else 0):
            if group[j] < u32(RARE_LOW) or group[j] >= u32(RARE_HIGH):
                out[2 * (start + j)] = out[2 * (start + j) + 1] = f32(np.nan)


@nb.njit(nogil=True, cache=True, boundscheck=False)
def _add_scaled(samples: NDArray[np.float32], out: NDArray[np.float32], scales: NDArray[np.float32]) -> None:
    """Add scale·sample to every row, but for samples that are not a number: these come later."""
    for row in range(out.shape[0]):
        target, source, scale = out[row], samples[row], scales[row]
        for k in range(target.shape[0]):
            new = scale * source[k] + target[k]
            target[k] = target[k] if np.isnan(new) else new


@nb.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")
def _write_whole(
    samples: NDArray[np.float32],
    sums: Sums,
    units: NDArray[np.float64],
    figures: Sums,
    ratio: float,
    first_row: int,
    first: int,
    unsure: NDArray[np.int64],
) -> int:
    """sums ← factor·round(sums/Δ + ratio·z) where the error of z leaves one integer.

    Elsewhere the sum stays, and its row and column, counted from those of the first, go into `unsure`; returns how
    many there are.
    """
    count, gaps = 0, np.empty(PART, sums.dtype)
    for row in range(sums.shape[0]):
        for start in range(0, sums.shape[1], PART):
            stop = min(start + PART, sums.shape[1])
            count = _round_part(
                samples[row, start:stop], sums[row, start:stop], units[row], figures[row], ratio, gaps,
                first_row + row, first + start, unsure, count,
            )  # fmt: skip
    return count


@nb.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")
def _release(
    words: NDArray[np.uint32],
    sums: Sums,
    units: NDArray[np.float64],
    figures: Sums,
    ratio: float,
    first_row: int,
    first: int,
    unsure: NDArray[np.int64],
) -> int:
    """`_write_whole` of the samples of these words, which never leave the first cache."""
    count, gaps, samples = 0, np.empty(PART, sums.dtype), np.empty(PART, np.float32)
    for row in range(sums.shape[0]):
        for start in range(0, sums.shape[1], PART):
            stop = min(start + PART, sums.shape[1])
            at, end = start // 2, (stop + 1) // 2
            _fill_pairs(words[row, 0, at:end], words[row, 1, at:end], samples)
            count = _round_part(
                samples[: stop - start], sums[row, start:stop], units[row], figures[row], ratio, gaps,
                first_row + row, first + start, unsure, count,
            )  # fmt: skip
    return count


def _figures(units: NDArray[np.float64], factors: NDArray[np.float64], ratio: float, type: Any) -> Sums:
    """For every row 1/Δ, ratio, factor, and what `_round_part` allows for: a part of the value, and the largest gap.

    1/Δ, ratio, g/Δ, ratio·z and their sum lose a part u each: 3 u of the value and 20 u of the ratio, |z| < 4.5.
    """
    single = type == f32
    u, most = 2.0**-24 if single else 2.0**-53, 0.5 - ratio * SINGLE_ERROR - 2.0**-20
    row = np.ones((len(units), 5)) * [0, ratio, 0, 8 * u, most - 32 * u * ratio]
    row[:, 0], row[:, 2] = 1 / units, factors
    row[single & ((units < 2.0**-100) | (units > 2.0**100)), 4] = -1  # too near to what a float32 can be: all later
    figures: Sums = row.astype(type)
    return figures


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath={"contract"}, error_model="numpy")
def _round_part(
    samples: NDArray[np.float32],
    sums: Sums,
    unit: float,
    figures: Sums,
    ratio: float,
    gaps: Sums,
    row: int,
    first: int,
    unsure: NDArray[np.int64],
    count: int,
) -> int:
    """In the precision of the sums, then in double precision. Every way gives the same function of the integer."""
    inverse, times, factor, part, most = figures[0], figures[1], figures[2], figures[3], figures[4]
    zero = sums.dtype.type(0)  # of −0, whose sign is no part of the integer, it makes 0
    for k in range(sums.shape[0]):
        value = sums[k] * inverse + times * samples[k]
        whole = np.rint(value)
        gaps[k] = abs(value - whole) + abs(value) * part
        sums[k] = whole * factor + zero if gaps[k] < most else sums[k]
    for start in range(0, sums.shape[0], 16):
        group, missing = gaps[start : min(start + 16, sums.shape[0])], False
        for k in range(group.shape[0]):
            missing |= not group[k] < most
        for k in range(group.shape[0] if missing else 0):
            if group[k] < most:
                continue
            precise = f64(sums[start + k]) / unit + ratio * f64(samples[start + k])
            rounded = np.rint(precise)
            if abs(precise - rounded) + abs(precise) * 2.0**-50 < 0.5 - ratio * SINGLE_ERROR - 2.0**-20:
                sums[start + k] = sums.dtype.type(rounded) * factor + zero
            else:
                unsure[0, count], unsure[1, count] = row, first + start + k
                count += 1
    return count


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=_FAST, error_model="numpy")
def _pair(u: np.float32, v: np.float32, angle: np.uint32) -> tuple[np.float32, np.float32]:
    """√(−2 ln u)·(cos θ, sin θ); u and v = 1 − u are each exact to a float32's last digits, however small."""
    # ln u = e·ln 2 + ln(1 + f) with 1 + f in [√½, √2): exponent and mantissa from the bits of the float.
    bits = np.float32(u).view(np.int32)
    e = (bits >> i32(23)) - i32(126)
    f = np.int32((bits & i32(0x007FFFFF)) | i32(0x3F000000)).view(np.float32)
    small = f < f32(0.70710678)
    e = i32(e - i32(1)) if small else i32(e)
    f = (f + f - f32(1)) if small else (f - f32(1))
    f = -v if u > f32(0.70710678) else f
    ef, z = f32(e), f * f
    p = f32(7.0376836292e-2)
    p = p * f - f32(1.1514610310e-1)
    p = p * f + f32(1.1676998740e-1)
    p = p * f - f32(1.2420140846e-1)
    p = p * f + f32(1.4249322787e-1)
    p = p * f - f32(1.6668057665e-1)
    p = p * f + f32(2.0000714765e-1)
    p = p * f - f32(2.4999993993e-1)
    p = p * f + f32(3.3333331174e-1)
    log = f + (p * f * z + ef * f32(-2.12194440e-4) - f32(0.5) * z) + ef * f32(0.693359375)
    r = np.sqrt(f32(-2) * log)
    # 29 bits place t in an eighth of the circle; one bit swaps the axes, two choose the signs.
    t = (f32(i32(angle >> u32(3))) + f32(0.5)) * f32(2.0**-29 * 0.78539816339744831)
    t2 = t * t
    s = f32(-1.9515295891e-4) * t2 + f32(8.3321608736e-3)
    s = t + t * t2 * (s * t2 - f32(1.6666654611e-1))
    c = f32(2.443315711809948e-5) * t2 - f32(1.388731625493765e-3)
    c = f32(1) - f32(0.5) * t2 + t2 * t2 * (c * t2 + f32(4.166664568298827e-2))
    cos = s if angle & u32(1) else c
    sin = c if angle & u32(1) else s
    return r * (-cos if angle & u32(2) else cos), r * (-sin if angle & u32(4) else sin)
