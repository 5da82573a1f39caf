"""Scaling looks at one record at a time, and rounding never leaves the ball."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gossamer.data.arrays import to_ranges, to_unit_ball, to_unit_sphere, with_bias
from gossamer.errors import UserError

tables = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=st.floats(-1e6, 1e6, width=32)
)


@settings(deadline=None, max_examples=200)
@given(tables)
def test_unit_ball_in_float32_and_in_float64(x):
    ball = to_unit_ball(x)
    biased = with_bias(ball)
    for scaled in (ball, biased):
        assert scaled.dtype == np.float32
        assert (np.linalg.norm(scaled.astype(np.float64), axis=1) <= 1).all()
        assert (np.linalg.norm(scaled, axis=1) <= 1).all()
    norms = np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    assert np.allclose(ball, x / np.maximum(1, norms), rtol=1e-6, atol=1e-7)
    assert np.allclose(biased[:, -1], 2**-0.5)


def test_unit_ball_treats_every_record_by_itself():
    x = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    alone = np.concatenate([to_unit_ball(row[None]) for row in x])
    assert np.array_equal(to_unit_ball(x), alone)


def test_ranges():
    x = np.array([[10, 5], [20, 7]], np.float32)
    assert to_ranges(x, ["a", "b"], {"a": [0, 20]}).tolist() == [[0.5, 5], [1, 7]]
    for bad in ([1, 1], [2, 1], [0], [0, float("inf")], [float("nan"), 1]):
        with pytest.raises(UserError, match=r"data\.ranges\.a = .* must be \[lo, hi\]"):
            to_ranges(x, ["a", "b"], {"a": bad})


def test_every_record_goes_to_the_sphere_and_zeros_stay() -> None:
    x = np.array([[3.0, 4.0], [1e-30, 0.0], [0.0, 0.0], [1e30, 1e30]], np.float32)
    norms = np.linalg.norm(to_unit_sphere(x).astype(np.float64), axis=1)
    np.testing.assert_allclose(norms, [1, 1, 0, 1], atol=1e-6)
    assert (norms <= 1).all()


def test_a_bias_keeps_the_ball_or_stands_outside() -> None:
    x = to_unit_sphere(np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32))
    inside, outside = with_bias(x), with_bias(x, outside=True)
    assert inside.shape == outside.shape == (50, 4)
    assert (np.linalg.norm(inside.astype(np.float64), axis=1) <= 1).all()
    np.testing.assert_allclose(inside[:, :3] * np.sqrt(2), x, rtol=1e-6)
    np.testing.assert_array_equal(outside[:, :3], x)
    assert (outside[:, 3] == 1).all()
