"""Made-up data with a known truth."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from gossamer.data.arrays import Array, Floats
from gossamer.data.dataset import Dataset, digest
from gossamer.data.source import Source, datasets
from gossamer.errors import UserError
from gossamer.options.types import Count, Fraction, NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class _Linear(Source):
    """Standard normal inputs, and labels that follow from ⟨x, θ⟩ with a standard normal θ."""

    n: Annotated[Count, "training rows"] = 1000
    features: Annotated[Count, "numbers of a record"] = 20
    test: Annotated[int, Field(ge=0, le=10**9), "rows of the hold-out"] = 200
    sparsity: Annotated[Fraction, "share of the coefficients that are zero"] = 0.0

    shuffled: ClassVar[bool] = True

    @property
    def bytes_read(self) -> float:
        rows, outputs = self.n + self.test, self._outputs
        return 12.0 * rows * self.features + 32.0 * rows * outputs + 12.0 * self.features * outputs

    _classes: ClassVar[int | None] = None
    _outputs: ClassVar[int] = 1  # rows of coefficients
    _divided: ClassVar[bool] = False  # are the coefficients, standard normal, divided by √p?

    @abstractmethod
    def _labels(self, rng: np.random.Generator, x: Floats, truth: Floats) -> Array:
        """The labels of these inputs; `truth` is (outputs, features)."""

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        rng = np.random.default_rng(seed)
        truth = rng.standard_normal((self._outputs, self.features)).astype(np.float32)
        truth /= np.float32(np.sqrt(self.features) if self._divided else 1)
        truth[:, rng.permutation(self.features)[: round(self.sparsity * self.features)]] = 0
        x = rng.standard_normal((self.n + self.test, self.features), dtype=np.float32)
        y, n = self._labels(rng, x, truth), self.n
        parts: dict[str, Any] = {"x_train": x[:n], "y_train": y[:n], "x_test": x[n:], "y_test": y[n:]}
        notes = {"source": f"generated from seed {seed}", "sha256": digest(parts)}
        parts["truth"] = truth if self._outputs > 1 or self.multi_label else truth[0]
        return Dataset(self.kind, **parts, classes=self._classes, public_test=True, provenance=notes)


@datasets.register("synthetic-classification")
class Classification(_Linear):
    """label = argmax_c ⟨x, θ_c⟩ + noise·Gumbel: softmax regression at temperature `noise`, separable at 0."""

    noise: Annotated[NonNegative, "scale of the noise on the labels' scores"] = 0.1
    classes: Annotated[int, Field(ge=2, le=10**6), "number of classes"] = 2

    @property
    def _outputs(self) -> int:  # type: ignore[override]
        return self.classes

    @property
    def _classes(self) -> int:  # type: ignore[override]
        return self.classes

    def _labels(self, rng: np.random.Generator, x: Floats, truth: Floats) -> Array:
        scores = x @ truth.T + self.noise * rng.gumbel(size=(len(x), self.classes))
        return np.asarray(scores.argmax(axis=1), np.int64)


@datasets.register("synthetic-regression")
class Regression(_Linear):
    """y = ⟨x, θ⟩ + noise·ξ with x, ξ and the non-zero part of θ standard normal."""

    noise: Annotated[NonNegative, "standard deviation of the noise on the targets"] = 0.1

    def _labels(self, rng: np.random.Generator, x: Floats, truth: Floats) -> Array:
        return np.asarray(x @ truth[0] + self.noise * rng.standard_normal(len(x)), np.float32)


@datasets.register("synthetic-logistic")
class LogisticLabels(_Linear):
    """P(label = 1) = σ(⟨x, θ⟩) with x and the non-zero part of θ standard normal: one vector of coefficients."""

    _classes: ClassVar[int | None] = 2

    def _labels(self, rng: np.random.Generator, x: Floats, truth: Floats) -> Array:
        return np.asarray(rng.logistic(size=len(x)) < x @ truth[0], np.int64)


@datasets.register("synthetic-counts")
class Counts(_Linear):
    """y ~ Poisson(e^⟨x, θ⟩) with x and √p times the non-zero part of θ standard normal, for loss.kind = poisson."""

    _divided: ClassVar[bool] = True

    def _labels(self, rng: np.random.Generator, x: Floats, truth: Floats) -> Array:
        return np.asarray(rng.poisson(np.exp(x @ truth[0])), np.float32)


@datasets.register("synthetic-labels")
class SeveralLabels(_Linear):
    """Several labels of yes or no a record: P(label l) = σ(⟨x, θ_l⟩) with x and θ standard normal."""

    several: Annotated[int, Field(ge=1, le=10_000), "number of labels"] = 4
    multi_label: ClassVar[bool] = True

    @property
    def _outputs(self) -> int:  # type: ignore[override]
        return self.several

    def _labels(self, rng: np.random.Generator, x: Floats, truth: Floats) -> Array:
        return np.asarray(rng.logistic(size=(len(x), self.several)) < x @ truth.T, np.float32)


@datasets.register("dirac")
class Dirac(Source):
    """Every record of a holder is a place of its own in a table (model.kind = "lookup"), its target out of reach.

    The gradient of place j is about size · e_j wherever the model is, so a clipped one is C · e_j: the records of a
    node never get into each other's way, which is what a tight audit wants. The seed is not used.
    """

    holders: Annotated[Count, "nodes that hold records"] = 20
    per_holder: Annotated[Count, "records of each of them"] = 2500
    size: Annotated[Positive, "length of a record's gradient before any clip"] = 1e4
    dense: Annotated[bool, "as rows e_j, for model.kind = linear"] = False

    @property
    def bytes_read(self) -> float:
        width = self.per_holder if self.dense else 2
        return 12.0 * self.holders * self.per_holder * width

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        if self.per_holder < 2 and not self.dense:
            raise UserError(f"data.per_holder = {self.per_holder} must be a whole number at least 2")
        places = np.tile(np.arange(self.per_holder), self.holders)
        if self.dense:
            places = np.tile(np.eye(self.per_holder, dtype=np.float32), (self.holders, 1))
        targets = np.full(len(places), -self.size, dtype=np.float32)
        notes = {"source": "made up for audits", "sha256": digest({"x": places, "y": targets})}
        owner, parts = np.repeat(np.arange(self.holders), self.per_holder), (places, targets)
        empty = places[:0], targets[:0]
        return Dataset("dirac", *parts, *empty, None, public_test=True, owner=owner, provenance=notes)
