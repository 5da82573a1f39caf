"""How records enter a draw, as configured: what is public about lots, and what is priced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.refusals import expect_refusal

from gossamer.kernels.noise import Stream
from gossamer.mechanism.sampling import NodeLot, lots_in_a_pass, samplings

KINDS: dict[str, dict[str, Any]] = {
    "poisson": {"lot": 4.0}, "fixed-size": {"lot": 4}, "one-pass": {"lot": 4}, "single": {}, "full": {},
    "balls-and-bins": {"lot": 4.0},
}  # fmt: skip
SIZES = [20, 16]


def configured(name: str) -> Any:
    return samplings.parse({"kind": name, **KINDS[name]})


def lots_of(kind: Any, sizes: list[int]) -> list[NodeLot]:
    return [NodeLot(i, size, *kind.lot_of(size, i)) for i, size in enumerate(sizes)]


def test_every_sampling_stands_in_the_table() -> None:
    assert set(KINDS) == set(samplings)


@pytest.mark.parametrize("name", list(KINDS))
def test_the_sampler_draws_what_is_declared_and_priced(name: str) -> None:
    """Rates and the ledger's word for them are the sampler's own; a lot holds L records on average."""
    kind = configured(name)
    nodes = lots_of(kind, SIZES)
    sampler = kind.make(nodes, SIZES)
    assert list(sampler.rates) == pytest.approx([node.rate for node in nodes])
    assert sampler.kind == kind.drawn_as
    assert sampler.disjoint == kind.disjoint
    assert [node.lot for node in nodes] == pytest.approx([node.rate * node.records for node in nodes])
    stream, draws = Stream.seeded(9), 400
    drawn = sum(sampler.draw(stream, [0, 1], SIZES, k).mask.sum(1) for k in range(draws))
    for i, node in enumerate(nodes):
        error = 5 * np.sqrt(draws * node.records * node.rate * (1 - node.rate))
        assert abs(float(drawn[i]) - draws * node.lot) <= error
    passes = sampler.passes(7)
    assert (passes or [None, None]) == [kind.pass_of(7, node.rate) for node in nodes]
    numbers = sampler.lot_numbers(7)
    assert (numbers or [None, None]) == [kind.lot_number_of(7, node.rate) for node in nodes]


@settings(max_examples=60)
@given(records=st.integers(1, 500), data=st.data())
def test_a_pass_has_as_many_lots_as_it_takes(records: int, data: Any) -> None:
    lot = data.draw(st.integers(1, records))
    assert lots_in_a_pass(lot / records) == -(-records // lot)


@given(multipliers=st.lists(st.floats(0.1, 10), min_size=1, max_size=30), lots=st.integers(1, 7))
def test_a_pass_of_disjoint_lots_costs_its_worst_lot_as_a_full_batch(multipliers: list[float], lots: int) -> None:
    kind = samplings.parse({"kind": "one-pass", "lot": 3})
    sampling, priced, stands_for = kind.priced(multipliers, 1 / lots)
    passes: dict[int | None, list[float]] = {}
    for k, multiplier in enumerate(multipliers):
        passes.setdefault(kind.pass_of(k, 1 / lots), []).append(multiplier)
    assert (sampling, stands_for) == ("full", lots)
    assert priced == [min(values) for values in passes.values()]
    assert kind.visits(1 / lots, len(multipliers)) == len(passes)


@pytest.mark.parametrize("name", ["poisson", "fixed-size", "single", "full"])
def test_other_lots_are_priced_one_by_one(name: str) -> None:
    kind = configured(name)
    assert kind.priced([2.0, 3.0], 0.2) == (kind.drawn_as, [2.0, 3.0], 1)
    assert kind.visits(0.2, 30) == pytest.approx(6.0)
    assert kind.visits(0.2, 1) == 1.0  # whoever is asked about at all is looked at once
    assert kind.pass_of(3, 0.2) is None


def test_a_rate_of_each_node_is_that_nodes() -> None:
    kind = samplings.parse({"kind": "poisson", "rate": [0.5, 0.25]})
    assert [kind.lot_of(40, i) for i in (0, 1)] == [(0.5, 20.0), (0.25, 10.0)]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kind": "poisson"}, "privacy.sampling rate lot"),
        ({"kind": "poisson", "rate": 0.1, "lot": 3.0}, "privacy.sampling rate lot"),
        ({"kind": "poisson", "rate": 1.5}, "privacy.sampling.rate 1.5"),
        ({"kind": "fixed-size", "lot": 0}, "privacy.sampling.lot 0"),
        ({"kind": "balls-and-bins"}, "privacy.sampling lots lot"),
        ({"kind": "balls-and-bins", "lots": 3, "lot": 3.0}, "privacy.sampling lots lot"),
    ],
)
def test_mistakes_are_refused(options: dict[str, Any], says: str) -> None:
    with expect_refusal(names=says):
        samplings.parse(options)


@pytest.mark.parametrize("name", ["poisson", "fixed-size", "one-pass", "balls-and-bins"])
def test_a_lot_of_more_records_than_there_are_is_refused_and_one_of_all_is_not(name: str) -> None:
    with expect_refusal(key="privacy.sampling.lot", value="4", names="3 1", remedy=True):
        configured(name).lot_of(3, 1)
    assert configured(name).lot_of(4, 1) == (1.0, 4.0)


@pytest.mark.parametrize("name", ["fixed-size", "single"])
def test_a_share_of_the_true_number_needs_the_true_number(name: str) -> None:
    kind = configured(name)
    with expect_refusal(key="privacy.sampling.kind", names="data.records 16 1 poisson", remedy=True):
        kind.make(lots_of(kind, SIZES), [20, 15])


def test_disjoint_lots_need_a_place_for_every_record() -> None:
    kind = configured("one-pass")
    with expect_refusal(key="data.records", value="16"):
        kind.make(lots_of(kind, SIZES), [20, 17])
    kind.make(lots_of(kind, SIZES), [20, 15])


def test_balls_and_bins_have_whole_lots_and_their_mean_as_divisor() -> None:
    """100 records in lots of at most 30 are four lots of 25; the rate is one in four, as the sampler draws."""
    kind = samplings.parse({"kind": "balls-and-bins", "lot": 30.0})
    assert kind.lot_of(100, 0) == (0.25, 25.0) == kind.pooled(100, 30.0)
    fixed = samplings.parse({"kind": "balls-and-bins", "lots": 60})
    assert fixed.lot_of(90, 0) == (1 / 60, 1.5)
    assert fixed.priced([1.0], 1 / 60) is None  # no other sampling costs the same
    with expect_refusal(key="privacy.sampling.lots", value="60", names="59 2", remedy=True):
        fixed.lot_of(59, 2)


@given(lots=st.integers(1, 100_000))
def test_the_number_of_lots_can_be_read_off_the_rate(lots: int) -> None:
    kind = samplings.parse({"kind": "balls-and-bins", "lots": lots})
    rate, _ = kind.lot_of(lots, 0)
    assert lots_in_a_pass(rate) == lots
    assert list(kind.make([NodeLot(0, lots, rate, 1.0)], [lots]).rates) == [rate]
