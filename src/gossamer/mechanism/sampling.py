"""How records enter a draw, as a configuration names it: `privacy.sampling`. What draws is in `samplers`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

from pydantic import Field

from gossamer.errors import UserError
from gossamer.mechanism.samplers import (
    BallsAndBinsSampler,
    FixedSizeSampler,
    FullSampler,
    OnePassSampler,
    PoissonSampler,
    Sampler,
    UnevenPoissonSampler,
)
from gossamer.options.registry import Registry
from gossamer.options.types import Count, Positive, Share


@dataclass(frozen=True)
class NodeLot:
    """What is public about one node's lots."""

    node: int
    records: int  # declared J
    rate: float  # q
    lot: float  # L


class SamplingKind(Protocol):
    kind: ClassVar[str]
    drawn_as: ClassVar[str]  # the sampler's kind: what a release says
    needs_true_sizes: ClassVar[bool]  # does the rate depend on the true number of records?
    disjoint: ClassVar[bool]  # are the lots of a pass disjoint?
    independent: ClassVar[
        bool
    ]  # does every record fall into lots by itself, so that they have no fixed size?

    def lot_of(self, records: int, node: int) -> tuple[float, float]:
        """(q, L) of a node that declared so many records."""
        ...

    def pooled(self, records: int, lot: float) -> tuple[float, float]:
        """(q, L) of so many records in lots of about this size."""
        ...

    def make(self, nodes: Sequence[NodeLot], sizes: Sequence[int]) -> Sampler:
        """`sizes` are the true numbers of records."""
        ...

    def make_uneven(self, rates: Sequence[float]) -> Sampler | None:
        """Of one node whose records have rates of their own; None where that cannot be drawn."""
        ...

    def visits(self, rate: float, draws: int) -> float:
        """How often a record is looked at: exactly, or on average (once at least)."""
        ...

    def pass_of(self, k: int, rate: float) -> int | None:
        """The pass over the records that draw k belongs to; None where there are no passes."""
        ...

    def lot_number_of(self, k: int, rate: float) -> int | None:
        """Which lot of its pass draw k is, where being one of many lots hides a record; else None."""
        ...

    def priced(self, multipliers: Sequence[float], rate: float) -> tuple[str, list[float], int] | None:
        """(as which sampling, these multipliers, draws that each stands for): what an accountant is asked about.

        None: no such sequence costs the same, the releases have to be priced as they are.
        """
        ...


samplings: Registry[SamplingKind] = Registry("privacy.sampling")


class _Lots:
    kind: ClassVar[str]
    drawn_as: ClassVar[str]
    needs_true_sizes: ClassVar[bool] = False
    independent: ClassVar[bool] = False

    def pooled(self, records: int, lot: float) -> tuple[float, float]:
        return lot / records, lot

    def make_uneven(self, rates: Sequence[float]) -> Sampler | None:
        return None

    def lot_number_of(self, k: int, rate: float) -> int | None:
        return None


class _Overlapping(_Lots):
    disjoint: ClassVar[bool] = False

    def visits(self, rate: float, draws: int) -> float:
        return max(1.0, draws * rate)

    def pass_of(self, k: int, rate: float) -> int | None:
        return None

    def priced(self, multipliers: Sequence[float], rate: float) -> tuple[str, list[float], int] | None:
        return self.drawn_as, list(multipliers), 1


