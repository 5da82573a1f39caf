"""A configuration becomes the parts of a run."""

from __future__ import annotations

import torch
from tests.support.mechanism import Book


def test_two_gradients_of_the_same_parts_never_share_noise() -> None:
    from gossamer.config import recipes
    from gossamer.config.layers import resolve
    from gossamer.run.assemble import assemble
    from gossamer.run.outline import outline

    parts = assemble(outline(resolve(recipes.read("quickstart"), {"rounds": 10})))
    one, two = parts.reader(Book()), parts.reader(Book())  # type: ignore[arg-type]
    assert not torch.equal(one(parts.x0), two(parts.x0))
