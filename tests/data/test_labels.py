"""Labels as numbers, and what is none of them, without a value in the sentence."""

import numpy as np
import pytest

from gossamer.data.tables import class_numbers, known_labels, targets_of, yes_or_no
from gossamer.errors import UserError


def test_classes_are_their_places_in_what_is_declared():
    known = known_labels(np.array(["b", "a"]), ["b", "c", "a"])
    assert class_numbers(np.array(["a", "b", "c"]), known, "y", "here").tolist() == [2, 0, 1]
    assert class_numbers(np.array([1.0, 0.0]), known_labels(np.array([1.0]), 3), "y", "here").tolist() == [
        1,
        0,
    ]


@pytest.mark.parametrize("values", [[0, 1], [True, False], [0.0, 1.0]])
def test_yes_and_no_are_one_and_nought(values):
    found = yes_or_no(np.array([values, values]), "y")
    assert found.dtype == np.float32
    assert found.tolist() == [[float(v) for v in values]] * 2


@pytest.mark.parametrize(
    "refused",
    [
        lambda: yes_or_no(np.array([[0, 4242]]), "data.label"),
        lambda: yes_or_no(np.array([["yes", "4242"]]), "data.label"),
        lambda: targets_of(np.array(["4242"])),
        lambda: class_numbers(np.array([4242]), np.array([0, 1]), "data.label", "the declared data.classes"),
    ],
)
def test_no_sentence_shows_a_value(refused):
    with pytest.raises(UserError) as caught:
        refused()
    assert "4242" not in str(caught.value)
