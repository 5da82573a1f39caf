"""scikit-learn's way in: `PrivateClassifier(epsilon=1.0, nodes=8).fit(x, y).predict(x)`.

The estimators write a configuration and hand it to `gossamer.run`: what is checked, priced and certified there is
checked, priced and certified here. What is private about the records and not declared (how many there are, which
labels occur, the range of the targets) is read off them, as scikit-learn's users expect, with a warning that says so
and a line in the certificate; declare it, and both are gone. The parameters are dataclass fields: scikit-learn reads
them off the signature of the constructor, which has to name each.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from gossamer.config.auto import noise_of_a_run, travel
from gossamer.data.arrays import listed
from gossamer.data.own import Data
from gossamer.data.tables import FrameTable, array_of, is_frame, no_value_missing, same_index
from gossamer.errors import UserError, short
from gossamer.mechanism.noise import families
from gossamer.options.sentences import as_path, whole_number
from gossamer.training.api import run

Array = NDArray[Any]
CLIP, ROUNDS = 0.5, 100  # of a regression: residuals and records are at most about one


class PrivacyLeakWarning(UserWarning):
    """Something private was read off the records because it was not declared: no ε covers it."""


@dataclass(eq=False, repr=False)
class _Private(BaseEstimator):  # type: ignore[misc]
    """Both estimators: a linear model on records in the unit ball, trained without a server.

    epsilon, delta: the proven (ε, δ) of one record of one node against everyone who sees all messages.
    nodes: among how many the rows are dealt out, where nothing says whose they are.
    owners: the column of x, by name or number, that says whose a row is: a node for each value.
    topology, method: `topology.kind` and `algorithm.kind`.
    noise: "gaussian", each node's own; or "pairwise", which cancels between nodes (docs/pairwise.md).
    bounds: public (lowest, highest) of the features: two numbers, or two of each column; without them, rows are only
        scaled to norm 1, each by itself, and columns of different size learn badly.
    columns: of a frame with words, dates or gaps, what each column may hold, {"age": [0, 100], "ward": ["A", "B"]}, as
        `data.columns` (docs/tables.md); only these are learned from, and nothing is read off for them.
    records: the public number of records of a node, one for all or a list; if not declared, it is read off.
    module: a torch module in place of the linear model; a copy is trained.
    loss: a loss by its name, or a function of outputs and targets, as of `gossamer.run`.
    rounds: how often the nodes compute and exchange; "auto": from public numbers.
    fit_intercept: a constant beside the features.
    random_state: of the start, the deal and the graph. Noise is secret all the same, and differs from fit to fit.
    seeded_noise: noise that follows random_state, for science: no privacy, and everything says so.
    settings: further keys of the configuration, {"algorithm.momentum": 0.5}; they win.
    directory: where the run directory is made; if not said it is removed after the fit.
    """

    epsilon: float = 1.0
    _: KW_ONLY
    delta: float = 1e-5
    nodes: int = 8
    owners: str | int | None = None
    topology: str = "one-peer-exponential"
    method: str = "full-lot"
    noise: str = "gaussian"
    bounds: tuple[Any, Any] | None = None
    columns: Mapping[str, Any] | None = None
    records: int | Sequence[int] | None = None
    rounds: int | str = "auto"
    module: Any = None
    loss: Any = None
    fit_intercept: bool = True
    random_state: Any = None
    seeded_noise: bool = False
    settings: Mapping[str, Any] | None = None
    directory: str | Path | None = None

    def _check_parameters(self) -> None:
        """Here and not in the constructor, as scikit-learn wants it."""
        whole_number("nodes", self.nodes)
        if self.rounds != "auto":
            whole_number("rounds", self.rounds)
        for name, needed in (("epsilon", "a number above 0"), ("delta", "a number above 0 and below 1")):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not value > 0:
                raise UserError(f"{name} = {short(value)} must be {needed}.")
        for name in ("topology", "method", "noise"):
            if not isinstance(value := getattr(self, name), str):
                raise UserError(f"{name} = {short(value)} must be a name, as text.")
        for name in ("fit_intercept", "seeded_noise"):
            if not isinstance(value := getattr(self, name), bool | np.bool_):
                raise UserError(f"{name} = {short(value)} must be True or False.")
        if self.records is not None:
            one = isinstance(self.records, int | float | str | np.number)
            for count in [self.records] if one else self.records:  # type: ignore[union-attr]
                whole_number("records", count)

    def _checked(self, x: Any, y: Any, owners: Any) -> tuple[Any, Any, Any]:
        """(features, targets, whose each row is), with nothing of them lost on the way."""
        self._check_parameters()
        for name, value in (("X", x), ("y", y), ("owners", owners)):
            if isinstance(value, np.ma.MaskedArray):
                array_of(name, value)
            same_index(name, value, "X", x)
        x, owners = self._split_owners(x, owners)
        if owners is not None:
            if owners.shape != (len(y),):
                raise UserError(f"owners has shape {owners.shape}; give one for each of the {len(y)} rows.")
            no_value_missing("owners", owners)
        return x, y, owners

    def _validated(self, x: Any, y: Any, **checks: Any) -> tuple[Any, Array]:
        """The features as an array of numbers, or, with declared columns, the frame as it is; and the targets."""
        if self.columns is None:
            kinds = FrameTable(x, "X").kinds if is_frame(x) else {}
            words = [name for name, kind in kinds.items() if kind in ("categorical", "date")]
            if words:
                remedy = "declare what they may hold, columns={…}, or leave them out"
                raise UserError(f"X has columns that are no numbers, {listed(words)}; {remedy}.")
            checked: tuple[Any, Array] = validate_data(self, x, y, dtype=np.float32, **checks)
            return checked
        if not is_frame(x):
            remedy = "give a frame, or bounds in place of columns"
            raise UserError(f"columns declares columns by name, and X is of type {type(x).__name__}; {remedy}.")
        if self.bounds is not None:
            raise UserError("columns declares ranges, and bounds is given too; leave out one of the two.")
        validate_data(self, x, skip_check_array=True)
        check_consistent_length(x, y)
        return x, validate_data(self, y=y, **checks)

    def _train(self, x: Any, targets: Array, owners: Any, data: dict[str, Any]) -> Self:
        """`data`: what is declared of the targets, and what was read off."""
        read_off = data.pop("read_off", [])
        if owners is None:
            nodes = int(self.nodes)
            count = [len(x) // nodes + (i < len(x) % nodes) for i in range(nodes)]
        else:
            count = np.unique(owners, return_counts=True)[1].tolist()
            nodes = len(count)
        if nodes > len(x):
            raise ValueError(f"nodes = {nodes} is more than the {len(x)} samples; every node needs a record.")
        if self.records is None:
            read_off = [*read_off, "records"]
        if read_off:
            named = " and ".join(_READ_OFF[what] for what in read_off)
            sentence = f"{named} were read off the data: no ε covers that; declare them."
            warnings.warn(sentence, PrivacyLeakWarning, 3)
        declared = count if self.records is None else self.records
        given = Data((x, targets), owners=owners, count=declared, columns=self.columns, **data)
        config = self._configuration(nodes, {**given.table(), "read_off": read_off}, x.shape[1])
        with tempfile.TemporaryDirectory(prefix="gossamer-") as temporary:
            out = as_path("directory", self.directory) or Path(temporary) / "run"
            try:
                own = {"module": self.module, "loss": self.loss}
                self.outcome_ = run(config, self.settings, data=given, out=out, progress=False, **own)
            except UserError as error:
                raise ValueError(str(error)) from error
        self.certificate_ = self.outcome_.certificate
        return self

    def _configuration(self, nodes: int, data: dict[str, Any], width: int) -> dict[str, Any]:
        state = check_random_state(self.random_state)
        # Noise that cancels between nodes is worth having only where all of them take the same mean.
        cancels = getattr(families.kinds.get(self.noise), "cancels", False)
        noise = {"source": "seeded" if self.seeded_noise else "system", "family": {"kind": self.noise}}
        ranges = {} if self.bounds is None else {"ranges": _ranges(self.bounds, width)}
        return {
            "name": type(self).__name__,
            "nodes": nodes,
            "seed": int(state.randint(2**31 - 1)),
            "data": {**data, "scale": "unit-ball", **ranges},
            "topology": {"kind": self.topology},
            "algorithm": {"kind": self.method, **({"mixes": "exact"} if cancels else {})},
            "privacy": {"epsilon": float(self.epsilon), "delta": float(self.delta), "noise": noise},
        }

    def _split_owners(self, x: Any, owners: Any) -> tuple[Any, Any]:
        """(the features, whose each row is): the column that says so is no feature."""
        if owners is not None and self.owners is not None:
            raise ValueError(f"owners = {self.owners!r} is a column, and fit was given owners too; give one.")
        if self.owners is None:
            return x, None if owners is None else array_of("owners", owners)
        if hasattr(x, "columns"):
            names = list(x.columns)
            if self.owners not in names:
                there = ", ".join(map(str, names))
                raise ValueError(f"owners = {self.owners!r} is no column of x; it has {there}.")
            return x[[name for name in names if name != self.owners]], np.asarray(x[self.owners])
        table, number = np.asarray(x), self.owners
        if type(number) is not int or table.ndim != 2 or not 0 <= number < table.shape[1]:
            raise ValueError(f"owners = {self.owners!r} is no column of x; give its number, from 0.")
        return np.delete(table, number, axis=1), table[:, number]

    def _features(self, x: Any) -> Any:
        """Checked as in training, without the owners' column, where x has it."""
        check_is_fitted(self)
        if self.columns is not None:
            return x  # a frame, whose columns are looked up by name
        if isinstance(x, np.ma.MaskedArray):
            array_of("X", x)
        if self.owners is not None and np.ndim(x) == 2 and np.shape(x)[1] != self.n_features_in_:
            x = self._split_owners(x, None)[0]
        return validate_data(self, x, dtype=np.float32, reset=False)


