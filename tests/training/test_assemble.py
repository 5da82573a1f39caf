"""A configuration becomes the parts of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import compute, parquet
from tests.support.configurations import outlined
from tests.support.mechanism import Book
from tests.support.refusals import expect_refusal
from tests.support.without_replacement import DIGITS

from gossamer.data import arrays as mapped
from gossamer.data.arrays import is_mapped
from gossamer.training.assemble import assemble
from gossamer.training.run import execute


def test_two_gradients_of_the_same_parts_never_share_noise() -> None:
    parts = assemble(outlined(rounds=10))
    one, two = parts.reader(Book()), parts.reader(Book())  # type: ignore[arg-type]
    assert not torch.equal(one(parts.x0), two(parts.x0))


def test_fixed_size_sampling_needs_the_true_count() -> None:
    planned = outlined(rounds=5, data__records=500, privacy__sampling={"kind": "fixed-size", "lot": 10})
    with expect_refusal(key="privacy.sampling.kind", value="fixed-size", names="data.records"):
        assemble(planned)


def test_fewer_declared_than_held_is_refused() -> None:
    planned = outlined(DIGITS, data__records=300)
    with expect_refusal(key="data.records", value="300"):
        assemble(planned)


@pytest.fixture
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file with a column of owners, the same rows in a file per owner, and a public hold-out."""
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    x = rng.integers(0, 100, (330, 3))
    columns = {name: x[:, at] for at, name in enumerate("abc")}
    table = pa.table({**columns, "y": (x[:, 0] > 50).astype(int), "site": np.arange(330) % 3})
    parquet.write_table(table.slice(0, 300), folder / "all.parquet")
    parquet.write_table(table.slice(300), folder / "public.parquet")
    for site in range(3):
        own = table.slice(0, 300).filter(compute.equal(table.slice(0, 300)["site"], site))
        parquet.write_table(own, folder / f"site-{site}.parquet")
    return folder


def on_tables(tables: Path, **changes: Any) -> dict[str, Any]:
    return {
        "name": "tables", "mode": "paper", "nodes": 3, "rounds": 5, "model": {"kind": "softmax"},
        "data": {
            "kind": "parquet", "path": str(tables / "all.parquet"), "test": str(tables / "public.parquet"),
            "label": "y", "classes": 2, "records": 100,
            "columns": {"a": [0, 100], "b": {"range": [0, 100], "missing": True}, "c": [0, 100]}, **changes,
        },
        "topology": {"kind": "ring"}, "algorithm": {"kind": "dp-dsgd", "lr": 0.5},
        "privacy": {
            "delta": 1e-4, "sampling": {"kind": "poisson", "rate": 0.2},
            "noise": {"multiplier": 1.0, "source": "seeded"},
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"owner": "site"},
        {"path": "site-{node}.parquet"},
        {"scale": "unit-ball", "bias": True, "train_rows": 290, "records": 90},
    ],
    ids=["even", "owner", "file per node", "scaled"],
)
def test_mapped_records_train_the_same_models(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    monkeypatch.setattr(mapped, "BLOCK", 64)
    if "path" in changes:
        changes = {**changes, "path": str(tables / changes["path"])}
    runs = {}
    for choice in (True, False):
        parts = assemble(outlined(on_tables(tables, **changes, mapped=choice)))
        assert is_mapped(parts.dataset.x_train) == choice
        if "path" in changes:  # as they lie in the files: no second copy of them
            assert (parts.records.x.data_ptr() == parts.dataset.x_train.ctypes.data) == choice
        runs[choice] = parts, execute(parts, out=tmp_path / str(choice))
    (one, mapped_run), (two, plain_run) = runs[True], runs[False]
    assert torch.equal(one.records.x, two.records.x)
    assert torch.equal(mapped_run.points, plain_run.points)
    assert one.dataset.provenance == two.dataset.provenance
    assert one.dataset.test_shares_rows == two.dataset.test_shares_rows


def test_many_files_are_mapped_where_together_they_are_large(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 rows of 4 numbers a file are 1,600 bytes; a tenth of the memory is 3,000."""
    monkeypatch.setattr(mapped, "free_memory", lambda: 30_000.0)
    parts = assemble(outlined(on_tables(tables, path=str(tables / "site-{node}.parquet"))))
    assert is_mapped(parts.dataset.x_train)
    parts = assemble(outlined(on_tables(tables, path=str(tables / "site-0.parquet"), records=33)))
    assert not is_mapped(parts.dataset.x_train)
