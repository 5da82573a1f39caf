"""Sampling of records, `privacy.sampling`. A kind is what a configuration names; its sampler draws the lots."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.errors import UserError
from gossamer.kernels.noise import Indices, Stream
from gossamer.mechanism.noise.base import SAMPLING
from gossamer.options.registry import Registry
from gossamer.options.types import Count, Positive, Share

T = TypeVar("T")


class Lot(NamedTuple):
    rows: Tensor  # (m, B) int64, a record's place among its node's records
    mask: Tensor  # (m, B) bool, False where padded

    def padded(self, places: int) -> Lot:
        missing = places - self.rows.shape[1]
        return Lot(*(torch.nn.functional.pad(part, (0, missing)) for part in self))


class Sampler(ABC):
    """The object that draws the lots of the hosted nodes, and states how they are priced."""

    kind: ClassVar[str]
    varies: ClassVar[bool] = False  # have lots other sizes than the expected one?
    disjoint: ClassVar[bool] = False  # are the lots of a pass disjoint, so that a record is in one of them?

    @property
    @abstractmethod
    def rates(self) -> Sequence[float]:
        """The sampling rates of the hosted nodes, as the ledger states them."""

    @abstractmethod
    def draw(self, stream: Stream, nodes: Indices, sizes: Sequence[int], step: int) -> Lot: ...

    @abstractmethod
    def repeated(self, times: int, sizes: Sequence[int]) -> Sampler:
        """For every node `times` over, with these numbers of records: an audit's many runs side by side."""

    def passes(self, step: int) -> list[int] | None:
        """The pass over its records that each hosted node is in; None where there are no passes."""
        return None

    def lot_numbers(self, step: int) -> list[int] | None:
        """The lot of its pass that each hosted node is at, where being one of many lots hides a record; else None."""
        return None


@dataclass(frozen=True)
class PoissonSampler(Sampler):
    """Every record by an independent coin of probability q_i, or those of one node by coins of their own.

    The threshold is rounded down to 64 bits: the true rate is at most the stated one, on the safe side. Of records with
    rates of their own the largest is the one that is priced: ε grows with the rate, so the figure holds for all.
    """

    probabilities: Sequence[float]  # of the hosted nodes, or of the records of a single one
    of_records: bool = False
    kind: ClassVar[str] = "poisson"
    varies: ClassVar[bool] = True

    @property
    def rates(self) -> Sequence[float]:
        return [max(self.probabilities)] if self.of_records else self.probabilities

    def draw(self, stream: Stream, nodes: Indices, sizes: Sequence[int], step: int) -> Lot:
        held = np.asarray(sizes)
        coins = stream.uniform_bits_rows(SAMPLING, nodes, step, int(held.max()))
        heads = coins <= self._highest
        heads &= np.arange(coins.shape[1]) < held[:, None]
        return _pad(heads.nonzero(), len(sizes))

    def repeated(self, times: int, sizes: Sequence[int]) -> Sampler:
        if self.of_records and len(set(self.probabilities)) > 1:
            raise UserError(
                "baseline = 'central' draws records at different rates here, which an audit cannot stack; use "
                "weighting = 'size'."
            )
        return PoissonSampler(_each(self.rates, times))

    @cached_property
    def _highest(self) -> NDArray[np.uint64]:
        """A coin up to this is heads: ≤ threshold − 1, not < threshold, so that rate 1 (threshold 2⁶⁴) fits a word."""
        known = {q: max(int(q * 2**64) - 1, 0) for q in set(self.probabilities)}
        words = np.array([known[q] for q in self.probabilities], dtype=np.uint64)
        return words if self.of_records else words[:, None]


@dataclass(frozen=True)
class FixedSizeSampler(Sampler):
    """A uniform subset of fixed size, without replacement."""

    lots: Sequence[int]  # per hosted node
    sizes: Sequence[int]  # the true J_i, which the rate depends on
    kind: ClassVar[str] = "fixed-size"

    @cached_property
    def rates(self) -> Sequence[float]:
        return [lot / size for lot, size in zip(self.lots, self.sizes, strict=True)]

    def draw(self, stream: Stream, nodes: Indices, sizes: Sequence[int], step: int) -> Lot:
        if list(sizes) != list(self.sizes):
            raise ValueError(f"made for nodes of {self.sizes} records, asked to draw from {sizes}")
        chosen = []
        for node, size, lot in zip(np.atleast_1d(nodes).tolist(), sizes, self.lots, strict=True):
            # The smallest of 64-bit keys: equal keys, which would bias the subset, have probability < size² · 2⁻⁶⁵.
            keys = stream.uniform_bits(SAMPLING, node, step, size)
            chosen.append(np.sort(np.argpartition(keys, lot - 1)[:lot]))
        return _of_each(chosen)

    def repeated(self, times: int, sizes: Sequence[int]) -> Sampler:
        return FixedSizeSampler(_each(self.lots, times), list(sizes))


