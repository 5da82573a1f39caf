"""Privacy for a person or a node: what it costs, that it is what a record costs where a person is one, and what is
refused because a printed ε would be false."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.refusals import expect_refusal

import gossamer
from gossamer.accounting.budget import default_folder
from gossamer.accounting.profiles import gdp_epsilon
from gossamer.accounting.recompute import recompute
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan

FULL = {"privacy.sampling": {"kind": "full"}, "privacy.clip": {"kind": "constant", "bound": 1.0},
        "privacy.noise.schedule": {"kind": "constant"}, "privacy.noise.multiplier": 4.0, "privacy.epsilon": None}  # fmt: skip
SEEDED = {"privacy.noise.source": "seeded"}
PERSON = {"privacy.unit": {"column": "p"}}


def config(**changes: Any) -> Any:
    asked = {"rounds": 3, "nodes": 4, **{key.replace("__", "."): value for key, value in changes.items()}}
    return resolve(recipes.read("quickstart"), asked)


def refused(names: str, **changes: Any) -> None:
    with expect_refusal(names=names):
        assemble(Plan.of(config(**changes)))


def table(path: Path, rows: list[tuple[Any, ...]], header: str = "patient,site,a,b,ill") -> dict[str, Any]:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return {"kind": "csv", "path": str(path), "label": "ill", "classes": 2, "records": 40}


def patients(persons: int, each: int, sites: int = 2) -> list[tuple[Any, ...]]:
    draw = np.random.default_rng(0)
    return [
        (f"P{p}", f"s{p % sites}", *draw.normal(size=2).round(3), (p + r) % 2)
        for p in range(persons)
        for r in range(each)
    ]


# --- price ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["record", "node", {"column": "p"}])
def test_full_lots_cost_the_closed_form_whatever_the_unit(unit: Any) -> None:
    o = Plan.of(config(data__persons=100, privacy__unit=unit, **FULL))
    assert o.privacy.worst.proven.epsilon == pytest.approx(gdp_epsilon(math.sqrt(3) / 4, 1e-4))


@pytest.mark.parametrize("sites", [2, 3, 9])
def test_a_person_at_k_nodes_costs_k_nodes_releases(sites: int) -> None:
    o = Plan.of(config(data__persons=100, privacy__unit={"column": "p", "max_sites": sites}, **FULL))
    held = min(sites, 4)
    assert o.privacy.worst.proven.epsilon == pytest.approx(gdp_epsilon(math.sqrt(3 * held) / 4, 1e-4))
    assert o.privacy.unit == f"one person (column p) at up to {held} nodes"


def test_rates_and_lots_are_of_persons() -> None:
    o = Plan.of(config(data__persons=100, privacy__sampling={"kind": "poisson", "lot": 5.0}, **PERSON))
    assert [node.records for node in o.privacy.nodes] == [25] * 4
    assert [node.rate for node in o.privacy.nodes] == [0.2] * 4
    parts = assemble(o)
    assert parts.records.units == [25] * 4
    assert sum(parts.records.sizes) == len(parts.dataset.y_train)


# --- a person of one record is a record ------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [
    {"kind": "full"}, {"kind": "poisson", "lot": 20.0}, {"kind": "one-pass", "lot": 30}, {"kind": "fixed-size", "lot": 20},
    {"kind": "balls-and-bins", "lots": 4},
])  # fmt: skip
def test_persons_of_one_record_train_the_same_models_bit_for_bit(sampling: dict[str, Any]) -> None:
    rows = 400
    same = {
        **FULL,
        "data.train_rows": rows,
        "privacy.sampling": sampling,
        "privacy.adjacency": "replace-one",
        **SEEDED,
    }
    models = []
    for unit in ({}, {**PERSON, "data.persons": rows}):
        parts = assemble(Plan.of(config(**same, **unit)))
        reader = parts.reader(Nowhere())
        x = parts.x0
        for _ in range(2):
            x = x - 0.1 * reader(x)
        models.append(x)
    assert torch.equal(models[0], models[1])


class Nowhere:
    def write(self, releases: Any) -> None:
        """No ledger."""


def test_a_person_moves_what_is_released_by_its_clip_and_a_record_level_run_by_more() -> None:
    """The reader itself, without noise to speak of: one person with 60 records more or less."""
    moves = []
    for unit in ({"column": "patient"}, "record"):
        sums = []
        for keep in (True, False):
            x = np.concatenate([np.eye(2, dtype=np.float32)[[0, 1] * 10], np.full((60 * keep, 2), 3.0, np.float32)])
            y = np.concatenate([np.arange(20) % 2, np.ones(60 * keep, np.int64)])
            ids = np.concatenate([np.arange(20), np.full(60 * keep, 99)])
            data = gossamer.Data((x, y), persons=ids, classes=2, count=20)
            asked = {**FULL, **SEEDED, "privacy.noise.multiplier": 1e-6, "privacy.unit": unit, "nodes": 1, "rounds": 1,
                     "topology": {"kind": "complete"}}  # fmt: skip
            parts = _with(data, asked)
            sums.append(parts.reader(Nowhere())(parts.x0) * 20)
        moves.append(float((sums[0] - sums[1]).norm()))
    assert moves[0] <= 1 + 1e-4
    assert moves[1] > 20


def _with(data: gossamer.Data, asked: dict[str, Any]) -> Any:
    from gossamer.training.data import DataCache

    recipe = {**recipes.read("quickstart"), "data": data.table()}
    cache = DataCache(data)
    return assemble(Plan.of(resolve(recipe, asked), cache=cache))


# --- runs ------------------------------------------------------------------------------------------------------


def test_a_run_on_patients_says_its_unit_everywhere(tmp_path: Path) -> None:
    data = {**table(tmp_path / "a.csv", patients(80, 5)), "owner": "site"}
    asked = {"data": data, "nodes": 2, "rounds": 2, "privacy.unit": {"column": "patient", "max_records": 3},
             "privacy.sampling": {"kind": "poisson", "lot": 10.0}}  # fmt: skip
    done = gossamer.run(recipes.read("quickstart"), asked, out=tmp_path / "run")
    stated = json.loads((tmp_path / "run" / "certificate.json").read_text())
    words = "one person (column patient) at one node"
    assert stated["unit"] == words
    assert stated["epsilon_by_group"] == []
    assert any("at most 3 records" in note for note in stated["notes"])
    proofs = recompute(tmp_path / "run")
    assert {proof.header["unit"] for proof in proofs} == {words}
    assert max(proof.proven.epsilon for proof in proofs) == pytest.approx(stated["epsilon_proven"])
    (account,) = default_folder().glob("*.jsonl")
    assert json.loads(account.read_text().split("\n")[1])["unit"] == words
    assert "every single person" in (tmp_path / "run" / "certificate.html").read_text()
    assert 'person = "patient"' in (tmp_path / "run" / "config.toml").read_text()
    assert "patient" not in done.result.get("columns", [])


def test_runs_that_protect_different_units_add_up_for_a_record(tmp_path: Path) -> None:
    data = {**table(tmp_path / "a.csv", patients(80, 2)), "features": ["a", "b"]}
    both = {"data": {**data, "person": "patient"}, "nodes": 2, "rounds": 2, **FULL}
    gossamer.run(recipes.read("quickstart"), both, out=tmp_path / "one")
    gossamer.run(recipes.read("quickstart"), {**both, "privacy.unit": {"column": "patient"}}, out=tmp_path / "two")
    budget = json.loads((tmp_path / "two" / "certificate.json").read_text())["budget"]
    assert (budget["unit"], budget["adjacency"], budget["runs"]) == (
        "one record of one node",
        "replace-one",
        2,
    )
    assert budget["epsilon"] == pytest.approx(gdp_epsilon(2 * math.sqrt(4) / 4, 1e-4))


# --- what would make a printed ε false ---------------------------------------------------------------------------


def test_persons_split_over_nodes_undeclared_are_refused(tmp_path: Path) -> None:
    rows = [(*row[:1], f"s{i % 2}", *row[2:]) for i, row in enumerate(patients(20, 4))]
    data = {**table(tmp_path / "a.csv", rows), "owner": "site"}
    refused(
        "privacy.unit.max_sites 1",
        nodes=2,
        data=data,
        privacy__unit={"column": "patient"},
    )
    parts = assemble(Plan.of(config(nodes=2, data=data, privacy__unit={"column": "patient", "max_sites": 2})))
    assert parts.plan.privacy.copies == 2


def test_the_same_id_in_two_files_is_one_person(tmp_path: Path) -> None:
    for i, name in enumerate((" 007", "7")):
        table(tmp_path / f"n{i}.csv", [(name, "s", 0.1, 0.2, 0), (f"x{i}", "s", 0.3, 0.1, 1)])
    data = {"kind": "csv", "path": str(tmp_path / "n{node}.csv"), "label": "ill", "classes": 2, "records": 40,
            "features": ["a", "b"]}  # fmt: skip
    refused("privacy.unit.max_sites 1", nodes=2, data=data, privacy__unit={"column": "patient"})


def test_an_even_partition_keeps_persons_together(tmp_path: Path) -> None:
    data = table(tmp_path / "a.csv", patients(33, 5))
    data["features"] = ["a", "b"]
    parts = assemble(Plan.of(config(nodes=4, data=data, privacy__unit={"column": "patient"})))
    assert sorted(parts.records.units) == [8, 8, 8, 9]
    assert all((own == 5).all() for own in parts.records.persons or [])


def test_ids_are_no_features_and_missing_ones_are_refused(tmp_path: Path) -> None:
    rows = [(p, "s", 0.5, 0.25, p % 2) for p in range(40)]
    data = {**table(tmp_path / "a.csv", rows), "features": None}
    data.pop("features")
    unit = {"column": "patient"}
    parts = assemble(
        Plan.of(config(nodes=2, data={**data, "owner": None} | {"features": ["a", "b"]}, privacy__unit=unit))
    )
    assert parts.dataset.columns == ("a", "b")
    refused(
        "privacy.unit.column patient",
        data={**data, "features": ["a", "patient"]},
        privacy__unit=unit,
    )
    refused("a.csv customer", data=data, privacy__unit={"column": "customer"})
    rows[3] = (" ", *rows[3][1:])
    data = {**table(tmp_path / "b.csv", rows), "features": ["a", "b"]}
    refused("patient", data=data, privacy__unit=unit)


@pytest.mark.parametrize(("names", "changes"), [
    ("privacy.centre", {"privacy__centre": 0.1}),
    ("without-replacement", {"algorithm__kind": "without-replacement", "model__kind": "one-vs-all",
                              "topology__kind": "complete", "privacy__sampling": {"kind": "one-pass", "lot": 5}}),
    ("data.partition.kind sampled", {"data__partition": {"kind": "sampled", "size": 20}}),
    ("data.partition.kind dirichlet", {"data__partition": {"kind": "dirichlet", "alpha": 1.0}}),
    ("resolvents", {"algorithm__kind": "dp-dkm", "algorithm__operator": "backward", "algorithm__lr": 0.5, "model": {"kind": "linear"},
                     "loss": {"kind": "logistic"}, "data__positive": 1, "topology": {"kind": "complete"}}),
])  # fmt: skip
def test_what_is_priced_for_records_is_refused_for_persons(names: str, changes: dict[str, Any]) -> None:
    refused(names, data__persons=60, **PERSON, **changes)


@pytest.mark.parametrize(("names", "changes"), [
    ("central", {"baseline": "central"}),
    ("pairwise", {"privacy__noise__family": {"kind": "pairwise"}, "topology": {"kind": "complete"}}),
])  # fmt: skip
def test_what_adds_up_over_nodes_is_refused_for_persons_at_several(names: str, changes: dict[str, Any]) -> None:
    refused(names, data__persons=60, privacy__unit={"column": "p", "max_sites": 2}, **changes)


@pytest.mark.parametrize(("names", "changes"), [
    ("privacy.sampling.kind full poisson", {"privacy__sampling": {"kind": "poisson", "lot": 1.0}}),
    ("quantile", {**FULL, "privacy__clip": {"kind": "quantile"}}),
    ("weighting", {**FULL, "weighting": "size"}),
])  # fmt: skip
def test_what_a_whole_node_cannot_have_is_refused(names: str, changes: dict[str, Any]) -> None:
    refused(names, privacy__unit="node", **changes)


def test_rows_of_own_records_that_follow_the_number_of_all_are_refused(tmp_path: Path) -> None:
    data = {**table(tmp_path / "a.csv", patients(30, 3)), "train_rows": 50, "features": ["a", "b"]}
    refused("data.train_rows data.held_out patient", nodes=2, data=data, privacy__unit={"column": "patient"})
    refused("data.persons 5", nodes=2, data={**data, "train_rows": None} | {"persons": 5})


def test_built_in_sets_have_no_persons_unless_made_up() -> None:
    refused("data.persons", **PERSON)


@pytest.mark.parametrize("baseline", ["central", "no-communication", "non-private"])
def test_baselines_keep_the_unit(baseline: str) -> None:
    for unit, more in (({"column": "p"}, {"data__persons": 100}), ("node", {})):
        o = Plan.of(config(privacy__unit=unit, baseline=baseline, **FULL, **more))
        parts = assemble(o)
        assert o.privacy.protects.kind == ("node" if unit == "node" else "person")
        held = sum(parts.records.units)
        assert held == (100 if more else 4)
        parts.reader(Nowhere())(parts.x0)


def test_a_process_that_hosts_some_nodes_has_their_persons() -> None:
    o = Plan.of(config(data__persons=100, **PERSON, **FULL))
    whole, part = assemble(o), assemble(o, nodes=range(1, 3))
    assert whole.records.persons is not None
    assert part.records.persons is not None
    assert [own.tolist() for own in part.records.persons] == [own.tolist() for own in whole.records.persons[1:3]]
    assert torch.equal(part.records.of(0)[0], whole.records.of(1)[0])


# --- the auditor -------------------------------------------------------------------------------------------------


def test_canary_persons_show_nothing_of_a_person_level_run_and_a_violation_of_a_record_level_one(
    tmp_path: Path,
) -> None:
    asked = {**FULL, "privacy.noise.multiplier": 8.0, "nodes": 2, "rounds": 2, "data.train_rows": 200, **SEEDED,
             "topology": {"kind": "complete"}}  # fmt: skip
    person = gossamer.audit(
        recipes.read("quickstart"),
        {**asked, **PERSON, "data.persons": 100},
        canary_records=100,
        runs=40,
        out=tmp_path / "a",
    )
    assert not person.violation
    assert (person.epsilon_audited or 0.0) <= (person.epsilon_proven or 0.0)
    assert person["unit"] == "one person (column p) at one node"
    record = gossamer.audit(recipes.read("quickstart"), asked, canary_records=100, runs=40, out=tmp_path / "b")
    assert record.violation
    assert record.result["violated"] == ["proven"] or "proven" in record.result["violated"]
    assert record["unit"].startswith("one person of 100 records, beside what is promised of one record")
