"""A folder with a model, its description and its card; and no card for what does not verify."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.support.signed_runs import edit
from tests.support.trained import trained

from gossamer.errors import UserError
from gossamer.results.trained.description import read
from gossamer.training.export import export


def test_what_is_exported_works_without_the_run(tmp_path: Path) -> None:
    outcome = trained(tmp_path)
    found = export(outcome.directory, tmp_path / "e", node=1)
    assert {path.name for path in (tmp_path / "e").iterdir()} == set(found["files"])
    network = read(tmp_path / "e" / "model.json").network()
    network.load_state_dict(load_file(tmp_path / "e" / "model.safetensors"))
    rows = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    assert torch.equal(network(torch.from_numpy(rows)), outcome.models.outputs(rows, 1))
    card = json.loads((tmp_path / "e" / "model_card.json").read_text())
    assert card["privacy"]["epsilon_proven"] == outcome.result["epsilon_proven"]
    assert card["model"]["of"] == "node 1 of 3"
    assert "private" in card["data"]["sha256"]
    assert (tmp_path / "e" / "MODEL_CARD.md").read_text().startswith("# Model card: study\n")
    with pytest.raises(UserError, match="exists and is not an empty directory"):
        export(outcome.directory, tmp_path / "e")


def test_a_mistake_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(tmp_path).directory
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    for kind, words in (
        ("pickle", "--format pickle is not known"),
        ("onnx", r"pip install 'gossamer\[export\]'"),
    ):
        with pytest.raises(UserError, match=words):
            export(run, tmp_path / "e", kind=kind)
    edit(run / "certificate.json", lambda c: c.update(epsilon_proven=0.01))
    with pytest.raises(UserError, match=r"does not verify, so its privacy statement goes onto no card"):
        export(run, tmp_path / "e")
    assert not (tmp_path / "e").exists()
