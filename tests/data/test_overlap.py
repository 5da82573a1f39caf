"""A public set with private records in it is found, and chance is not taken for one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gossamer.data.arrays import share_rows


def numbers(rng: np.random.Generator, rows: int) -> np.ndarray:
    return rng.normal(size=(rows, 5)).astype(np.float32)


def small(values: int, columns: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Few different rows, some far more common than others."""
    weights = 1 / np.arange(1, values + 1)

    def draw(rng: np.random.Generator, rows: int) -> np.ndarray:
        return rng.choice(values, size=(rows, columns), p=weights / weights.sum()).astype(np.float32)

    return draw


TABLES = {
    "binary": small(2, 6), "some repeat": small(4, 6), "few repeat": small(5, 9), "hardly any": small(8, 10),
    "numbers": numbers,
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("rows", [(40, 40), (300, 60), (100, 2000)])
def test_sets_of_the_same_origin_are_let_pass(name: str, rows: tuple[int, int]) -> None:
    """Twenty of each: four deviations twice over leave less than one in a thousand to be refused in all."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert not share_rows(*(TABLES[name](rng, count) for count in rows)), seed


@pytest.mark.parametrize("name", ["few repeat", "hardly any", "numbers"])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_copied_rows_are_found(name: str, share: float) -> None:
    rng = np.random.default_rng(1)
    ours, theirs = TABLES[name](rng, 1000), TABLES[name](rng, 1000)
    theirs[: int(share * 1000)] = ours[: int(share * 1000)]
    assert share_rows(ours, rng.permutation(theirs))
    assert share_rows(theirs, ours)


def test_one_copy_among_numbers_is_one_too_many() -> None:
    rng = np.random.default_rng(2)
    ours, theirs = numbers(rng, 500), numbers(rng, 500)
    theirs[77] = ours[3]
    assert share_rows(ours, theirs)
    theirs[77] *= 1.0001  # changed copies are out of reach
    assert not share_rows(ours, theirs)


def test_repeating_ones_own_records_hides_nothing() -> None:
    rng = np.random.default_rng(3)
    ours = numbers(rng, 400)
    fresh = numbers(rng, 360)
    for copied in (np.concatenate([fresh, ours[:40]]), ours[:200]):
        assert share_rows(np.repeat(ours, 2, axis=0), copied)


def test_the_sign_of_zero_the_type_and_the_shape_do_not_matter() -> None:
    ours = numbers(np.random.default_rng(4), 50)
    ours[0, 0] = 0.0
    theirs = numbers(np.random.default_rng(5), 50)
    theirs[7] = ours[0]
    theirs[7, 0] = -0.0
    assert share_rows(ours, theirs.astype(np.float64))
    assert share_rows(ours.reshape(50, 1, 5), theirs.reshape(50, 1, 5))
    assert not share_rows(ours, theirs[:0])
    assert not share_rows(ours, theirs[:, :4])
