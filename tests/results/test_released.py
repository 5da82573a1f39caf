"""A model in hand is told from another by its digest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tests.support.refusals import expect_refusal

from gossamer.results.trained import DESCRIPTION, MODELS, digests_of_models, model_digests

POINTS = torch.arange(6, dtype=torch.float32).reshape(3, 2)


def test_a_digest_is_of_the_numbers_as_everyone_can_write_them() -> None:
    assert model_digests(POINTS)[1] == hashlib.sha256(np.array([2, 3], "<f4").tobytes()).hexdigest()
    assert model_digests(POINTS[1:].expand(2, -1)) == model_digests(POINTS)[1:]
    assert len(set(model_digests(POINTS))) == 3


def test_the_models_of_a_directory_have_digests(tmp_path: Path) -> None:
    stated = dict(enumerate(model_digests(POINTS)))
    assert digests_of_models(tmp_path, 3) == {}
    (tmp_path / DESCRIPTION).write_text(json.dumps({"parameters": [{"name": "models"}]}))
    save_file({"models": POINTS}, tmp_path / MODELS)
    assert digests_of_models(tmp_path, 3) == stated
    save_file({"models": POINTS[1:].clone()}, tmp_path / MODELS)
    with expect_refusal(key="models.safetensors", names="2 name 3"):
        digests_of_models(tmp_path, 3)
    (tmp_path / MODELS).write_bytes(b"no tensors")
    with expect_refusal(key="models.safetensors"):
        digests_of_models(tmp_path, 3)


def test_parameters_have_names_and_an_order_and_machines_their_own_part(tmp_path: Path) -> None:
    (tmp_path / DESCRIPTION).write_text(json.dumps({"parameters": [{"name": "z"}, {"name": "a"}]}))
    part = tmp_path / "models.nodes-001-002.safetensors"
    save_file({"z": POINTS[1:, :1].clone(), "a": POINTS[1:, 1:].clone()}, part)
    assert digests_of_models(tmp_path, 3) == {i: model_digests(POINTS)[i] for i in (1, 2)}
    save_file({"z": POINTS[1:, :1].clone(), "a": POINTS[1:, 1:].clone(), "b": POINTS[1:].clone()}, part)
    with expect_refusal(key="models.nodes-001-002.safetensors", names="b"):
        digests_of_models(tmp_path, 3)


def test_one_row_stands_for_all_nodes(tmp_path: Path) -> None:
    (tmp_path / DESCRIPTION).write_text(json.dumps({"parameters": [{"name": "models"}]}))
    save_file({"models": POINTS[:1].clone()}, tmp_path / MODELS)
    assert set(digests_of_models(tmp_path, 3).values()) == {model_digests(POINTS)[0]}
