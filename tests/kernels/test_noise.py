import copy
import os
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gossamer.kernels import noise, threads
from gossamer.kernels.noise import Stream, box_muller_32, box_muller_64

STREAM = Stream.seeded(7)


def draw(count: int, *, node: int = 0, step: int = 0, purpose: int = 0, offset: int = 0) -> np.ndarray:
    out = np.empty(count, np.float32)
    STREAM.normal(purpose, node, step, out, 1.0, offset=offset)
    return out


def test_has_the_stated_scale_and_no_other() -> None:
    out = np.empty(20_000, np.float32)
    STREAM.normal(1, 2, 3, out, 2.5)
    assert stats.kstest(out, "norm", args=(0, 2.5)).pvalue > 0.01
    for wrong in (2.5 * 2 / 3, 2.5 * 3 / 2):
        assert stats.kstest(out, "norm", args=(0, wrong)).pvalue < 1e-12


def test_moments() -> None:
    x = draw(2_000_000).astype(np.float64)
    for order, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert abs(np.mean(x**order) - moment) < 4.5 * np.sqrt(variance / len(x)), order


def test_neighbours_pairs_and_ranges_are_uncorrelated() -> None:
    count = 400_000
    x = draw(count).astype(np.float64)
    others = [x[1:], x[2:], draw(count, node=1), draw(count, step=1), draw(count, purpose=1)]
    others += [np.abs(draw(count, node=1)), x[8:], draw(count, offset=count)]
    for other in others:
        n = len(other)
        for a, b in ((x[:n], other), (x[:n] ** 2, np.asarray(other, np.float64) ** 2)):
            assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / np.sqrt(n)


def test_the_two_halves_of_a_pair_are_independent() -> None:
    x = draw(200_000).reshape(-1, 2)
    cells = np.searchsorted(stats.norm.ppf([0.25, 0.5, 0.75]), x)
    table = np.bincount(4 * cells[:, 0] + cells[:, 1], minlength=16).reshape(4, 4)
    assert stats.chi2_contingency(table).pvalue > 0.001
    assert stats.kstest(np.arctan2(x[:, 1], x[:, 0]) / (2 * np.pi) + 0.5, "uniform").pvalue > 0.001


@pytest.mark.slow
def test_tail_counts() -> None:
    total, size = 0, 1 << 22
    counts = dict.fromkeys((3.0, 4.0, 4.5, 5.0, 5.5, 6.0), 0)
    for step in range(24):
        x = np.abs(draw(size, step=step))
        total += size
        for bound in counts:
            counts[bound] += int((x > bound).sum())
    for bound, count in counts.items():
        expected = total * 2 * stats.norm.sf(bound)
        low, high = stats.poisson.interval(1 - 1e-4, expected)
        assert low <= count <= high, (bound, count, expected)


def test_the_radius_uses_all_64_bits() -> None:
    """U = 2^-65 is the extreme: sqrt(2·65·ln 2) = 9.49; the other extreme stays finite and tiny."""
    ends = np.array([0, 0, 0, 2**32 - 1, 2**32 - 1], np.uint32)
    low = np.array([0, 1, 2**32 - 1, 0, 2**32 - 1], np.uint32)
    out = np.empty(10, np.float32)
    box_muller_64(ends, low, np.zeros(5, np.uint32), out)
    radius = np.hypot(out[::2].astype(float), out[1::2])
    assert np.isfinite(out).all()
    u = (ends.astype(object) * 2**32 + low.astype(object)) * 2 + 1
    exact = [np.sqrt(-2 * (np.log(float(k)) - 65 * np.log(2))) for k in u[:3]]
    assert radius[:3] == pytest.approx(exact, rel=1e-6)
    assert radius[0] > 9.4
    assert (radius[3:] > 0).all()
    assert (radius[3:] < 1e-4).all()


