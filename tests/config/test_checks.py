"""Every refusal that needs more than one key: a configuration that it refuses, and the nearest one that it lets pass."""

from __future__ import annotations

from typing import Any

import pytest

from gossamer.config import checks, recipes
from gossamer.config.layers import resolve
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError

Changes = dict[str, Any]
OWN: Changes = {"data": {"kind": "csv", "path": "records.csv", "label": "y"}}
KM: Changes = {"recipe": "dp-dkm/lasso"}
CONSTANT: Changes = {"privacy.clip": {"kind": "constant", "bound": 1.0}}
QUANTILE: Changes = {"privacy.clip": {"kind": "quantile"}}
LAPLACE: Changes = {"privacy.noise.family": {"kind": "laplace"}}
PAIRWISE: Changes = {"privacy.noise.family": {"kind": "pairwise"}}
COPIES: Changes = {"data.partition": {"kind": "sampled", "size": 50}}
SILENT: Changes = {"privacy.noise.schedule": {"kind": "none"}}
DIRAC: Changes = {"data": {"kind": "dirac", "per_holder": 8}}

# (what is refused, the key that the sentence names, what differs by one key and passes)
TABLE: list[tuple[Changes, str, Changes]] = [
    (
        {"privacy.cap": 3.0},
        "privacy.cap",
        {"privacy.cap": 3.0, "data": {**OWN["data"], "classes": 2}},
    ),
    (
        {"privacy.runs": 3, "mode": "paper"},
        "privacy.runs",
        {"privacy.runs": 3},
    ),
    (
        {"privacy.runs": 3, "privacy.noise.multiplier": 2.0},
        "privacy.runs",
        {"privacy.runs": 1, "privacy.noise.multiplier": 2.0},
    ),
    (
        {"privacy.centre": 0.1, **QUANTILE},
        "privacy.centre",
        {"privacy.centre": 0.1, "privacy.clip": {"kind": "constant", "bound": 1.0}},
    ),
    (
        {**PAIRWISE, **QUANTILE},
        "privacy.clip.kind",
        {**PAIRWISE, "privacy.clip": {"kind": "constant", "bound": 1.0}},
    ),
    (
        {**PAIRWISE, "privacy.noise.on": "iterate"},
        "privacy.noise.on",
        PAIRWISE,
    ),
    (
        {
            "privacy.clip": {"kind": "constant", "bound": 1.0, "of": "lot"},
            "privacy.sampling": {"kind": "one-pass", "lot": 16},
        },
        "privacy.clip.of",
        {
            "privacy.clip": {"kind": "constant", "bound": 1.0, "of": "record"},
            "privacy.sampling": {"kind": "one-pass", "lot": 16},
        },
    ),
    (
        {**LAPLACE, **QUANTILE},
        "privacy.noise.family.kind",
        {**LAPLACE, "privacy.clip": {"kind": "constant", "bound": 1.0}},
    ),
    (
        {"privacy.noise.schedule": {"kind": "own-norm"}},
        "privacy.noise.schedule.kind",
        {"privacy.noise.schedule": {"kind": "own-norm"}, "mode": "paper"},
    ),
    (
        {**COPIES, "privacy.noise.family": {"kind": "pairwise"}},
        "data.partition.kind",
        COPIES,
    ),
    (
        {**COPIES, "baseline": "central"},
        "data.partition.kind",
        {**COPIES, "baseline": "no-communication"},
    ),
    (
        {
            "data": {
                "kind": "csv",
                "path": "x.csv",
                "label": "y",
                "classes": 2,
                "partition": COPIES["data.partition"],
            }
        },
        "data.partition.kind",
        {"data": {"kind": "csv", "path": "x.csv", "label": "y", "classes": 2}},
    ),
    (
        {"data.pca": 5, "data.pca_from": "digits"},
        "data.pca_from",
        {"data.pca": 5, "data.pca_from": "mnist"},
    ),
    (
        {"data.pca": 5, "data.pca_from": "train"},
        "data.pca_from",
        {"data.pca": 5, "data.pca_from": "train", **SILENT},
    ),
    (
        {"data.pca": 5, "data.pca_from": "private"},
        "data.pca_from = 'private'",
        {"data.pca": 5, "data.pca_from": "private", "privacy.preprocessing": 0.2},
    ),
    (
        {"mode": "paper", "data.class_weights": [1.0] * 10, "privacy.clip": {"kind": "none"}},
        "data.class_weights",
        {"data.class_weights": [1.0] * 10},
    ),
    (
        {"privacy.unit": "node", "privacy.sampling": {"kind": "full"}, "privacy.centre": 0.1, **CONSTANT},
        "privacy.unit",
        {"privacy.unit": "node", "privacy.sampling": {"kind": "full"}, **CONSTANT},
    ),
    (
        {"privacy.clip": {"kind": "none"}},
        "privacy.clip.kind",
        {"privacy.clip": {"kind": "none"}, **SILENT},
    ),
    (
        {"privacy.clip": {"kind": "assumed", "bound": 1.0}},
        "privacy.clip.kind",
        {"privacy.clip": {"kind": "assumed", "bound": 1.0}, "mode": "paper"},
    ),
    (
        DIRAC,
        "model.kind",
        {**DIRAC, "model": {"kind": "lookup", "rows": 8}},
    ),
    (
        {**DIRAC, "model": {"kind": "lookup", "rows": 7}},
        "model.rows",
        {"data": {"kind": "dirac", "per_holder": 8, "dense": True}},
    ),
    (
        OWN,
        "data.classes",
        {**OWN, "data.classes": 2},
    ),
    (
        OWN,
        "data.classes",
        {**OWN, "data.task": "regression"},
    ),
    (
        OWN,
        "data.classes",
        {**OWN, **SILENT},
    ),
    (
        {"evaluation.private": 0.2},
        "evaluation.private",
        {**OWN, "data.classes": 2, "evaluation.private": 0.2},
    ),
    (
        {**OWN, "data.classes": 2, "data.held_out": 9},
        "data.held_out",
        {**OWN, "data.classes": 2, "data.held_out": 9, "privacy.adjacency": "replace-one"},
    ),
    (
        {**OWN, "data.classes": 2, "data.train_rows": 50},
        "data.train_rows",
        {"data.train_rows": 50},
    ),
    (
        {"evaluation.diagnostics": True, "runtime.kind": "processes"},
        "evaluation.diagnostics",
        {"evaluation.diagnostics": True, "runtime.kind": "simulator"},
    ),
]
rows = pytest.mark.parametrize(("refused", "key", "passes"), TABLE)


def configured(changes: Changes) -> RunConfig:
    settings = {key: value for key, value in changes.items() if key != "recipe"}
    return resolve(recipes.read(changes.get("recipe", "quickstart")), settings)


@rows
def test_it_refuses_and_names_the_key_and_the_remedy(refused: Changes, key: str, passes: Changes) -> None:
    with pytest.raises(UserError) as caught:
        checks.check(configured(refused))
    assert key in (caught.value.key, f"{caught.value.key} = {caught.value.value!r}")
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


@rows
def test_it_lets_the_nearest_pass(refused: Changes, key: str, passes: Changes) -> None:
    checks.check(configured(passes))


@pytest.mark.parametrize("name", recipes.names())
def test_no_recipe_is_refused(name: str) -> None:
    checks.check(configured({"recipe": name}))
