"""Values of many nodes, each different one written once: `{"values": […], "of": [[first, last, which], …]}`.

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


def checked_runs(said: Any, values: int, nodes: range) -> Runs:
    """What a file says, if it may be: whole numbers, runs in order and apart, of these nodes and of all values."""
    if not isinstance(said, list) or not said or len(said) > len(nodes):
        raise ValueError("its 'of' is not a list of runs")
    if any(type(run) is not list or len(run) != 3 or any(type(n) is not int for n in run) for run in said):
        raise ValueError("its 'of' is not a list of runs")
    if any(not nodes.start <= first <= last < nodes.stop for first, last, _ in said):
        raise ValueError("its 'of' names nodes that are not here")
    runs = np.array(said, dtype=np.int64)
    if (runs[1:, 0] <= runs[:-1, 1]).any():
        raise ValueError("its 'of' names a node twice")
    if {which for _, _, which in said} != set(range(values)):
        raise ValueError("its 'of' and its values do not belong together")
    return runs


def packed(values: Sequence[Any], key: Callable[[Any], Hashable]) -> dict[str, Any]:
    """A list of one entry per node; `key` is equal for equal entries."""
    numbers: dict[Hashable, int] = {}
    by_object: dict[int, int] = {}  # the very same object needs no second look
    different: list[Any] = []
    which = np.empty(len(values), np.int64)
    for i, value in enumerate(values):
        number = by_object.get(id(value))
        if number is None:
            number = numbers.setdefault(key(value), len(different))
            if number == len(different):
                different.append(value)
            by_object[id(value)] = number
        which[i] = number
    return {"values": different, "of": runs_of(which).tolist()}


def spread(said: Any, nodes: range) -> list[Any]:
    """The list again; alike nodes share one object."""
    if not isinstance(said, dict) or not isinstance(said.get("values"), list):
        raise ValueError("it has no 'values'")
    values, runs = said["values"], checked_runs(said.get("of"), len(said["values"]), nodes)
    if int((runs[:, 1] - runs[:, 0] + 1).sum()) != len(nodes):
        raise ValueError("its 'of' leaves nodes out")
    return [values[which] for first, last, which in runs.tolist() for _ in range(last - first + 1)]
