"""A turn of the method with a private part and a token that only write down what is asked of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gossamer.algorithms.base import Exponential
from gossamer.methods.without_replacement.algorithm import WithoutReplacement
from gossamer.methods.without_replacement.controllers import Observation
from gossamer.methods.without_replacement.token import Token, TokenExchange
from gossamer.runtime.group import Alone

NODES, CLASSES, WIDTH = 3, 2, 2


class Private:
    """Writes add 1 to the chosen classes; what happened is in `log`."""

    def __init__(self, closing: list[bool], may: list[bool]) -> None:
        self.closing, self.may = torch.tensor(closing), torch.tensor(may)
        self.log: list[Any] = []

    def open(self, t: int, lr: float) -> Observation:
        self.log.append(("open", t, lr))
        return Observation(torch.zeros(NODES, CLASSES, 1), None, self.closing, range(NODES), NODES)

    def may_write(self) -> Tensor:
        return self.may

    def prepare(self, wants: Tensor) -> None:
        self.log.append(("prepare", wants.tolist()))

    def write(self, i: int, public: Tensor, chosen: Tensor) -> Tensor:
        self.log.append(("write", i))
        return public + chosen[:, None]

    def step_locally(self, wants: Tensor) -> None:
        self.log.append(("step_locally", wants.tolist()))


def turn(algorithm: WithoutReplacement, private: Private, t: int = 0) -> Any:
    exchange = TokenExchange(Alone(NODES), 0, Token(torch.zeros(CLASSES, WIDTH)))
    state = algorithm.init(torch.zeros(NODES, CLASSES * WIDTH))
    return algorithm.step(state, private, lambda *parts: exchange(t, *parts), t)


def wants(private: Private) -> list[list[bool]]:
    (found,) = [entry[1] for entry in private.log if entry[0] == "prepare"]
    return found


def made(**options: Any) -> WithoutReplacement:
    return WithoutReplacement(lr=Exponential(0.5, 1.0, 10, 1.0), rounds=10, **options)


def test_events_are_prepared_before_the_first_write_and_settled_after_the_last() -> None:
    private = Private([False] * 3, [True] * 3)
    state = turn(made(controller="global"), private, 1)
    assert [entry[0] for entry in private.log] == [
        "open",
        "prepare",
        "write",
        "write",
        "write",
        "step_locally",
    ]
    assert private.log[0] == ("open", 1, 0.25)
    assert state.public.tolist() == [[3.0] * 4]
    assert int(state.writes) == 3
    assert torch.equal(made().model(state), state.public)


def test_a_pass_that_another_follows_ends_with_a_write() -> None:
    private = Private([False, True, False], [True] * 3)
    turn(made(controller="probability", probability=0.0), private)
    assert wants(private) == [[False, False], [True, True], [False, False]]
    last = Private([False, True, False], [True] * 3)
    turn(made(controller="probability", probability=0.0), last, 9)
    assert wants(last) == [[False, False]] * 3
    alone = Private([True] * 3, [True] * 3)
    turn(made(controller="local"), alone)
    assert wants(alone) == [[False, False]] * 3


def test_a_node_without_budget_does_not_write() -> None:
    private = Private([True] * 3, [True, False, True])
    state = turn(made(controller="global"), private)
    assert wants(private) == [[True, True], [False, False], [True, True]]
    assert int(state.writes) == 2


@pytest.mark.parametrize(
    ("name", "looks"),
    [
        ("global", False), ("local", False), ("pass-end", False), ("probability", False),
        ("deep-q", True), ("loss-threshold", True),
    ],
)  # fmt: skip
def test_every_controller_chooses_for_each_node_and_class(name: str, looks: bool) -> None:
    algorithm, private = made(controller=name), Private([False] * 3, [True] * 3)
    chosen = algorithm.make_controller()(private.open(0, 0.1), 0)
    assert (chosen.shape, chosen.dtype) == ((NODES, CLASSES), torch.bool)
    assert algorithm.looks == looks


def test_a_run_starts_with_the_first_models_first_row_that_nobody_holds() -> None:
    state = made(controller="global").init(torch.arange(12.0).reshape(3, 4))
    assert state.public.tolist() == [[0.0, 1.0, 2.0, 3.0]]
    assert (int(state.holder), int(state.writes)) == (-1, 0)
