"""Every set that needs no file comes in the one shape that a model expects."""

import numpy as np
import pytest

from gossamer.data.dataset import Dataset
from gossamer.data.load import load

OFFLINE = {
    "digits": {},
    "synthetic-classification": {"n": 30, "test": 7, "classes": 3},
    "synthetic-regression": {"n": 30, "test": 7},
    "synthetic-logistic": {"n": 30, "test": 7},
    "synthetic-counts": {"n": 30, "test": 7},
    "synthetic-labels": {"n": 30, "test": 7, "several": 3},
    "dirac": {"holders": 3, "per_holder": 4},
}


@pytest.mark.parametrize("kind", OFFLINE)
def test_types_lengths_and_labels_are_as_promised(kind):
    data = load(kind, **OFFLINE[kind])
    assert isinstance(data, Dataset)
    for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        assert len(x) == len(y)
        assert x.dtype == (np.int64 if kind == "dirac" else np.float32)
        assert y.dtype == (np.float32 if data.classes is None else np.int64)
    assert data.x_train.shape[1:] == data.x_test.shape[1:]
    assert data.several == (3 if kind == "synthetic-labels" else None)
    if data.classes is not None:
        assert data.y_train.min() >= 0
        assert data.y_train.max() < data.classes
    if data.x_train.ndim == 4:
        assert data.x_train.min() >= 0
        assert data.x_train.max() <= 1
    assert len(data.provenance["sha256"]) == 64
    assert data.owner is None or len(data.owner) == len(data.x_train)


def test_the_digest_follows_the_records():
    one, same, other = (load("synthetic-regression", n=30, seed=s).provenance["sha256"] for s in (0, 0, 1))
    assert one == same != other
