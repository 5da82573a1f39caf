"""What the processes of a run do together, and which nodes each of them hosts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.refusals import expect_refusal

from gossamer.runtime.group import Alone, split


def test_ranks_gather_and_average_as_the_simulator_does(two_ranks: Any) -> None:
    items = [[f"node {i}", i / 3, None] for i in range(5)]
    points = torch.arange(10.0, dtype=torch.float64).view(5, 2) ** 2
    assert Alone(5).join(items, per_node=True) == items
    places = [
        ("rank 0 (node 0)", 2, True, True, False, [0]),
        ("rank 1 (nodes 1–4)", 2, False, False, False, [1, 2, 3, 4]),
    ]
    answers = two_ranks.call("together", sizes=[1, 4])
    for (joined, mean, found, sent), place in zip(answers, places, strict=True):
        assert joined == items
        torch.testing.assert_close(mean, Alone(5).mean(points))
        assert found == place
        assert sent.tolist() == [1.0] * 3


def test_a_mistake_of_one_rank_is_raised_on_all(two_ranks: Any) -> None:
    for answer in two_ranks.call("one_mistake", sizes=[1, 2], here=False):
        assert str(answer) == "UserError: data.path = 'x' is not there."
    assert two_ranks.call("one_mistake", sizes=[1, 2], here=True) == ["fine", None]


@pytest.mark.parametrize(
    ("nodes", "ranks", "sizes", "words"),
    [
        (3, 4, None, "runtime.ranks 4 nodes 3"),
        (5, 2, [1, 2, 2], "runtime.blocks 3 2 ranks"),
        (5, 2, [1, 3], "runtime.blocks 4 nodes 5"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(nodes: int, ranks: int, sizes: Any, words: str) -> None:
    with expect_refusal(names=words):
        split(nodes, ranks, sizes)


def test_blocks_are_consecutive_and_about_even() -> None:
    assert split(7, 3) == [range(0, 3), range(3, 5), range(5, 7)]
    assert split(5, 2, [1, 4]) == [range(0, 1), range(1, 5)]
