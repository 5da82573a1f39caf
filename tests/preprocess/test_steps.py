"""Which steps are done, and in which order."""

from __future__ import annotations

from gossamer.data.load import datasets
from gossamer.preprocess import steps_of


def names(**asked: object) -> list[str]:
    return [step.name for step in steps_of(datasets.parse({"kind": "digits", **asked}))]


def test_components_are_of_standardised_columns() -> None:
    assert names() == []
    assert names(class_weights=[1.0] * 10) == []  # public
    assert names(pca=3) == []
    everything = {
        "pca": 3,
        "pca_from": "private",
        "standardise": {"kind": "moments"},
        "class_weights": "private",
    }
    assert names(**everything) == ["class-weights", "standardise", "components"]
    source = datasets.parse({"kind": "digits", **everything})
    assert len(source.private_steps) == 3
