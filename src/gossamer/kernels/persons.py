"""Which records of a batch are one person's: their gradients are added before they are measured and clipped.

A person's records are as many positions of one long record: what bounds ‖Σ_t g_t a_tᵀ‖ over the positions of a record
bounds it over those of all of a person's. Persons have different numbers of records, so they are taken in classes of
about equal numbers, each padded to its largest: padding repeats a record of the same person with a gradient of 0, so
that what is not a number in one person stays there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PIECE_BYTES = 1 << 23  # of what is gathered, or written out, at a time


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

    def part(self, nodes: slice, records: slice, persons: slice) -> Persons:
        first = persons.start or 0
        return Persons(self.of[nodes, records] - first, self.counts[nodes, persons], self.mean)

    def records_of(self, persons: Tensor) -> Tensor:
        """(m, P) of persons → (m, B): is the record one of theirs?"""
        return persons.gather(1, self.of.clamp_max(max(persons.shape[1] - 1, 0)))

    def weighed(
        self, norms: Tensor, there: Tensor, weigh: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """(m, P): the norms of persons' vectors from those of their sums, and what their records' are multiplied by."""
        if not self.mean:
            return norms, torch.where(there, weigh(norms), 0.0)
        counts = self.counts.clamp_min(1).to(norms)
        norms = norms / counts * (1 + 2 * torch.finfo(norms.dtype).eps)
        return norms, torch.where(there, weigh(norms), 0.0) / counts

    def cuts(self, node: int, most: int) -> Iterator[tuple[slice, slice]]:
        """Stretches of one node's lot of at most so many records, or of one person: (records, persons)."""
        ends = np.cumsum(self.counts[node].cpu().numpy()).tolist()
        start, first = 0, 0
        for person, (end, following) in enumerate(zip(ends, [*ends[1:], math.inf], strict=True), 1):
            if following - start > most:
                yield slice(start, end), slice(first, person)
                start, first = end, person

    def together(self, mask: Tensor) -> Together:
        """mask (m, B): those that are records at all."""
        return Together(self.of, mask, self.counts.shape[1])


def stretches(persons: Persons | None, rows: slice, lot: int, most: int) -> Iterator[tuple[slice, slice]]:
    """(records, persons) of the slices of these nodes' lots; without persons both are the same."""
    if persons is None:
        for b in range(0, lot, most):
            yield slice(b, b + most), slice(b, b + most)
    elif lot <= most:
        yield slice(0, lot), slice(0, persons.counts.shape[1])
    else:  # one node at a time
        yield from persons.cuts(rows.start, most)


@dataclass(frozen=True)
class Piece:
    """Some persons of about as many records: places (n, R) among the N records, which of them count, and who it is.

    `most` is the largest number of records that persons of this class may have, whoever is here: rounding is bounded by
    it, and a bound by R would depend on other persons.
    """

    places: Tensor
    live: Tensor
    units: Tensor
    most: int
    start: int | None = None  # where they lie, if in a row and without padding: then nothing is copied

    def inputs(self, values: Tensor) -> Tensor:
        """(N, T, I) → (n, R·T, I)."""
        if self.start is not None:
            some = values[self.start : self.start + self.places.numel()]
            return some.reshape(len(self.places), -1, *values.shape[2:])
        return values[self.places].flatten(1, 2)

    def gradients(self, values: Tensor) -> Tensor:
        """The same of what counts: 0 where a record only pads."""
        if self.start is not None:
            return self.inputs(values)
        gathered = values[self.places]
        if not bool(self.live.all()):
            gathered.masked_fill_(~self.live.view(*self.live.shape, *[1] * (gathered.ndim - 2)), 0)
        return gathered.flatten(1, 2)


class Together:
    """The records (m, B) of a slice as one batch of N = m·B, and who of m·P persons each belongs to."""

    def __init__(self, of: Tensor, mask: Tensor, persons: int) -> None:
        nodes = len(of)
        self.nodes, self.persons, self.device = nodes, persons, of.device
        number = of + persons * torch.arange(nodes, device=of.device)[:, None]
        self._unit = number.masked_fill(~mask, nodes * persons).flatten()  # what only pads a lot is nobody's

    @property
    def units(self) -> int:
        return self.nodes * self.persons

    def sums(self, rows: Tensor) -> Tensor:
        """(N, k) of records → (m·P, k): of persons."""
        return self.add_sums(rows.new_zeros(self.units + 1, *rows.shape[1:]), slice(None), rows)[:-1]

    def add_sums(self, total: Tensor, some: slice, rows: Tensor) -> Tensor:
        """Add some of the records' rows to total (m·P + 1, k), whose last row is nobody's."""
        return total.index_add_(0, self._unit[some], rows)

    def of_units(self, weights: Tensor) -> Tensor:
        """(m, B) of records, the same for all of a person's → (m, P)."""
        units = weights.new_zeros(self.units + 1)
        units[self._unit] = weights.flatten()
        return units[:-1].view(self.nodes, self.persons)

    def any_of(self, records: Tensor) -> Tensor:
        """(m, B) → (m, P): is one of the person's records among them?"""
        return self.sums(records.to(torch.float32).view(-1, 1)).view(self.nodes, self.persons) > 0

    def of_records(self, weights: Tensor) -> Tensor:
        """(m, P) → (m, B): 0 where a lot is padded."""
        all_ = torch.cat([weights.flatten(), weights.new_zeros(1)])
        return all_[self._unit].view(self.nodes, -1)

    @cached_property
    def present(self) -> Tensor:
        """(m, P): has the person a record here?"""
        return self.of_units(torch.ones_like(self._unit, dtype=torch.bool))

    def pieces(self, bytes_of_record: int, bytes_of_person: int = 0) -> Iterator[Piece]:
        """Persons by the number of their records, so many at a time that what is made of them stays small."""
        for places, live, units, most, in_order in self._classes:
            step = max(1, PIECE_BYTES // max(1, bytes_of_record * places.shape[1], bytes_of_person))
            for first in range(0, len(units), step):
                some = slice(first, first + step)
                start = int(places[first, 0]) if in_order else None
                yield Piece(places[some], live[some], units[some], most, start)

    @cached_property
    def _classes(self) -> list[tuple[Tensor, Tensor, Tensor, int, bool]]:
        unit = self._unit.cpu().numpy()
        order = np.argsort(unit, kind="stable")
        counts = np.bincount(unit, minlength=self.units + 1)[:-1]
        starts = np.concatenate([[0], np.cumsum(counts)])
        classes, most = [], _class_of(counts)
        for kind in np.unique(most[counts > 0]).tolist():
            units = np.flatnonzero((most == kind) & (counts > 0))
            own = counts[units][:, None]
            place = np.arange(own.max())[None, :]
            rows, live = order[np.minimum(place, own - 1) + starts[units][:, None]], place < own
            in_order = bool(live.all()) and bool((np.diff(rows.ravel()) == 1).all())
            parts = (torch.from_numpy(part).to(self.device) for part in (rows, live, units))
            classes.append((*parts, kind, in_order))
        return classes


def _class_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The most records of the class: exact up to four, then two classes for every doubling, a third padding at most."""
    halves = np.ceil(2 * np.log2(np.maximum(counts, 1)))
    return np.where(counts <= 4, counts, np.floor(2 ** (halves / 2) + 1e-9)).astype(np.int64)
