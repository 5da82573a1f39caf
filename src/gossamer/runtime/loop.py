"""The one loop all runtimes share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol

from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.wrappers import exchanges_before, within_draws


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
    before_round: Callable[[int], None] = lambda t: None,
    after_round: Callable[[int, Any], None] = lambda t, state: None,
) -> Any:
    """Rounds start … rounds−1; `after_round(t, state)` sees the state once round t is complete.

    `grad` is the private part that the algorithm's step works on.
    """
    for t in range(start, rounds):
        before_round(t)
        # The exchanges of a round run over graphs of their own; most algorithms have one.
        graphs = itertools.count(exchanges_before(algorithm, t, getattr(grad, "draws", None)))
        # Some methods read records by a reader of their own instead, which counts by itself.
        own = within_draws(grad, algorithm, t) if callable(grad) else grad
        state = algorithm.step(state, own, lambda *tensors, g=graphs: exchange(next(g), *tensors), t)
        after_round(t, state)
    return state
