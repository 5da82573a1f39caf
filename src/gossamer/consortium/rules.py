"""Exchange rules that survive crashed sites and lost messages, and the algorithms that have one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.push_sum import PushSum
from gossamer.algorithms.wrappers import Centre, FinalGossip, Mixes, Momentum, TailAverage, Wrapper, mixes_of
from gossamer.errors import UserError
from gossamer.methods.km.algorithm import KM


class Rule:
    """Averages by a doubly stochastic, symmetric W: over an edge flows W_ij (x_i − x_j), from one site to the other.

    A rule says what a site keeps of an exchange's tensors, what a neighbour gets, and what the algorithm gets back.
    """

    pairs = True  # both sites of an edge move by the same amount, or neither does
    weighted = False  # the last tensor is a push-sum weight

    def kept(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(tensors)

    def parcel(self, share: float, own: Sequence[Tensor], offer: Sequence[Tensor]) -> list[Tensor]:
        return [share * (a.double() - b.double()) for a, b in zip(own, offer, strict=True)]

    def result(self, total: Sequence[Tensor], own: Sequence[Tensor], moves: int) -> list[Tensor]:
        return list(total)

    def renewed(self, state: Any) -> Any:
        """Return the state with which a new epoch begins."""
        return state


class Shares(Rule):
    """Push-sum: a neighbour gets its share of x and w, and a share that cannot leave is kept."""

    pairs = False
    weighted = True

    def parcel(self, share: float, own: Sequence[Tensor], offer: Sequence[Tensor]) -> list[Tensor]:
        return [share * tensor for tensor in own]

    def renewed(self, state: Any) -> Any:
        """x ← x / w, w ← 1."""
        return state._replace(x=state.x / state.w, w=torch.ones_like(state.w))


class TrackedAverages(Rule):
    """Averages of x and of a tracker y of the gradients g."""

    def renewed(self, state: Any) -> Any:
        """Σ y = Σ g over the sites of the new epoch."""
        return state._replace(y=state.g.clone())


class Sums(Rule):
    """Sums over neighbours: x_i − x_j flows over an edge, and the sum is that of x_i + what flowed in, edge by edge."""

    def kept(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [torch.zeros_like(tensor) for tensor in tensors]

    def parcel(self, share: float, own: Sequence[Tensor], offer: Sequence[Tensor]) -> list[Tensor]:
        return super().parcel(1.0, own, offer)

    def result(self, total: Sequence[Tensor], own: Sequence[Tensor], moves: int) -> list[Tensor]:
        return [moves * tensor.double() + flow for tensor, flow in zip(own, total, strict=True)]

    def renewed(self, state: Any) -> Any:
        """The dual variables sum to 0 over the sites of the new epoch."""
        return state._replace(y=torch.zeros_like(state.y))


_RULES: dict[type[Any], Rule] = {
    PushSum: Shares(),
    DSGD: Rule(),
    DSGT: TrackedAverages(),
    DiNNO: Sums(),
    KM: Rule(),
}
_WRAPPERS = (Momentum, Mixes, TailAverage)
_PUSH_SUM_WRAPPERS = (FinalGossip, Centre)  # agree by push-sum themselves


def rule_of(algorithm: Algorithm) -> Rule:
    """Return the rule of an algorithm's exchanges, or refuse what is not known to survive lost messages.

    The recipe's refusal (study.py) names its key; this one holds for whatever a recipe was expanded into.
    """
    wrappers, inner = [], algorithm
    while isinstance(inner, Wrapper):
        wrappers.append(inner)
        inner = inner.inner
    rule = _RULES.get(type(inner))
    if rule is None:
        raise UserError(
            f"algorithm.kind: {type(inner).__name__} is not known to survive lost messages, so peers cannot run it;"
            " use push-sum, dsgd, dsgt or dinno."
        )
    allowed = (*_WRAPPERS, *_PUSH_SUM_WRAPPERS) if rule.weighted else _WRAPPERS
    for wrapper in wrappers:
        if not isinstance(wrapper, allowed):
            raise UserError(
                f"{type(wrapper).__name__} around {type(inner).__name__} is not known to survive lost messages, so "
                "peers cannot run it; use push-sum without exact means."
            )
    return rule


def channel_of(algorithm: Algorithm, t: int, call: int) -> int:
    """Return which variable exchange `call` of round t moves: 0 the algorithm's own, 1 and 2 those of wrappers."""
    piece: Any = algorithm
    while isinstance(piece, Wrapper):
        if isinstance(piece, Centre) and t == 0:
            if call < piece.rounds:
                return 1
            call -= piece.rounds
        if isinstance(piece, FinalGossip) and t == piece.last and call >= mixes_of(piece.inner):
            return 2
        piece = piece.inner
    return 0
