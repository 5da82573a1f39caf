"""The data set read last, for the next cell that wants the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.config.schema import RunConfig
from gossamer.data.load import datasets

if TYPE_CHECKING:
    from gossamer.data.dataset import Dataset


class Shelf:
    """Holds one data set; cells are ordered so that neighbours mostly share theirs."""

    def __init__(self) -> None:
        self._key = ""
        self._dataset: Dataset | None = None

    def dataset(self, config: RunConfig, data_dir: Path | None) -> Dataset:
        data = config.data
        options = {k: v for k, v in datasets.options(data).items() if k not in ("partition", "records")}
        key = json.dumps([data.kind, options, data.seeded and config.seed, str(data_dir)], sort_keys=True)
        if self._dataset is None or key != self._key:
            self._dataset = None  # let go of the old one first: they can be large
            self._dataset = data.load(data_dir, config.seed)
            self._key = key
        return self._dataset
