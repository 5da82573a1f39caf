"""Upper bounds on norms: never below the exact one, and close to it."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.kernels.rounding import BLOCK, norm_of_squares, norms_of, root, square_norm, square_norms


def exact(row: torch.Tensor) -> Fraction:
    return sum((Fraction(value) ** 2 for value in row.tolist()), Fraction(0))


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.lists(st.floats(-(2.0**60), 2.0**60, width=32), min_size=3, max_size=3), min_size=1, max_size=4)
)
def test_never_below_the_exact_square(rows: list[list[float]]) -> None:
    values = torch.tensor(rows, dtype=torch.float32)
    for found, row in zip(square_norms(values).tolist(), values, strict=True):
        assert Fraction(found) >= exact(row)
        assert Fraction(square_norm(row.numpy())) >= exact(row)
        assert Fraction(float(norm_of_squares(square_norm(row.numpy()), 1))) ** 2 >= exact(row)


@pytest.mark.parametrize("length", [1, 7, 1023, 1024, 1025, 5000])
def test_close_to_the_exact_one(length: int) -> None:
    values = torch.randn(5, length, generator=torch.Generator().manual_seed(length))
    double = values.double().norm(dim=1)
    found = norms_of(values).double()
    assert (found >= double).all()
    assert (found <= double * (1 + 1.3e-4)).all()
    assert (root(square_norms(values), 3) >= norms_of(values) * (1 - 1e-6)).all()
    compiled = torch.tensor([norm_of_squares(square_norm(row.numpy()), 1) for row in values]).double()
    assert ((compiled >= double) & (compiled <= double * (1 + 1.3e-4))).all()


def test_four_million_numbers_are_not_read_too_small() -> None:
    """One number after another, as a library may add them, float32 loses what is below half a unit of the sum."""
    values = torch.full((1, 1 << 22), 0.1)
    wanted = values.double().norm()
    assert float(torch.linalg.vector_norm(values.view(-1, 1), dim=0)) < 0.999 * wanted  # what this is about
    for found in (float(norms_of(values)), float(norm_of_squares(square_norm(values[0].numpy()), 1))):
        assert wanted <= found <= wanted * (1 + 1e-4)


@pytest.mark.parametrize("size", [1e-23, 1e-30, 1e-44, 0.0])
def test_what_underflows_still_counts(size: float) -> None:
    """A weight of 1 / (norm + γ) must not make more than 1 of it."""
    values = torch.full((1, 10), size)
    assert float(norms_of(values)) >= float(values.double().norm())
    assert float(norms_of(values)) < 1e-15
    assert float(values.double().norm()) <= norm_of_squares(square_norm(values[0].numpy()), 1) < 1e-15


def test_what_overflows_is_infinite() -> None:
    assert norms_of(torch.full((1, 4), 1e30)).isinf().all()
    assert norms_of(torch.tensor([[1.0, torch.nan]])).isnan().all()
    assert norm_of_squares(square_norm(torch.full((4,), 1e30).numpy()), 1) == float("inf")
    assert torch.tensor(square_norm(torch.tensor([1.0, torch.nan]).numpy())).isnan()


def test_double_precision_stays_so() -> None:
    values = torch.randn(3, 2000, dtype=torch.float64)
    torch.testing.assert_close(norms_of(values), values.norm(dim=1), rtol=1e-12, atol=0)
    assert BLOCK == 1024
