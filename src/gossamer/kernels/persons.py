"""Which records of a batch are one person's: their gradients are added before they are measured and clipped.

A person's records are as many positions of one long record: what bounds ‖Σ_t g_t a_tᵀ‖ over the positions of a record
bounds it over those of all of a person's. Persons have different numbers of records, so they are taken in classes of
about equal numbers, and a call is of one class and one shape: what a person adds does not depend on the others. Places
that a person does not fill repeat its first record with a loss of 0, so that what is not a number in one person stays
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Units:
    """What is clipped in a call: every record by itself, or persons of `each` places in a row.

    With `counts` (m, n), the records of each, a person's vector is the mean of its records' vectors, not their sum.
    """

    each: int = 1
    counts: Tensor | None = None

    def _split(self, rows: Tensor) -> Tensor:
        return rows.reshape(-1, self.each, *rows.shape[1:])

    def sums(self, rows: Tensor) -> Tensor:
        """(N, …) of records → (N / each, …)."""
        return rows if self.each == 1 else self._split(rows).sum(1)

    def joined(self, rows: Tensor) -> Tensor:
        """(N, groups, T, k) of records → (N / each, groups, each · T, k): positions of one long record."""
        return rows if self.each == 1 else self._split(rows).transpose(1, 2).flatten(2, 3)

    def any_of(self, records: Tensor) -> Tensor:
        """(m, B) → (m, n): is one of these among the unit's records?"""
        return records if self.each == 1 else records.view(len(records), -1, self.each).any(2)

    def records_of(self, units: Tensor) -> Tensor:
        """(m, n) → (m, B): what their records have of them."""
        return units if self.each == 1 else units.repeat_interleave(self.each, 1)

    def weighed(self, norms: Tensor, there: Tensor, weigh: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """(m, n): the norms of units' vectors from those of their sums, and what their records' are multiplied by."""
        if self.counts is None:
            return norms, torch.where(there, weigh(norms), 0.0)
        counts = self.counts.to(norms)
        norms = norms / counts * (1 + 2 * torch.finfo(norms.dtype).eps)
        return norms, torch.where(there, weigh(norms), 0.0) / counts


RECORDS = Units()


@dataclass(frozen=True)
class Part:
    """Some records of some nodes, as one call of a method takes them.

    points  (m, d), x (m, B, …), y (m, B, …), mask bool (m, B)
    random  the numbers (m, B, *shape) that the method's `random` asks for
    units   whether records are clipped by themselves or by person
    unit    (m,) what each node's norms are measured in before they are weighed, if in anything
    lot     records, or persons, of the whole lot, where it is done in parts
    most    what is public of that
    """

    points: Tensor
    x: Tensor
    y: Tensor
    mask: Tensor
    random: Sequence[Tensor] = ()
    units: Units = RECORDS
    unit: Tensor | None = None
    lot: int = 0
    most: int = 0

    def weighs(self, weigh: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """`weigh` for norms in the nodes' own units."""
        unit = self.unit
        return weigh if unit is None else lambda norms: weigh(norms / unit[:, None])

    def with_stand_ins(self) -> Part:
        """A usable record in every place that has none: the node's own, or another node's with that node's model."""
        usable, own = self.mask.any(1), torch.arange(len(self.mask), device=self.mask.device)
        node = torch.where(usable, own, usable.to(torch.int8).argmax())
        place = self.mask.to(torch.int8).argmax(1)[node]

        def filled(values: Tensor) -> Tensor:
            there = self.mask.view(*self.mask.shape, *[1] * (values.ndim - 2))
            return torch.where(there, values, values[node, place].unsqueeze(1))

        random = [filled(numbers) for numbers in self.random]  # a record may be usable with its own alone
        return replace(self, points=self.points[node], x=filled(self.x), y=filled(self.y), random=random)

    def without(self, units: Tensor) -> Part:
        """Mask these records (m, B), or all records of these persons (m, n)."""
        return replace(self, mask=self.mask & ~self.units.records_of(units))

    def only(self, i: int, records: Tensor) -> Part:
        """These records of node i, in a call of the same shape with nothing else in it.

        Whether a matrix is singular, or a place just outside of a table, may be a matter of the last bit, and so of the
        instructions.
        """
        place = records.new_full(self.mask.shape[1:], int(records[0])).index_copy_(0, records, records)

        def alone(values: Tensor) -> Tensor:
            return values[i, place].expand_as(values).contiguous()

        return replace(
            self,
            points=self.points[i].expand_as(self.points).contiguous(),
            x=alone(self.x),
            y=alone(self.y),
            mask=torch.ones_like(self.mask),
            random=[alone(numbers) for numbers in self.random],
            unit=None if self.unit is None else self.unit[i].expand_as(self.unit),
        )


@dataclass(frozen=True)
class Class:
    """Persons with about as many records, of every node in rising order: (m, K) who, and (m, K, each) where.

    `live` are places that hold one of the person's records. Of a node with fewer than K the last are nobody, −1.
    """

    each: int
    who: Tensor
    places: Tensor
    live: Tensor

    def padded(self, multiple: int) -> Class:
        missing = -self.who.shape[1] % multiple
        pad = torch.nn.functional.pad
        places, live = (pad(part, (0, 0, 0, missing)) for part in (self.places, self.live))
        return Class(self.each, pad(self.who, (0, missing), value=-1), places, live)

    def part(self, nodes: slice, persons: slice) -> Class:
        return Class(self.each, *(part[nodes, persons] for part in (self.who, self.places, self.live)))

    def take(self, values: Tensor) -> Tensor:
        """(m, B, …) of a lot → (m, K · each, …) of these persons."""
        nodes = torch.arange(len(values), device=values.device)[:, None]
        return values[nodes, self.places.flatten(1)]


@dataclass(frozen=True)
class Persons:
    """Whose the records of a lot are: of (m, B) places among the P persons of the node's lot, in rising order.

    `counts` (m, P) are the records of each. With `mean`, a person's vector is the mean of its records' vectors instead
    of their sum.
    """

    of: Tensor
    counts: Tensor
    mean: bool = False

    @property
    def alone(self) -> bool:
        """Has every person one record, in its own place? Then a person is a record."""
        if self.of.shape != self.counts.shape:
            return False
        places = torch.arange(self.of.shape[1], device=self.of.device)
        return bool((self.counts <= 1).all()) and bool(((self.of == places) | (self.counts == 0)).all())

    def units(self, some: Class) -> Units:
        """What persons of a class are clipped as; of one record, as a record."""
        if some.each == 1:
            return RECORDS
        return Units(some.each, some.live.sum(2).clamp_min(1) if self.mean else None)

    def present(self, mask: Tensor) -> Tensor:
        """(m, P): has the person one of these records (m, B)?"""
        counts = torch.zeros(self.counts.shape, dtype=torch.int64, device=mask.device)
        return counts.scatter_add_(1, self.of, mask.to(torch.int64)) > 0

    def classes(self, mask: Tensor) -> Iterator[Class]:
        """mask (m, B): those that are records at all."""
        (nodes, lot), persons = mask.shape, self.counts.shape[1]
        shift = persons * torch.arange(nodes, device=mask.device)[:, None]
        unit = (self.of + shift).masked_fill(~mask, nodes * persons).flatten().cpu().numpy()
        order = np.argsort(unit, kind="stable")
        counts = np.bincount(unit, minlength=nodes * persons + 1)[:-1]
        starts, most = np.concatenate([[0], np.cumsum(counts)]), _class_of(counts)
        for each in np.unique(most[counts > 0]).tolist():
            units = np.flatnonzero((most == each) & (counts > 0))
            node, person = np.divmod(units, persons)
            rank = np.arange(len(units)) - np.searchsorted(node, node)
            own, place = counts[units][:, None], np.arange(each)[None, :]
            shape = nodes, int(rank.max()) + 1
            who, places = np.full(shape, -1), np.zeros((*shape, each), np.int64)
            live = np.zeros(places.shape, bool)
            who[node, rank] = person
            live[node, rank] = place < own
            rows = order[np.where(place < own, place, 0) + starts[units][:, None]]
            places[node, rank] = rows - lot * node[:, None]
            parts = (torch.from_numpy(part).to(mask.device) for part in (who, places, live))
            yield Class(each, *parts)


def _class_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """As many places for a person: 1, 2, 3, 4, 6, 8, 12, 16, …: a third of them too many at most."""
    power = 2 ** np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64)
    return np.where((power >= 4) & (counts <= power // 4 * 3), power // 4 * 3, power)
