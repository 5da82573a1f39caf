"""The records an attacker would try: every size, everything that is not finite, and only what the data could hold."""

from __future__ import annotations

import torch

from gossamer.auditing.odd_records import odd_records


def numbers(shape: tuple[int, ...] = (6,)) -> torch.Tensor:
    return torch.randn(20, *shape, generator=torch.Generator().manual_seed(0))


def test_sizes_reach_from_1e_minus_30_to_1e30_and_beyond_what_is_finite() -> None:
    found = odd_records(numbers(), torch.zeros(20, dtype=torch.int64), 3, 0)
    sizes = torch.stack([record.x.abs().max() for record in found if bool(record.x.isfinite().all())])
    for size in (1e-30, 1e-23, 1e-12, 1e-6, 1.0, 1e5, 1e12, 1e30):
        assert bool(((sizes > 0.1 * size) & (sizes < 10 * size)).any())
    assert any(bool(record.x.isnan().all()) for record in found)
    assert any(bool(record.x.isinf().any()) and not bool(record.x.isinf().all()) for record in found)
    assert any(not bool(record.x.any()) for record in found)
    assert {int(record.y) for record in found} == {0, 1, 2}
    assert all(record.x.shape == (6,) and record.kind for record in found)


def test_some_cancel_over_the_first_axis() -> None:
    found = odd_records(numbers((2, 5)), torch.zeros(20, dtype=torch.int64), 2, 0)
    rest = [
        float(record.x.sum(0).norm() / record.x.norm())
        for record in found
        if "halves that cancel" in record.kind
    ]
    assert rest
    assert max(rest) < 1e-2


def test_places_of_a_table_are_only_those_that_occur() -> None:
    places = torch.tensor([3, 1, 3, 7])
    found = odd_records(places, torch.zeros(4), None, 0)
    assert {int(record.x) for record in found} == {1, 3, 7}
    assert not any(record.x.is_floating_point() for record in found)


def test_targets_that_are_numbers_are_odd_too() -> None:
    found = odd_records(numbers(), torch.linspace(0, 1, 20), None, 0)
    targets = torch.stack([record.y for record in found])
    assert bool(targets.isnan().any())
    assert bool(targets.isinf().any())
    assert float(targets[targets.isfinite()].abs().max()) > 1e29


def test_equal_seeds_give_equal_records() -> None:
    def kinds(seed: int) -> list[str]:
        return [record.kind for record in odd_records(numbers(), torch.zeros(20, dtype=torch.int64), 3, seed)]

    assert kinds(0) == kinds(0)
    assert kinds(0) != kinds(1)
