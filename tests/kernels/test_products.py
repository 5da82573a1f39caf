"""Compiled products against numpy's in double precision, for all remainders of their blocks."""

import numpy as np
import pytest

from gossamer.kernels import products
from gossamer.kernels.products import combined_rows, rows_with_rows

SIZES = [(1, 1, 1), (3, 5, 2), (4, 4, 7), (5, 9, 4), (9, 2, 33), (17, 11, 70), (2, 8, 0)]


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("rows", "others", "length"), SIZES)
@pytest.mark.parametrize("cached", [1, 1 << 16])
def test_rows_with_rows(rows: int, others: int, length: int, cached: int) -> None:
    a, b, out = numbers(rows, length), numbers(others, length), numbers(rows, others)
    plain = rows_with_rows.py_func if cached == 1 else rows_with_rows
    before, products.CACHED_FLOATS = products.CACHED_FLOATS, cached  # of the compiled one it is a constant
    try:
        plain(a, b, out)
    finally:
        products.CACHED_FLOATS = before
    np.testing.assert_allclose(out, a.astype(float) @ b.T.astype(float), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("places", "sources", "length"), [*SIZES, (3, 0, 5), (6, 19, 5)])
def test_combined_rows(places: int, sources: int, length: int) -> None:
    shares, rows, out = numbers(sources, places), numbers(sources, length), numbers(places, length)
    wanted = shares.T.astype(float) @ rows.astype(float)
    combined_rows(shares, rows, out)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_a_number_stays_in_its_row(bad: float) -> None:
    a, b, out = numbers(6, 40), numbers(5, 40), numbers(6, 5)
    a[2, 7] = bad
    rows_with_rows(a, b, out)
    assert not np.isfinite(out[2]).any()
    assert np.isfinite(np.delete(out, 2, 0)).all()
