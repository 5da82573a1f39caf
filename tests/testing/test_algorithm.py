"""Each check catches a method that breaks it, and says what to mend."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from gossamer.algorithms.base import Grad, Mix, Schedule
from gossamer.testing import check_algorithm


class State(NamedTuple):
    x: Tensor


@dataclass(frozen=True, kw_only=True)
class Diffusion:
    """x ← W (x − η g(x)): as it should be; the others break one thing each."""

    lr: Schedule
    seed: int = 0
    weights: ClassVar[str] = "doubly"
    draws: ClassVar[int] = 1

    def init(self, x0: Tensor) -> Any:
        return State(x0)

    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        return State(mix(s.x - self.lr(t) * grad(s.x)))

    def model(self, s: Any) -> Tensor:
        found: Tensor = s.x
        return found


def by_node(W: Any, a: Any, b: Any, x: Any, lr: float, rounds: int) -> Any:
    for _ in range(rounds):
        moved = [x[i] - lr * a[i] * (x[i] - b[i]) for i in range(len(x))]
        x = np.stack([sum(W[i, j] * moved[j] for j in range(len(x))) for i in range(len(x))])
    return x


def test_a_method_that_keeps_to_it_passes() -> None:
    check_algorithm(Diffusion, options={"seed": 3}, reference=by_node)


def test_another_reference_is_not_this_method() -> None:
    with pytest.raises(AssertionError, match="Diffusion is not its reference: after 15 rounds node"):
        check_algorithm(Diffusion, reference=lambda W, a, b, x, lr, n: by_node(W, a, b, x, 2 * lr, n))


class NoDataclass:
    weights, draws = "doubly", 1


class OtherWeights(Diffusion):
    weights = "row"


class DrawsMore(Diffusion):
    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        return State(mix(s.x - self.lr(t) * (grad(s.x) + grad(s.x)) / 2))


class DrawsMoreLater(Diffusion):
    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        drawn = [grad(s.x) for _ in range(1 if t < 3 else 2)]
        return State(mix(s.x - self.lr(t) * drawn[0]))


class DrawsNothing(Diffusion):
    draws = 0


class LooksBehind(Diffusion):
    def step(self, s: Any, grad: Any, mix: Mix, t: int) -> Any:
        return State(mix(s.x - self.lr(t) * grad._records.mean()))


class ShortPoints(Diffusion):
    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        return State(mix(s.x - self.lr(t) * grad(s.x[:1])))


class MixesTwice(Diffusion):
    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        return State(mix(mix(s.x - self.lr(t) * grad(s.x))))


class NoTuple(Diffusion):
    def init(self, x0: Tensor) -> Any:
        return {"x": x0}


class Counting(NamedTuple):
    x: Tensor
    count: Any


class CountsInAnInteger(Diffusion):
    def init(self, x0: Tensor) -> Any:
        return Counting(x0, 0)


class ForgetsTheNodes(Diffusion):
    def init(self, x0: Tensor) -> Any:
        return Counting(x0, torch.zeros(2))


class ChangesItsType(Diffusion):
    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        return State(mix(s.x - self.lr(t) * grad(s.x)).double())


class StartsElsewhere(Diffusion):
    def init(self, x0: Tensor) -> Any:
        return State(torch.zeros_like(x0))


class WritesIntoItsState(Diffusion):
    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        s.x.sub_(self.lr(t) * grad(s.x))
        return State(mix(s.x))


class DividesByLengths(Diffusion):
    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        g = grad(s.x)
        return State(mix(s.x - self.lr(t) * g * (1 / (float(g.abs().max()) / float(g.abs().max())))))


class SendsMoreLater(Diffusion):
    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        moved = s.x - self.lr(t) * grad(s.x)
        return State(mix(moved, moved)[0] if t > 3 else mix(moved))


class DrawsByItself(Diffusion):
    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        return State(mix(s.x - self.lr(t) * grad(s.x) * (1 + 0.01 * torch.rand_like(s.x))))


@dataclass(frozen=True, kw_only=True)
class KeepsInTheObject(Diffusion):
    velocity: list[Tensor] = field(default_factory=list, init=False)

    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        if t == 0:
            self.velocity.clear()
        g = grad(s.x) + (0.5 * self.velocity[-1] if self.velocity else 0)
        if g.device.type != "meta":
            self.velocity.append(g)
        return State(mix(s.x - self.lr(t) * g))


class MeansOverHostedNodes(Diffusion):
    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        g = grad(s.x)
        return State(mix(s.x - self.lr(t) * g.mean(0, keepdim=True).expand_as(g)))


class MixesByTheNumberOfNodes(Diffusion):
    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        moved = s.x - self.lr(t) * grad(s.x)
        return State(mix(moved, moved)[0] if len(moved) == 4 else mix(moved))


class GoesUphill(Diffusion):
    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        return State(mix(s.x + self.lr(t) * grad(s.x)))


class StaysAlone(Diffusion):
    def step(self, s: Any, grad: Grad, mix: Mix, t: int) -> Any:
        mix(s.x)
        return State(s.x - self.lr(t) * grad(s.x))


class DoesNotDivide(Diffusion):
    """Column weights keep sums, not means."""

    weights = "column"


BROKEN: list[tuple[type[Any], str]] = [
    (NoDataclass, "is no dataclass; write @dataclass"),
    (OtherWeights, r"OtherWeights\.weights must say which mixing it needs: column, doubly, adjacency"),
    (DrawsMore, r"draws = 1, but round 0 called grad 2 times; the budget pays"),
    (DrawsMoreLater, r"draws = 1, but round 3 called grad 2 times"),
    (DrawsNothing, r"draws = 0 must be how often a round calls grad"),
    (
        LooksBehind,
        "asks grad for '_records'; an algorithm sees the private gradients and nothing behind them",
    ),
    (ShortPoints, r"asks for gradients at points of shape \(1, 5\)"),
    (MixesTwice, r"called mix 2 times in round 0.* property mixes"),
    (NoTuple, "state is a dict; make it a NamedTuple of tensors"),
    (CountsInAnInteger, "state has count, a int; all of it must be tensors"),
    (ForgetsTheNodes, r"state has count, of shape \(2,\); .* first axis is the 7 nodes"),
    (ChangesItsType, r"changes x from \(7, 5\) torch.float32 to \(7, 5\) torch.float64"),
    (StartsElsewhere, r"model\(init\(x0\)\) is not x0"),
    (WritesIntoItsState, "writes into x0, x, which it was given"),
    (
        DividesByLengths,
        "fails on a node whose numbers are all zero .ZeroDivisionError.*it must take any numbers",
    ),
    (SendsMoreLater, "a message must be as long in every round"),
    (DrawsByItself, "gives other numbers the second time; take randomness from a generator"),
    (
        KeepsInTheObject,
        "continues differently from a checkpoint; all that later rounds need must be in the state",
    ),
    (MeansOverHostedNodes, r"blocks of \[3, 4\]; nothing may be computed over the first axis"),
    (MixesByTheNumberOfNodes, r"fails where .* blocks of \[3, 4\].* every block must mix the same tensors"),
    (GoesUphill, "of the way to the minimum of a quadratic after 300 rounds without noise"),
    (StaysAlone, "nodes with different records end 100% as far .* it must mix what it computes"),
    (DoesNotDivide, "column weights keep sums, so models must be divided"),
]


@pytest.mark.parametrize(("rule", "says"), BROKEN, ids=lambda case: getattr(case, "__name__", ""))
def test_a_broken_method_is_caught_with_what_to_mend(rule: type[Any], says: str) -> None:
    with pytest.raises(AssertionError, match=says) as caught:
        check_algorithm(rule)
    assert str(caught.value).startswith(rule.__name__)
    assert str(caught.value).endswith(".")
