from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.data.persons import group_rows, most_sites, person_ids, rows_of_persons
from gossamer.errors import UserError


def numbers(*ids: object) -> list[int]:
    return person_ids(np.array(ids), "patient", "a.csv").tolist()


def test_ways_to_write_one_id_are_one_person() -> None:
    for same in (("P 7", " p  7 ", "P\u00a07", "Ｐ 7", "P\u200b 7"), ("7", "007", "7.0", " 7"), (7.0, 7)):
        assert len(set(numbers(*same))) == 1, same
    assert numbers(7) == numbers("7") == numbers(7.0) == numbers("0007")
    assert len(set(numbers("7", "8", "7a", "7.5"))) == 4
    assert (
        numbers("x") == person_ids(np.array(["y", "x"]), "id", "b.csv").tolist()[1:]
    )  # the same in every file


@pytest.mark.parametrize("missing", ["", "  ", "nan", "None", "\u200b", "NA"])
def test_a_record_that_may_be_anybodys_is_refused_without_naming_one(missing: str) -> None:
    with pytest.raises(UserError, match=r"a\.csv: column 'patient' names nobody in some rows") as refused:
        numbers("Secret-17", missing, "Secret-18")
    assert "Secret" not in str(refused.value)
    with pytest.raises(UserError, match="names nobody in some rows"):
        numbers(1.0, float("nan"))


def test_rows_lie_person_after_person_in_their_own_order() -> None:
    person = np.array([5, 9, 5, 5, 9, 2])
    rows, counts = group_rows(np.arange(6), person, most=2)
    assert rows.tolist() == [0, 2, 1, 4, 5]
    assert counts.tolist() == [2, 2, 1]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 5), st.integers(0, 6))
def test_which_rows_of_a_person_are_used_does_not_depend_on_others(
    ids: list[int], most: int, gone: int
) -> None:
    person = np.array(ids)
    rows, _ = group_rows(np.arange(len(ids)), person, most)
    left = np.flatnonzero(person != gone)
    without, _ = group_rows(left, person, most)
    assert [row for row in rows if person[row] != gone] == without.tolist()


def test_persons_are_dealt_out_whole() -> None:
    person = np.array([3, 1, 3, 2, 1])
    pieces = rows_of_persons(
        [np.array([0, 2]), np.array([1])], person
    )  # 3, 1, 2 in the order of their first rows
    assert [piece.tolist() for piece in pieces] == [[0, 2, 3], [1, 4]]
    assert most_sites(pieces, person) == 1
    assert most_sites([np.array([0, 1]), np.array([2, 3])], person) == 2
