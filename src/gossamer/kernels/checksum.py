"""A checksum at the speed of memory, for messages: finds what lines and drives do wrong, not what an enemy does."""

from __future__ import annotations

import numba as nb
import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 16  # words whose places, times their values, still add up within 64 bits
_ODD = np.uint64(0x9E3779B97F4A7C15)


def checksum(data: NDArray[np.uint8]) -> int:
    """64 bits over the bytes and their places; the length must be a multiple of 4."""
    return int(_checksum(data.view(np.uint32)))


@nb.njit(nogil=True, cache=True, boundscheck=False)
def _checksum(words: NDArray[np.uint32]) -> np.uint64:
    total = np.uint64(words.shape[0])
    for start in range(0, words.shape[0], _BLOCK):
        block = words[start : start + _BLOCK]
        plain, placed = np.uint64(0), np.uint64(0)
        for k in range(block.shape[0]):
            word = np.uint64(block[k])
            plain += word
            placed += word * np.uint64(k + 1)
        total = (total * _ODD + plain) * _ODD + placed
        total ^= total >> np.uint64(29)
    return total