class _InPasses(_Lots):
    disjoint: ClassVar[bool] = True

    def visits(self, rate: float, draws: int) -> float:
        return float(-(-draws // lots_in_a_pass(rate)))

    def pass_of(self, k: int, rate: float) -> int | None:
        return k // lots_in_a_pass(rate)


@samplings.register("poisson")
@dataclass(frozen=True, kw_only=True)
class Poisson(_Overlapping):
    """Every record by an independent coin; set the rate, or the expected lot."""

    rate: Annotated[
        Share | list[Share] | None, Field(description="probability of a record; one, or one per node")
    ] = None
    lot: Annotated[Positive | None, Field(description="expected lot size: rate = lot / records")] = None
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
        return UnevenPoissonSampler(list(rates))


@samplings.register("fixed-size")
@dataclass(frozen=True, kw_only=True)
class FixedSize(_Overlapping):
    """A uniform subset of fixed size, without replacement; the true number of records becomes public."""

    lot: Annotated[Count, Field(description="records in a lot")]
    needs_true_sizes: ClassVar[bool] = True
    drawn_as: ClassVar[str] = "fixed-size"

    def lot_of(self, records: int, node: int) -> tuple[float, float]:
        return _at_most_one(float(self.lot) / records, float(self.lot), records, node)

    def make(self, nodes: Sequence[NodeLot], sizes: Sequence[int]) -> Sampler:
        return _fixed(nodes, sizes, "fixed-size")


@samplings.register("one-pass")
@dataclass(frozen=True, kw_only=True)
class OnePass(_InPasses):
    """Disjoint lots: every record is in one of them in each pass over the data."""

    lot: Annotated[Count, Field(description="records in a lot")]
    drawn_as: ClassVar[str] = "one-pass"

    def lot_of(self, records: int, node: int) -> tuple[float, float]:
        return _at_most_one(float(self.lot) / records, float(self.lot), records, node)

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
@dataclass(frozen=True, kw_only=True)
class BallsAndBins(_InPasses):
    """Disjoint lots: in each pass every record draws one of them by itself; set their number, or the expected lot."""

    lots: Annotated[Count | None, Field(description="lots in a pass")] = None
    lot: Annotated[
        Positive | None, Field(description="expected lot size, at most: lots = records / lot, rounded up")
    ] = None
    drawn_as: ClassVar[str] = "balls-and-bins"
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
@dataclass(frozen=True, kw_only=True)
class Single(_Overlapping):
    """Exactly one record a draw."""

    needs_true_sizes: ClassVar[bool] = True
    drawn_as: ClassVar[str] = "fixed-size"

    def lot_of(self, records: int, node: int) -> tuple[float, float]:
        return _at_most_one(1.0 / records, 1.0, records, node)

    def make(self, nodes: Sequence[NodeLot], sizes: Sequence[int]) -> Sampler:
        return _fixed(nodes, sizes, "single")


@samplings.register("full")
@dataclass(frozen=True, kw_only=True)
class Full(_Overlapping):
    """All records of a node in every draw."""

    drawn_as: ClassVar[str] = "full"

    def lot_of(self, records: int, node: int) -> tuple[float, float]:
        return 1.0, float(records)

    def make(self, nodes: Sequence[NodeLot], sizes: Sequence[int]) -> Sampler:
        return FullSampler(len(sizes))


def lots_in_a_pass(rate: float) -> int:
    """⌈J / L⌉."""
    return math.ceil(1 / rate - 1e-9)


LEAST_LOT = 0.01  # a record in a hundred draws: below, a run adds noise and looks at nobody


def _at_most_one(rate: float, lot: float, records: int, node: int) -> tuple[float, float]:
    if lot < LEAST_LOT:
        raise UserError(
            f"privacy.sampling draws {lot:.3g} of the {records} records of node {node} on average; use a rate "
            f"or lot that gives at least {LEAST_LOT:g}."
        )
    if rate > 1:
        raise UserError(
            f"privacy.sampling.lot = {lot:g} is more than the {records} records of node {node}; use at most {records}."
        )
    return rate, lot


def _fixed(nodes: Sequence[NodeLot], sizes: Sequence[int], kind: str) -> Sampler:
    for node, size in zip(nodes, sizes, strict=True):
        if node.records != size:
            raise UserError(
                f"privacy.sampling.kind = {kind!r} draws a share of the true number of records, and data.records = "
                f"{node.records} is not that of node {node.node}; use kind = 'poisson'."
            )
    return FixedSizeSampler([round(node.lot) for node in nodes], list(sizes))
