"""What an algorithm is: the schedule in closed form, and every registered rule keeps the protocol."""

from __future__ import annotations

import pytest

from gossamer.algorithms import RULES, register, rule
from gossamer.algorithms.base import Exponential

OWN_METHOD = {"km", "without-replacement"}  # their folders test them


def test_the_schedule_in_closed_form() -> None:
    assert [Exponential(0.5)(t) for t in (0, 7, 1000)] == [0.5] * 3
    falling = Exponential(2.0, decay=0.25, rounds=100)
    assert falling(0) == 2.0
    assert falling(50) == pytest.approx(1.0)
    assert falling(100) == pytest.approx(0.5)
    rooted = Exponential(3.0, power=0.5)
    assert [rooted(t) for t in (0, 3, 8)] == pytest.approx([3.0, 1.5, 1.0])


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="'dsgd' is there already"):
        register("dsgd")(object)


def test_a_methods_name_and_an_unfinished_class_are_refused() -> None:
    import gossamer.config.methods  # noqa: F401  # which reserves its names

    with pytest.raises(ValueError, match="'dyn-d2p' is there already"):
        register("dyn-d2p")(type(rule("dsgd")))
    with pytest.raises(TypeError, match="the algorithm 'half' lacks weights, draws, init, step, model"):
        register("half")(object)
    assert "half" not in RULES
