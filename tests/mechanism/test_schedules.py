"""Sequences over the draws of a run, in closed form."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gossamer.mechanism.clipping import After, Constant, Geometric, Quotient, Stretches, extremes

draws = st.integers(1, 200)


@given(start=st.floats(1e-3, 1e3), ratio=st.floats(1e-3, 1e3), K=draws)
def test_geometric_has_equal_quotients_and_its_ratio_over_the_run(start: float, ratio: float, K: int) -> None:
    values = [Geometric(start, ratio, K)(k) for k in range(K + 1)]
    assert values[0] == start
    assert abs(values[K] / (start * ratio) - 1) < 1e-9
    for now, then in itertools.pairwise(values):
        assert abs(then / now / ratio ** (1 / K) - 1) < 1e-9


@given(values=st.lists(st.floats(0.1, 10), min_size=1, max_size=12), K=draws)
def test_stretches_go_through_the_values_in_order_and_in_equal_lengths(values: list[float], K: int) -> None:
    schedule = Stretches(list(range(len(values))), K)  # type: ignore[arg-type]
    places = [int(schedule(k)) for k in range(K)]
    assert places == sorted(places)
    if len(values) <= K:
        lengths = [places.count(i) for i in range(len(values))]
        assert max(lengths) - min(lengths) <= 1
    assert Stretches(values, K)(10 * K) == values[-1]  # beyond the end the last one stays


def test_one_value_is_a_constant_and_a_value_per_draw_is_itself() -> None:
    assert [Stretches([2.0], 5)(k) for k in range(5)] == [2.0] * 5
    assert [Stretches([1.0, 2.0, 3.0], 3)(k) for k in range(3)] == [1.0, 2.0, 3.0]


def test_a_ratio_divides_and_after_starts_the_rest_from_its_beginning() -> None:
    assert Quotient(Constant(3.0), Geometric(2.0, 0.25, 2))(1) == 3.0
    late = After(9.0, Stretches([1.0, 2.0], 2))
    assert [late(k) for k in range(3)] == [9.0, 1.0, 2.0]


@given(values=st.lists(st.floats(-10, 10), min_size=1, max_size=50))
def test_extremes_are_those_of_all_draws_wherever_they_lie(values: list[float]) -> None:
    found = extremes(lambda k: values[k], len(values))
    assert (found.least, found.largest) == (sorted(values)[0], sorted(values)[-1])
    K = 3 * len(values)
    inner = extremes(Stretches([5.0, *values, 5.0], K), K)  # not hashable, and its ends say nothing
    assert (inner.least, inner.largest) == (min(5.0, *values), max(5.0, *values))
