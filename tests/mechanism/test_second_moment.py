"""The noised second moment: what a record moves, how much noise there is, what is written, what it says."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.support.mechanism import Book

from gossamer.accounting.releases import Gaussian, Unnoised
from gossamer.kernels.noise import Stream
from gossamer.mechanism.reader import Records
from gossamer.mechanism.second_moment import (
    BEFORE,
    components,
    packed_moment,
    private_moments,
    unpacked,
)

RECORD = st.lists(
    st.one_of(st.floats(-10, 10, width=32), st.sampled_from([0.0, 1e-30, 3e38, math.inf, math.nan])),
    min_size=4,
    max_size=4,
)


@settings(deadline=None, max_examples=150)
@given(st.lists(RECORD, max_size=5), RECORD, RECORD)
def test_a_record_moves_it_by_no_more_than_1_and_an_exchange_by_no_more_than_2(
    others: list[list[float]], one: list[float], other: list[float]
) -> None:
    without, with_one, with_other = (
        packed_moment(torch.tensor([*others, *more]).reshape(-1, 4)) for more in ([], [one], [other])
    )
    assert float((with_one - without).norm()) <= 1
    assert float((with_one - with_other).norm()) <= math.sqrt(2) * (
        1 + 1e-12
    )  # less than the 2 it is priced at


def test_the_bound_is_met_and_packing_keeps_the_norm() -> None:
    x = torch.tensor([[3.0, -4.0, 12.0]])
    assert float(packed_moment(x).norm()) == pytest.approx(1.0, rel=1e-9)
    rows = torch.randn(40, 5, generator=torch.Generator().manual_seed(1))
    packed = packed_moment(rows)
    unit = rows.double() / rows.double().norm(dim=1, keepdim=True)
    assert torch.allclose(unpacked(packed, 5), unit.T @ unit, rtol=1e-9)
    assert float(packed.norm()) == pytest.approx(float((unit.T @ unit).norm()), rel=1e-9)


def noise_in(multiplier: float, width: int = 120) -> tuple[np.ndarray, Book]:
    book = Book()
    records = Records(torch.zeros(3, width), torch.zeros(3), [1, 2])
    moments = private_moments(
        records, [4, 7], multiplier=multiplier, adjacency="add-remove", stream=Stream.seeded(3), book=book
    )
    return moments.double().numpy(), book


@pytest.mark.parametrize(("wrong", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_the_noise_is_what_the_ledger_says(wrong: float, accepted: bool) -> None:
    """On the packed vector, where the sensitivity is; of the matrix entries off the diagonal have σ/√2."""
    found, book = noise_in(5.0)
    written = book.events[0][1].release
    assert isinstance(written, Gaussian)
    for row in found:
        z = row / (written.sigma * wrong)
        pvalue = stats.chi2.cdf((z**2).sum(), z.size)
        assert (1e-6 < pvalue < 1 - 1e-6) == accepted
    assert abs(np.corrcoef(found)[0, 1]) < 0.05  # nodes have their own
    matrix = unpacked(torch.from_numpy(found[0]), 120).numpy()
    assert np.array_equal(matrix, matrix.T)
    assert matrix[np.triu_indices(120, 1)].std() == pytest.approx(5 / math.sqrt(2), rel=0.05)
    assert matrix.diagonal().std() == pytest.approx(5, rel=0.3)


def test_every_node_writes_one_event_of_all_its_records() -> None:
    _, book = noise_in(5.0)
    assert [node for node, _ in book.events] == [4, 7]
    assert {event.step for _, event in book.events} == {BEFORE}
    release = book.events[0][1].release
    assert (release.sensitivity, release.sampling, release.rate) == (1.0, "full", 1.0)
    _, silent = noise_in(0.0)
    assert isinstance(silent.events[0][1].release, Unnoised)  # no proof, and it says so


def test_the_event_is_on_file_before_the_records_are_read() -> None:
    class Stopped(Book):
        def write(self, releases: object) -> None:
            raise OSError("no space left")

    class Unread(Records):
        def of(self, i: int) -> torch.Tensor:
            raise AssertionError("read")

    records = Unread(torch.ones(1, 2), torch.zeros(1), [1])
    with pytest.raises(OSError, match="no space"):
        private_moments(
            records, [0], multiplier=1.0, adjacency="add-remove", stream=Stream.seeded(0), book=Stopped()
        )


def test_without_noise_they_are_the_principal_components() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, 6)) * [9, 5, 3, 1, 0.5, 0.1]
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    expected = np.linalg.svd(unit, full_matrices=False)[2][:3]
    found = components(unpacked(packed_moment(torch.from_numpy(x)), 6), 3).numpy()
    assert np.abs(np.sum(found * expected, axis=1)) == pytest.approx(np.ones(3), abs=1e-5)
    assert found[np.arange(3), np.abs(found).argmax(1)].min() > 0  # the same signs on every machine
