"""How a method's exchange survives among sites that crash, leave and miss messages; and which cannot, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.push_sum import PushSum
from gossamer.algorithms.wrappers import (
    Centre,
    ExactMean,
    FinalGossip,
    Mixes,
    Momentum,
    Piece,
    TailAverage,
    bare,
    mixes_of,
)
from gossamer.errors import UserError


class Rule(Protocol):
    """What is kept of an exchange's tensors, what a neighbour gets of them, and what the algorithm gets back."""

    pairs: bool  # both sites of an edge move by the same amount, or neither does
    weighted: bool  # the last tensor is a push-sum weight

    def kept(self, tensors: Sequence[Tensor]) -> list[Tensor]: ...

    def parcel(self, share: float, own: Sequence[Tensor], offer: Sequence[Tensor]) -> list[Tensor]: ...

    def result(self, total: Sequence[Tensor], own: Sequence[Tensor], moves: int) -> list[Tensor]: ...

    def renewed(self, state: Any) -> Any: ...


@dataclass(frozen=True)
class Shares:
    """Push-sum: a neighbour gets its share of x and w, and a share that cannot leave is kept."""

    pairs = False
    weighted = True

    def kept(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(tensors)

    def parcel(self, share: float, own: Sequence[Tensor], offer: Sequence[Tensor]) -> list[Tensor]:
        return [share * tensor for tensor in own]

    def result(self, total: Sequence[Tensor], own: Sequence[Tensor], moves: int) -> list[Tensor]:
        return list(total)

    def renewed(self, state: Any) -> Any:
        """A new epoch: x ← x / w, w ← 1."""
        return state._replace(x=state.x / state.w, w=torch.ones_like(state.w))


@dataclass(frozen=True)
class Averages:
    """Doubly stochastic, symmetric W: over an edge flows W_ij (x_i − x_j), out of one site and into the other."""

    tracks: bool  # the state has a tracker y of the gradients g
    pairs = True
    weighted = False

    def kept(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(tensors)

    def parcel(self, share: float, own: Sequence[Tensor], offer: Sequence[Tensor]) -> list[Tensor]:
        return [share * (a.double() - b.double()) for a, b in zip(own, offer, strict=True)]

    def result(self, total: Sequence[Tensor], own: Sequence[Tensor], moves: int) -> list[Tensor]:
        return list(total)

    def renewed(self, state: Any) -> Any:
        """A new epoch: Σ y = Σ g over the sites there are now."""
        return state._replace(y=state.g.clone()) if self.tracks else state


@dataclass(frozen=True)
class Sums:
    """Sums over neighbours: x_i − x_j flows over an edge, and the sum is that of x_i + what flowed in, edge by edge."""

    pairs = True
    weighted = False

    def kept(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [torch.zeros_like(tensor) for tensor in tensors]

    def parcel(self, share: float, own: Sequence[Tensor], offer: Sequence[Tensor]) -> list[Tensor]:
        return [a.double() - b.double() for a, b in zip(own, offer, strict=True)]

    def result(self, total: Sequence[Tensor], own: Sequence[Tensor], moves: int) -> list[Tensor]:
        return [moves * tensor.double() + flow for tensor, flow in zip(own, total, strict=True)]

    def renewed(self, state: Any) -> Any:
        """A new epoch: the dual variables sum to 0 over the sites there are now."""
        return state._replace(y=torch.zeros_like(state.y))


_RULES: dict[type[Any], Rule] = {
    PushSum: Shares(),
    DSGD: Averages(tracks=False),
    DSGT: Averages(tracks=True),
    DiNNO: Sums(),
}
_PIECES = (Momentum, Mixes, TailAverage)


def rule_of(algorithm: Algorithm, also: Mapping[type[Any], Rule] | None = None) -> Rule:
    """How this algorithm's exchanges survive; a `UserError` that names what does not.

    `also`: the rules of methods from folders of their own, such as {KM: Averages(tracks=False)}.
    """
    piece: Any = algorithm
    while isinstance(piece, Piece):
        if isinstance(piece, ExactMean):
            raise UserError(
                "privacy.noise needs exact means, and one lost message spoils an exact mean for everybody: peers"
                " cannot run it. Use noise that does not cancel between nodes, with push-sum."
            )
        if not isinstance(piece, (*_PIECES, FinalGossip, Centre)):
            raise UserError(
                f"{type(piece).__name__} around an algorithm is not known to survive lost messages: peers refuse it."
            )
        if isinstance(piece, FinalGossip | Centre) and bare(piece).weights != "column":
            raise UserError(
                f"{type(piece).__name__} agrees by push-sum, and {type(bare(piece)).__name__} does not:"
                " peers cannot run both; use push-sum."
            )
        piece = piece.inner
    return _named(piece, {**_RULES, **(also or {})})


def _named(algorithm: Any, rules: Mapping[type[Any], Rule]) -> Rule:
    if type(algorithm) in rules:
        return rules[type(algorithm)]
    raise UserError(
        f"algorithm.kind: {type(algorithm).__name__} is not known to survive lost messages, so peers cannot run it;"
        " use push-sum, dsgd, dsgt or dinno."
    )


def channel_of(algorithm: Algorithm, t: int, call: int) -> int:
    """Which variable the exchange `call` of round t moves: 0 the algorithm's own, 1 and 2 those agreed upon apart."""
    piece: Any = algorithm
    while isinstance(piece, Piece):
        if isinstance(piece, Centre) and t == 0:
            if call < piece.rounds:
                return 1
            call -= piece.rounds
        if isinstance(piece, FinalGossip) and t == piece.last and call >= mixes_of(piece.inner):
            return 2
        piece = piece.inner
    return 0
