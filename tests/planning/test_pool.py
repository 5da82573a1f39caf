"""The pooled records of the central baseline: the objective, and so many records a round, as the nodes together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.configurations import configured

from gossamer.errors import UserError
from gossamer.planning.pool import pool

UNEVEN = [30, 50, 120]
BY_WEIGHTING = {weighting: configured(weighting=weighting) for weighting in ("uniform", "size")}


def pairs(records: list[int], rate: float) -> list[tuple[float, float]]:
    return [(rate, rate * J) for J in records]


@given(records=st.lists(st.integers(20, 500), min_size=1, max_size=6), rate=st.floats(0.001, 0.05))
def test_a_rounds_records_are_those_of_all_nodes_and_every_node_has_its_say(
    records: list[int], rate: float
) -> None:
    for weighting, config in BY_WEIGHTING.items():
        made = pool(config, records, pairs(records, rate))
        assert made.records == sum(records)
        assert made.lot == pytest.approx(rate * sum(records))
        drawn = [q * J for q, J in zip(made.rates, records, strict=True)]
        assert sum(drawn) == pytest.approx(made.lot)
        assert made.rate == max(made.rates)
        if weighting == "uniform" and max(records) - min(records) > 1:
            assert drawn == pytest.approx([made.lot / len(records)] * len(records))
        else:
            assert len(set(made.rates)) == 1


def test_an_even_split_that_differs_by_one_has_one_rate() -> None:
    assert len(set(pool(configured(), [10, 11, 10], pairs([10, 11, 10], 0.1)).rates)) == 1


@pytest.mark.parametrize(
    ("changes", "rate", "says"),
    [
        (
            {"privacy__sampling": {"kind": "fixed-size", "lot": 3}},
            0.1,
            "privacy.sampling.kind = 'fixed-size' cannot give",
        ),
        ({}, 0.9, "would draw each record of the smallest node 2 times a round"),
    ],
)
def test_what_cannot_have_the_nodes_objective_is_refused(changes: Any, rate: float, says: str) -> None:
    with pytest.raises(UserError) as caught:
        pool(configured(**changes), UNEVEN, pairs(UNEVEN, rate))
    assert says in str(caught.value)
    pool(configured(**changes, weighting="size"), UNEVEN, pairs(UNEVEN, rate))
