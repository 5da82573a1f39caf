"""Records to transform, and transforms applied to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gossamer.data.dataset import Dataset
from gossamer.data.features.pipeline import transformed


def made(x: np.ndarray, name: str = "made") -> Dataset:
    """Half of the records to train on, half held out."""
    x = x.astype(np.float32)
    labels = np.zeros(len(x), np.int64)
    half = len(x) // 2
    return Dataset(name, x[:half], labels[:half], x[half:], labels[half:], 1, True, None, {})


def table(rows: int = 60, columns: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns)) * np.arange(1, columns + 1) + 2


def pictures() -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(20, 1, 8, 8))


def images(rows: int = 40, channels: int = 1, size: int = 12, seed: int = 0) -> np.ndarray:
    """Smooth: neighbouring pixels go together."""
    x = np.random.default_rng(seed).uniform(size=(rows, channels, size, size))
    return (x + np.roll(x, 1, 2) + np.roll(x, 1, 3)).astype(np.float32) / 3


def apply(dataset: Dataset, *steps: Any, public: Dataset | None = None, keep: bool = False) -> Dataset:
    def source(kind: str, options: dict[str, Any]) -> Dataset:
        assert public is not None
        return public

    return transformed(dataset, list(steps), source, keep=keep)


def features(x: np.ndarray, *steps: Any, public: np.ndarray | None = None, keep: bool = False) -> np.ndarray:
    """Of the training half."""
    return apply(made(x), *steps, public=None if public is None else made(public), keep=keep).x_train


SMALL_PATCHES = {"kind": "patches", "public": "p", "size": 4, "filters": 7, "pool": 3}
