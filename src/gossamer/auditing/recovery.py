"""From messages back to noised gradients: the update rule of every algorithm, inverted by an observer of all messages.

A recovery is a generator that is sent one `Look` per exchange, finally the models as a look that received nothing,
and yields the draws that the look reveals. A new algorithm is one function and one line in `RECOVERIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.push_sum import PushSum
from gossamer.algorithms.wrappers import ExactMean
from gossamer.errors import UserError
from gossamer.methods.km.algorithm import KM
from gossamer.methods.km.operators import Operator
from gossamer.methods.km.proximal import L1, NOTHING, Box, ElasticNet, Nothing, Penalty, SquaredL2


@dataclass(frozen=True)
class Look:
    """One exchange: what all nodes sent and what mixing made of it. `received` is empty for the final models."""

    t: int
    sent: tuple[Tensor, ...]
    received: tuple[Tensor, ...]


@dataclass(frozen=True)
class Draw:
    """value = Σ gain · g_k over the draws k: a noised gradient, or several that cannot be told apart.

    Where messages carry noise of their own, `message_gain` times that of one message is in it too. `known` says which
    coordinates came through, all if None.
    """

    draws: tuple[int, ...]
    value: Tensor
    gains: tuple[Any, ...] = (1.0,)
    message_gain: float = 0.0
    known: Tensor | None = None


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


Revealed = Draw | Sign | Step
Recovery = Generator[list[Revealed], Look, None]


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
    revealed: list[Revealed] = []
    last = yield []
    while last.received:
        now = yield revealed
        revealed = [Draw((last.t,), (last.received[0] - now.sent[0]) / a.lr(last.t))]
        last = now
    yield revealed


def dsgt(a: DSGT, state: Any) -> Recovery:
    """y⁺ = Wy + g − g_prev is sent beside θ: sums of its changes are the gradients. The last one is never sent."""
    revealed: list[Revealed] = []
    g: Any = state.g
    last = yield []
    while True:
        now = yield revealed
        if not now.received:
            break
        g = now.sent[1] - last.received[1] + g
        revealed = [Draw((last.t,), g)]
        last = now
    yield []


def exact_mean(a: ExactMean, state: Any) -> Recovery:
    """The first message of a mean is the gradient itself."""
    look = yield []
    while look.received:
        draw, step = divmod(look.t, a.mean.exchanges)
        look = yield [Draw((draw,), a.mean.read(look.sent[0]).float())] if step == 0 else []
    yield []


def dinno(a: DiNNO, state: Any) -> Recovery:
    """Duals and anchors follow from the messages, so what is left of a step is the gradient, or with Adam its sign."""
    revealed: list[Revealed] = []
    y = state.y
    last = yield []
    while last.received:
        now = yield revealed
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
            revealed = [Draw(draws, total, gains)]
        elif a.steps == 1 and not a.persistent:
            # The first step of a fresh Adam is η · h/(|h| + tiny): the sign of h = g + known + 2ρ·degree·x.
            revealed = [Sign(draws[0], now.sent[0] < x, known + 2 * a.rho * degree * x)]
        else:
            revealed = [Step((x - now.sent[0]) / lr)]
        last = now
    yield revealed


def km(a: KM, state: Any) -> Recovery:
    """x⁺ = prox(Wx + α (T(x) − x)): undo the map, take off the mixture, and T gives its answer about records away.

    If the messages are noised, x̃ = x + n, the same arithmetic leaves the answer with the next message's noise on it;
    the last iterate has none. T is then undone at x̃, not at the x it was taken at: with a penalty that is a guess.
    """
    reads, outer = taken_apart(a)
    before, after = (outer, NOTHING) if a.prox_first else (NOTHING, outer)
    gain = answer_gain(a)
    undo(outer, torch.zeros(1), 1.0)  # a penalty without an inverse shows now
    revealed: list[Revealed] = []
    last = yield []
    while last.received:
        now = yield revealed
        x, alpha = last.sent[0], a.lr(last.t)
        revealed = []
        if now.received or torch.equal(a.mapping.solution(x), x):  # else the model is not the last iterate
            moved, seen = undo(after, now.sent[0], alpha * a.gamma)
            rounding = (
                8 * torch.finfo(x.dtype).eps * (x.abs() + (moved.abs() + last.received[0].abs()) / alpha)
            )
            inside, also = undo(before, x + (moved - last.received[0]) / alpha, a.gamma, rounding)
            answer = (inside - reads(x, torch.zeros_like)) / gain
            known = seen if also is None else also
            revealed = [
                Draw(
                    (last.t,),
                    answer,
                    message_gain=1 / abs(alpha * gain) if now.received else 0.0,
                    known=known,
                )
            ]
        last = now
    yield revealed


def taken_apart(a: KM) -> tuple[Operator, Penalty]:
    """(what meets the records, the penalty's map around it if that stands apart)."""
    apart: Any = getattr(a.mapping, "apart", None)
    return (a.mapping, NOTHING) if apart is None else apart()


def answer_gain(a: KM) -> float:
    """How often an answer about records is in T(x), read off the operator's own code; it must be a fixed number."""
    reads, _ = taken_apart(a)
    point = torch.zeros(1, 2, dtype=torch.float64)
    none, one, two = (reads(point, partial(torch.full_like, fill_value=k)) for k in (0.0, 1.0, 2.0))
    gain = float((one - none)[0, 0])
    if a.draws != 1 or gain == 0 or not torch.allclose(two - none, torch.full_like(point, 2 * gain)):
        raise UserError(
            f"algorithm.operator = {a.operator!r} does not let one answer about records through as it is, so its "
            "messages cannot be read backwards; use --canary release."
        )
    return gain


def undo(penalty: Penalty, x: Tensor, step: float, rounding: Any = 0.0) -> tuple[Tensor, Tensor | None]:
    """(what prox_{step·r} made x of, where it can be told; None: everywhere). `rounding` is how far x may be off."""
    if isinstance(penalty, Nothing):
        return x, None
    if isinstance(penalty, SquaredL2):
        return x * (1 + step * penalty.weight), None
    if isinstance(penalty, Box):
        return x, (x - rounding > penalty.low) & (x + rounding < penalty.high)
    if isinstance(penalty, L1 | ElasticNet):
        scale = 1 + step * penalty.l2 if isinstance(penalty, ElasticNet) else 1.0
        return x * scale + step * penalty.weight * x.sign(), x.abs() > rounding
    raise UserError(
        f"the penalty {type(penalty).__name__} has no inverse here, so messages behind it cannot be read backwards; "
        "use --canary release."
    )


RECOVERIES: dict[type, Callable[..., Recovery]] = {
    PushSum: push_sum,
    DSGD: dsgd,
    DSGT: dsgt,
    DiNNO: dinno,
    KM: km,
    ExactMean: exact_mean,
}


# Where the gradients are recovered only under a condition.
_EXACTLY: dict[type, Callable[[Any], bool]] = {
    KM: lambda a: isinstance(a.penalty, Nothing),
    DiNNO: lambda a: a.optimiser != "adam",
}


def recovery_of(algorithm: Any) -> Callable[..., Recovery]:
    recovery = RECOVERIES.get(type(algorithm))
    if recovery is None:
        raise UserError(
            f"the messages of {type(algorithm).__name__} cannot be read backwards yet; use --canary release."
        )
    return recovery


def reads_exactly(algorithm: Any) -> bool:
    """Are the gradients recovered exactly, not mixed with values of other nodes?"""
    exactly = _EXACTLY.get(type(algorithm))
    return exactly is None or exactly(algorithm)


class MessageReader:
    """A spectator that hands every draw that the messages, and the models if it sees them, reveal to `note`."""

    def __init__(self, algorithm: Any, note: Callable[[Revealed], None], *, sees_models: bool = True):
        self._algorithm, self._note, self._sees_models = algorithm, note, sees_models
        self._recovery: Recovery | None = None

    def start(self, state: Any) -> None:
        """Raises if the algorithm cannot be inverted."""
        self._recovery = recovery_of(self._algorithm)(self._algorithm, state)
        next(self._recovery)

    def see(self, t: int, sent: tuple[Tensor, ...], received: tuple[Tensor, ...]) -> None:
        self._take(Look(t, sent, received))

    def end(self, state: Any) -> None:
        if self._sees_models:
            self._take(Look(-1, (self._algorithm.model(state),), ()))

    def _take(self, look: Look) -> None:
        assert self._recovery is not None
        for revealed in self._recovery.send(look):
            self._note(revealed)
