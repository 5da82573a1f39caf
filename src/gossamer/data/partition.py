"""The partition of training records over nodes; persons: the ids of their records, and how these are dealt out."""

from __future__ import annotations

import hashlib
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from gossamer.data.arrays import Array, at_most
from gossamer.errors import UserError
from gossamer.options.registry import Registry
from gossamer.options.types import Count, Fraction, Positive

Indices = npt.NDArray[np.int64]
Labels = npt.NDArray[Any]
Owners = npt.NDArray[np.int64] | None
PREFIX = "data.partition"


@dataclass(frozen=True, kw_only=True)
class Partition(ABC):
    """The partition of records over nodes. A new kind is a subclass with `split`, registered in `partitions`."""

    kind: ClassVar[str]

    @abstractmethod
    def split(self, labels: Labels, nodes: int, rng: np.random.Generator, owner: Owners) -> list[Indices]:
        """The row indices of every node; never an empty node."""

    def most_copies(self, nodes: int) -> int:
        """On how many of the nodes the same record may lie: a public constant, which `split` keeps to."""
        return 1


partitions: Registry[Partition] = Registry(PREFIX)


def split(
    part: Partition, *, labels: Labels, nodes: int, rng: np.random.Generator, owner: Owners = None
) -> list[Indices]:
    """The row indices of every node, sorted; never an empty node.

    `even`, `label-split`, `dirichlet`, `shards` and `owner` use every record exactly once, `sizes` every
    record at most once, and `sampled` may put one record on several nodes.
    """
    if nodes < 1:
        raise UserError(f"nodes = {nodes} must be a whole number at least 1")
    if not len(labels):
        raise UserError(f"nodes = {nodes} cannot share 0 records; give at least one per node")
    if len(labels) < nodes and part.most_copies(nodes) == 1:
        raise UserError(f"nodes = {nodes} is more than the {len(labels)} records; give at least one per node")
    pieces = [np.sort(rows).astype(np.int64) for rows in part.split(np.asarray(labels), nodes, rng, owner)]
    copies, most = np.bincount(np.concatenate(pieces)).max(initial=0), part.most_copies(nodes)
    if copies > most:  # every price rests on it
        raise UserError(f"{PREFIX}.kind = {part.kind!r} put a record on more than {most} nodes.")
    return pieces


@partitions.register("even")
class Even(Partition):
    """Shuffled; sizes differ by at most one."""

    def split(self, labels: Labels, nodes: int, rng: np.random.Generator, owner: Owners) -> list[Indices]:
        return np.array_split(rng.permutation(len(labels)), nodes)


@partitions.register("label-split")
class LabelSplit(Partition):
    """The matrix A(t) of the consensus paper, eq. (8): class j has its home on node j mod n.

    Every node gets (1 − t)/n of each class and the home the remaining t besides: an even deal at t = 0, each
    class on one node at t = 1. With fewer nodes than classes a node is home to several; with more, the nodes
    from the number of classes on are home to none and have only their even share, so t = 1 is refused.
    """

    t: Annotated[Fraction, "share of a class that stays on its home node"]

    def split(self, labels: Labels, nodes: int, rng: np.random.Generator, owner: Owners) -> list[Indices]:
        holder = np.empty(len(labels), np.int64)
        dealt = 0
        for label, rows in _by_class("label-split", labels, rng):
            shared = round((1 - self.t) * len(rows))
            # One deal continues through all classes, so each class and the whole are even to within a record.
            holder[rows[:shared]] = (dealt + np.arange(shared)) % nodes
            holder[rows[shared:]] = label % nodes
            dealt += shared
        parts = _gather(holder, nodes)
        empty = [node for node, part in enumerate(parts) if not len(part)]
        if empty:
            remedy = f"choose a smaller t, or no more nodes than the {len(np.unique(labels))} classes"
            raise UserError(f"{PREFIX}.t = {self.t:g} leaves node {empty[0]} without records; {remedy}")
        return parts


