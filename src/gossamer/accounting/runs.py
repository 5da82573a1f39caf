"""Lists with one value per node, each different value written once: `{"values": […], "of": [[first, last, which], …]}`.

`of` says which of the values the nodes from `first` to `last` have. Where neighbours are alike, as most are in a large
run, a list of a hundred thousand entries is one line; where none are, it is no longer than the list.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Runs = NDArray[np.int64]  # (k, 3): first node, last node, which value; sorted, disjoint
MOST_NODES = 1_000_000  # as many as there may be: what a file says is spread over no more


def runs_of(which: NDArray[np.int64], first: int = 0) -> Runs:
    """Of the nodes from `first` on, which value each has; −1: none."""
    if not len(which):
        return np.empty((0, 3), np.int64)
    starts = np.flatnonzero(np.diff(which, prepend=which[0] - 1))
    lasts = np.append(starts[1:], len(which)) - 1
    runs = np.stack([starts + first, lasts + first, which[starts]], axis=1)
    return runs[runs[:, 2] >= 0]


def checked_runs(listed: Any, values: int, nodes: range) -> Runs:
    """Runs of a file: whole numbers, in order and apart, of these nodes and of all values; else a ValueError."""
    triples = isinstance(listed, list) and all(
        type(run) is list and len(run) == 3 and all(type(number) is int for number in run) for run in listed
    )
    if not triples or not 0 < len(listed) <= len(nodes):
        raise ValueError("its 'of' is not a list of runs")
    if any(not nodes.start <= first <= last < nodes.stop for first, last, _ in listed):
        raise ValueError("its 'of' names nodes that are not here")
    runs = np.array(listed, dtype=np.int64)
    if (runs[1:, 0] <= runs[:-1, 1]).any():
        raise ValueError("its 'of' names a node twice")
    if {which for _, _, which in listed} != set(range(values)):
        raise ValueError("its 'of' and its values do not belong together")
    return runs


def packed(values: Sequence[Any], key: Callable[[Any], Hashable], first: int = 0) -> dict[str, Any]:
    """Pack a list of one entry per node, from `first` on; `key` is equal for equal entries."""
    numbers: dict[Hashable, int] = {}
    by_object: dict[int, int] = {}  # the very same object needs no second look
    different: list[Any] = []
    which = np.empty(len(values), np.int64)
    for i, value in enumerate(values):
        if id(value) not in by_object:
            by_object[id(value)] = number = numbers.setdefault(key(value), len(different))
            if number == len(different):
                different.append(value)
        which[i] = by_object[id(value)]
    return {"values": different, "of": runs_of(which, first).tolist()}


def spread(packed: Any, nodes: range) -> list[Any]:
    """Unpack; nodes that are alike share one object."""
    if not isinstance(packed, dict) or not isinstance(packed.get("values"), list):
        raise ValueError("it has no 'values'")
    values, runs = packed["values"], checked_runs(packed.get("of"), len(packed["values"]), nodes)
    if int((runs[:, 1] - runs[:, 0] + 1).sum()) != len(nodes):
        raise ValueError("its 'of' leaves nodes out")
    return [values[which] for first, last, which in runs.tolist() for _ in range(last - first + 1)]
