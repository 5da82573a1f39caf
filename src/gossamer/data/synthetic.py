"""Made-up data with a known truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gossamer.data.arrays import Array
from gossamer.data.dataset import Dataset, digest
from gossamer.data.source import Source, datasets
from gossamer.errors import UserError
from gossamer.options.types import Count, Fraction, NonNegative, Positive

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class _Linear(Source):
    """Standard normal inputs, and labels that follow from ⟨x, θ⟩ with a standard normal θ."""

    n: Annotated[Count, Field(description="training rows")] = 1000
    features: Annotated[Count, Field(description="numbers of a record")] = 20
    test: Annotated[int, Field(ge=0, le=10**9, description="rows of the hold-out")] = 200
    sparsity: Annotated[Fraction, Field(description="share of the coefficients that are zero")] = 0.0

    shuffled: ClassVar[bool] = True

    @property
    def bytes_read(self) -> float:
        rows, outputs = self.n + self.test, getattr(self, "classes", getattr(self, "several", 1))
        return 12.0 * rows * self.features + 32.0 * rows * outputs + 12.0 * self.features * outputs

    def _coefficients(self, rng: np.random.Generator, rows: int) -> Floats:
        """One row of coefficients per output; all rows share the same zero columns."""
        zeros = round(self.sparsity * self.features)
        truth = rng.standard_normal((rows, self.features)).astype(np.float32)
        truth[:, rng.permutation(self.features)[:zeros]] = 0
        return truth

    def _inputs(self, rng: np.random.Generator) -> Floats:
        return rng.standard_normal((self.n + self.test, self.features), dtype=np.float32)

    def _dataset(self, x: Floats, y: Array, *, seed: int, truth: Floats, classes: int | None) -> Dataset:
        n = self.n
        parts = {"x_train": x[:n], "y_train": y[:n], "x_test": x[n:], "y_test": y[n:]}
        return Dataset(
            name=self.kind,
            x_train=x[:n],
            y_train=y[:n],
            x_test=x[n:],
            y_test=y[n:],
            classes=classes,
            public_test=True,
            provenance={"source": f"generated from seed {seed}", "sha256": digest(parts)},
            truth=truth,
        )


@datasets.register("synthetic-classification")
@dataclass(frozen=True, kw_only=True)
class Classification(_Linear):
    """label = argmax_c ⟨x, θ_c⟩ + noise·Gumbel: softmax regression at temperature `noise`, separable at 0."""

    noise: Annotated[NonNegative, Field(description="scale of the noise on the labels' scores")] = 0.1
    classes: Annotated[int, Field(ge=2, le=10**6, description="number of classes")] = 2

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        rng = np.random.default_rng(seed)
        truth = self._coefficients(rng, self.classes)
        x = self._inputs(rng)
        scores = x @ truth.T + self.noise * rng.gumbel(size=(len(x), self.classes))
        y = scores.argmax(axis=1).astype(np.int64)
        return self._dataset(x, y, seed=seed, truth=truth, classes=self.classes)


@datasets.register("synthetic-regression")
@dataclass(frozen=True, kw_only=True)
class Regression(_Linear):
    """y = ⟨x, θ⟩ + noise·ξ with x, ξ and the non-zero part of θ standard normal."""

    noise: Annotated[NonNegative, Field(description="standard deviation of the noise on the targets")] = 0.1

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        rng = np.random.default_rng(seed)
        truth = self._coefficients(rng, 1)[0]
        x = self._inputs(rng)
        y = (x @ truth + self.noise * rng.standard_normal(len(x))).astype(np.float32)
        return self._dataset(x, y, seed=seed, truth=truth, classes=None)


@datasets.register("synthetic-logistic")
@dataclass(frozen=True, kw_only=True)
class LogisticLabels(_Linear):
    """P(label = 1) = σ(⟨x, θ⟩) with x and the non-zero part of θ standard normal: one vector of coefficients."""

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        rng = np.random.default_rng(seed)
        truth = self._coefficients(rng, 1)[0]
        x = self._inputs(rng)
        y = (rng.logistic(size=len(x)) < x @ truth).astype(np.int64)
        return self._dataset(x, y, seed=seed, truth=truth, classes=2)


@datasets.register("synthetic-counts")
@dataclass(frozen=True, kw_only=True)
class Counts(_Linear):
    """y ~ Poisson(e^⟨x, θ⟩) with x and √p times the non-zero part of θ standard normal, for loss.kind = poisson."""

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        rng = np.random.default_rng(seed)
        truth = self._coefficients(rng, 1)[0] / np.float32(np.sqrt(self.features))
        x = self._inputs(rng)
        y = rng.poisson(np.exp(x @ truth)).astype(np.float32)
        return self._dataset(x, y, seed=seed, truth=truth, classes=None)


@datasets.register("synthetic-labels")
@dataclass(frozen=True, kw_only=True)
class SeveralLabels(_Linear):
    """Several labels of yes or no a record: P(label l) = σ(⟨x, θ_l⟩) with x and θ standard normal."""

    several: Annotated[int, Field(ge=1, le=10_000, description="number of labels")] = 4
    multi_label: ClassVar[bool] = True

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        rng = np.random.default_rng(seed)
        truth = self._coefficients(rng, self.several)
        x = self._inputs(rng)
        y = (rng.logistic(size=(len(x), self.several)) < x @ truth.T).astype(np.float32)
        return self._dataset(x, y, seed=seed, truth=truth, classes=None)


@datasets.register("dirac")
@dataclass(frozen=True, kw_only=True)
class Dirac(Source):
    """Every record of a holder is a place of its own in a table (model.kind = "lookup"), its target out of reach.

    The gradient of place j is about size · e_j wherever the model is, so a clipped one is C · e_j: the records of a
    node never get into each other's way, which is what a tight audit wants. The seed is not used.
    """

    holders: Annotated[Count, Field(description="nodes that hold records")] = 20
    per_holder: Annotated[Count, Field(description="records of each of them")] = 2500
    size: Annotated[Positive, Field(description="length of a record's gradient before any clip")] = 1e4
    dense: Annotated[bool, Field(description="as rows e_j, for model.kind = linear")] = False

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
        parts: dict[str, Array] = {"x": places, "y": targets}
        return Dataset(
            name="dirac",
            x_train=places,
            y_train=targets,
            x_test=places[:0],
            y_test=targets[:0],
            classes=None,
            public_test=True,
            owner=np.repeat(np.arange(self.holders), self.per_holder),
            provenance={"source": "made up for audits", "sha256": digest(parts)},
        )
