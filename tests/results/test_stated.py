"""Stated beside found: what may differ, and the sentence where it may not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import UserError
from gossamer.results.stated import Stated

MADE = Stated(Path("certificate.json"), {"a": [1, {}], "b": [1], "delta": 1e-5, "text": "x"})


def test_a_figure_may_be_a_little_above_what_is_found_and_never_below() -> None:
    for stated in (1.0, 1.0 - 1e-7, 1.009):
        MADE.close("ε", 1.0, stated)
    for stated in (0.999, 1.02, math.inf, "1", None, True):
        with pytest.raises(UserError, match=r"certificate\.json states ε = .* where the ledgers say 1\.0\."):
            MADE.close("ε", 1.0, stated)
    MADE.close("ε", 1.0, 5.0, above=True)  # where ledgers that are elsewhere may say more
    with pytest.raises(UserError, match="states ε"):
        MADE.close("ε", 1.0, 0.5, above=True)
    MADE.close("ε", math.inf, math.inf)
    with pytest.raises(UserError, match="states ε"):
        MADE.close("ε", math.inf, 3.0)


@pytest.mark.parametrize("value", ["1", -1.0, math.nan, math.inf, True])
def test_what_is_no_epsilon_is_damage(value: Any) -> None:
    with pytest.raises(UserError, match="is damaged: its 'ε'"):
        MADE.epsilon("ε", value)
    assert MADE.epsilon("ε", None) == math.inf
    assert MADE.epsilon("ε", 2) == 2.0


def test_other_types_are_other_values() -> None:
    MADE.same("x", 1, 1.0)
    for found, stated in ((True, 1), ("1", 1), (None, 0), ([1], [2])):
        with pytest.raises(UserError, match="states x"):
            MADE.same("x", found, stated)


def test_lists_and_their_entries_have_their_form() -> None:
    assert MADE.length("a") == 2
    assert MADE.number("delta") == 1e-5
    assert MADE.entry("a", 1) == {}
    for look in (lambda: MADE.length("a", "b"), lambda: MADE.entry("a", 0), lambda: MADE.number("text")):
        with pytest.raises(UserError, match="is damaged"):
            look()
