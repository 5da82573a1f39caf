"""Which records of a node enter a draw. The choice is secret, so it comes from the same stream as the noise.

A lot is ragged over nodes: it is padded to the longest and masked, never truncated, for a truncated draw would no
longer be the one the accountant prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.errors import UserError
from gossamer.kernels.noise import Indices, Stream
from gossamer.mechanism.noise.base import SAMPLING


class Lot(NamedTuple):
    rows: Tensor  # (m, B) int64, a record's place among its node's records
    mask: Tensor  # (m, B) bool, False where padded


class Sampler(Protocol):
    kind: ClassVar[str]

    @property
    def rates(self) -> Sequence[float]:
        """What the ledger says of each hosted node: the sampler that draws is the one that is priced."""
        ...

    @property
    def disjoint(self) -> bool:
        """Are the lots of a pass disjoint, so that a record is in one of them?"""
        ...

    def draw(self, stream: Stream, nodes: Indices, sizes: Sequence[int], step: int) -> Lot: ...

    def passes(self, step: int) -> list[int] | None:
        """Which pass over its records each hosted node is in; None where there are no passes."""
        ...

    def lot_numbers(self, step: int) -> list[int] | None:
        """Which lot of its pass each hosted node is at, where being one of many lots hides a record; else None."""
        ...

    def repeated(self, times: int, sizes: Sequence[int]) -> Sampler:
        """For every node `times` over, with these numbers of records: an audit's many runs side by side."""
        ...


class _WithoutPasses:
    disjoint: ClassVar[bool] = False

    def passes(self, step: int) -> list[int] | None:
        return None

    def lot_numbers(self, step: int) -> list[int] | None:
        return None


@dataclass(frozen=True)
class PoissonSampler(_WithoutPasses):
    """Every record by an independent coin of probability q_i.

    The threshold is rounded down to 64 bits: the true rate is at most the stated one, on the safe side.
    """

    rates: Sequence[float]  # per hosted node
    kind: ClassVar[str] = "poisson"

    def draw(self, stream: Stream, nodes: Indices, sizes: Sequence[int], step: int) -> Lot:
        held = np.asarray(sizes)
        coins = stream.uniform_bits_rows(SAMPLING, nodes, step, int(held.max()))
        heads = coins <= self._highest[:, None]
        heads &= np.arange(coins.shape[1]) < held[:, None]
        return _pad(heads.nonzero(), len(sizes))

    def repeated(self, times: int, sizes: Sequence[int]) -> Sampler:
        return PoissonSampler([rate for rate in self.rates for _ in range(times)])

    @cached_property
    def _highest(self) -> NDArray[np.uint64]:
        return _highest_words(self.rates)


@dataclass(frozen=True)
class UnevenPoissonSampler(_WithoutPasses):
    """One node, every record by an independent coin of its own probability; the largest is the one that is priced.

    A record's ε grows with its rate, so the figure at the largest rate holds for all.
    """

    record_rates: Sequence[float]
    kind: ClassVar[str] = "poisson"

    @property
    def rates(self) -> Sequence[float]:
        return [max(self.record_rates)]

    def draw(self, stream: Stream, nodes: Indices, sizes: Sequence[int], step: int) -> Lot:
        coins = stream.uniform_bits_rows(SAMPLING, nodes, step, sizes[0])
        return _pad((coins <= self._highest).nonzero(), 1)

    def repeated(self, times: int, sizes: Sequence[int]) -> Sampler:
        if len(set(self.record_rates)) > 1:
            raise UserError(
                "baseline = 'central' draws records at different rates here, which an audit cannot stack; use "
                "weighting = 'size'."
            )
        return PoissonSampler(list(self.rates) * times)

    @cached_property
    def _highest(self) -> NDArray[np.uint64]:
        return _highest_words(self.record_rates)


@dataclass(frozen=True)
class FixedSizeSampler(_WithoutPasses):
    """A uniform subset of fixed size, without replacement."""

    lots: Sequence[int]  # per hosted node
    sizes: Sequence[int]  # the true J_i, which the rate depends on
    kind: ClassVar[str] = "fixed-size"

    @property
    def rates(self) -> Sequence[float]:
        return [lot / size for lot, size in zip(self.lots, self.sizes, strict=True)]

    def draw(self, stream: Stream, nodes: Indices, sizes: Sequence[int], step: int) -> Lot:
        if list(sizes) != list(self.sizes):
            raise ValueError(f"made for nodes of {self.sizes} records, asked to draw from {sizes}")
        rows, columns = [], []
        numbers = np.atleast_1d(nodes).tolist()
        for i, (node, size, lot) in enumerate(zip(numbers, sizes, self.lots, strict=True)):
            # The smallest of 64-bit keys: equal keys, which would bias the subset, have probability < size² · 2⁻⁶⁵.
            keys = stream.uniform_bits(SAMPLING, node, step, size)
            columns.append(np.sort(np.argpartition(keys, lot - 1)[:lot]))
            rows.append(np.full(lot, i))
        return _pad((np.concatenate(rows), np.concatenate(columns)), len(sizes))

    def repeated(self, times: int, sizes: Sequence[int]) -> Sampler:
        return FixedSizeSampler([lot for lot in self.lots for _ in range(times)], list(sizes))


