"""Which nodes a rank hosts."""

from __future__ import annotations

from typing import Any

import pytest

from gossamer.errors import UserError
from gossamer.runtime.blocks import split


@pytest.mark.parametrize(
    ("nodes", "ranks", "sizes", "words"),
    [
        (3, 4, None, "runtime.ranks = 4 is more than nodes = 3"),
        (5, 2, [1, 2, 2], "lists 3 blocks for 2 ranks"),
        (5, 2, [1, 3], "adds up to 4 where nodes = 5"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(nodes: int, ranks: int, sizes: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        split(nodes, ranks, sizes)


def test_blocks_are_consecutive_and_about_even() -> None:
    assert split(7, 3) == [range(0, 3), range(3, 5), range(5, 7)]
    assert split(5, 2, [1, 4]) == [range(0, 1), range(1, 5)]