def test_the_transformation_against_double_precision() -> None:
    rng = np.random.default_rng(3)
    count = 100_000
    high, low, angle = rng.integers(0, 2**32, (3, count), dtype=np.uint32)
    high >>= rng.integers(0, 32, count, dtype=np.uint32)  # every binade of U, not only the likely ones
    high[::2] = ~high[::2]
    out = np.empty(2 * count, np.float32)
    box_muller_64(high, low, angle, out)
    u = (high.astype(np.float64) * 2**32 + low + 0.5) / 2.0**64
    v = ((~high).astype(np.float64) * 2**32 + (~low) + 0.5) / 2.0**64
    radius = np.sqrt(-2 * np.where(u < 0.5, np.log(u), np.log1p(-v)))
    measured = np.hypot(out[::2].astype(np.float64), out[1::2])
    assert np.all(np.abs(measured - radius) <= 4e-7 * radius)
    t = ((angle >> 3) + 0.5) * 2.0**-29 * np.pi / 4
    swap = (angle & 1).astype(bool)
    cos = np.where(swap, np.sin(t), np.cos(t)) * np.where(angle & 2, -1, 1)
    sin = np.where(swap, np.cos(t), np.sin(t)) * np.where(angle & 4, -1, 1)
    assert np.abs(out[::2] / measured - cos).max() < 5e-7
    assert np.abs(out[1::2] / measured - sin).max() < 5e-7


def test_low_halves_matter_only_where_they_are_read() -> None:
    """From RARE on, 32 bits of radius give the same sample to a few units in the last place."""
    rng = np.random.default_rng(4)
    high = rng.integers(noise.RARE, 2**32, 100_000, dtype=np.uint32) >> rng.integers(
        0, 16, 100_000, dtype=np.uint32
    )
    high = np.maximum(high, noise.RARE).astype(np.uint32)
    low, angle = rng.integers(0, 2**32, (2, len(high)), dtype=np.uint32)
    short, full = np.empty((2, 2 * len(high)), np.float32)
    box_muller_32(high, angle, short)
    box_muller_64(high, low, angle, full)
    radius = np.hypot(full[::2].astype(float), full[1::2])
    moved = np.hypot(short[::2].astype(float), short[1::2]) - radius
    assert np.all(np.abs(moved) < 4e-7 * np.maximum(radius, 1e-3) + np.where(radius < 4, 1e-8 / radius, 2e-6))


