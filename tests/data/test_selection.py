"""Which training records count; as options of a set they are tested with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tests.support.refusals import expect_refusal

from gossamer.data import source as selection
from gossamer.data.dataset import Dataset


def tagged(rows: int = 12) -> Dataset:
    """Every row says which it is, in its record, its label (modulo 3) and its owner."""
    x = np.arange(rows, dtype=np.float32)[:, None]
    y = np.arange(rows) % 3
    owner = np.arange(rows)
    return Dataset("tagged", x, y, x[:3], y[:3], 3, True, owner, {}, person=owner + 100)


def together(dataset: Dataset) -> None:
    """Rows moved as a whole."""
    tags = dataset.x_train[:, 0].astype(int)
    assert dataset.owner is not None
    assert dataset.person is not None
    assert np.array_equal(dataset.owner, tags)
    assert np.array_equal(dataset.person, tags + 100)


def test_rows_stay_together_with_what_is_said_of_them() -> None:
    some = selection.only_labels(tagged(), [0, 2])
    together(some)
    assert set(some.y_train) == {0, 2}
    for made in (selection.hold_out(tagged(), 4), selection.first_rows(tagged(), 8, 5)):
        together(made)
        assert len(made.y_train) == 8
        assert np.array_equal(made.y_train, made.x_train[:, 0] % 3)
    assert not selection.hold_out(tagged(), 4).public_test


def test_labels_and_persons_by_rule() -> None:
    two = selection.one_against_rest(tagged(), 1)
    assert two.classes == 2
    assert two.labels == ("not 1", "1")
    assert two.y_train.tolist() == [0, 1, 0] * 4
    made_up = selection.synthetic_persons(tagged(), 5, own=False).person
    assert made_up is not None
    assert made_up.tolist() == [i % 5 for i in range(12)]
    with expect_refusal(key="data.persons", value="5"):
        selection.synthetic_persons(tagged(), 5, own=True)


def test_all_rows_of_a_person_are_held_out_together() -> None:
    data = replace(tagged(), person=np.arange(12) // 4)
    chosen = selection.hold_out(data, 9)
    assert chosen.person is not None
    assert (len(chosen.y_train), len(chosen.y_test)) == (4, 8)
    assert len(set(chosen.person.tolist())) == 1


def test_a_person_with_many_rows_is_held_out_no_sooner_than_another() -> None:
    person = np.repeat(np.arange(101), [400, *[1] * 100])
    data = replace(tagged(500), person=person)
    chosen = selection.hold_out(data, 50)
    assert chosen.person is not None
    assert 101 - len(set(chosen.person.tolist())) > 20
