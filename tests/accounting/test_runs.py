import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.accounting.chain import checked_runs, packed, runs_of, spread


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=30))
def test_a_list_is_packed_and_spread_again(values):
    said = packed(values, str)
    assert len(said["values"]) == len(set(values))
    assert spread(said, range(len(values))) == values


def test_runs_leave_out_who_has_nothing():
    assert runs_of(np.array([0, 0, -1, 1, 1, 0]), first=10).tolist() == [
        [10, 11, 0],
        [13, 14, 1],
        [15, 15, 0],
    ]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([], "not a list"),
        ([[0, 1]], "not a list"),
        ([[0, True, 0]], "not a list"),
        ([[0, 9, 0]], "not here"),
        ([[-1, 1, 0]], "not here"),
        ([[2, 1, 0]], "not here"),
        ([[0, 2, 0], [2, 3, 0]], "twice"),
        ([[2, 3, 0], [0, 1, 0]], "twice"),
        ([[0, 1, 1]], "belong together"),
        ([[0, 1, 0], [2, 3, 2]], "belong together"),
    ],
)
def test_runs_that_cannot_be_are_refused(said, why):
    with pytest.raises(ValueError, match=why):
        checked_runs(said, 1, range(4))


def test_a_packed_list_must_say_all_nodes():
    with pytest.raises(ValueError, match="leaves nodes out"):
        spread({"values": ["a"], "of": [[0, 2, 0]]}, range(4))
