"""The checksum of messages: every change that lines and drives make shows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.kernels.checksum import checksum


def by_hand(data: np.ndarray) -> int:
    """The same sum in Python's own integers."""
    words = [int(word) for word in data.view(np.uint32)]
    odd, most = 0x9E3779B97F4A7C15, 1 << 64
    total = len(words)
    for start in range(0, len(words), 1 << 16):
        block = words[start : start + (1 << 16)]
        plain, placed = sum(block), sum(word * (k + 1) for k, word in enumerate(block))
        total = ((total * odd + plain) * odd + placed) % most
        total ^= total >> 29
    return total


@settings(deadline=None, max_examples=20)
@given(st.binary(max_size=400).map(lambda data: data[: len(data) // 4 * 4]))
def test_it_is_the_sum_that_is_written_down(data: bytes) -> None:
    array = np.frombuffer(data, np.uint8)
    assert checksum(array) == by_hand(array)


def test_blocks_are_chained() -> None:
    array = np.random.default_rng(0).integers(0, 256, 4 * (1 << 16) + 40, dtype=np.uint8)
    assert checksum(array) == by_hand(array)


@settings(deadline=None, max_examples=30)
@given(st.integers(4, 100), st.data())
def test_flipped_bits_exchanged_words_and_lost_ends_show(words: int, data: st.DataObject) -> None:
    array = np.random.default_rng(words).integers(0, 256, 4 * words, dtype=np.uint8)
    whole = checksum(array)
    flipped = array.copy()
    flipped[data.draw(st.integers(0, 4 * words - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert checksum(flipped) != whole
    assert checksum(array[:-4]) != whole
    assert checksum(np.concatenate([array, np.zeros(4, np.uint8)])) != whole
    exchanged = array.view(np.uint32).copy()
    exchanged[[0, words - 1]] = exchanged[[words - 1, 0]]
    if exchanged[0] != exchanged[-1]:
        assert checksum(exchanged.view(np.uint8)) != whole


def test_a_length_that_is_no_multiple_of_4_is_refused() -> None:
    with pytest.raises(ValueError, match="divisor"):
        checksum(np.zeros(6, np.uint8))
