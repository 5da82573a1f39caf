"""The only reader of training records.

A private mean of a per-record vector: sample a lot, weight every record's vector so that its norm is bounded, sum,
add noise, divide by a *public constant*. Each call writes one event per node into the ledger before a value leaves.
What the vector is (a gradient, an operator's residual) is the `vector` part; the mechanism here does not know. Where a
person is protected, lots are drawn of persons, and all of a person's records are one vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.accounting.releases import CLIPPED_LOT, Event
from gossamer.kernels.noise import RATIO, Stream
from gossamer.kernels.persons import Persons
from gossamer.kernels.rounding import excess
from gossamer.mechanism.clipping import Clip, ClipStep, Weigh
from gossamer.mechanism.noise.base import COUNT, RANDOM_LAYERS, Mechanism, Participation
from gossamer.mechanism.sampling import Lot, Sampler


class Vector(Protocol):
    """Σ_b mask · weigh(‖v_ib‖) · v_ib for every node i, (m, d), and the norms (m, B).

    A vector that can be clipped by person takes `persons` besides; the norms are theirs then, (m, P).
    """

    def __call__(
        self, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Weigh, *, unit: Tensor | None = None
    ) -> tuple[Tensor, Tensor]: ...


class Book(Protocol):
    def write(self, releases: Sequence[tuple[Sequence[int], Event]]) -> None:
        """What nodes are about to release: every event with the nodes that it is of. On file when this returns."""


class Taken(NamedTuple):
    """The records of a lot: x (m, B, …), y (m, B), which places of it hold one (m, B), and whose they are."""

    x: Tensor
    y: Tensor
    mask: Tensor
    persons: Persons | None = None


class Records:
    """The hosted nodes' records, gathered once: node i's rows lie together, from starts[i] on.

    Without `starts` the nodes follow each other; with them, nodes may read the same rows (an audit's many runs do).
    With `persons`, the records of node i's persons lie next to each other, persons[i] of each: a lot is then of
    persons, and `mean` says whether a person counts by the mean of its vectors or by their sum.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        sizes: Sequence[int],
        starts: Sequence[int] | None = None,
        *,
        persons: Sequence[NDArray[np.int64]] | None = None,
        mean: bool = False,
    ):
        self.x, self.y, self.sizes = x, y, list(sizes)
        self._in_order = starts is None
        if starts is None:
            starts = [0, *torch.tensor(self.sizes).cumsum(0).tolist()]
            if starts[-1] != len(x):
                raise ValueError(f"{len(x)} rows for nodes of {starts[-1]} records in all")
            starts = starts[:-1]
        # A node without records still needs an address for its (masked) padding.
        self._starts = torch.tensor(list(starts)).clamp_max(max(len(x) - 1, 0)).to(x.device)
        self.persons = None if persons is None else [np.asarray(own, dtype=np.int64) for own in persons]
        self.mean = mean
        if self.persons is not None:
            for own, size in zip(self.persons, self.sizes, strict=True):
                if int(own.sum()) != size or (own < 1).any():
                    raise ValueError(f"persons of {int(own.sum())} records at a node that holds {size}")
            self._firsts = [np.concatenate([[0], np.cumsum(own)]) for own in self.persons]

    @property
    def units(self) -> list[int]:
        """What lots are drawn of: the numbers of records, or of persons."""
        return self.sizes if self.persons is None else [len(own) for own in self.persons]

    def take(self, lot: Lot) -> Taken:
        if self.persons is not None:
            return self._of_persons(lot)
        shape, size = lot.rows.shape, lot.rows.shape[1]
        equal = self._in_order and all(own == size for own in self.sizes)
        if equal and torch.equal(lot.rows.cpu(), torch.arange(size).expand_as(lot.rows)):
            # Full lots of equal nodes: the records as they lie, without a copy of what may be gigabytes.
            x, y = (part.view(*shape, *part.shape[1:]) for part in (self.x, self.y))
            return Taken(x, y, lot.mask)
        return Taken(*self.rows(lot.rows), lot.mask)

    def of(self, i: int) -> tuple[Tensor, Tensor]:
        """All records of hosted node i: x and y."""
        own = slice(int(self._starts[i]), int(self._starts[i]) + self.sizes[i])
        return self.x[own], self.y[own]

    def rows(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """The records in these places (m, B) among their nodes'."""
        rows = (self._starts[:, None] + places.to(self.x.device)).flatten()
        x, y = self.x.index_select(0, rows), self.y.index_select(0, rows)
        return x.view(*places.shape, *x.shape[1:]), y.view(*places.shape, *y.shape[1:])

    def _of_persons(self, lot: Lot) -> Taken:
        """All records of the persons of a lot, padded to the longest node's and never truncated."""
        assert self.persons is not None
        chosen, present = lot.rows.numpy(), lot.mask.numpy()
        counts = np.zeros(chosen.shape, dtype=np.int64)
        for i, own in enumerate(self.persons):
            counts[i, present[i]] = own[chosen[i, present[i]]]
        longest = int(counts.sum(1).max(initial=0))
        places, of = np.zeros((len(counts), longest), np.int64), np.zeros((len(counts), longest), np.int64)
        for i, first in enumerate(self._firsts):
            own, total = counts[i], int(counts[i].sum())
            whose = np.repeat(np.arange(len(own)), own)
            within = np.arange(total) - np.repeat(np.cumsum(own) - own, own)
            places[i, :total] = first[chosen[i]][whose] + within
            of[i, :total] = whose
        mask = torch.from_numpy(np.arange(longest)[None, :] < counts.sum(1)[:, None])
        x, y = self.rows(torch.from_numpy(places))
        device = self.x.device
        persons = Persons(torch.from_numpy(of).to(device), torch.from_numpy(counts).to(device), self.mean)
        return Taken(x, y, mask, persons)


class Diagnostics(NamedTuple):
    """Computed from private records: never sent, shown only where asked for and labelled not private."""

    mean_norm: Tensor  # (m,) mean norm in the lot, of records or persons
    clipped: Tensor  # (m,) share of the lot whose weight is below 1; all or nothing where lots are clipped
    lot_norm: Tensor  # (m,) norm of the lot's mean vector, after the clip and before the noise


class PrivateGradient:
    """grad(points): the private mean vector of every hosted node at its own point, (m, d) → (m, d).

    `lots` are the public expected lot sizes L_i, `divisors` what the sums are divided by (L_i, unless nodes weigh
    differently); `allowance` is the number of draws each node's budget pays for; a node that has used it up returns
    zeros and writes no event. `written` are the rows that write events: all, but for audits, which train many copies.
    `longest` is the largest expected lot of all nodes of the run, hosted here or not.
    """

    def __init__(
        self,
        *,
        vector: Vector,
        records: Records,
        sampler: Sampler,
        clip: Clip,
        noise: Mechanism,
        stream: Stream,
        book: Book,
        nodes: Sequence[int],
        lots: Sequence[float],
        allowance: Sequence[int],
        adjacency: str,
        divisors: Sequence[float] | None = None,
        diagnostics: bool = False,
        written: Sequence[int] | None = None,
        longest: float | None = None,
    ):
        self._vector, self._records, self._sampler, self._clip = vector, records, sampler, clip
        self._noise, self._stream, self._book = noise, stream, book
        self.nodes, self._adjacency = list(nodes), adjacency
        self._rates = np.array(list(sampler.rates), dtype=np.float64)
        self._index = np.asarray(self.nodes, dtype=np.int64)  # made once: an audit hosts tens of thousands
        self._lots = torch.tensor(list(lots), dtype=torch.float64)
        self._divisors = torch.tensor(list(divisors or lots), dtype=torch.float64)
        self._allowance = torch.tensor(list(allowance))
        self._whole: tuple[Lot, Taken] | None = None
        longest = max(lots) if longest is None else longest
        self._excess = excess(longest)
        self._multiple = vector.expect(longest, varies=sampler.varies) if hasattr(vector, "expect") else 1
        self._written = np.arange(len(self.nodes)) if written is None else np.array(list(written), dtype=np.int64)
        self._ahead: dict[int, Tensor] = {}  # the noise of the next draw, where it was drawn already
        self._diagnose = diagnostics
        self.last_diagnostics: Diagnostics | None = None
        self.draws = 0

    def __call__(self, points: Tensor) -> Tensor:
        k, self.draws = self.draws, self.draws + 1
        active = self._allowance > k
        if not bool(active.any()):
            return torch.zeros_like(points)
        lot, taken = self._lot(k)
        step = self._clip.at(k, len(self.nodes))
        records = (taken.mask & active[:, None]).to(points.device)
        if hasattr(self._vector, "draw_from"):  # a network may draw numbers of its own: dropout
            self._vector.draw_from(self._stream, RANDOM_LAYERS, self._index, k)
        sums, norms = step.sums(self._vector, points, taken.x, taken.y, records, taken.persons)
        mask = records if taken.persons is None else (lot.mask & active[:, None]).to(points.device)
        # In double precision: what the ledger says must read back exactly.
        bound, multiplier = step.reference.double(), self._noise.levels(k)
        if step.enforced:
            bound = bound * (1 + self._excess)
        self._log(k, active, multiplier, bound, step, points.shape[1])
        if self._diagnose:
            self.last_diagnostics = _diagnose(step, sums, norms, mask)
        if self._noise.adds:
            left = self._clip.multiplier_left(multiplier)
            self._clip.follow(norms, mask, lambda counts, scale: self._count(k, counts, scale), self._lots, active)
            self._noise.add(
                self._stream, self._index, k, sums, multiplier=left, bound=bound, active=active,
                ready=self._ahead.pop(k, None),
            )  # fmt: skip
        return sums.div_(self._divisors.to(sums)[:, None])

    def draw_ahead(self, dimension: int) -> None:
        """Draw the next call's noise now, while nothing else is to do; it stays here until that call is logged."""
        k = self.draws
        if not self._noise.adds or not bool((self._allowance > k).any()) or k in self._ahead:
            return
        noise = self._noise.ahead(self._stream, self._index, k, dimension)
        self._ahead = {} if noise is None else {k: noise}

    def _lot(self, k: int) -> tuple[Lot, Taken]:
        if self._whole is not None:
            return self._whole
        lot = self._sampler.draw(self._stream, self._index, self._records.units, k)
        if self._records.persons is None and self._sampler.kind != "full":
            lot = lot.padded(-(-lot.rows.shape[1] // self._multiple) * self._multiple)
        taken = self._records.take(lot)
        if self._sampler.kind == "full":
            x, mask = taken.x, taken.mask
            if not bool(mask.all()):  # then it is a copy; blank padding now saves blanking it every round
                x.masked_fill_(~mask.to(x.device).view(*mask.shape, *[1] * (x.ndim - 2)), 0)
            self._whole = lot, taken
        return lot, taken

    def _log(self, k: int, active: Tensor, multiplier: Tensor, bound: Tensor, step: ClipStep, dimension: int) -> None:
        """Spent is what is logged: this happens before the value exists outside of here."""
        rows = self._written[active.numpy()[self._written]]
        if not len(rows):
            return
        sensitivity = bound.cpu().numpy()[rows]
        multipliers = multiplier.cpu().numpy()[rows]
        passes, lots = self._sampler.passes(k), self._sampler.lot_numbers(k)
        clipped = CLIPPED_LOT if step.of_lot else None
        keys = [self._noise.ledger_key(i) for i in rows.tolist()]
        columns = [sensitivity, multipliers, self._rates[rows]]
        columns += [np.asarray(own)[rows] for own in (passes, lots) if own]
        columns.append(np.array([np.nan if own is None else own for own in keys]))
        releases = []
        for own in _alike(columns):  # equal nodes share one event
            first = int(own[0])
            i = int(rows[first])
            part = Participation(
                self._sampler.kind, float(self._rates[i]), self._adjacency,
                passes[i] if passes else None, lots[i] if lots else None, clipped,
            )  # fmt: skip
            release = self._noise.release(
                i,
                float(multipliers[first]),
                float(sensitivity[first]),
                dimension,
                part,
                enforced=step.enforced,
            )
            releases.append((self._index[rows[own]], Event(draw=k, release=release)))
        self._book.write(releases)

    def _count(self, k: int, counts: Tensor, scale: Tensor) -> Tensor:
        """(m,) the clip's own release in draw k."""
        released = counts.double()[:, None].clone()
        self._stream.whole_rows(COUNT, self._index, k, released, scale.double() / RATIO)
        return released[:, 0]

    def state(self) -> dict[str, Any]:
        """What a checkpoint must carry besides the algorithm's own state."""
        state = {"draws": torch.tensor(self.draws), **self._clip.state()}
        if hasattr(self._vector, "state"):
            state |= {f"vector.{key}": value for key, value in self._vector.state().items()}
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.draws = int(state["draws"])
        self._clip.restore(state)
        if hasattr(self._vector, "restore"):
            names = [key for key in state if key.startswith("vector.")]
            self._vector.restore({key.removeprefix("vector."): state[key] for key in names})


def _alike(columns: Sequence[NDArray[Any]]) -> list[NDArray[np.int64]]:
    """The places with equal values in every column, together; in the order of the first of them."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        different, number = np.unique(column, return_inverse=True)
        if len(different) > 1:
            code = np.unique(code * len(different) + number, return_inverse=True)[1]
    order = np.argsort(code, kind="stable")
    return sorted(np.split(order, np.cumsum(np.bincount(code))[:-1]), key=lambda own: int(own[0]))


def _diagnose(step: ClipStep, sums: Tensor, norms: Tensor, mask: Tensor) -> Diagnostics:
    count = mask.sum(1).clamp_min(1)
    if step.of_lot:
        clipped = (sums.norm(dim=1).cpu() >= step.reference.to(sums.dtype) * (1 - 1e-5)).to(norms)
    else:
        measured = norms if step.unit is None else norms / step.unit.to(norms)[:, None]
        clipped = ((step.weigh(measured) < 1) & mask).sum(1) / count
    lot_norm = sums.norm(dim=1).to(norms) / count
    return Diagnostics(mean_norm=(norms * mask).sum(1) / count, clipped=clipped, lot_norm=lot_norm)
