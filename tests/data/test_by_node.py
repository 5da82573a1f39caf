"""A file per node: who hosts a node reads its file, and nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.refusals import expect_refusal

from gossamer.config.layers import resolve
from gossamer.data.load import datasets
from gossamer.data.own import load_nodes
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan

OWN: dict[str, Any] = {
    "nodes": 3,
    "rounds": 4,
    "data": {"kind": "csv", "label": "label", "classes": 2, "records": 20},
    "model": {"kind": "softmax"},
    "topology": {"kind": "ring"},
    "algorithm": {"kind": "dyn-d2p", "lr": 1.0},
    "privacy": {"epsilon": 4.0, "delta": 1e-3, "sampling": {"kind": "poisson", "rate": 0.5}},
}


@pytest.fixture
def clinics(tmp_path: Path) -> dict[str, Any]:
    for node, rows in enumerate((18, 21, 24)):
        lines = [f"{node + i / 100:.2f},{i % 5},{i % 2}" for i in range(rows)]
        (tmp_path / f"clinic-{node}.csv").write_text("x1,x2,label\n" + "\n".join(lines) + "\n")
    data = {**OWN["data"], "path": str(tmp_path / "clinic-{node}.csv")}
    return {**OWN, "data": data}


def test_all_nodes_or_some_of_them(clinics: dict[str, Any], tmp_path: Path) -> None:
    config = resolve(clinics)
    whole = assemble(Plan.of(config))
    assert whole.records.sizes == [18, 21, 24]
    (tmp_path / "clinic-0.csv").unlink()  # on another machine
    (tmp_path / "clinic-2.csv").unlink()
    block = range(1, 2)
    part = assemble(Plan.of(config, nodes=block), nodes=block)
    assert part.records.sizes == [21]
    np.testing.assert_array_equal(part.records.x.numpy(), whole.records.x.numpy()[18:39])
    assert [node.records for node in part.plan.privacy.nodes] == [20, 20, 20]
    with expect_refusal(key="data.path", names="clinic-0.csv"):
        assemble(Plan.of(config))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data.owner": "x2"}, "data.owner x2"),
        ({"data.partition.kind": "shards"}, "data.partition.kind shards"),
    ],
)
def test_what_does_not_go_with_it_is_refused(clinics: dict[str, Any], changes: Any, words: str) -> None:
    with expect_refusal(names=words):
        Plan.of(resolve(clinics, changes))


def test_counts_must_be_declared_and_columns_agree(clinics: dict[str, Any], tmp_path: Path) -> None:
    undeclared = {**clinics, "data": {k: v for k, v in clinics["data"].items() if k != "records"}}
    with expect_refusal(key="data.records"):
        Plan.of(resolve(undeclared))
    (tmp_path / "clinic-1.csv").write_text("x1,label\n1,0\n2,1\n")
    with expect_refusal(key="data.path", names="clinic-1.csv"):
        Plan.of(resolve(clinics))


def test_records_come_in_the_order_of_the_nodes_and_know_their_node(tmp_path: Path) -> None:
    for node in (2, 5):
        rows = "".join(f"{node}.{i},{i % 2}\n" for i in range(node))
        (tmp_path / f"clinic-{node}.csv").write_text("x,label\n" + rows)
    source = datasets.parse(
        {"kind": "csv", "path": str(tmp_path / "clinic-{node}.csv"), "label": "label", "classes": 2}
    )
    assert source.file_per_node
    found = load_nodes(source, [5, 2])
    assert found.owner.tolist() == [5] * 5 + [2] * 2
    np.testing.assert_allclose(found.x_train[:, 0], [5.0, 5.1, 5.2, 5.3, 5.4, 2.0, 2.1], rtol=1e-6)
    assert found.y_train.tolist() == [0, 1, 0, 1, 0, 0, 1]


def in_files(tmp_path: Path, *texts: str, **options: Any) -> Any:
    for node, text in enumerate(texts):
        (tmp_path / f"site-{node}.csv").write_text(text)
    table = {"kind": "csv", "path": str(tmp_path / "site-{node}.csv"), "label": "y", "classes": 2, **options}
    return load_nodes(datasets.parse(table), range(len(texts)))


def test_columns_are_matched_by_name_not_by_place(tmp_path: Path) -> None:
    found = in_files(tmp_path, "a,b,y\n1,2,0\n3,4,1\n", "y,b,a\n1,20,10\n", ranges={"b": [0, 10]})
    assert found.columns == ("a", "b")
    np.testing.assert_allclose(found.x_train, [[1, 0.2], [3, 0.4], [10, 2.0]])
    assert found.y_train.tolist() == [0, 1, 1]


def test_names_that_differ_are_named(tmp_path: Path) -> None:
    with expect_refusal(key="data.path", names="site-1.csv b"):
        in_files(tmp_path, "a,b,y\n1,2,0\n", "a,c,y\n1,2,1\n")
    with expect_refusal(key="data.path", names="besides", remedy=True):
        in_files(tmp_path, "a,b,y\n1,2,0\n", "a,c,y,b\n1,2,1,3\n")
    found = in_files(tmp_path, "a,b,y\n1,2,0\n", "a,c,y,b\n1,2,1,3\n", features=["b", "a"])
    assert found.x_train.tolist() == [[2, 1], [3, 1]]
