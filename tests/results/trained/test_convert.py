"""Files for other programs give what the network gives, a record's steps included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load
from tests.support.trained import trained

from gossamer.results.export import FILES, Prepared, converted, steps_inside

STEPS: dict[str, Any] = {"data.ranges": {"a": [-3.0, 3.0]}, "data.scale": "unit-ball", "data.bias": True}


def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)


def test_safetensors_hold_the_parameters_by_name(tmp_path: Path) -> None:
    outcome = trained(tmp_path)
    network = outcome.module(2)
    network.load_state_dict(load(converted(outcome.models, 0, "safetensors")))
    assert torch.equal(network(torch.from_numpy(rows())), outcome.models.outputs(rows(), 0))


@pytest.mark.parametrize(
    "changes",
    [
        STEPS,
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"data.scale": "unit-sphere", "data.bias": "outside"}, marks=pytest.mark.slow),
    ],
)
def test_the_steps_of_a_record_are_arithmetic_of_its_row(tmp_path: Path, changes: dict[str, Any]) -> None:
    models = trained(tmp_path, changes).models
    assert steps_inside(models.description.inputs)
    network = Prepared(models.description.inputs, models.module()).eval()
    torch.testing.assert_close(network(torch.from_numpy(rows())), models.outputs(rows()), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_steps_that_are_not_arithmetic_of_a_row_are_done_before(tmp_path: Path) -> None:
    models = trained(tmp_path, {"data.transform": [{"kind": "random-fourier", "dimensions": 4}]}).models
    assert not steps_inside(models.description.inputs)
    before = torch.from_numpy(models.description.inputs.prepared(rows()))
    torch.testing.assert_close(models.module()(before), models.outputs(rows()), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, STEPS])
def test_onnx_takes_rows_as_they_come(tmp_path: Path, changes: dict[str, Any]) -> None:
    for name in ("onnx", "onnxscript"):
        pytest.importorskip(name, reason="gossamer[export] is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="gossamer[export] is not installed")
    models = trained(tmp_path, changes).models
    session = runtime.InferenceSession(converted(models, 1, "onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"records": rows()})
    np.testing.assert_allclose(found, models.outputs(rows(), 1), rtol=0, atol=1e-5)


def test_every_format_has_a_file() -> None:
    assert FILES == {"safetensors": "model.safetensors", "onnx": "model.onnx"}
