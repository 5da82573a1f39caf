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
QUANTILE: Changes = {"privacy.clip": {"kind": "quantile"}}
LAPLACE: Changes = {"privacy.noise.family": {"kind": "laplace"}}
PAIRWISE: Changes = {"privacy.noise.family": {"kind": "pairwise"}}
LATTICE: Changes = {"privacy.noise.arithmetic": "lattice"}
COPIES: Changes = {"data.partition": {"kind": "sampled", "size": 50}}
SILENT: Changes = {"privacy.noise.schedule": {"kind": "none"}}
DIRAC: Changes = {"data": {"kind": "dirac", "per_holder": 8}}

# refusal → (what is refused, a piece of its sentence, what differs by one key and passes)
TABLE: list[tuple[checks.Check, Changes, str, Changes]] = [
    (
        checks.a_cap_is_on_own_records,
        {"privacy.cap": 3.0},
        "privacy.cap",
        {"privacy.cap": 3.0, "data": {**OWN["data"], "classes": 2}},
    ),
    (
        checks.tuning_shares_a_proven_budget,
        {"privacy.runs": 3, "mode": "paper"},
        "privacy.runs",
        {"privacy.runs": 3},
    ),
    (
        checks.tuning_shares_a_proven_budget,
        {"privacy.runs": 3, "privacy.noise.multiplier": 2.0},
        "privacy.runs",
        {"privacy.runs": 1, "privacy.noise.multiplier": 2.0},
    ),
    (
        checks.centre_needs_a_clip_that_stays,
        {"privacy.centre": 0.1, **QUANTILE},
        "privacy.centre",
        {"privacy.centre": 0.1, "privacy.clip": {"kind": "constant", "bound": 1.0}},
    ),
    (
        checks.lattice_needs_a_plain_gaussian,
        {**LATTICE, **QUANTILE},
        "privacy.noise.arithmetic",
        {**LATTICE, "privacy.clip": {"kind": "normalised"}},
    ),
    (
        checks.cancelling_noise_needs_a_plain_clip,
        {**PAIRWISE, **QUANTILE},
        "privacy.clip.kind",
        {**PAIRWISE, "privacy.clip": {"kind": "constant", "bound": 1.0}},
    ),
    (
        checks.cancelling_noise_is_on_gradients_in_floats,
        {**PAIRWISE, **LATTICE},
        "privacy.noise.arithmetic",
        PAIRWISE,
    ),
    (
        checks.cancelling_noise_is_on_gradients_in_floats,
        {**PAIRWISE, "privacy.noise.on": "iterate"},
        "privacy.noise.on",
        PAIRWISE,
    ),
    (
        checks.whole_lots_are_clipped_in_plain_runs,
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
        checks.secret_lots_are_priced_for_real_numbers,
        {**LATTICE, "privacy.sampling": {"kind": "balls-and-bins", "lots": 4}},
        "privacy.noise.arithmetic",
        {**LATTICE, "privacy.sampling": {"kind": "poisson", "rate": 0.25}},
    ),
    (
        checks.lattice_needs_a_plain_gaussian,
        {**LATTICE, **LAPLACE},
        "privacy.noise.arithmetic",
        LAPLACE,
    ),
    (
        checks.lattice_needs_a_plain_gaussian,
        {**LATTICE, "privacy.clip": {"kind": "assumed", "bound": 1.0}},
        "privacy.noise.arithmetic",
        {**LATTICE, "privacy.clip": {"kind": "constant", "bound": 1.0}},
    ),
    (
        checks.other_noises_need_a_plain_clip,
        {**LAPLACE, **QUANTILE},
        "privacy.noise.family.kind",
        {**LAPLACE, "privacy.clip": {"kind": "constant", "bound": 1.0}},
    ),
    (
        checks.other_noises_need_a_plain_clip,
        {**LAPLACE, **LATTICE},
        "privacy.noise.family.kind",
        LATTICE,
    ),
    (
        checks.some_noises_have_no_proof,
        {"privacy.noise.schedule": {"kind": "own-norm"}},
        "privacy.noise.schedule.kind",
        {"privacy.noise.schedule": {"kind": "own-norm"}, "mode": "paper"},
    ),
    (
        checks.copies_are_priced_together,
        {**COPIES, "privacy.noise.family": {"kind": "pairwise"}},
        "data.partition.kind",
        COPIES,
    ),
    (
        checks.copies_are_priced_together,
        {**COPIES, "baseline": "central"},
        "data.partition.kind",
        {**COPIES, "baseline": "no-communication"},
    ),
    (
        checks.copies_are_priced_together,
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
        checks.components_of_private_records_are_not_paid_for,
        {"data.pca": 5, "data.pca_from": "digits"},
        "data.pca_from",
        {"data.pca": 5, "data.pca_from": "mnist"},
    ),
    (
        checks.components_of_private_records_are_not_paid_for,
        {"data.pca": 5, "data.pca_from": "train"},
        "data.pca_from",
        {"data.pca": 5, "data.pca_from": "train", **SILENT},
    ),
    (
        checks.preprocessing_is_paid_for,
        {"data.pca": 5, "data.pca_from": "private"},
        "data.pca_from = 'private'",
        {"data.pca": 5, "data.pca_from": "private", "privacy.preprocessing": 0.2},
    ),
    (
        checks.class_weights_come_before_the_clip,
        {"mode": "paper", "data.class_weights": [1.0] * 10, "privacy.clip": {"kind": "none"}},
        "data.class_weights",
        {"data.class_weights": [1.0] * 10},
    ),
    (
        checks.a_unit_has_a_price,
        {"privacy.unit": "node", "privacy.sampling": {"kind": "full"}, "privacy.centre": 0.1},
        "privacy.unit",
        {"privacy.unit": "node", "privacy.sampling": {"kind": "full"}},
    ),
    (
        checks.a_proof_needs_a_bound,
        {"privacy.clip": {"kind": "none"}},
        "privacy.clip.kind",
        {"privacy.clip": {"kind": "none"}, **SILENT},
    ),
    (
        checks.a_proof_needs_a_bound,
        {"privacy.clip": {"kind": "assumed", "bound": 1.0}},
        "privacy.clip.kind",
        {"privacy.clip": {"kind": "assumed", "bound": 1.0}, "mode": "paper"},
    ),
    (
        checks.places_need_a_table,
        DIRAC,
        "model.kind",
        {**DIRAC, "model": {"kind": "lookup", "rows": 8}},
    ),
    (
        checks.places_need_a_table,
        {**DIRAC, "model": {"kind": "lookup", "rows": 7}},
        "model.rows",
        {"data": {"kind": "dirac", "per_holder": 8, "dense": True}},
    ),
    (
        checks.labels_are_declared,
        OWN,
        "data.classes",
        {**OWN, "data.classes": 2},
    ),
    (
        checks.labels_are_declared,
        OWN,
        "data.classes",
        {**OWN, "data.task": "regression"},
    ),
    (
        checks.labels_are_declared,
        OWN,
        "data.classes",
        {**OWN, **SILENT},
    ),
    (
        checks.evaluation_is_paid_for,
        {"evaluation.private": 0.2},
        "evaluation.private",
        {**OWN, "data.classes": 2, "evaluation.private": 0.2},
    ),
    (
        checks.which_rows_train_follows_no_number,
        {**OWN, "data.held_out": 9},
        "data.held_out",
        {**OWN, "data.held_out": 9, "privacy.adjacency": "replace-one"},
    ),
    (
        checks.which_rows_train_follows_no_number,
        {**OWN, "data.train_rows": 50},
        "data.train_rows",
        {"data.train_rows": 50},
    ),
    (
        checks.diagnostics_stay_here,
        {"evaluation.diagnostics": True, "runtime.kind": "processes"},
        "evaluation.diagnostics",
        {"evaluation.diagnostics": True, "runtime.kind": "simulator"},
    ),
]
rows = pytest.mark.parametrize(
    ("refuse", "refused", "key", "passes"),
    TABLE,
    ids=[f"{i}-{row[0].__name__}" for i, row in enumerate(TABLE)],
)


def configured(changes: Changes) -> RunConfig:
    settings = {key: value for key, value in changes.items() if key != "recipe"}
    return resolve(recipes.read(changes.get("recipe", "quickstart")), settings)


@rows
def test_it_refuses_and_names_the_key_and_the_remedy(
    refuse: checks.Check, refused: Changes, key: str, passes: Changes
) -> None:
    config = configured(refused)
    with pytest.raises(UserError) as caught:
        refuse(config)
    assert caught.value.key == key
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


@rows
def test_it_lets_the_nearest_pass(refuse: checks.Check, refused: Changes, key: str, passes: Changes) -> None:
    refuse(configured(passes))


def test_check_runs_every_refusal_and_the_table_has_each() -> None:
    assert {row[0] for row in TABLE} == set(checks.CHECKS)
    for _, refused, _, _ in TABLE:
        config = configured(refused)
        with pytest.raises(UserError):
            checks.check(config)


@pytest.mark.parametrize("name", recipes.names())
def test_no_recipe_is_refused(name: str) -> None:
    checks.check(configured({"recipe": name}))
