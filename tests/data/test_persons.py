"""Persons: ids, rows and hold-outs, none of which depends on other persons."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.refusals import expect_refusal

from gossamer.data.partition import group_rows, held_out_rows, most_sites, person_ids, rows_of_persons


def numbers(*ids: object) -> list[int]:
    return person_ids(np.array(ids), "patient", "a.csv").tolist()


def test_ways_to_write_one_id_are_one_person() -> None:
    for same in (("P 7", " p  7 ", "P\u00a07", "Ｐ 7", "P\u200b 7"), ("7", "007", "7.0", " 7"), (7.0, 7)):
        assert len(set(numbers(*same))) == 1, same
    assert numbers(7) == numbers("7") == numbers(7.0) == numbers("0007")
    assert len(set(numbers("7", "8", "7a", "7.5"))) == 4
    assert numbers("x") == person_ids(np.array(["y", "x"]), "id", "b.csv").tolist()[1:]  # the same in every file


@pytest.mark.parametrize("missing", ["", "  ", "nan", "None", "\u200b", "NA"])
def test_a_record_that_may_be_anybodys_is_refused_without_naming_one(missing: str) -> None:
    with expect_refusal(key="a.csv", names="patient") as refused:
        numbers("Secret-17", missing, "Secret-18")
    assert "Secret" not in str(refused.value)
    with expect_refusal(key="a.csv", names="nobody"):
        numbers(1.0, float("nan"))


def test_rows_lie_person_after_person_in_their_own_order() -> None:
    person = np.array([5, 9, 5, 5, 9, 2])
    rows, counts = group_rows(np.arange(6), person, most=2)
    assert rows.tolist() == [0, 2, 1, 4, 5]
    assert counts.tolist() == [2, 2, 1]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 5), st.integers(0, 6))
def test_which_rows_of_a_person_are_used_does_not_depend_on_others(ids: list[int], most: int, gone: int) -> None:
    person = np.array(ids)
    rows, _ = group_rows(np.arange(len(ids)), person, most)
    left = np.flatnonzero(person != gone)
    without, _ = group_rows(left, person, most)
    assert [row for row in rows if person[row] != gone] == without.tolist()


def test_persons_are_dealt_out_whole() -> None:
    person = np.array([3, 1, 3, 2, 1])
    pieces = rows_of_persons([np.array([0, 2]), np.array([1])], person)  # 3, 1, 2 in the order of their first rows
    assert [piece.tolist() for piece in pieces] == [[0, 2, 3], [1, 4]]
    assert most_sites(pieces, person) == 1
    assert most_sites([np.array([0, 1]), np.array([2, 3])], person) == 2


RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(4000, 3)).astype(np.float32), RNG.integers(0, 2, 4000)
PERSON = RNG.integers(0, 2**62, 800).repeat(5)


def parts(x, y, person=None, part=0.25, seed=0, by_person=False):
    return held_out_rows(x, y, person if by_person else None, np.arange(len(y)), part, seed)


def test_about_the_part_is_kept_out_and_follows_the_seed():
    found = parts(X, Y)
    assert abs(found.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 4000)
    assert not np.array_equal(found, parts(X, Y, seed=1))
    assert parts(X[:0], Y[:0]).tolist() == []


def test_adding_removing_and_reordering_changes_nobody_elses_part():
    whole = parts(X, Y)
    left = np.delete(np.arange(4000), 17)
    assert np.array_equal(parts(X[left], Y[left]), whole[left])
    order = RNG.permutation(4000)
    assert np.array_equal(parts(X[order], Y[order]), whole[order])


def test_all_of_a_persons_records_are_in_one_part_whoever_else_is_there():
    whole = parts(X, Y, PERSON, by_person=True)
    assert np.array_equal(whole.reshape(800, 5).min(1), whole.reshape(800, 5).max(1))
    assert abs(whole.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 800)
    some = np.flatnonzero(PERSON[0] != PERSON)
    assert np.array_equal(parts(X[some], Y[some], PERSON[some], by_person=True), whole[some])
    other = parts(X + 1, Y, PERSON, by_person=True)  # what the records hold is nothing to it
    assert np.array_equal(other, whole)