def test_rare_pairs_take_their_low_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every pair made rare, the stream is the 64-bit transformation of the three documented planes."""
    count = 1001

    def find_all(words: np.ndarray, pairs: int, found: np.ndarray) -> int:
        found[: len(words) // 2] = range(len(words) // 2)
        return len(words) // 2

    monkeypatch.setattr(noise, "_find_rare", find_all)
    drawn = draw(count, node=2)
    block = np.arange(-(-count // 8), dtype=np.uint64)
    planes = []
    for plane in range(3):
        keystream = STREAM._keystream(np.empty((len(block) + 1, 2), np.uint64))
        keystream.counters[:, 0] = block | np.uint64(plane << 62)
        keystream.counters[:, 1] = 2 << 32
        planes.append(keystream(len(block)).copy())
    wanted = np.empty(8 * len(block), np.float32)
    box_muller_64(planes[0], planes[1], planes[2], wanted)
    assert np.array_equal(drawn, wanted[:count])


@settings(deadline=None, max_examples=60)
@given(offset=st.integers(0, 70_000), count=st.integers(0, 500))
def test_any_offset_equals_a_slice_of_the_whole(offset: int, count: int) -> None:
    whole = draw(70_500, node=5)
    assert np.array_equal(draw(count, node=5, offset=offset), whole[offset : offset + count])


@settings(deadline=None, max_examples=25)
@given(rows=st.integers(0, 40), width=st.integers(0, 3000), offset=st.integers(0, 40), add=st.booleans())
def test_rows_equal_single_draws(rows: int, width: int, offset: int, add: bool) -> None:
    nodes, steps = np.arange(rows) * 3, np.arange(rows) % 4
    scales = np.arange(rows) * 0.5
    out = np.ones((rows, width), np.float32)
    STREAM.normal_rows(2, nodes, steps, out, scales, accumulate=add, offset=offset)
    for i in range(rows):
        one = np.ones(width, np.float32)
        STREAM.normal(2, int(nodes[i]), int(steps[i]), one, float(scales[i]), accumulate=add, offset=offset)
        assert np.array_equal(out[i], one)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw(5000)
    monkeypatch.setattr(noise, "CHUNK", 64)
    assert np.array_equal(draw(5000), whole)
    assert np.array_equal(draw(4001, offset=999), whole[999:])


def test_threads_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = np.zeros((1, 5001), np.float32), np.zeros((7, 900), np.float32)
    STREAM.normal_rows(0, [3], 0, few, 1.0, offset=5)
    STREAM.normal_rows(0, range(7), 0, many, 1.0, offset=5)
    monkeypatch.setattr(noise, "PARALLEL_SAMPLES", 0)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    for whole, nodes in ((few, [3]), (many, range(7))):
        again = np.ones_like(whole)
        STREAM.normal_rows(0, nodes, 0, again, 1.0, offset=5)
        assert np.array_equal(again, whole)


def test_the_keystream_is_aes_of_the_documented_counter() -> None:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    block = (3 << 62 | 5).to_bytes(8, "little") + (9 << 56 | 11 << 32 | 13).to_bytes(8, "little")
    words = Cipher(algorithms.AES(STREAM._key), modes.ECB()).encryptor().update(block)
    assert STREAM.uniform_bits(9, 11, 13, 2, offset=10).tobytes() == words


def test_uniform_bits() -> None:
    bits = STREAM.uniform_bits(0, 1, 2, 100_001)
    assert bits.dtype == np.uint64
    assert bits.shape == (100_001,)
    assert stats.kstest(bits / 2.0**64, "uniform").pvalue > 0.01
    ones = [(bits >> np.uint64(k) & np.uint64(1)).mean() for k in range(64)]
    assert np.abs(np.array(ones) - 0.5).max() < 0.008
    assert np.array_equal(STREAM.uniform_bits(0, 1, 2, 10, offset=33), bits[33:43])
    rows = STREAM.uniform_bits_rows(0, [4, 1], [0, 2], 50)
    assert np.array_equal(rows[1], bits[:50])
    assert len(STREAM.uniform_bits(0, 1, 2, 0)) == 0


def test_the_same_seed_gives_the_same_noise_and_another_does_not() -> None:
    a, b, c = (np.empty(64, np.float32) for _ in range(3))
    for stream, out in ((Stream.seeded(1), a), (Stream.seeded(1), b), (Stream.seeded(2), c)):
        stream.normal(0, 0, 0, out, 1.0)
    assert np.array_equal(a, b)
    assert not np.any(a == c)


def test_a_published_value_pins_the_seeded_stream() -> None:
    """Seeded runs must give the same numbers in every release: change it only with the version string."""
    assert STREAM.uniform_bits(0, 0, 0, 1)[0] == 5016356176098116807


def test_system_keys_are_secret_and_fresh() -> None:
    a, b = Stream.system(), Stream.system()
    assert not np.array_equal(a.uniform_bits(0, 0, 0, 4), b.uniform_bits(0, 0, 0, 4))
    assert a._key.hex() not in repr(a)
    assert repr(a) == "Stream(system)"
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="key"):
            leak(a)


def test_a_system_stream_does_not_survive_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream.system()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="another process"):
        stream.uniform_bits(0, 0, 0, 1)


@pytest.mark.parametrize(
    "where", [(256, 0, 0), (-1, 0, 0), (0, 1 << 24, 0), (0, -1, 0), (0, 0, 1 << 32), (0, 0, -1)]
)
def test_addresses_out_of_range_are_refused(where: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be in 0"):
        STREAM.normal(*where, np.empty(4, np.float32), 1.0)
    with pytest.raises(ValueError, match="must be in 0"):
        STREAM.uniform_bits(*where, 4)


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="offset"):
        draw(4, offset=-1)
    with pytest.raises(ValueError, match="offset"):
        draw(4, offset=1 << 43)
    with pytest.raises(ValueError, match="float32"):
        STREAM.normal(0, 0, 0, np.empty(4), 1.0)
    for scale in (float("nan"), float("inf"), -1.0):
        with pytest.raises(ValueError, match="scales"):
            STREAM.normal(0, 0, 0, np.empty(4, np.float32), scale)


def test_tensors_and_zero_scale() -> None:
    tensor = torch.empty(2, 100)
    STREAM.normal_rows(0, [0, 1], 0, tensor, torch.tensor([1.0, 0.0]))
    assert np.array_equal(tensor[0].numpy(), draw(100))
    assert torch.equal(tensor[1], torch.zeros(100))
    part = torch.zeros(2, 200)[:, ::2]  # a strided target
    STREAM.normal_rows(0, [0, 1], 0, part, [1.0, 1.0])
    assert torch.equal(part[0], tensor[0])
    meta = torch.empty(3, 10, device="meta")
    STREAM.normal_rows(0, range(3), 0, meta, 1.0, accumulate=True)
    assert meta.device.type == "meta"
