"""A configuration becomes the parts of a run."""

from __future__ import annotations

import pytest
import torch
from tests.support.configurations import outlined
from tests.support.mechanism import Book
from tests.support.without_replacement import DIGITS

from gossamer.errors import UserError
from gossamer.run.assemble import assemble


def test_two_gradients_of_the_same_parts_never_share_noise() -> None:
    parts = assemble(outlined(rounds=10))
    one, two = parts.reader(Book()), parts.reader(Book())  # type: ignore[arg-type]
    assert not torch.equal(one(parts.x0), two(parts.x0))


def test_fixed_size_sampling_needs_the_true_count() -> None:
    outline = outlined(rounds=5, data__records=500, privacy__sampling={"kind": "fixed-size", "lot": 10})
    with pytest.raises(UserError, match=r"data\.records"):
        assemble(outline)


def test_fewer_declared_than_held_is_refused() -> None:
    outline = outlined(DIGITS, data__records=300)
    with pytest.raises(UserError, match=r"data\.records"):
        assemble(outline)
