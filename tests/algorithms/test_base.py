"""What an algorithm is: the schedule in closed form, and every registered rule keeps the protocol."""

from __future__ import annotations

from typing import Any

import pytest
import torch

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


@pytest.mark.parametrize("name", sorted(set(RULES) - OWN_METHOD))
def test_a_rule_keeps_the_protocol(name: str) -> None:
    """It draws as often as it says, leaves its start alone, and its state is a flat tuple of (m, …) tensors."""
    algorithm: Any = rule(name)(lr=Exponential(0.1))
    assert algorithm.weights in {"column", "doubly", "adjacency"}
    x0 = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    before, calls = x0.clone(), []

    def grad(x: torch.Tensor) -> torch.Tensor:
        assert x.shape == (4, 3)
        calls.append(1)
        return torch.ones_like(x)

    def mix(*tensors: torch.Tensor) -> Any:
        return tensors if len(tensors) > 1 else tensors[0]

    state = algorithm.init(x0)
    torch.testing.assert_close(algorithm.model(state), x0)
    after = algorithm.step(state, grad, mix, 0)
    assert len(calls) == algorithm.draws
    assert torch.equal(x0, before)
    assert type(after) is type(state)
    assert isinstance(after, tuple)
    assert all(isinstance(part, torch.Tensor) and len(part) == 4 for part in after)
    assert algorithm.model(after).shape == (4, 3)


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
