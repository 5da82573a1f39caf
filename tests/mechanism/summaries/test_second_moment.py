"""The noised second moment: what a record moves, how much noise there is, what is written, what it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.mechanism.summaries import SHRINK, SecondMoment, components, unpacked

RECORD = st.lists(
    st.one_of(st.floats(-10, 10, width=32), st.sampled_from([0.0, 1e-30, 3e38, math.inf, math.nan])),
    min_size=4,
    max_size=4,
)


def packed_moment(x: torch.Tensor) -> torch.Tensor:
    return SecondMoment(x.shape[1]).total(x, torch.zeros(len(x)), torch.full((len(x),), SHRINK, dtype=torch.float64))


@settings(deadline=None, max_examples=150)
@given(st.lists(RECORD, max_size=5), RECORD, RECORD)
def test_a_record_moves_it_by_no_more_than_1_and_an_exchange_by_no_more_than_2(
    others: list[list[float]], one: list[float], other: list[float]
) -> None:
    without, with_one, with_other = (
        packed_moment(torch.tensor([*others, *more]).reshape(-1, 4)) for more in ([], [one], [other])
    )
    assert float((with_one - without).norm()) <= 1
    assert float((with_one - with_other).norm()) <= math.sqrt(2) * (1 + 1e-12)  # less than the 2 it is priced at


def test_the_bound_is_met_and_packing_keeps_the_norm() -> None:
    x = torch.tensor([[3.0, -4.0, 12.0]])
    assert float(packed_moment(x).norm()) == pytest.approx(1.0, rel=1e-5)
    rows = torch.randn(40, 5, generator=torch.Generator().manual_seed(1))
    packed = packed_moment(rows)
    unit = rows.double() / rows.double().norm(dim=1, keepdim=True)
    assert torch.allclose(unpacked(packed, 5), unit.T @ unit, rtol=1e-4)
    assert float(packed.norm()) == pytest.approx(float((unit.T @ unit).norm()), rel=1e-5)


def test_without_noise_they_are_the_principal_components() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, 6)) * [9, 5, 3, 1, 0.5, 0.1]
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    expected = np.linalg.svd(unit, full_matrices=False)[2][:3]
    found = components(unpacked(packed_moment(torch.from_numpy(x)), 6), 3).numpy()
    assert np.abs(np.sum(found * expected, axis=1)) == pytest.approx(np.ones(3), abs=1e-5)
    assert found[np.arange(3), np.abs(found).argmax(1)].min() > 0  # the same signs on every machine
