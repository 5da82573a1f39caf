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
from gossamer.kernels.noise import RATIO, SINGLE_ERROR, Stream

STREAM = Stream.seeded(7)


def normal(stream, purpose, node, step, out, scale) -> None:
    stream.normal_rows(purpose, [node], step, out[None], [scale])


def draw(count: int, *, node: int = 0, step: int = 0, purpose: int = 0) -> np.ndarray:
    out = np.zeros(count, np.float32)
    normal(STREAM, purpose, node, step, out, 1.0)
    return out


def test_has_the_stated_scale_and_no_other() -> None:
    out = np.zeros(20_000, np.float32)
    normal(STREAM, 1, 2, 3, out, 2.5)
    assert stats.kstest(out, "norm", args=(0, 2.5)).pvalue > 0.01
    for wrong in (2.5 * 2 / 3, 2.5 * 3 / 2):
        assert stats.kstest(out, "norm", args=(0, wrong)).pvalue < 1e-12


def test_moments() -> None:
    x = draw(2_000_000).astype(np.float64)
    for order, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert abs(np.mean(x**order) - moment) < 4.5 * np.sqrt(variance / len(x)), order


def test_neighbours_pairs_and_ranges_are_uncorrelated() -> None:
    count = 400_000
    x, more = np.split(draw(2 * count).astype(np.float64), 2)
    others = [x[1:], x[2:], draw(count, node=1), draw(count, step=1), draw(count, purpose=1)]
    others += [np.abs(draw(count, node=1)), x[8:], more]
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


def precise(count: int, *, node: int = 0, step: int = 0) -> tuple[np.ndarray, np.ndarray]:
    high = STREAM._ranges(0, [node], step, 1)
    return STREAM._precise(np.repeat(high, count), np.arange(count))


def test_single_precision_is_within_its_stated_error() -> None:
    """Four million samples; the bound is twice what the arithmetic allows and four times what is seen."""
    worst = 0.0
    for step in range(4):
        z = STREAM.standard(0, [0], step, 1_000_000)[0]
        exact, error = precise(len(z), step=step)
        rare = np.isnan(z)
        assert rare.mean() < 2e-4
        assert error[~rare].max() < 1e-13
        worst = max(worst, np.abs(z - exact)[~rare].max())
    assert worst < SINGLE_ERROR / 2


