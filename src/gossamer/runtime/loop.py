"""The one loop all runtimes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from gossamer.algorithms.base import Algorithm


class Exchange(Protocol):
    """One round's exchange with the neighbours, whatever carries it."""

    def __call__(self, t: int, *tensors: Any) -> Any: ...


def run(
    algorithm: Algorithm,
    state: Any,
    grad: Any,
    exchange: Exchange,
    *,
    rounds: int,
    start: int = 0,
    after_round: Callable[[int, Any], None] = lambda t, state: None,
) -> Any:
    """Rounds start … rounds−1; `after_round(t, state)` sees the state once round t is complete.

    `grad` is the private part that the algorithm's step works on.
    """
    for t in range(start, rounds):
        state = algorithm.step(state, grad, lambda *tensors, t=t: exchange(t, *tensors), t)
        after_round(t, state)
    return state
