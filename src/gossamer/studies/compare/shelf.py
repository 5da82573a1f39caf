"""The data set read last, for the next cell that wants the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.config.schema import RunConfig

if TYPE_CHECKING:
    from gossamer.data.dataset import Dataset

# Sets that come shuffled by the seed even without options.
_SEEDED = ("covertype", "synthetic-regression", "synthetic-classification", "csv", "parquet", "npz")


# Options that do what they do whatever the seed.
_NOT_SEEDED = {"transform", "held_out", "scale", "bias"}


class Shelf:
    """Holds one data set; cells are ordered so that neighbours mostly share theirs."""

    def __init__(self) -> None:
        self._key = ""
        self._dataset: Dataset | None = None

    def dataset(self, config: RunConfig, data_dir: Path | None) -> Dataset:
        from gossamer.data.load import load

        kind, options = config.data.kind, config.data.options
        seeded = set(options) - _NOT_SEEDED or kind in _SEEDED
        seed = config.seed if seeded else None
        key = json.dumps([kind, options, seed, str(data_dir)], sort_keys=True)
        if self._dataset is None or key != self._key:
            self._dataset = None  # let go of the old one first: they can be large
            self._dataset = load(kind, data_dir=data_dir, seed=config.seed, **options)
            self._key = key
        return self._dataset
