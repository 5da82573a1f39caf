"""Models on disk: every parameter under its name, one row where all nodes hold the same, nothing that was not signed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tests.support.refusals import expect_refusal
from tests.support.signed_runs import resign
from torch import nn

from gossamer.kernels.stack import ParameterStack
from gossamer.results.trained import HeldWeights, StoredWeights, signed_files

STACK = ParameterStack(nn.Linear(2, 1))


def test_what_is_written_has_names_and_shapes(tmp_path: Path) -> None:
    points = torch.arange(6.0).reshape(2, 3)
    held = HeldWeights(STACK, range(4, 6), points, points.mean(0))
    held.write(tmp_path, "run", 8, average=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "average.safetensors",
        "models.nodes-004-005.safetensors",
    ]
    with safe_open(tmp_path / "models.nodes-004-005.safetensors", "pt") as file:
        assert file.get_tensor("weight").tolist() == [[[0.0, 1.0]], [[3.0, 4.0]]]
        assert '"nodes": [4, 5' not in file.metadata()["gossamer"]
        assert '"nodes": [4, 6]' in file.metadata()["gossamer"]
        assert "first axis is the nodes" in file.metadata()["gossamer"]
    with safe_open(tmp_path / "average.safetensors", "pt") as file:
        assert file.get_tensor("weight").tolist() == [[1.5, 2.5]]
    assert held.of(5)["bias"].tolist() == [5.0]


def test_nodes_that_hold_the_same_are_one_row(tmp_path: Path) -> None:
    shared = torch.ones(1, 3).expand(1000, -1)
    HeldWeights(STACK, range(1000), shared, shared[0]).write(tmp_path, "run", 1000, average=False)
    assert [path.name for path in tmp_path.iterdir()] == ["models.safetensors"]
    with safe_open(tmp_path / "models.safetensors", "pt") as file:
        assert file.get_tensor("weight").shape == (1, 1, 2)


def test_only_what_the_certificate_names_is_read(run: Path) -> None:
    stored = StoredWeights(run)
    assert stored.nodes == [0, 1, 2]
    assert {"models.safetensors", "average.safetensors", "model.json"} <= set(signed_files(run))
    mean = sum(stored.of(node)["1.weight"] for node in range(3)) / 3
    torch.testing.assert_close(stored.average()["1.weight"], mean)
    shutil.copy(run / "models.safetensors", run / "models.nodes-000-007.safetensors")
    assert StoredWeights(run).nodes == [0, 1, 2]
    with pytest.raises(KeyError):
        StoredWeights(run).of(7)


def test_damaged_and_missing_models_are_named(run: Path) -> None:
    (run / "models.safetensors").write_bytes(b"\0" * 100)
    with expect_refusal(key="models.safetensors", names="back", remedy=True):
        StoredWeights(resign(run)).of(0)
    shutil.copy(run / "average.safetensors", run / "models.safetensors")
    with expect_refusal(key="models.safetensors"):
        StoredWeights(resign(run)).of(0)
    (run / "model.json").unlink()
    with expect_refusal(key="model.json", names="missing"):
        StoredWeights(run)
    (run / "certificate.json").unlink()
    with expect_refusal(key="run", names="--resume", remedy=True):
        StoredWeights(run)


def test_anothers_models_are_not_taken_for_this_runs(run: Path, made: Path) -> None:
    shutil.copy(made / "twin" / "models.safetensors", run / "models.safetensors")
    with expect_refusal(key="models.safetensors", names="signed"):
        StoredWeights(run).of(0)
    resign(run)
    with expect_refusal(key="models.safetensors", names="model.json", remedy=True):
        StoredWeights(run).of(0)