@dataclass(frozen=True)
class OnePassSampler(Sampler):
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

    @cached_property
    def rates(self) -> Sequence[float]:
        return [min(1.0, lot / size) for lot, size in zip(self.lots, self.declared, strict=True)]

    @cached_property
    def turns(self) -> list[int]:
        """T_i: lots in a pass."""
        return [-(-size // lot) for lot, size in zip(self.lots, self.declared, strict=True)]

    def passes(self, step: int) -> list[int]:
        return [step // turns for turns in self.turns]

    def repeated(self, times: int, sizes: Sequence[int]) -> Sampler:
        return OnePassSampler(_each(self.lots, times), _each(self.declared, times))

    def draw(self, stream: Stream, nodes: Indices, sizes: Sequence[int], step: int) -> Lot:
        chosen = []
        for i, (node, size) in enumerate(zip(np.atleast_1d(nodes).tolist(), sizes, strict=True)):
            lot, turns = self.lots[i], self.turns[i]
            number, turn = divmod(step, turns)
            if size > turns * lot:
                raise ValueError(f"node {node} holds {size} records but declared places for {turns * lot}")
            if self._dealt.get(i, (-1,))[0] != number:
                order = np.argsort(stream.uniform_bits(SAMPLING, node, number, turns * lot), kind="stable")
                places = np.full(turns * lot, -1, dtype=np.int64)
                places[order[:size]] = np.arange(size)
                self._dealt[i] = number, places
            held = self._dealt[i][1][turn * lot : (turn + 1) * lot]
            chosen.append(held[held >= 0])
        return _of_each(chosen)


@dataclass(frozen=True)
class BallsAndBinsSampler(Sampler):
    """Disjoint lots: in every pass each record draws one of T_i lots by itself, uniformly and independently.

    Nothing is remembered: the draws of a pass are in the stream under its number, and every lot reads them again. A
    64-bit word modulo T_i prefers a lot by at most T_i · 2⁻⁶⁴ of its probability: what the accountant adds to δ for
    rounding covers that.
    """

    turns: Sequence[int]  # T_i per hosted node
    kind: ClassVar[str] = "balls-and-bins"
    disjoint: ClassVar[bool] = True
    varies: ClassVar[bool] = True

    @cached_property
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
        return BallsAndBinsSampler(_each(self.turns, times))


@dataclass(frozen=True)
class FullSampler(Sampler):
    """All records of the node."""

    nodes: int
    kind: ClassVar[str] = "full"

    @cached_property
    def rates(self) -> Sequence[float]:
        return [1.0] * self.nodes

    def draw(self, stream: Stream, nodes: Indices, sizes: Sequence[int], step: int) -> Lot:
        everyone = np.arange(max(sizes)) < np.asarray(sizes)[:, None]
        return _pad(everyone.nonzero(), len(sizes))

    def repeated(self, times: int, sizes: Sequence[int]) -> Sampler:
        return FullSampler(len(sizes))


def _each(values: Sequence[T], times: int) -> list[T]:
    """Every value `times` over."""
    return [value for value in values for _ in range(times)]


def _of_each(chosen: Sequence[NDArray[np.int64]]) -> Lot:
    """The chosen records of every node → one padded row per node."""
    rows = np.repeat(np.arange(len(chosen)), [len(own) for own in chosen])
    return _pad((rows, np.concatenate(chosen)), len(chosen))


def _pad(pairs: tuple[NDArray[Any], ...], nodes: int) -> Lot:
    """(node, record) pairs, sorted by node → one padded row per node."""
    rows, columns = pairs
    counts = np.bincount(rows, minlength=nodes)
    longest = int(counts.max(initial=0))
    mask = np.arange(longest)[None, :] < counts[:, None]
    index = np.zeros((nodes, longest), dtype=np.int64)
    index[mask] = columns
    return Lot(torch.from_numpy(index), torch.from_numpy(mask))


@dataclass(frozen=True)
class NodeLot:
    """The public facts of one node's lots."""

    node: int
    records: int  # declared J
    rate: float  # q
    lot: float  # L


class SamplingKind(ABC):
    """A sampling as it is configured."""

    kind: ClassVar[str]
    drawn_as: ClassVar[str]  # the sampler's kind: what a release says
    needs_true_sizes: ClassVar[bool] = False  # does the rate depend on the true number of records?
    disjoint: ClassVar[bool] = False  # are the lots of a pass disjoint?
    independent: ClassVar[bool] = False  # does every record fall into lots by itself, so that sizes vary?

    @abstractmethod
    def lot_of(self, records: int, node: int) -> tuple[float, float]:
        """(q, L) of a node that declared so many records."""

    @abstractmethod
    def make(self, nodes: Sequence[NodeLot], sizes: Sequence[int]) -> Sampler:
        """`sizes` are the true numbers of records."""

    def pooled(self, records: int, lot: float) -> tuple[float, float]:
        """(q, L) of so many records in lots of about this size."""
        return lot / records, lot

    def make_uneven(self, rates: Sequence[float]) -> Sampler | None:
        """Of one node whose records have rates of their own; None where that cannot be drawn."""
        return None

    def visits(self, rate: float, draws: int) -> float:
        """Return how often a record is looked at: exactly, or on average (once at least)."""
        return float(-(-draws // lots_in_a_pass(rate))) if self.disjoint else max(1.0, draws * rate)

    def pass_of(self, k: int, rate: float) -> int | None:
        """The pass over the records that draw k belongs to; None where there are no passes."""
        return k // lots_in_a_pass(rate) if self.disjoint else None

    def lot_number_of(self, k: int, rate: float) -> int | None:
        """Return the lot of its pass that draw k is, where being one of many lots hides a record; else None."""
        return None

    def priced(self, multipliers: Sequence[float], rate: float) -> tuple[str, list[float], int] | None:
        """(as which sampling, these multipliers, draws that each stands for): what an accountant is asked about.

        None: no such sequence costs the same, the releases have to be priced as they are.
        """
        return self.drawn_as, list(multipliers), 1


samplings: Registry[SamplingKind] = Registry("privacy.sampling")


class _OfSize(SamplingKind):
    """Lots of a number of records."""

    lot: int

    def lot_of(self, records: int, node: int) -> tuple[float, float]:
        return _at_most_one(self.lot / records, float(self.lot), records, node)


class _Subset(_OfSize):
    """Drawn without replacement from the true number of records."""

    needs_true_sizes: ClassVar[bool] = True
    drawn_as: ClassVar[str] = "fixed-size"

    def make(self, nodes: Sequence[NodeLot], sizes: Sequence[int]) -> Sampler:
        for node, size in zip(nodes, sizes, strict=True):
            if node.records != size:
                raise UserError(
                    f"privacy.sampling.kind = {self.kind!r} draws a share of the true number of records, and "
                    f"data.records = {node.records} is not that of node {node.node}; use kind = 'poisson'."
                )
        return FixedSizeSampler([round(node.lot) for node in nodes], list(sizes))


@samplings.register("poisson")
class Poisson(SamplingKind):
    """Every record by an independent coin; set the rate, or the expected lot."""

    rate: Annotated[Share | list[Share] | None, "probability of a record; one, or one per node"] = None
    lot: Annotated[Positive | None, "expected lot size: rate = lot / records"] = None
    drawn_as: ClassVar[str] = "poisson"
    independent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if (self.rate is None) == (self.lot is None):
            raise ValueError("needs exactly one of rate and lot (the expected lot size)")

    def lot_of(self, records: int, node: int) -> tuple[float, float]:
        rate = self.rate[node] if isinstance(self.rate, list) else self.rate
        lot = rate * records if rate is not None else self.lot or 0.0
        return _at_most_one(rate if rate is not None else lot / records, lot, records, node)

    def make(self, nodes: Sequence[NodeLot], sizes: Sequence[int]) -> Sampler:
        return PoissonSampler([node.rate for node in nodes])

    def make_uneven(self, rates: Sequence[float]) -> Sampler | None:
        return PoissonSampler(list(rates), of_records=True)


@samplings.register("fixed-size")
class FixedSize(_Subset):
    """A uniform subset of fixed size, without replacement; the true number of records becomes public."""

    lot: Annotated[Count, "records in a lot"]


@samplings.register("one-pass")
@dataclass(frozen=True, kw_only=True)
class OnePass(_OfSize):
    """Disjoint lots: every record is in one of them in each pass over the data."""

    lot: Annotated[Count, "records in a lot"]
    drawn_as: ClassVar[str] = "one-pass"
    disjoint: ClassVar[bool] = True

    def make(self, nodes: Sequence[NodeLot], sizes: Sequence[int]) -> Sampler:
        for node, size in zip(nodes, sizes, strict=True):
            if size > node.records:
                raise UserError(
                    f"data.records = {node.records} is less than node {node.node} holds, and each record needs a "
                    "place in a lot; declare at least as many as there are."
                )
        return OnePassSampler([round(node.lot) for node in nodes], [node.records for node in nodes])

    def priced(self, multipliers: Sequence[float], rate: float) -> tuple[str, list[float], int] | None:
        """A pass costs its worst lot, as a full batch would, and passes compose."""
        lots = lots_in_a_pass(rate)
        worst = [min(multipliers[start : start + lots]) for start in range(0, len(multipliers), lots)]
        return "full", worst, lots


@samplings.register("balls-and-bins")
class BallsAndBins(SamplingKind):
    """Disjoint lots: in each pass every record draws one of them by itself; set their number, or the expected lot."""

    lots: Annotated[Count | None, "lots in a pass"] = None
    lot: Annotated[Positive | None, "expected lot size, at most: lots = records / lot, rounded up"] = None
    drawn_as: ClassVar[str] = "balls-and-bins"
    disjoint: ClassVar[bool] = True
    independent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if (self.lots is None) == (self.lot is None):
            raise ValueError("needs exactly one of lots and lot (the expected lot size)")

    def lot_of(self, records: int, node: int) -> tuple[float, float]:
        if self.lots is None:
            _at_most_one((self.lot or 0.0) / records, self.lot or 0.0, records, node)
            return self.pooled(records, self.lot or 0.0)
        if self.lots > records:
            raise UserError(
                f"privacy.sampling.lots = {self.lots} is more than the {records} records of node {node}; use at most "
                f"{records}."
            )
        return 1 / self.lots, records / self.lots

    def pooled(self, records: int, lot: float) -> tuple[float, float]:
        lots = lots_in_a_pass(lot / records)
        return 1 / lots, records / lots

    def make(self, nodes: Sequence[NodeLot], sizes: Sequence[int]) -> Sampler:
        return BallsAndBinsSampler([lots_in_a_pass(node.rate) for node in nodes])

    def lot_number_of(self, k: int, rate: float) -> int | None:
        return k % lots_in_a_pass(rate)

    def priced(self, multipliers: Sequence[float], rate: float) -> tuple[str, list[float], int] | None:
        return None


@samplings.register("single")
class Single(_Subset):
    """Exactly one record a draw."""

    lot = 1


@samplings.register("full")
class Full(SamplingKind):
    """All records of a node in every draw."""

    drawn_as: ClassVar[str] = "full"

    def lot_of(self, records: int, node: int) -> tuple[float, float]:
        return 1.0, float(records)

    def make(self, nodes: Sequence[NodeLot], sizes: Sequence[int]) -> Sampler:
        return FullSampler(len(sizes))


def lots_in_a_pass(rate: float) -> int:
    """⌈J / L⌉."""
    return math.ceil(1 / rate - 1e-9)


LEAST_LOT = 0.01  # a record in a hundred draws: below, a run adds noise and hardly reads a record


def _at_most_one(rate: float, lot: float, records: int, node: int) -> tuple[float, float]:
    if lot < LEAST_LOT:
        raise UserError(
            f"privacy.sampling draws {lot:.3g} of the {records} records of node {node} on average; use a rate "
            f"or lot that gives at least {LEAST_LOT:g}."
        )
    if rate > 1:
        raise UserError(f"privacy.sampling.lot = {lot:g} is too large for node {node}; use at most {records}.")
    return rate, lot
