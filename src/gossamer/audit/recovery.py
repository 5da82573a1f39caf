"""From messages back to noised gradients: every algorithm's update rule, read backwards by who sees all messages.

A recovery is a generator that is sent one `Look` per exchange, in the end the models as a look that received nothing,
and answers with the draws that look gives away. A new algorithm is one function and one line in `RECOVERIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.push_sum import PushSum
from gossamer.errors import UserError


@dataclass(frozen=True)
class Look:
    """One exchange: what all nodes sent and what mixing made of it. `received` is empty for the final models."""

    t: int
    sent: tuple[Tensor, ...]
    received: tuple[Tensor, ...]


@dataclass(frozen=True)
class Draw:
    """value = Σ gain · g_k over the draws k: a noised gradient, or several that cannot be told apart."""

    draws: tuple[int, ...]
    value: Tensor
    gains: tuple[Any, ...] = (1.0,)


@dataclass(frozen=True)
class Sign:
    """Only whether g_k + offset is positive came through."""

    draw: int
    positive: Tensor
    offset: Tensor


@dataclass(frozen=True)
class Step:
    """Something that grows with g_k, in a way nobody can read backwards."""

    value: Tensor


Found = list[Draw | Sign | Step]
Recovery = Generator[Found, Look, None]


def push_sum(a: PushSum, state: Any) -> Recovery:
    """The message is x − η g(x/w), and x is what mixing the last messages gave."""
    x = state.x
    look = yield []
    while look.received:
        g = (x - look.sent[0]) / a.lr(look.t)
        x = look.received[0]
        look = yield [Draw((look.t,), g)]
    yield []


def dsgd(a: DSGD, state: Any) -> Recovery:
    """θ⁺ = Wθ − η g(θ): the next message (or the final model) less the last mixture is the gradient."""
    found: Found = []
    last = yield []
    while last.received:
        now = yield found
        found = [Draw((last.t,), (last.received[0] - now.sent[0]) / a.lr(last.t))]
        last = now
    yield found


def dsgt(a: DSGT, state: Any) -> Recovery:
    """y⁺ = Wy + g − g_prev is sent beside θ: sums of its changes are the gradients. The last one is never sent."""
    found: Found = []
    g: Any = state.g
    last = yield []
    while True:
        now = yield found
        if not now.received:
            break
        g = now.sent[1] - last.received[1] + g
        found = [Draw((last.t,), g)]
        last = now
    yield []


def dinno(a: DiNNO, state: Any) -> Recovery:
    """Duals and anchors follow from the messages, so what is left of a step is the gradient, or with Adam its sign."""
    found: Found = []
    y = state.y
    last = yield []
    while last.received:
        now = yield found
        x, (neighbours, degree), lr = last.sent[0], last.received, a.lr(last.t)
        y = y + a.rho * (degree * x - neighbours)
        if a.include_self:
            neighbours, degree = neighbours + x, degree + 1
        known = y - a.rho * (degree * x + neighbours)  # what is added to g + 2ρ·degree·ψ in every inner step
        draws = tuple(last.t * a.steps + j for j in range(a.steps))
        if a.optimiser == "plain":
            # ψ ← (1 − 2ηρ·degree) ψ − η (g + known), `steps` times
            keep = 1 - 2 * lr * a.rho * degree
            gains = tuple(keep ** (a.steps - 1 - j) for j in range(a.steps))
            total = (keep**a.steps * x - now.sent[0]) / lr - sum(gains[1:], gains[0]) * known
            found = [Draw(draws, total, gains)]
        elif a.steps == 1 and not a.persistent:
            # The first step of a fresh Adam is η · h/(|h| + tiny): the sign of h = g + known + 2ρ·degree·x.
            found = [Sign(draws[0], now.sent[0] < x, known + 2 * a.rho * degree * x)]
        else:
            found = [Step((x - now.sent[0]) / lr)]
        last = now
    yield found


RECOVERIES: dict[type, Callable[..., Recovery]] = {
    PushSum: push_sum,
    DSGD: dsgd,
    DSGT: dsgt,
    DiNNO: dinno,
}


def recovery_of(algorithm: Any) -> Callable[..., Recovery]:
    found = RECOVERIES.get(type(algorithm))
    if found is None:
        raise UserError(
            f"the messages of {type(algorithm).__name__} cannot be read backwards yet; audit it with --observer final."
        )
    return found


def reads_exactly(algorithm: Any) -> bool:
    """Are the gradients themselves recovered, not only something that depends on other nodes' values too?"""
    return not (isinstance(algorithm, DiNNO) and algorithm.optimiser == "adam")