def words_of(monkeypatch: pytest.MonkeyPatch, radius: list[list[int]], angle: list[list[int]]) -> None:
    """Let the stream hand out these words, as many as are asked for."""

    def words(self, high, places, depth):
        full = [np.array([(row + [0] * depth)[:depth] for row in rows], np.int64) for rows in (radius, angle)]
        return full[0][places // 2], full[1][places // 2]

    monkeypatch.setattr(Stream, "_words", words)


def test_the_tail_and_the_centre_have_as_many_digits_as_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """U = 2⁻⁶⁵ and 1 − 2⁻⁶⁵ are the ends of 64 bits: √(2·65·ln 2) = 9.49, and nearly 0, with errors that say so."""
    full = 2**32 - 1
    words_of(monkeypatch, [[0, 0], [0, 9], [full, full], [1 << 20, 5]], [[0, 0]] * 4)
    z, error = STREAM._precise(np.zeros(4, np.uint64), np.arange(0, 8, 2))
    assert z[0] == pytest.approx(9.49, abs=0.01)
    assert np.isinf(error[0])  # half of a digit is half of the number: interval arithmetic decides
    assert z[2] < 1e-9
    assert error[3] < 1e-13


@settings(deadline=None, max_examples=40)
@given(
    g=st.floats(-1e6, 1e6),
    unit=st.floats(1e-6, 1e6),
    ratio=st.sampled_from([4.0, RATIO, 3000.0]),
    place=st.integers(0, 10_000),
)
def test_all_three_precisions_give_the_same_integer(g: float, unit: float, ratio: float, place: int) -> None:
    high, places = STREAM._ranges(0, [1], 2, 1), np.array([place])
    exact = STREAM._exact(g, unit, [ratio], high, place)
    assert STREAM._whole(np.array([g]), np.array([unit]), ratio, high, places)[0] == exact
    row = np.zeros((1, place + 1))
    row[0, -1] = g
    STREAM.whole_rows(0, [1], 2, row, unit, ratio, count=True)
    assert row[0, -1] == exact


def test_what_is_next_to_a_half_is_rounded_as_the_real_number_is() -> None:
    """Sums chosen so that g/Δ + ratio·z is within 1e-15 of a half: doubles cannot tell, the integers must be right."""
    from mpmath import mp

    high = STREAM._ranges(0, [0], 0, 1)
    for place in range(12):
        radius, angle = STREAM._words(high, np.array([place]), 12)
        with mp.workprec(400):
            u = sum(mp.mpf(int(w)) * mp.mpf(2) ** (-32 * (k + 1)) for k, w in enumerate(radius[0]))
            turned = (int(angle[0, 0]) >> 3) * mp.mpf(2) ** -29
            turned += sum(mp.mpf(int(w)) * mp.mpf(2) ** (-29 - 32 * k) for k, w in enumerate(angle[0]) if k)
            swap, negative = noise._axis(angle[:, 0], np.array([place]))
            part = mp.sin if swap[0] else mp.cos
            z = mp.sqrt(-2 * mp.log(u)) * part(turned * mp.pi / 4) * (-1 if negative[0] else 1)
            for nudge in (-1, 1):
                g = float(0.5 - 4 * z) + nudge * 2.0**-52
                expected = int(mp.floor(mp.mpf(g) + 4 * z + mp.mpf(0.5)))
                row = np.zeros((1, place + 1))
                row[0, -1] = g
                STREAM.whole_rows(0, [0], 0, row, 1.0, 4.0, count=True)
                assert row[0, -1] == expected


def test_the_integers_have_the_law_of_the_rounded_gaussian() -> None:
    """χ² over every integer that is expected ten times: accepts σ and rejects 0.97 σ and 1.03 σ."""
    count, ratio, centre = 400_000, 8.0, 0.3
    row = np.full((1, count), centre)
    STREAM.whole_rows(3, [4], 5, row, 1.0, ratio, count=True)
    values = np.arange(-30, 31)
    seen = np.array([np.sum(row <= values[0]), *(np.sum(row == v) for v in values[1:-1]), np.sum(row >= values[-1])])

    def p(scale: float) -> float:
        cdf = stats.norm(centre, ratio * scale).cdf(values[:-1] + 0.5)
        return float(stats.chisquare(seen, count * np.diff(cdf, prepend=0, append=1)).pvalue)

    assert p(1.0) > 1e-3
    assert p(0.97) < 1e-9
    assert p(1.03) < 1e-9


def test_a_float_sum_leaves_as_whole_steps_and_nothing_below() -> None:
    rng = np.random.default_rng(1)
    sums = (rng.normal(size=(3, 20_000)) * 10).astype(np.float32)
    units = np.array([0.01, 0.25, 3.0])
    released = sums.copy()
    STREAM.whole_rows(0, range(3), 0, released, units)
    steps = released / units[:, None]
    assert np.abs(steps - np.rint(steps)).max() < 1e-3
    noise_of = (released - sums) / (units[:, None] * RATIO)
    assert stats.kstest(noise_of.ravel(), "norm").pvalue > 0.001
    again = torch.from_numpy(sums.copy())
    ready = STREAM.standard(0, range(3), 0, 20_000)
    STREAM.whole_rows(0, range(3), 0, again, torch.from_numpy(units), ready=ready)
    assert np.array_equal(again.numpy(), released)
    counted = sums.astype(np.float64)
    STREAM.whole_rows(0, range(3), 0, counted, units, count=True)
    assert np.array_equal(counted.astype(np.float32) * units[:, None].astype(np.float32), released)


@pytest.mark.parametrize("unit", [2.0**-110, 0.3])  # decided in doubles, and in float32
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_zero_leaves_without_the_sign_of_what_was_rounded(kind: type, unit: float) -> None:
    released = np.zeros((2, 20_000), kind)
    STREAM.whole_rows(0, range(2), 0, released, unit)
    zeros = released[released == 0]
    assert len(zeros) > 0
    assert not np.signbit(zeros).any()


@pytest.mark.parametrize("unit", [2.0**-110, 1e-12, 0.3, 1e12, 2.0**101])
@pytest.mark.parametrize("size", [0.0, 1.0, 1e4, 1e7])
def test_one_sum_leaves_as_one_integer_in_every_precision(unit: float, size: float) -> None:
    """Float32 decides what it can, doubles the rest: of sums of 10⁷ steps and more float32 decides nothing."""
    sums = (np.random.default_rng(3).normal(size=(1, 4000)) * size * unit).astype(np.float32)
    released, counted = sums.copy(), sums.astype(np.float64)
    STREAM.whole_rows(0, [4], 1, released, unit)
    STREAM.whole_rows(0, [4], 1, counted, unit, count=True)
    assert np.array_equal(counted, np.rint(counted))
    assert np.array_equal(released, counted.astype(np.float32) * np.float32(unit))


def test_whole_rows_do_not_show_chunks_or_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = np.random.default_rng(2).normal(size=(5, 3001)).astype(np.float32)
    whole = sums.copy()
    STREAM.whole_rows(0, range(5), 1, whole, 0.01)
    monkeypatch.setattr(noise, "CHUNK", 512)
    monkeypatch.setattr(noise, "_kept", noise._Buffers())  # none of that size is left to later tests
    monkeypatch.setattr(noise, "PARALLEL_SAMPLES", 0)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    for rows in (range(5), range(2)):  # by rows, and one row by columns
        again = sums[rows.start : rows.stop].copy()
        STREAM.whole_rows(0, rows, 1, again, 0.01)
        assert np.array_equal(again, whole[rows.start : rows.stop])


@settings(deadline=None, max_examples=25)
@given(rows=st.integers(0, 40), width=st.integers(0, 3000))
def test_rows_equal_single_draws(rows: int, width: int) -> None:
    nodes, steps = np.arange(rows) * 3, np.arange(rows) % 4
    scales = np.arange(rows) * 0.5
    out = np.ones((rows, width), np.float32)
    STREAM.normal_rows(2, nodes, steps, out, scales)
    for i in range(rows):
        one = np.ones(width, np.float32)
        normal(STREAM, 2, int(nodes[i]), int(steps[i]), one, float(scales[i]))
        assert np.array_equal(out[i], one)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = draw(5000)
    monkeypatch.setattr(noise, "CHUNK", 64)
    monkeypatch.setattr(noise, "_kept", noise._Buffers())  # none of that size is left to later tests
    assert np.array_equal(draw(5000), whole)


def test_threads_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = np.zeros((1, 5001), np.float32), np.zeros((7, 900), np.float32)
    STREAM.normal_rows(0, [3], 0, few, 1.0)
    STREAM.normal_rows(0, range(7), 0, many, 1.0)
    monkeypatch.setattr(noise, "PARALLEL_SAMPLES", 0)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    for whole, nodes in ((few, [3]), (many, range(7))):
        again = np.zeros_like(whole)
        STREAM.normal_rows(0, nodes, 0, again, 1.0)
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
    a, b, c = (np.zeros(64, np.float32) for _ in range(3))
    for stream, out in ((Stream.seeded(1), a), (Stream.seeded(1), b), (Stream.seeded(2), c)):
        normal(stream, 0, 0, 0, out, 1.0)
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


@pytest.mark.parametrize("where", [(256, 0, 0), (-1, 0, 0), (0, 1 << 24, 0), (0, -1, 0), (0, 0, 1 << 32), (0, 0, -1)])
def test_addresses_out_of_range_are_refused(where: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be in 0"):
        normal(STREAM, *where, np.empty(4, np.float32), 1.0)
    with pytest.raises(ValueError, match="must be in 0"):
        STREAM.uniform_bits(*where, 4)


def test_bad_requests_are_refused() -> None:
    for offset in (-1, 1 << 43):
        with pytest.raises(ValueError, match="offset"):
            STREAM.uniform_bits(0, 0, 0, 4, offset=offset)
    with pytest.raises(ValueError, match="float32"):
        normal(STREAM, 0, 0, 0, np.empty(4), 1.0)
    for scale in (float("nan"), float("inf"), -1.0):
        with pytest.raises(ValueError, match="scales"):
            normal(STREAM, 0, 0, 0, np.empty(4, np.float32), scale)


def test_tensors_and_zero_scale() -> None:
    tensor = torch.zeros(2, 100)
    STREAM.normal_rows(0, [0, 1], 0, tensor, torch.tensor([1.0, 0.0]))
    assert np.array_equal(tensor[0].numpy(), draw(100))
    assert torch.equal(tensor[1], torch.zeros(100))
    part = torch.zeros(2, 200)[:, ::2]  # a strided target
    STREAM.normal_rows(0, [0, 1], 0, part, [1.0, 1.0])
    assert torch.equal(part[0], tensor[0])