@partitions.register("dirichlet")
class Dirichlet(Partition):
    """Each class is spread over the nodes in proportions drawn from Dirichlet(alpha, …, alpha).

    A node that ends below `min_size` gets records of the largest node, which always ends, unlike redrawing.
    """

    alpha: Annotated[Positive, "small: a class is on few nodes; large: even"]
    min_size: Annotated[Count, "fewest records of a node"] = 1

    def split(self, labels: Labels, nodes: int, rng: np.random.Generator, owner: Owners) -> list[Indices]:
        at_most(f"{PREFIX}.min_size", self.min_size, len(labels) // nodes)
        holder = np.empty(len(labels), np.int64)
        for _, rows in _by_class("dirichlet", labels, rng):
            edges = np.cumsum(_proportions(rng, nodes, self.alpha)) * len(rows)
            holder[rows] = np.minimum(np.searchsorted(edges, np.arange(len(rows)) + 0.5), nodes - 1)
        sizes = np.bincount(holder, minlength=nodes)
        for node in range(nodes):
            while sizes[node] < self.min_size:
                largest = int(sizes.argmax())
                count = min(self.min_size - sizes[node], max(1, (sizes[largest] - self.min_size) // 2))
                holder[rng.choice(np.flatnonzero(holder == largest), count, replace=False)] = node
                sizes[node] += count
                sizes[largest] -= count
        return _gather(holder, nodes)


@partitions.register("shards")
class Shards(Partition):
    """Sorted by label and cut into nodes × shards_per_node pieces, of which each node draws its share."""

    shards_per_node: Annotated[Count, "pieces that a node draws"] = 2

    def split(self, labels: Labels, nodes: int, rng: np.random.Generator, owner: Owners) -> list[Indices]:
        per_node = at_most(f"{PREFIX}.shards_per_node", self.shards_per_node, len(labels) // nodes)
        shuffled = rng.permutation(len(labels))
        ordered = shuffled[np.argsort(labels[shuffled], kind="stable")]
        pieces = np.array_split(ordered, nodes * per_node)
        drawn = rng.permutation(len(pieces)).reshape(nodes, per_node)
        return [np.concatenate([pieces[piece] for piece in row]) for row in drawn]


@partitions.register("owner")
class Owner(Partition):
    """Node i holds the records of the i-th owner, owners in sorted order."""

    def split(self, labels: Labels, nodes: int, rng: np.random.Generator, owner: Owners) -> list[Indices]:
        if owner is None:
            raise UserError(f"{PREFIX}.kind = 'owner' needs a column of owners; set data.owner")
        ids, holder = np.unique(owner, return_inverse=True)
        if len(ids) != nodes:
            raise UserError(f"nodes = {nodes} must be {len(ids)}, the number of owners")
        return _gather(holder, nodes)


@partitions.register("sampled")
class Sampled(Partition):
    """Each node draws its records without replacement from the whole set: nodes may share some."""

    size: Annotated[Count | list[Count], "records of a node: one number, or one per node"]
    copies: Annotated[Count | None, "most nodes that may hold the same record; all, if not set"] = None

    def split(self, labels: Labels, nodes: int, rng: np.random.Generator, owner: Owners) -> list[Indices]:
        sizes = self.size if isinstance(self.size, list) else [self.size] * nodes
        if len(sizes) != nodes:
            raise UserError(f"{PREFIX}.size = {sizes!r} must be a list of {nodes} sizes, one per node")
        for count in sizes:
            at_most(f"{PREFIX}.size", count, len(labels))
        if self.most_copies(nodes) == nodes:
            return [rng.choice(len(labels), count, replace=False) for count in sizes]
        left, pieces = np.full(len(labels), self.copies), []
        for count in sizes:
            free = np.flatnonzero(left)
            if len(free) < count:
                raise UserError(f"{PREFIX}.copies = {self.copies} is too few; allow more, or smaller nodes")
            pieces.append(rng.choice(free, count, replace=False))
            left[pieces[-1]] -= 1
        return pieces

    def most_copies(self, nodes: int) -> int:
        return nodes if self.copies is None else min(self.copies, nodes)


@partitions.register("sizes")
class Sizes(Partition):
    """Disjoint random parts of the given sizes J_i; records beyond their sum stay unused."""

    sizes: Annotated[list[Count], "records of each node"]

    def split(self, labels: Labels, nodes: int, rng: np.random.Generator, owner: Owners) -> list[Indices]:
        counts = self.sizes
        if len(counts) != nodes:
            raise UserError(f"{PREFIX}.sizes = {counts!r} must be a list of {nodes} sizes, one per node")
        if sum(counts) > len(labels):
            raise UserError(f"{PREFIX}.sizes add up to {sum(counts)}, of {len(labels)} records")
        return np.split(rng.permutation(len(labels))[: sum(counts)], np.cumsum(counts)[:-1])


def _proportions(rng: np.random.Generator, nodes: int, alpha: float) -> npt.NDArray[np.float64]:
    """One Dirichlet draw, in the logarithm so that a tiny alpha does not turn into 0/0.

    A Gamma(α) variable is Gamma(α + 1) · U^(1/α).
    """
    logs = np.log(rng.standard_gamma(alpha + 1, nodes)) + np.log1p(-rng.random(nodes)) / alpha
    weights: npt.NDArray[np.float64] = np.exp(logs - logs.max())
    weights /= weights.sum()
    return weights


def _by_class(kind: str, labels: Labels, rng: np.random.Generator) -> list[tuple[int, Indices]]:
    """The rows of every class in random order."""
    if labels.dtype.kind not in "iu":
        raise UserError(f"{PREFIX}.kind = {kind!r} needs class labels; use even, sizes or sampled")
    shuffled = rng.permutation(len(labels))
    return [(int(label), shuffled[labels[shuffled] == label]) for label in np.unique(labels)]


def _gather(holder: Indices, nodes: int) -> list[Indices]:
    return [np.flatnonzero(holder == node) for node in range(nodes)]


def person_ids(ids: Array, column: str, table: str) -> Indices:
    """One number for each id, the same in every table; no message names an id."""
    comparable = ids.astype(str) if ids.dtype == object else ids  # None has no order
    different, inverse = np.unique(comparable, return_inverse=True)
    forms = [_normal_form(value) for value in different.tolist()]
    if None in forms:
        raise UserError(f"{table}: column {column!r} names nobody in some rows; fill or remove them")
    known = np.array([_hash(b"", (form or "").encode(), signed=True) for form in forms], dtype=np.int64)
    return known[inverse.reshape(-1)]


def _normal_form(value: object) -> str | None:
    """The form in which ids are compared; None where there is no id."""
    text = unicodedata.normalize("NFKC", str(value))
    seen = "".join(" " if c.isspace() else c for c in text if unicodedata.category(c) != "Cf")
    text = " ".join(seen.split()).casefold()
    if not text or text in ("nan", "none", "null", "na", "n/a", "<na>", "nat"):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    if not number.is_finite():
        return None if number.is_nan() else text
    return str(int(number)) if abs(number) < 10**40 and number == int(number) else text


def _hash(key: bytes, content: bytes, *, signed: bool = False) -> int:
    digest = hashlib.blake2b(content, digest_size=8, key=key).digest()
    return int.from_bytes(digest, "big", signed=signed)


def group_rows(rows: Indices, person: Indices, most: int) -> tuple[Indices, Indices]:
    """Order one node's rows by person, at most `most` of each; return them and the number of each person's.

    Persons come in the order of their first row and keep their rows' order: which rows of a person are used follows
    from its own alone.
    """
    place = _places(person[rows])
    order = np.argsort(place, kind="stable")
    sorted_place = place[order]
    within = np.arange(len(rows)) - np.searchsorted(sorted_place, sorted_place)
    chosen = order[within < most]
    return rows[chosen], np.bincount(place[chosen], minlength=count_persons(person[rows])).astype(np.int64)


def rows_of_persons(pieces: Sequence[Indices], person: Indices) -> list[Indices]:
    """The rows of every node, sorted, from the places of its persons in the order of their first rows."""
    place = _places(person)
    return [np.flatnonzero(np.isin(place, piece)) for piece in pieces]


def _places(person: Indices) -> Indices:
    """The place of each row's person in the order of the persons' first rows."""
    _, first, inverse = np.unique(person, return_index=True, return_inverse=True)
    places: Indices = np.argsort(np.argsort(first))[inverse.reshape(-1)]
    return places


def count_persons(person: Indices) -> int:
    return len(np.unique(person))


def most_sites(pieces: Sequence[Indices], person: Indices) -> int:
    """The largest number of nodes that hold records of one person; 0 without records."""
    each = np.concatenate([person[:0], *(np.unique(person[rows]) for rows in pieces)])
    return int(np.unique(each, return_counts=True)[1].max(initial=0))


def held_out_rows(
    x: Array, y: Array, person: Indices | None, rows: Indices, part: float, seed: int
) -> npt.NDArray[np.bool_]:
    """Of these training rows, those for evaluation, about this part: by each record's, or person's, own hash."""
    key = f"kept out {seed}".encode()
    limit = int(part * 2**64)
    if person is None:
        return np.array([_hash(key, x[row].tobytes() + y[row].tobytes()) < limit for row in rows], dtype=bool)
    ids, inverse = np.unique(person[rows], return_inverse=True)
    drawn = np.array([_hash(key, number.tobytes()) < limit for number in ids], dtype=bool)
    return drawn[inverse.reshape(-1)] if len(rows) else np.zeros(0, bool)
