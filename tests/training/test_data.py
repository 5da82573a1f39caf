"""The one loader: the same policy and the same records by whichever door a run comes in."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.configurations import configured
from tests.support.refusals import assert_names, expect_refusal

from gossamer.config.layers import resolve
from gossamer.data.load import datasets
from gossamer.data.source import Source
from gossamer.training.data import DataCache, declared, facts_of, split

RUN = {
    "name": "own", "nodes": 2, "rounds": 2, "model": {"kind": "softmax"}, "topology": {"kind": "complete"},
    "algorithm": {"kind": "dyn-d2p"},
    "privacy": {"epsilon": 8.0, "delta": 1e-3, "sampling": {"kind": "poisson", "rate": 0.5}},
}  # fmt: skip


def write(path: Path, rows: int, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["a", "b", "label"])
        for x in rng.normal(size=(rows, 2)):
            lines.writerow([*x, int(x.sum() > 0)])
    return path


def own(path: str, **data: Any) -> Any:
    table = {"kind": "csv", "path": path, "label": "label", "classes": 2, "records": 20, **data}
    return resolve({**RUN, "data": {key: value for key, value in table.items() if value is not None}})


def as_toml(folder: Path, **data: Any) -> str:
    import tomli_w

    table = {"kind": "csv", "label": "label", "classes": 2, "records": 20, **data}
    content = {**RUN, "data": {key: value for key, value in table.items() if value is not None}}
    path = folder / "own.toml"
    path.write_text(tomli_w.dumps(content))
    return str(path)


@pytest.mark.parametrize("door", ["run", "plan", "compare", "tune", "audit"])
def test_undeclared_classes_are_refused_at_every_door(command: Any, tmp_path: Path, door: str) -> None:
    write(tmp_path / "all.csv", 40)
    write(tmp_path / "public.csv", 20, seed=1)
    recipe = as_toml(tmp_path, path=str(tmp_path / "all.csv"), test=str(tmp_path / "public.csv"), classes=None)
    more = ["--over", "algorithm.lr=0.1,0.2"] if door == "tune" else []
    code, _, err = command(door, recipe, *more)
    assert code == 2
    assert_names(err, names="data.classes", remedy=True)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_file_per_node_works_in_comparisons_as_in_runs(command: Any, tmp_path: Path) -> None:
    for node in range(2):
        write(tmp_path / f"clinic-{node}.csv", 20, seed=node)
    write(tmp_path / "public.csv", 20, seed=9)
    recipe = as_toml(tmp_path, path=str(tmp_path / "clinic-{node}.csv"), test=str(tmp_path / "public.csv"))
    seeded = ["--set", "privacy.noise.source=seeded"]
    code, out, err = command("run", recipe, *seeded, "--out", "one", "--json")
    assert code == 0, err
    alone = json.loads(out.splitlines()[-1])
    code, out, err = command("compare", recipe, *seeded, "--out", "many", "--json")
    assert code == 0, err
    (row,) = json.loads(out.splitlines()[-1])["rows"]
    assert row["accuracy_mean"] == pytest.approx(alone["accuracy_mean"])
    assert row["epsilon_proven"] == pytest.approx(alone["epsilon_proven"])


@pytest.mark.parametrize("kind", [name for name, kind in datasets.kinds.items() if name.startswith("synthetic")])
def test_every_seed_has_records_of_its_own_where_they_are_drawn(kind: str) -> None:
    """A comparison over seeds must not train all of them on the records of the first."""
    cache = DataCache()
    made = {}
    for seed in (0, 1, 0):
        config = resolve(
            {**RUN, "seed": seed, "data": {"kind": kind, "n": 30, "features": 3}, "model": {"kind": "linear"}}
        )
        dataset = cache.load(config, None)
        np.testing.assert_array_equal(dataset.x_train, DataCache().load(config, None).x_train)
        made[seed] = dataset.x_train
    assert not np.array_equal(made[0], made[1])


def test_the_cache_reads_again_only_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    config = own(str(write(tmp_path / "a.csv", 40)))
    other = own(str(write(tmp_path / "b.csv", 40)))
    real = Source.load

    def noted(source: Any, *rest: Any) -> Any:
        read.append(source.path)
        return real(source, *rest)

    monkeypatch.setattr(Source, "load", noted)
    cache = DataCache()
    for one in (config, config.model_copy(update={"rounds": 3}), other, config):
        cache.load(one, None)
    assert [Path(path).stem for path in read] == ["a", "b", "a"]


def test_a_set_that_one_run_may_have_is_not_handed_to_one_that_may_not(tmp_path: Path) -> None:
    """Without noise nothing is claimed, so classes need not be declared; with noise they must."""
    path = str(write(tmp_path / "a.csv", 40))
    private = own(path, classes=None)
    plain = resolve({**RUN, "algorithm": {"kind": "sgp"}, "privacy": {}, "data": private.data})
    cache = DataCache()
    cache.load(plain, None)
    with expect_refusal(key="data.classes"):
        cache.load(private, None)


def test_ones_own_records_are_counted_by_declaration(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.csv", 41))
    with expect_refusal(key="data.records", names="21 20", remedy=True):
        facts_of(own(path, records=None), None, DataCache(), None)
    assert declared(own(path, records=30), [21, 20]) == [30, 30]
    assert declared(own(path, records=[30, 10]), [21, 20]) == [30, 10]


def test_public_sets_are_planned_without_reading_a_record() -> None:
    config = resolve({**RUN, "nodes": 7, "data": {"kind": "mnist"}})
    facts = facts_of(config, None, DataCache(), None)
    assert facts.dataset is None
    assert (sum(facts.records), facts.shape, facts.classes) == (60_000, (1, 28, 28), 10)
    assert max(facts.records) - min(facts.records) == 1


def test_a_file_per_node_is_the_partition(tmp_path: Path) -> None:
    for node in range(2):
        write(tmp_path / f"c{node}.csv", 10 + node, seed=node)
    config = own(str(tmp_path / "c{node}.csv"))
    pieces = split(config, DataCache().load(config, None))
    assert [len(piece) for piece in pieces] == [10, 11]
    only = DataCache().load(config, None, range(1, 2))
    assert len(only.y_train) == 11  # of a node hosted elsewhere nothing is read
    with expect_refusal(key="data.partition.kind", value="dirichlet"):
        split(own(str(tmp_path / "c{node}.csv"), partition={"kind": "dirichlet", "alpha": 1.0}), only)


@pytest.mark.parametrize("per_node", [False, True])
def test_a_hold_out_with_training_records_is_not_public(tmp_path: Path, per_node: bool) -> None:
    """The sentence does not say how many: that is private as they are."""
    paths = [write(tmp_path / f"site-{i}.csv", 40, seed=i) for i in range(2)]
    hold_out = write(tmp_path / "public.csv", 20, seed=7)
    path = str(tmp_path / "site-{node}.csv" if per_node else paths[1])
    DataCache().load(own(path, test=str(hold_out)), None)
    lines = hold_out.read_text().splitlines()
    hold_out.write_text("\n".join([*lines, *paths[1].read_text().splitlines()[3:5]]) + "\n")
    config = own(path, test=str(hold_out))
    with expect_refusal(key="data.test", names="records") as refusal:
        DataCache().load(config, None)
    assert not any(sign.isdigit() for sign in str(refusal.value))
    DataCache().load(config.model_copy(update={"mode": "paper"}), None)
    cache = DataCache()
    cache.load(config.model_copy(update={"mode": "paper"}), None)
    with expect_refusal(key="data.test"):
        cache.load(config, None)


def test_counts_are_counts_and_no_value_is_printed() -> None:
    bad = {
        "data": {"kind": "synthetic-regression", "n": 20},
        "model": {"kind": "linear"},
        "loss": {"kind": "poisson"},
    }
    cache = DataCache()
    plain = configured(**{**bad, "loss": {"kind": "squared"}})
    assert cache.load(plain, None).classes is None
    with expect_refusal("loss.kind", "poisson", "whole numbers 0") as caught:  # also where the cache has them already
        cache.load(configured(**bad), None)
    assert "." not in str(caught.value).removeprefix("loss.kind").removesuffix(".")
