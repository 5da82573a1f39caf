"""Made-up data with a known truth."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gossamer.data.dataset import Array, Dataset
from gossamer.data.digest import digest
from gossamer.data.values import flag, fraction, number, whole

Floats = npt.NDArray[np.float32]


def regression(
    *,
    seed: int,
    n: int = 1000,
    features: int = 20,
    noise: float = 0.1,
    test: int = 200,
    sparsity: float = 0.0,
) -> Dataset:
    """y = ⟨x, θ⟩ + noise·ξ with x, ξ and the non-zero part of θ standard normal.

    Args:
        n, test: training and hold-out rows.
        sparsity: share of the coefficients θ that are zero.
    """
    rng = np.random.default_rng(seed)
    truth = _coefficients(rng, 1, features, sparsity)[0]
    x = _inputs(rng, n, test, features)
    y = (x @ truth + _noise(noise) * rng.standard_normal(len(x))).astype(np.float32)
    return _dataset("synthetic-regression", x, y, seed=seed, n=n, truth=truth, classes=None)


def classification(
    *,
    seed: int,
    n: int = 1000,
    features: int = 20,
    noise: float = 0.1,
    classes: int = 2,
    test: int = 200,
    sparsity: float = 0.0,
) -> Dataset:
    """label = argmax_c ⟨x, θ_c⟩ + noise·Gumbel: softmax regression at temperature `noise`, separable at 0."""
    rng = np.random.default_rng(seed)
    truth = _coefficients(rng, whole("data.classes", classes, at_least=2), features, sparsity)
    x = _inputs(rng, n, test, features)
    scores = x @ truth.T + _noise(noise) * rng.gumbel(size=(len(x), classes))
    y = scores.argmax(axis=1).astype(np.int64)
    return _dataset("synthetic-classification", x, y, seed=seed, n=n, truth=truth, classes=classes)


def dirac(
    *, seed: int, holders: int = 20, per_holder: int = 2500, size: float = 1e4, dense: bool = False
) -> Dataset:
    """Every record of a holder is a place of its own in a table (model.kind = "lookup"), its target out of reach.

    The gradient of place j is about size · e_j wherever the model is, so a clipped one is C · e_j: the records of a
    node never get into each other's way, which is what a tight audit wants. `dense`: as rows e_j, for model.kind =
    "linear". `seed` is not used.
    """
    dense = flag("data.dense", dense)
    holders = whole("data.holders", holders, at_least=1)
    per_holder = whole("data.per_holder", per_holder, at_least=1 if dense else 2)
    places = np.tile(np.arange(per_holder), holders)
    if dense:
        places = np.tile(np.eye(per_holder, dtype=np.float32), (holders, 1))
    targets = np.full(len(places), -number("data.size", size, above=0), dtype=np.float32)
    parts: dict[str, Array] = {"x": places, "y": targets}
    return Dataset(
        name="dirac",
        x_train=places,
        y_train=targets,
        x_test=places[:0],
        y_test=targets[:0],
        classes=None,
        public_test=True,
        owner=np.repeat(np.arange(holders), per_holder),
        provenance={"source": "made up for audits", "sha256": digest(parts)},
    )


def logistic(
    *,
    seed: int,
    n: int = 1000,
    features: int = 20,
    test: int = 200,
    sparsity: float = 0.0,
) -> Dataset:
    """P(label = 1) = σ(⟨x, θ⟩) with x and the non-zero part of θ standard normal: one vector of coefficients."""
    rng = np.random.default_rng(seed)
    truth = _coefficients(rng, 1, features, sparsity)[0]
    x = _inputs(rng, n, test, features)
    y = (rng.logistic(size=len(x)) < x @ truth).astype(np.int64)
    return _dataset("synthetic-logistic", x, y, seed=seed, n=n, truth=truth, classes=2)


def _coefficients(rng: np.random.Generator, rows: int, features: int, sparsity: float) -> Floats:
    """One row of coefficients per output; all rows share the same zero columns."""
    features = whole("data.features", features, at_least=1)
    zeros = round(fraction("data.sparsity", sparsity) * features)
    truth = rng.standard_normal((rows, features)).astype(np.float32)
    truth[:, rng.permutation(features)[:zeros]] = 0
    return truth


def _inputs(rng: np.random.Generator, n: int, test: int, features: int) -> Floats:
    rows = whole("data.n", n, at_least=1) + whole("data.test", test, at_least=0)
    return rng.standard_normal((rows, features), dtype=np.float32)


def _noise(noise: float) -> float:
    return number("data.noise", noise, at_least=0)


def _dataset(
    name: str, x: Floats, y: Array, *, seed: int, n: int, truth: Floats, classes: int | None
) -> Dataset:
    parts = {"x_train": x[:n], "y_train": y[:n], "x_test": x[n:], "y_test": y[n:]}
    return Dataset(
        name=name,
        x_train=x[:n],
        y_train=y[:n],
        x_test=x[n:],
        y_test=y[n:],
        classes=classes,
        public_test=True,
        owner=None,
        provenance={"source": f"generated from seed {seed}", "sha256": digest(parts)},
        truth=truth,
    )