@dataclass(frozen=True)
class OnePassSampler:
    """Disjoint lots: in every pass a record is in exactly one of T_i = ⌈J_i / L_i⌉ lots, which one is secret.

    The J_i records take J_i of T_i · L_i places by a secret permutation, and a lot is L_i places. A record more or
    less leaves all others where they are, so that lots stay disjoint under both adjacencies.
    """

    lots: Sequence[int]  # L_i per hosted node
    declared: Sequence[int]  # J_i per hosted node
    kind: ClassVar[str] = "one-pass"
    disjoint: ClassVar[bool] = True
    _dealt: dict[int, tuple[int, NDArray[np.int64]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # hosted node → (pass, record in each place, −1 where empty)

    @property
    def rates(self) -> Sequence[float]:
        return [min(1.0, lot / size) for lot, size in zip(self.lots, self.declared, strict=True)]

    @property
    def turns(self) -> list[int]:
        """T_i: lots in a pass."""
        return [-(-size // lot) for lot, size in zip(self.lots, self.declared, strict=True)]

    def passes(self, step: int) -> list[int]:
        return [step // turns for turns in self.turns]

    def lot_numbers(self, step: int) -> None:
        return None

    def repeated(self, times: int, sizes: Sequence[int]) -> Sampler:
        lots, declared = ([one for one in all_ for _ in range(times)] for all_ in (self.lots, self.declared))
        return OnePassSampler(lots, declared)

    def draw(self, stream: Stream, nodes: Indices, sizes: Sequence[int], step: int) -> Lot:
        rows, columns = [], []
        numbers = np.atleast_1d(nodes).tolist()
        for i, (node, size, lot, turns) in enumerate(zip(numbers, sizes, self.lots, self.turns, strict=True)):
            places = self._deal(stream, i, node, size, turns * lot, step // turns)
            held = places[step % turns * lot : (step % turns + 1) * lot]
            columns.append(held[held >= 0])
            rows.append(np.full(len(columns[-1]), i))
        return _pad((np.concatenate(rows), np.concatenate(columns)), len(sizes))

    def _deal(
        self, stream: Stream, i: int, node: int, size: int, places: int, number: int
    ) -> NDArray[np.int64]:
        if size > places:
            raise ValueError(f"node {node} holds {size} records but declared places for {places}")
        if self._dealt.get(i, (-1,))[0] != number:
            order = np.argsort(stream.uniform_bits(SAMPLING, node, number, places), kind="stable")
            dealt = np.full(places, -1, dtype=np.int64)
            dealt[order[:size]] = np.arange(size)
            self._dealt[i] = number, dealt
        return self._dealt[i][1]


@dataclass(frozen=True)
class BallsAndBinsSampler:
    """Disjoint lots: in every pass each record draws one of T_i lots by itself, uniformly, whatever the others draw.

    Nothing is remembered: the draws of a pass stand in the stream under its number, and every lot reads them again. A
    64-bit word modulo T_i prefers a lot by at most T_i · 2⁻⁶⁴ of its probability: what the accountant adds to δ for
    rounding covers that.
    """

    turns: Sequence[int]  # T_i per hosted node
    kind: ClassVar[str] = "balls-and-bins"
    disjoint: ClassVar[bool] = True

    @property
    def rates(self) -> Sequence[float]:
        return [1 / turns for turns in self.turns]

    def passes(self, step: int) -> list[int]:
        return [step // turns for turns in self.turns]

    def lot_numbers(self, step: int) -> list[int]:
        return [step % turns for turns in self.turns]

    def draw(self, stream: Stream, nodes: Indices, sizes: Sequence[int], step: int) -> Lot:
        held, turns = np.asarray(sizes), np.asarray(self.turns, dtype=np.uint64)
        words = stream.uniform_bits_rows(SAMPLING, nodes, self.passes(step), int(held.max()))
        chosen = words % turns[:, None] == np.asarray(self.lot_numbers(step), dtype=np.uint64)[:, None]
        chosen &= np.arange(words.shape[1]) < held[:, None]
        return _pad(chosen.nonzero(), len(sizes))

    def repeated(self, times: int, sizes: Sequence[int]) -> Sampler:
        return BallsAndBinsSampler([turns for turns in self.turns for _ in range(times)])


@dataclass(frozen=True)
class FullSampler(_WithoutPasses):
    """All records of the node."""

    nodes: int
    kind: ClassVar[str] = "full"

    @property
    def rates(self) -> Sequence[float]:
        return [1.0] * self.nodes

    def draw(self, stream: Stream, nodes: Indices, sizes: Sequence[int], step: int) -> Lot:
        everyone = np.arange(max(sizes)) < np.asarray(sizes)[:, None]
        return _pad(everyone.nonzero(), len(sizes))

    def repeated(self, times: int, sizes: Sequence[int]) -> Sampler:
        return FullSampler(len(sizes))


def _highest_words(rates: Sequence[float]) -> NDArray[np.uint64]:
    """A coin up to this is heads: ≤ threshold − 1, not < threshold, so that rate 1 (threshold 2⁶⁴) fits into a word."""
    known = {rate: max(int(rate * 2**64) - 1, 0) for rate in set(rates)}
    return np.array([known[rate] for rate in rates], dtype=np.uint64)


def _pad(pairs: tuple[NDArray[Any], ...], nodes: int) -> Lot:
    """(node, record) pairs, sorted by node → one padded row per node."""
    rows, columns = pairs
    counts = np.bincount(rows, minlength=nodes)
    longest = int(counts.max(initial=0))
    mask = np.arange(longest)[None, :] < counts[:, None]
    index = np.zeros((nodes, longest), dtype=np.int64)
    index[mask] = columns
    return Lot(torch.from_numpy(index), torch.from_numpy(mask))
