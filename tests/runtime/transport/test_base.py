"""Every transport keeps the promises of `Transport`: whatever runs over one runs over all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.support.pool_memory import POOLS

from gossamer.runtime.parcels import INSIDE

SLOW_TORCH = ["memory", pytest.param("torch", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=["memory", "torch"])
def pair(request: pytest.FixtureRequest) -> Iterator[Any]:
    pool = POOLS[request.param](2)
    yield pool
    pool.close()


@pytest.fixture(scope="module", params=SLOW_TORCH)
def four(request: pytest.FixtureRequest) -> Iterator[Any]:
    pool = POOLS[request.param](4)
    yield pool
    pool.close()


def answers(pool: Any, name: str, **arguments: Any) -> list[Any]:
    found = pool.call(name, sizes=[1] * pool.ranks, **arguments)
    for answer in found:
        if isinstance(answer, Exception):
            raise answer
    return list(found)


LENGTHS = [1, 7, 128, 100_003, 1, 3_000_000]


def test_messages_arrive_complete_and_where_they_should(pair: Any) -> None:
    assert answers(pair, "everyone_to_everyone", lengths=LENGTHS) == [[True] * len(LENGTHS)] * 2


def test_four_ranks_can_all_talk_to_all_at_once(four: Any) -> None:
    assert answers(four, "everyone_to_everyone", lengths=LENGTHS) == [[True] * 3 * len(LENGTHS)] * 4


def test_messages_of_one_tag_keep_their_order(pair: Any) -> None:
    assert answers(pair, "three_of_one_tag")[1] == [True] * 3


def test_messages_of_different_tags_may_be_taken_in_any_order(pair: Any) -> None:
    assert answers(pair, "two_tags_crossed")[1] == [True] * 2


def test_a_start_waits_for_nobody(pair: Any) -> None:
    for seconds, complete in answers(pair, "late_receiver"):
        assert seconds < 0.7  # the other one came a second later
        assert complete


def test_what_all_ranks_say_is_gathered_in_their_order(pair: Any) -> None:
    """Of any length: in the first message of a parcel, to its brim, and far beyond."""
    lengths = [[3, 15], [0, 2], [0, 0], [INSIDE - 4, INSIDE - 3], [INSIDE, 1], [500_000, 70_001]]
    texts = [["a" * one, "é" * two] for one, two in lengths]
    assert answers(pair, "gathered", texts=texts) == [texts, texts]


def test_sums_reach_everyone_and_leave_the_terms_alone(pair: Any) -> None:
    terms = [
        [torch.tensor([1.5, -2.0]), torch.tensor([0.25, 8.0])],
        [torch.ones(3, 2, dtype=torch.float64), torch.full((3, 2), 1e-12, dtype=torch.float64)],
        [torch.tensor(3.0), torch.tensor(0.5)],  # fewer numbers than ranks
        [torch.linspace(0, 1, 300_001), torch.linspace(-3, 9, 300_001)],
    ]
    for totals, unchanged in answers(pair, "summed", terms=terms):
        assert unchanged
        assert all(torch.equal(total, a + b) for total, (a, b) in zip(totals, terms, strict=True))


def test_a_sum_is_formed_in_the_order_of_the_ranks(four: Any) -> None:
    """To the last bit: 1e8 + 1 − 1e8 is 0 in this order and 1 in others."""
    terms = [[torch.full((7,), value) for value in (1e8, 1.0, -1e8, 0.0)]]
    for totals, _ in answers(four, "summed", terms=terms):
        assert totals[0].tolist() == [0.0] * 7


def test_notes_are_everybodys_and_the_first_claim_stands(pair: Any) -> None:
    found = answers(pair, "noted")
    assert found[0] == found[1]
    own, claimed, read, nothing = found[0]
    assert own == ["rank 0 ≤ ε", "rank 1 ≤ ε"]
    assert claimed == read
    assert read in ("rank 0", "rank 1")
    assert nothing is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", SLOW_TORCH)
def test_silence_is_an_error_after_the_time_allowed(kind: str) -> None:
    pool = POOLS[kind](2, timeout=5.0)
    try:
        was_silence, seconds = answers(pool, "silent")[0]
        assert was_silence
        assert 0.4 < seconds < 1.9
    finally:
        pool.close()


@pytest.mark.parametrize(
    "how", ["receive", *(pytest.param(w, marks=pytest.mark.slow) for w in ("gather", "sum"))]
)
@pytest.mark.parametrize("kind", SLOW_TORCH)
def test_a_rank_that_is_gone_is_a_lost_connection(kind: str, how: str) -> None:
    pool = POOLS[kind](2, timeout=30.0)
    try:
        said = "LostError" if how == "receive" else "RankError"
        assert pool.call("left_alone", sizes=[1, 1], how=how)[0] == said
    finally:
        pool.close()
