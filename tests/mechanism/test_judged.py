"""One noised sum of bounded rows: its sensitivity, its noise, and that the ledger comes first."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.support.mechanism import Book
from torch import Tensor

from gossamer.accounting.releases import Event, Gaussian
from gossamer.kernels.noise import Stream
from gossamer.mechanism.reader import Records
from gossamer.mechanism.summaries import judged_sum, private_judgement, release_of, unit_weights

ODD = st.floats() | st.sampled_from([1e-308, 1e308, float("nan"), float("inf"), 1.0, -1.0])
ROWS = st.lists(st.lists(ODD, min_size=3, max_size=3), min_size=1, max_size=6)


def of_records(rows: Tensor) -> Tensor:
    return of_persons(rows, None)


def of_persons(rows: Tensor, persons: list[int] | None) -> Tensor:
    counts = None if persons is None else [np.array(persons)]
    found = Records(torch.zeros(len(rows), 1), torch.zeros(len(rows)), [len(rows)], persons=counts)
    return judged_sum(rows, unit_weights(found, 0))


@given(ROWS)
@settings(max_examples=100, deadline=None)
def test_a_record_moves_the_sum_by_at_most_one_whatever_its_row_is(rows: list[list[float]]) -> None:
    values = torch.tensor(rows, dtype=torch.float64)
    moved = of_records(values) - of_records(values[1:])
    assert float(moved.norm()) <= 1


@pytest.mark.parametrize("records", [1, 2, 40, 1000])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e30])
def test_a_person_moves_the_sum_by_at_most_one_however_many_records_it_has(records: int, size: float) -> None:
    chance = torch.Generator().manual_seed(records)
    own = torch.randn(records, 4, generator=chance, dtype=torch.float64).abs() * size
    others = torch.randn(30, 4, generator=chance, dtype=torch.float64)
    with_them = of_persons(torch.cat([others, own]), [10, 20, records])
    assert float((with_them - of_persons(others, [10, 20])).norm()) <= 1
    alone = of_persons(own, [records])
    expected = (own / own.norm(dim=1, keepdim=True).clamp_min(1)).mean(0)
    torch.testing.assert_close(alone, expected, rtol=1e-5, atol=1e-5)


def records(nodes: int) -> Records:
    return Records(torch.zeros(nodes, 1), torch.zeros(nodes), [1] * nodes)


def noise_of(sigma: float, numbers: int) -> Tensor:
    return private_judgement(
        lambda i: torch.zeros(1, numbers), records(2), [3, 4],
        event=Event(7, release_of(Gaussian, sigma, "add-remove")), stream=Stream.seeded(0), book=Book(),
    )  # fmt: skip


@pytest.mark.parametrize(("wrong", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_the_noise_is_the_ledgers(wrong: float, accepted: bool) -> None:
    drawn = noise_of(2.5, 4000)
    chi = float((drawn / (2.5 * wrong)).square().sum())
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], drawn.numel())
    assert (low < chi < high) == accepted
    assert not torch.equal(drawn[0], drawn[1])  # nodes have their own
    corr = float(torch.corrcoef(drawn)[0, 1])
    assert abs(corr) < 5 / np.sqrt(4000)


def test_the_event_is_on_file_before_a_record_is_looked_at() -> None:
    book, seen = Book(), []

    def rows(i: int) -> Tensor:
        seen.append(len(book.events))
        return torch.ones(1, 1)

    event = Event(7, release_of(Gaussian, 0.0, "add-remove"))
    found = private_judgement(rows, records(2), [0, 1], event=event, stream=Stream.system(), book=book)
    assert seen == [2, 2]
    assert book.events == [(0, event), (1, event)]
    torch.testing.assert_close(
        found, torch.ones(2, 1, dtype=torch.float64), rtol=1e-5, atol=1e-5
    )  # without noise: a baseline