_READ_OFF = {
    "records": "the number of records of each node (records=)",
    "classes": "the labels (classes=)",
    "targets": "the range of the targets (target_range=)",
}


def _ranges(bounds: tuple[Any, Any], width: int) -> dict[str, list[float]]:
    """What becomes [0, 1], so chosen that a column within its bounds becomes ±1/√p: a row is at most 1 long."""
    try:
        lowest, highest = (np.broadcast_to(np.asarray(bound, dtype=float), (width,)) for bound in bounds)
    except (TypeError, ValueError):
        lowest = highest = np.zeros(1)
    if not (np.isfinite(lowest).all() and np.isfinite(highest).all() and (lowest < highest).all()):
        raise UserError(f"bounds = {short(bounds)} must be (lowest, highest), numbers or {width} of each.")
    middle, reach = (lowest + highest) / 2, (highest - lowest) / 2 * np.sqrt(width)
    return {str(k): [float(m), float(m + r)] for k, (m, r) in enumerate(zip(middle, reach, strict=True))}


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateClassifier(ClassifierMixin, _Private):  # type: ignore[misc]
    """Softmax regression of any number of classes, each node's records protected by differential privacy.

    classes: all labels there may be, declared; if not, they are read off. A y of several columns of 0 and 1 is as many
        labels of yes or no.

    After `fit`: `outcome_` (the run: see `gossamer.run`), `certificate_` (the privacy statement), `classes_`.

    >>> from sklearn.datasets import load_digits
    >>> x, y = load_digits(return_X_y=True)
    >>> model = PrivateClassifier(epsilon=8, classes=range(10), records=224, bounds=(0, 16))
    >>> bool(model.fit(x, y).score(x, y) > 0.8)
    True
    """

    __doc__ += "\n" + (_Private.__doc__ or "").partition("\n")[2]

    classes: Sequence[Any] | None = None

    def fit(self, X: Any, y: Any, owners: Any = None) -> Self:
        """Train. `owners`: whose each row is, where no column of X says so."""
        X, y, owners = self._checked(X, y, owners)
        several = len(shape := np.asarray(y).shape) == 2 and shape[1] > 1
        X, y = self._validated(X, y, multi_output=several)
        check_classification_targets(y)
        if several:
            self.classes_: Any = [np.arange(2)] * y.shape[1]
            return self._train(X, y, owners, {"task": "multi-label"})
        try:
            declared = np.unique(y if self.classes is None else np.asarray([*self.classes]))
        except TypeError:
            raise UserError(f"classes = {short(self.classes)} must list all labels, of one type.") from None
        if len(declared) < 2:
            raise ValueError(f"a classifier needs 2 classes or more; there is one class: {declared.tolist()}.")
        unknown = np.setdiff1d(y, declared)
        if len(unknown):
            raise ValueError(f"y has labels that are not among the declared classes: {unknown[:5].tolist()}.")
        self.classes_ = declared
        declaration = {"classes": len(declared), "read_off": ["classes"] if self.classes is None else []}
        return self._train(X, np.searchsorted(declared, y), owners, declaration)

    def _configuration(self, nodes: int, data: dict[str, Any], width: int) -> dict[str, Any]:
        config = super()._configuration(nodes, data, width)
        config["model"] = {"kind": "softmax", "bias": bool(self.fit_intercept)}
        config["rounds"] = self.rounds if self.rounds == "auto" else int(self.rounds)
        return config

    def predict_proba(self, X: Any) -> Array:
        X = self._features(X)
        return np.asarray(self.outcome_.predict_proba(X))

    def predict(self, X: Any) -> Array:
        chances = self.predict_proba(X)
        if isinstance(self.classes_, list):
            return (chances > 0.5).astype(int)
        labels: Array = self.classes_[chances.argmax(axis=1)]
        return labels


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRegressor(RegressorMixin, _Private):  # type: ignore[misc]
    """Linear regression, each node's records protected by differential privacy.

    target_range: public (lowest, highest) of the targets; if not declared, it is read off. Targets outside are moved to
        its ends.

    After `fit`: `outcome_` (the run: see `gossamer.run`), `certificate_` (the privacy statement), `target_range_`.
    """

    __doc__ += "\n" + (_Private.__doc__ or "").partition("\n")[2]

    target_range: tuple[float, float] | None = None

    def fit(self, X: Any, y: Any, owners: Any = None) -> Self:
        """Train. `owners`: whose each row is, where no column of X says so."""
        X, y, owners = self._checked(X, y, owners)
        X, y = self._validated(X, y, y_numeric=True)
        try:
            limits = (y.min(), y.max()) if self.target_range is None else self.target_range
            low, high = map(float, limits)
        except (TypeError, ValueError):
            low = high = math.nan
        if self.target_range is not None and not -math.inf < low < high < math.inf:
            needed = "must be (lowest, highest), two numbers, the first below"
            raise ValueError(f"target_range = {self.target_range!r} {needed}.")
        if not low < high:
            low, high = low - 0.5, low + 0.5  # all targets are one
        self.target_range_ = (float(low), float(high))
        scaled = np.clip((2 * y.astype(np.float64) - low - high) / (high - low), -1, 1).astype(np.float32)
        declaration = {"task": "regression", "read_off": ["targets"] if self.target_range is None else []}
        return self._train(X, scaled, owners, declaration)

    def _configuration(self, nodes: int, data: dict[str, Any], width: int) -> dict[str, Any]:
        """Steps of at most one: a loss that curves at most by one, whose residuals the clip cuts off, then settles."""
        config = super()._configuration(nodes, data, width)
        rounds = ROUNDS if self.rounds == "auto" else int(self.rounds)
        if self.fit_intercept and self.module is None:
            config["data"]["bias"] = True
        step = min(1.0, travel(noise_of_a_run(config)) / (rounds * CLIP))
        config["privacy"]["clip"] = {"kind": "constant", "bound": CLIP}
        config["algorithm"] |= {"lr": float(f"{step:.4g}"), "momentum": 0.0}
        return {**config, "model": {"kind": "linear"}, "loss": {"kind": "least-squares"}, "rounds": rounds}

    def predict(self, X: Any) -> Array:
        X = self._features(X)
        low, high = self.target_range_
        scaled = np.asarray(self.outcome_.predict(X), dtype=np.float64).reshape(len(X))
        return (scaled * (high - low) + low + high) / 2
