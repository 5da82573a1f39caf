"""Gaussian noise from an AES counter stream: secret, addressable, with a tail that reaches 9.4σ.

A stream is AES-128 of counter blocks that never repeat. One block is two little-endian words:

    low  64 bits:  plane (2)   | zero (22) | block (40)
    high 64 bits:  purpose (8) | node (24) | step (32)

so every (purpose, node, step) has its own range, and any place in it can be read without what comes before.
Samples 2j and 2j+1 of a range are one Box–Muller pair made from the j-th 32-bit word of each of three planes:
the high and the low half of the radius' 64 bits, and the angle. The low half is read where the high one is so
small (beyond 4.7σ, one pair in 65,536) that it has digits left to give: that is the tail, and elsewhere a
float32 would round it away. The fourth plane holds uniform bits.

One file, although long: the stream and the compiled loops below it share the layout of a block.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

import numba as nb
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor
from fractions import Fraction

PURPOSES, NODES, STEPS, BLOCKS = 1 << 8, 1 << 24, 1 << 32, 1 << 40
HIGH_PLANE, LOW_PLANE, ANGLE_PLANE, UNIFORM_PLANE = range(4)
RARE = 1 << 16  # high words below this take their low half too
PER_BLOCK = 8  # samples that one block of each of the three planes gives: four pairs
PARALLEL_SAMPLES = 1 << 17  # from here on every core draws a part
MOST_RARE = 64  # low halves that are drawn at a time; of a chunk there are more once in 10¹⁰⁰
CHUNK = 1 << 16  # samples between two calls into AES: many against a call, few against the L2 cache

f32, i32, u32, u64 = np.float32, np.int32, np.uint32, np.uint64
Indices = int | Sequence[int] | NDArray[np.int64]
_FAST = {"contract", "nsz", "arcp"}


class Stream:
    """A keyed noise stream. Equal keys give equal noise, so a system key never leaves its object."""

    def __init__(self, key: bytes, *, is_seeded: bool) -> None:
        self._key = key
        self._process = os.getpid()
        self.is_seeded = is_seeded

    @classmethod
    def system(cls) -> Stream:
        """Keyed by the operating system: secret, never written, bound to this process."""
        return cls(os.urandom(16), is_seeded=False)

    @classmethod
    def seeded(cls, seed: int) -> Stream:
        """Keyed by a public seed. For science: everyone can draw this noise, so it gives no privacy."""
        return cls(
            hashlib.sha256(f"gossamer seeded noise, version 1: {seed}".encode()).digest()[:16], is_seeded=True
        )

    def __repr__(self) -> str:
        return "Stream(seeded: no privacy)" if self.is_seeded else "Stream(system)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a noise stream cannot be copied or pickled: its key must not leave the process")

    def normal(
        self,
        purpose: int,
        node: int,
        step: int,
        out: NDArray[np.float32] | Tensor,
        scale: float,
        *,
        accumulate: bool = False,
        offset: int = 0,
    ) -> None:
        """Fill `out` (d,) float32 with N(0, scale²), or add it: this range's samples from `offset` on."""
        self.normal_rows(purpose, [node], step, out[None], [scale], accumulate=accumulate, offset=offset)

    def normal_rows(
        self,
        purpose: int,
        nodes: Indices,
        steps: Indices,
        out: NDArray[np.float32] | Tensor,
        scales: float | Sequence[float] | NDArray[np.float64] | Tensor,
        *,
        accumulate: bool = False,
        offset: int = 0,
    ) -> None:
        """`normal` for every row of `out` (m, d): row i is node nodes[i] at steps[i] with scales[i]."""
        if not isinstance(out, np.ndarray):
            self._tensor_rows(purpose, nodes, steps, out, scales, accumulate=accumulate, offset=offset)
            return
        if out.dtype != f32 or out.ndim != 2:
            raise ValueError(f"noise needs a float32 array (m, d), not {out.dtype} of shape {out.shape}")
        high = self._ranges(purpose, nodes, steps, len(out))
        scale = np.broadcast_to(np.asarray(scales, dtype=np.float64), (len(out),)).astype(f32)
        if not (np.isfinite(scale).all() and (scale >= 0).all()):
            raise ValueError("noise scales must be finite and not negative")
        _check_blocks(offset, -(-(offset + out.shape[1]) // PER_BLOCK))

        def fill(rows: slice, columns: slice) -> None:
            part = out[rows, columns]
            self._fill(part, high[rows], scale[rows], offset + columns.start, accumulate)

        everything = slice(0, len(out)), slice(0, out.shape[1])
        if out.size < PARALLEL_SAMPLES:
            fill(*everything)
            return
        from gossamer.kernels import threads

        cores = threads.cores()
        if cores == 1:
            fill(*everything)
        elif len(out) >= cores:
            threads.run_all(lambda rows: fill(rows, everything[1]), threads.even_slices(len(out), cores))
        else:
            columns = threads.even_slices(out.shape[1], cores, multiple=PER_BLOCK)
            threads.run_all(lambda part: fill(everything[0], part), columns)

    def _fill(
        self,
        out: NDArray[np.float32],
        high: NDArray[np.uint64],
        scales: NDArray[np.float32],
        offset: int,
        accumulate: bool,
    ) -> None:
        """Chunk by chunk: counters, AES, Box–Muller. A chunk is some short rows or a part of a long one."""
        end = offset + out.shape[1]
        tile = min(CHUNK, (-(-out.shape[1] // PER_BLOCK) + 1) * PER_BLOCK)  # one for a start inside a block
        rows = max(1, CHUNK // tile)
        keystream, samples, rare = self._keystream(_kept.counters), _kept.samples, _kept.rare
        low_keystream = keystream.with_buffer(_kept.low_counters)
        for i in range(0, len(out), rows):
            some = slice(i, min(i + rows, len(out)))
            for first in range(offset // PER_BLOCK, -(-end // PER_BLOCK), tile // PER_BLOCK):
                at, stop = max(offset, first * PER_BLOCK), min(end, first * PER_BLOCK + tile)
                blocks = -(-stop // PER_BLOCK) - first
                _write_counters(keystream.counters, high[some], first, blocks)
                words = keystream(2 * (some.stop - some.start) * blocks)
                found = rare[: _find_rare(words, 4 * blocks, rare)]
                lows = _low_words(low_keystream, found, high[some], first, 4 * blocks)
                part = out[some, at - offset : stop - offset]
                _add_normal(
                    words, found, lows, samples, part, scales[some], at - first * PER_BLOCK, accumulate
                )

    def _tensor_rows(
        self,
        purpose: int,
        nodes: Indices,
        steps: Indices,
        out: Tensor,
        scales: float | Sequence[float] | NDArray[np.float64] | Tensor,
        *,
        accumulate: bool,
        offset: int,
    ) -> None:
        import torch

        from gossamer.kernels.threads import runs_compiled

        if isinstance(scales, torch.Tensor):
            scales = scales.detach().double().cpu().numpy()
        if runs_compiled(out):
            target = out.detach().numpy()
            self.normal_rows(purpose, nodes, steps, target, scales, accumulate=accumulate, offset=offset)
            return
        # Drawn here and sent there: every device sees the same noise, never in half precision.
        drawn = np.empty(tuple(out.shape), f32)
        self.normal_rows(purpose, nodes, steps, drawn, scales, offset=offset)
        sent = torch.from_numpy(drawn).to(out.device)
        _ = out.add_(sent) if accumulate else out.copy_(sent)

    def uniform_bits(
        self, purpose: int, node: int, step: int, count: int, *, offset: int = 0
    ) -> NDArray[np.uint64]:
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
            ("purpose", np.int64(purpose), PURPOSES),
            ("node", node, NODES),
            ("step", step, STEPS),
        ):
            if np.any(value < 0) or np.any(value >= bound):
                raise ValueError(f"the noise stream's {name} must be in 0 … {bound - 1}, not {value}")
        return (u64(purpose << 56) | (node.astype(u64) << u64(32)) | step.astype(u64)).astype(u64)

    def _keystream(self, buffer: NDArray[np.uint64]) -> _Keystream:
        if not self.is_seeded and os.getpid() != self._process:
            raise RuntimeError("a system noise stream was carried into another process: make a new one there")
        return _Keystream.of(self._key, buffer)


class _Keystream:
    """Encrypts the counters in a buffer, in place, to 32-bit words. One per call, so one per thread."""

    def __init__(self, encrypt: Callable[[memoryview, memoryview], int], buffer: NDArray[np.uint64]) -> None:
        self._encrypt = encrypt
        self._buffer = buffer.reshape(-1)  # one block longer than it is filled: update_into wants that
        self.counters = buffer[:-1]

    @classmethod
    def of(cls, key: bytes, buffer: NDArray[np.uint64]) -> _Keystream:
        # ECB of distinct counters is counter mode; with our own counters one call serves many rows.
        return cls(Cipher(algorithms.AES(key), modes.ECB()).encryptor().update_into, buffer)

    def with_buffer(self, buffer: NDArray[np.uint64]) -> _Keystream:
        """The same with other counters: making the cipher takes as long as thousands of samples."""
        return _Keystream(self._encrypt, buffer)

    def __call__(self, blocks: int) -> NDArray[np.uint32]:
        room = self._buffer[: 2 * blocks + 2].view(np.uint8)
        self._encrypt(room[:-16].data, room.data)
        return room[:-16].view(u32)


class _Buffers(threading.local):
    """What a chunk needs, kept by every thread: fresh memory would cost as much as the noise."""

    def __init__(self) -> None:
        self.counters = np.empty((2 * CHUNK // PER_BLOCK + 1, 2), u64)
        self.samples = np.empty(CHUNK, f32)
        self.rare = np.empty(CHUNK // 2, np.int64)
        self.low_counters = np.empty((MOST_RARE + 1, 2), u64)


_kept = _Buffers()


def _low_words(
    keystream: _Keystream, found: NDArray[np.int64], high: NDArray[np.uint64], first: int, pairs: int
) -> NDArray[np.uint32]:
    """The low halves of a chunk's few rare pairs, numbered row after row."""
    lows = np.empty(len(found), u32)
    for at in range(0, len(found), MOST_RARE):
        some = found[at : at + MOST_RARE]
        _write_low_counters(keystream.counters, some, high, first, pairs)
        _pick(keystream(len(some)), some, pairs, lows[at : at + MOST_RARE])
    return lows


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
def _write_low_counters(
    counters: NDArray[np.uint64], found: NDArray[np.int64], high: NDArray[np.uint64], first: int, pairs: int
) -> None:
    """The counter of each pair's block in the low plane."""
    for k in range(found.shape[0]):
        row, pair = found[k] // pairs, found[k] % pairs
        counters[k, 0] = (u64(LOW_PLANE) << u64(62)) | u64(first + pair // 4)
        counters[k, 1] = high[row]


@nb.njit(nogil=True, cache=True, boundscheck=False)
def _pick(words: NDArray[np.uint32], found: NDArray[np.int64], pairs: int, lows: NDArray[np.uint32]) -> None:
    """Of each block of four words the one of its pair."""
    for k in range(found.shape[0]):
        lows[k] = words[4 * k + found[k] % pairs % 4]


@nb.njit(nogil=True, cache=True, boundscheck=False)
def _find_rare(words: NDArray[np.uint32], pairs: int, found: NDArray[np.int64]) -> int:
    """Write the numbers of the pairs whose high word is below RARE, rows counted through; return how many."""
    count = 0
    for row in range(words.shape[0] // (2 * pairs)):
        own = words[2 * pairs * row : 2 * pairs * row + pairs]
        for start in range(0, pairs, 256):
            group = own[start : start + 256]
            least = u32(0xFFFFFFFF)
            for k in range(group.shape[0]):
                least = min(least, group[k])
            if least < RARE:
                for k in range(group.shape[0]):
                    if group[k] < RARE:
                        found[count] = row * pairs + start + k
                        count += 1
    return count


@nb.njit(nogil=True, cache=True, boundscheck=False)
def _add_normal(
    words: NDArray[np.uint32],
    rare: NDArray[np.int64],
    lows: NDArray[np.uint32],
    samples: NDArray[np.float32],
    out: NDArray[np.float32],
    scales: NDArray[np.float32],
    skip: int,
    accumulate: bool,
) -> None:
    """Turn each row's words into samples and write or add them, scaled, to that row of `out`."""
    pairs = words.shape[0] // (2 * out.shape[0])
    width = out.shape[1]
    at = 0
    for row in range(out.shape[0]):
        high, angle = words[2 * pairs * row :][:pairs], words[2 * pairs * row + pairs :][:pairs]
        box_muller_32(high, angle, samples)
        while at < rare.shape[0] and rare[at] < (row + 1) * pairs:
            j = rare[at] - row * pairs
            box_muller_64(high[j : j + 1], lows[at : at + 1], angle[j : j + 1], samples[2 * j : 2 * j + 2])
            at += 1
        target, scale, source = out[row], scales[row], samples[skip : skip + width]
        if accumulate:
            for k in range(width):
                target[k] += scale * source[k]
        else:
            for k in range(width):
                target[k] = scale * source[k]


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=_FAST, error_model="numpy")
def box_muller_32(high: NDArray[np.uint32], angle: NDArray[np.uint32], out: NDArray[np.float32]) -> None:
    """out[2j], out[2j+1] = a pair with U = (high + ½)/2³²."""
    unit, half = f32(2.0**-32), f32(2.0**-33)
    for j in range(high.shape[0]):
        u, v = f32(high[j]) * unit + half, f32(~high[j]) * unit + half
        out[2 * j], out[2 * j + 1] = _pair(u, v, angle[j])


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath=_FAST, error_model="numpy")
def box_muller_64(
    high: NDArray[np.uint32], low: NDArray[np.uint32], angle: NDArray[np.uint32], out: NDArray[np.float32]
) -> None:
    """out[2j], out[2j+1] = a pair with U = (2³²·high + low + ½)/2⁶⁴."""
    unit, small, half = f32(2.0**-32), f32(2.0**-64), f32(2.0**-65)
    for j in range(high.shape[0]):
        u = f32(high[j]) * unit + (f32(low[j]) * small + half)
        v = f32(~high[j]) * unit + (f32(~low[j]) * small + half)
        out[2 * j], out[2 * j + 1] = _pair(u, v, angle[j])


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


WORDS_AT_ONCE = 128


def discrete_normal(
    stream: Stream, purpose: int, node: int, step: int, *, count: int, variance: Fraction | int
) -> NDArray[np.int64]:
    """`count` integers of the discrete Gaussian of parameter σ² = variance, from one range of the stream."""
    square = Fraction(variance)
    if square <= 0:
        raise ValueError(f"the variance of discrete noise must be positive, not {variance}")
    coins = _Coins(stream, purpose, node, step)
    return np.array([_gaussian(coins, square) for _ in range(count)], np.int64)


class _Coins:
    """Exact random choices from one range's uniform bits, read in order."""

    def __init__(self, stream: Stream, purpose: int, node: int, step: int) -> None:
        self.stream, self.range = stream, (purpose, node, step)
        self.read, self.bits, self.left = 0, 0, 0

    def below(self, bound: int) -> int:
        """Uniform on 0 … bound − 1: as many bits as the bound has, again if they are too many."""
        width = (bound - 1).bit_length()
        while True:
            while self.left < width:
                words = self.stream.uniform_bits(*self.range, WORDS_AT_ONCE, offset=self.read)
                self.read += WORDS_AT_ONCE
                self.bits |= int.from_bytes(words.tobytes(), "little") << self.left
                self.left += 64 * WORDS_AT_ONCE
            drawn = self.bits & ((1 << width) - 1)
            self.bits >>= width
            self.left -= width
            if drawn < bound:
                return drawn

    def exponential(self, numerator: int, denominator: int) -> bool:
        """True with probability exp(−numerator/denominator)."""
        whole, rest = divmod(numerator, denominator)
        return all(self._small(1, 1) for _ in range(whole)) and self._small(rest, denominator)

    def _small(self, numerator: int, denominator: int) -> bool:
        """exp(−γ) for γ ≤ 1: the first k with a failure of probability 1 − γ/k is odd."""
        k = 1
        while self.below(denominator * k) < numerator:
            k += 1
        return k % 2 == 1


def _laplace(coins: _Coins, scale: int) -> int:
    """P[X = x] ∝ exp(−|x|/scale)."""
    while True:
        low = coins.below(scale)
        if not coins.exponential(low, scale):
            continue
        high = 0
        while coins.exponential(1, 1):
            high += 1
        size, negative = low + scale * high, coins.below(2) == 1
        if size or not negative:  # zero has one sign only
            return -size if negative else size


def _gaussian(coins: _Coins, square: Fraction) -> int:
    scale = int(square**0.5) + 1  # any integer is right; near σ few are rejected
    while True:
        x = _laplace(coins, scale)
        excess = (abs(x) - square / scale) ** 2 / (2 * square)
        if coins.exponential(excess.numerator, excess.denominator):
            return x
