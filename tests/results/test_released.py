"""A model in hand is told from another by its digest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from gossamer.errors import UserError
from gossamer.results.released import DESCRIPTION, MODELS, check_models, model_digests

POINTS = torch.arange(6, dtype=torch.float32).reshape(3, 2)


def test_a_digest_is_of_the_numbers_as_everyone_can_write_them() -> None:
    assert model_digests(POINTS)[1] == hashlib.sha256(np.array([2, 3], "<f4").tobytes()).hexdigest()
    assert model_digests(POINTS[1:].expand(2, -1)) == model_digests(POINTS)[1:]
    assert len(set(model_digests(POINTS))) == 3


def test_the_models_of_a_directory_are_compared_where_there_are_some(tmp_path: Path) -> None:
    stated = model_digests(POINTS)
    assert not check_models(tmp_path, stated)
    save_file({"models": POINTS}, tmp_path / MODELS)
    assert check_models(tmp_path, stated)
    save_file({"models": POINTS[1:].clone()}, tmp_path / MODELS)
    with pytest.raises(UserError, match="holds the models of 2 nodes, and the run has 3"):
        check_models(tmp_path, stated)
    save_file({"models": POINTS + 1}, tmp_path / MODELS)
    with pytest.raises(UserError, match="does not hold the model of node 0"):
        check_models(tmp_path, stated)
    (tmp_path / MODELS).write_bytes(b"no tensors")
    with pytest.raises(UserError, match="does not hold a run's models"):
        check_models(tmp_path, stated)


def test_parameters_have_names_and_an_order_and_machines_their_own_part(tmp_path: Path) -> None:
    stated = model_digests(POINTS)
    (tmp_path / DESCRIPTION).write_text(json.dumps({"parameters": [{"name": "z"}, {"name": "a"}]}))
    part = tmp_path / "models.nodes-001-002.safetensors"
    save_file({"z": POINTS[1:, :1].clone(), "a": POINTS[1:, 1:].clone()}, part)
    assert check_models(tmp_path, stated)
    save_file({"z": POINTS[1:, 1:].clone(), "a": POINTS[1:, :1].clone()}, part)
    with pytest.raises(UserError, match="does not hold the model of node 1"):
        check_models(tmp_path, stated)
    save_file({"z": POINTS[1:, :1].clone(), "a": POINTS[1:, 1:].clone(), "b": POINTS[1:].clone()}, part)
    with pytest.raises(UserError, match="does not know 'b'"):
        check_models(tmp_path, stated)


def test_one_row_stands_for_all_nodes(tmp_path: Path) -> None:
    save_file({"models": POINTS[:1].clone()}, tmp_path / MODELS)
    assert check_models(tmp_path, model_digests(POINTS[:1].expand(3, -1)))
