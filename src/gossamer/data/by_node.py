"""Own records in a file per node, `clinic-{node}.csv`: a process opens those of the nodes it hosts and no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gossamer.data.dataset import Dataset
from gossamer.data.own import PLACE, OwnFile
from gossamer.errors import UserError


def load_nodes(
    source: OwnFile, nodes: Sequence[int], *, data_dir: Path | None = None, seed: int = 0
) -> Dataset:
    """The records of these nodes, one file after the other; `owner` holds the nodes' numbers."""
    if source.owner is not None:
        raise UserError(f"data.owner = {source.owner!r} does not go with a file per node: leave it out.")
    files = {i: source.path.replace(PLACE, str(i)) for i in nodes}
    found = {i: replace(source, path=path).load(data_dir, seed) for i, path in files.items()}
    first = found[nodes[0]]
    for i, dataset in found.items():
        if dataset.x_train.shape[1:] != first.x_train.shape[1:] or dataset.classes != first.classes:
            raise UserError(
                f"data.path = {files[i]!r} has other columns or classes than {files[nodes[0]]!r}; "
                "name them in data.features and data.classes."
            )
    return replace(
        first,
        x_train=np.concatenate([dataset.x_train for dataset in found.values()]),
        y_train=np.concatenate([dataset.y_train for dataset in found.values()]),
        test_shares_rows=any(dataset.test_shares_rows for dataset in found.values()),
        owner=np.concatenate([np.full(len(d.y_train), i, dtype=np.int64) for i, d in found.items()]),
    )
