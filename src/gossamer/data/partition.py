"""Which node holds which training records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.data.values import fraction, number, one_of, refuse_unknown, whole
from gossamer.errors import UserError

Indices = npt.NDArray[np.int64]
PREFIX = "data.partition"


def partition(
    kind: str,
    *,
    labels: npt.NDArray[Any],
    nodes: int,
    rng: np.random.Generator,
    owner: npt.NDArray[np.int64] | None = None,
    **options: Any,
) -> list[Indices]:
    """The row indices of every node, sorted; never an empty node.

    `even`, `label-split`, `dirichlet`, `shards` and `owner` use every record exactly once, `sizes` every
    record at most once, and `sampled` may put one record on several nodes.
    """
    function = KINDS[one_of(f"{PREFIX}.kind", kind, KINDS)]
    refuse_unknown(PREFIX, function, options, set())
    nodes = whole("nodes", nodes, at_least=1)
    if not len(labels):
        raise UserError(f"nodes = {nodes} cannot share 0 records: give at least one per node")
    if kind == "owner":
        parts = _owner(owner, nodes)
    else:
        if kind != "sampled" and len(labels) < nodes:
            raise UserError(
                f"nodes = {nodes} is more than the {len(labels)} records: give at least one per node"
            )
        parts = function(np.asarray(labels), nodes, rng, **options)
    return [np.sort(part).astype(np.int64) for part in parts]


def _even(labels: npt.NDArray[Any], nodes: int, rng: np.random.Generator) -> list[Indices]:
    """Shuffled; sizes differ by at most one."""
    return np.array_split(rng.permutation(len(labels)), nodes)


def _label_split(
    labels: npt.NDArray[Any], nodes: int, rng: np.random.Generator, *, t: float
) -> list[Indices]:
    """The matrix A(t) of the consensus paper, eq. (8): class j has its home on node j mod n.

    Every node gets (1 − t)/n of each class and the home the remaining t besides: an even deal at t = 0, each
    class on one node at t = 1. With fewer nodes than classes a node is home to several; with more, the nodes
    from the number of classes on are home to none and have only their even share, so t = 1 is refused.
    """
    t = fraction(f"{PREFIX}.t", t)
    holder = np.empty(len(labels), np.int64)
    dealt = 0
    for label, rows in _by_class("label-split", labels, rng):
        shared = round((1 - t) * len(rows))
        # One deal goes on through all classes, so each class and the whole are even to within a record.
        holder[rows[:shared]] = (dealt + np.arange(shared)) % nodes
        holder[rows[shared:]] = label % nodes
        dealt += shared
    parts = _gather(holder, nodes)
    empty = [node for node, part in enumerate(parts) if not len(part)]
    if empty:
        raise UserError(
            f"{PREFIX}.t = {t:g} leaves node {empty[0]} of {nodes} without records: choose a smaller t, or "
            f"no more nodes than the {len(np.unique(labels))} classes"
        )
    return parts


def _dirichlet(
    labels: npt.NDArray[Any], nodes: int, rng: np.random.Generator, *, alpha: float, min_size: int = 1
) -> list[Indices]:
    """Each class is spread over the nodes in proportions drawn from Dirichlet(alpha, …, alpha).

    A node that ends below `min_size` gets records of the largest node, which always ends, unlike redrawing.
    """
    alpha = number(f"{PREFIX}.alpha", alpha, above=0)
    min_size = whole(f"{PREFIX}.min_size", min_size, at_least=1, at_most=len(labels) // nodes)
    holder = np.empty(len(labels), np.int64)
    for _, rows in _by_class("dirichlet", labels, rng):
        edges = np.cumsum(_proportions(rng, nodes, alpha)) * len(rows)
        holder[rows] = np.minimum(np.searchsorted(edges, np.arange(len(rows)) + 0.5), nodes - 1)
    sizes = np.bincount(holder, minlength=nodes)
    for node in range(nodes):
        while sizes[node] < min_size:
            largest = int(sizes.argmax())
            count = min(min_size - sizes[node], max(1, (sizes[largest] - min_size) // 2))
            holder[rng.choice(np.flatnonzero(holder == largest), count, replace=False)] = node
            sizes[node] += count
            sizes[largest] -= count
    return _gather(holder, nodes)


def _proportions(rng: np.random.Generator, nodes: int, alpha: float) -> npt.NDArray[np.float64]:
    """One Dirichlet draw, in the logarithm so that a tiny alpha does not turn into 0/0.

    A Gamma(α) variable is Gamma(α + 1) · U^(1/α).
    """
    logs = np.log(rng.standard_gamma(alpha + 1, nodes)) + np.log1p(-rng.random(nodes)) / alpha
    weights: npt.NDArray[np.float64] = np.exp(logs - logs.max())
    weights /= weights.sum()
    return weights


def _shards(
    labels: npt.NDArray[Any], nodes: int, rng: np.random.Generator, *, shards_per_node: int = 2
) -> list[Indices]:
    """Sorted by label and cut into nodes x shards_per_node pieces, of which each node draws its share."""
    per_node = whole(f"{PREFIX}.shards_per_node", shards_per_node, at_least=1, at_most=len(labels) // nodes)
    shuffled = rng.permutation(len(labels))
    ordered = shuffled[np.argsort(labels[shuffled], kind="stable")]
    pieces = np.array_split(ordered, nodes * per_node)
    drawn = rng.permutation(len(pieces)).reshape(nodes, per_node)
    return [np.concatenate([pieces[piece] for piece in row]) for row in drawn]


def _sampled(
    labels: npt.NDArray[Any], nodes: int, rng: np.random.Generator, *, size: int | Sequence[int]
) -> list[Indices]:
    """Each node draws `size` records (one number, or one per node) without replacement from the whole set."""
    wanted: Any = size if isinstance(size, (list, tuple)) else [size] * nodes
    sizes = _sizes_list("size", wanted, nodes, len(labels))
    return [rng.choice(len(labels), count, replace=False) for count in sizes]


def _sizes(
    labels: npt.NDArray[Any], nodes: int, rng: np.random.Generator, *, sizes: Sequence[int]
) -> list[Indices]:
    """Disjoint random parts of the given sizes J_i; records beyond their sum stay unused."""
    counts = _sizes_list("sizes", sizes, nodes, len(labels))
    if sum(counts) > len(labels):
        raise UserError(
            f"{PREFIX}.sizes add up to {sum(counts)}: at most the {len(labels)} records can be handed out"
        )
    return np.split(rng.permutation(len(labels))[: sum(counts)], np.cumsum(counts)[:-1])


def _owner(owner: npt.NDArray[np.int64] | None, nodes: int) -> list[Indices]:
    """Node i holds the records of the i-th owner, owners in sorted order."""
    if owner is None:
        raise UserError(f"{PREFIX}.kind = 'owner' needs records with owners: name their column in data.owner")
    ids, holder = np.unique(owner, return_inverse=True)
    if len(ids) != nodes:
        raise UserError(
            f"nodes = {nodes} must be {len(ids)}, the number of owners, for {PREFIX}.kind = 'owner'"
        )
    return _gather(holder, nodes)


def _sizes_list(key: str, sizes: Sequence[int], nodes: int, records: int) -> list[int]:
    if not isinstance(sizes, (list, tuple)) or len(sizes) != nodes:
        raise UserError(f"{PREFIX}.{key} = {sizes!r} must be a list of {nodes} sizes, one per node")
    return [whole(f"{PREFIX}.{key}", size, at_least=1, at_most=records) for size in sizes]


def _by_class(kind: str, labels: npt.NDArray[Any], rng: np.random.Generator) -> list[tuple[int, Indices]]:
    """The rows of every class in random order."""
    if labels.dtype.kind not in "iu":
        raise UserError(
            f"{PREFIX}.kind = {kind!r} needs class labels: choose even, sizes or sampled for regression"
        )
    shuffled = rng.permutation(len(labels))
    return [(int(label), shuffled[labels[shuffled] == label]) for label in np.unique(labels)]


def _gather(holder: Indices, nodes: int) -> list[Indices]:
    return [np.flatnonzero(holder == node) for node in range(nodes)]


KINDS: dict[str, Callable[..., list[Indices]]] = {
    "even": _even,
    "label-split": _label_split,
    "dirichlet": _dirichlet,
    "shards": _shards,
    "owner": _owner,
    "sampled": _sampled,
    "sizes": _sizes,
}
