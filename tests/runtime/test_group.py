"""What the processes of a run do together, and what they say when one of them fails."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from gossamer.errors import UserError
from gossamer.runtime.blocks import split
from gossamer.runtime.group import Alone, Group, Ranks, agreed
from gossamer.runtime.transport.memory import Memory, MemoryTransport

SIZES = [1, 3, 2]


def as_is(value: Any) -> Any:
    return value


def together(work: Callable[[Ranks], Any], timeout: float = 20.0) -> list[Any]:
    """On three ranks; an exception is an answer too."""
    memory, blocks = Memory(3), split(6, 3, SIZES)

    def rank(r: int) -> Any:
        try:
            with Ranks(blocks, MemoryTransport(memory, r, timeout)) as ranks:
                return work(ranks)
        except (Exception, KeyboardInterrupt) as error:
            return error

    with ThreadPoolExecutor(3) as threads:
        return list(threads.map(rank, range(3)))


def test_items_are_joined_in_the_order_of_the_nodes() -> None:
    items = [[f"node {i}", i / 3, None] for i in range(6)]
    assert Alone(6).join(items, per_node=True) == items
    assert together(lambda ranks: ranks.join([items[i] for i in ranks.nodes], per_node=True)) == [items] * 3


def test_the_mean_is_over_nodes_and_not_over_ranks() -> None:
    points = torch.arange(12.0, dtype=torch.float64).view(6, 2) ** 2
    for mean in together(lambda ranks: ranks.mean(points[ranks.nodes.start : ranks.nodes.stop])):
        torch.testing.assert_close(mean, Alone(6).mean(points))


def test_a_rank_knows_its_place() -> None:
    def place(group: Group) -> Any:
        return group.name, group.size, group.first, group.first_here, group.spread, list(group.nodes)

    assert together(place) == [
        ("rank 0 (node 0)", 3, True, True, False, [0]),
        ("rank 1 (nodes 1–3)", 3, False, False, False, [1, 2, 3]),
        ("rank 2 (nodes 4–5)", 3, False, False, False, [4, 5]),
    ]


def test_a_mistake_found_by_one_is_everybodys() -> None:
    def action(rank: int) -> str:
        if rank == 1:
            raise UserError("data.path = 'x' is not there.")
        return "fine"

    answers = together(lambda ranks: agreed(ranks, lambda: action(ranks.rank)))
    assert [str(answer) for answer in answers] == ["data.path = 'x' is not there."] * 3
    answers = together(lambda ranks: agreed(ranks, lambda: action(ranks.rank), here=ranks.first))
    assert answers == ["fine", None, None]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (UserError("the disk is full."), "the disk is full."),
        (RuntimeError("odd\nand more"), "rank 1 (nodes 1–3) failed in round 4: odd"),
        (KeyboardInterrupt(), "rank 1 (nodes 1–3) was stopped in round 4"),
    ],
)
def test_the_others_say_why_one_has_failed(error: BaseException, sentence: str) -> None:
    def work(ranks: Ranks) -> Any:
        ranks.messenger.watch.computing(4)
        if ranks.rank == 1:
            raise error
        return ranks.join([0])

    answers = together(work, timeout=0.5)
    assert answers[1] is error
    assert [str(answer) for answer in (answers[0], answers[2])] == [sentence] * 2
