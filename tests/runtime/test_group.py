"""What the processes of a run do together, and what they say when one of them fails."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from gossamer.errors import UserError
from gossamer.runtime.blocks import split
from gossamer.runtime.forms import count
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
    assert Alone(6).join(items, as_is, per_node=True) == items
    assert (
        together(lambda ranks: ranks.join([items[i] for i in ranks.nodes], as_is, per_node=True))
        == [items] * 3
    )


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
        return ranks.join([0], count)

    answers = together(work, timeout=0.5)
    assert answers[1] is error
    assert [str(answer) for answer in (answers[0], answers[2])] == [sentence] * 2


class Far(MemoryTransport):
    """As if every rank had a machine of its own."""

    spread = True

    @property
    def machine(self) -> str:  # type: ignore[override]
        return str(self.rank)


def apart(work: Callable[[Ranks], Any]) -> list[Any]:
    memory, blocks = Memory(3), split(6, 3, SIZES)

    def rank(r: int) -> Any:
        try:
            with Ranks(blocks, Far(memory, r, 20.0)) as ranks:
                return work(ranks)
        except Exception as error:
            return error

    with ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(rank, range(3)))
    return [*answers, memory.texts]


ROW = "clinic-1.csv line 7: 'Anna Schmidt', 41, HIV+ is not a number."


def test_between_machines_a_mistake_is_told_without_its_words() -> None:
    def action(rank: int) -> None:
        if rank == 1:
            raise UserError(ROW)

    first, second, third, notes = apart(
        lambda ranks: agreed(ranks, lambda: action(ranks.rank), what="read its data")
    )
    assert str(second) == ROW  # at home
    for other in (first, third):
        assert isinstance(other, UserError)
        assert str(other) == "rank 1 (nodes 1–3) cannot read its data: its own terminal says why."
    assert "Schmidt" not in repr(notes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [UserError, ValueError, OSError])
def test_between_machines_no_error_of_any_kind_is_told_in_its_words(kind: type[Exception]) -> None:
    def work(ranks: Ranks) -> Any:
        if ranks.rank == 1:
            raise kind(ROW)
        return ranks.join([0], count)

    first, second, third, notes = apart(work)
    assert str(second) == ROW
    for other in (first, third):
        assert "Schmidt" not in str(other)
    assert "Schmidt" not in repr(notes)
    assert notes["gossamer/failure"].startswith("rank 1 (nodes 1–3) failed in round 0: its own terminal")


@pytest.mark.parametrize("per_node", [False, True])
@pytest.mark.parametrize("said", [[], [7, 7, 7, 7, 7]])
def test_nobody_speaks_for_another(said: list[int], per_node: bool) -> None:
    """One item of each process, or of each of its nodes: more would stand where others' are looked for."""

    def work(ranks: Ranks) -> Any:
        own = [0] * (len(ranks.nodes) if per_node else 1)
        return ranks.join(said if ranks.rank == 1 else own, count, per_node=per_node)

    due = SIZES[1] if per_node else 1
    for found in together(work, timeout=2.0):
        assert (
            str(found) == f"what rank 1 (nodes 1–3) stated was refused: {len(said)} items where {due} are due"
        )
