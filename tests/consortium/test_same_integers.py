"""Sites, ranks and one process release the same integers where the seed is the same, and so end with the same models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.support.real_peers import SEEDED, Peers
from tests.support.simulated_peers import simulate

import gossamer
from gossamer.config.layers import resolve
from gossamer.consortium.demo import recipe
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import execute

SITES, ROUNDS = 4, 5


@pytest.mark.parametrize("changes", [{}, {"lora.rank": 2}], ids=["full", "lora"])
def test_sites_release_what_one_process_does(changes: dict[str, Any], tmp_path: Path) -> None:
    """To the last bit: on this graph a node mixes with one other, half and half, where doubles and floats agree."""
    own = {**SEEDED, **changes}
    with Peers(tmp_path, SITES, ROUNDS, deadline=5.0, changes=own, for_science=True) as peers:
        simulate(peers, tmp_path, cut=0.0, window=60.0)
        counts = [len((tmp_path / f"{name}.csv").read_text().splitlines()) - 1 for name in peers.names]
        data: dict[str, Any] = {
            "data.path": str(tmp_path / "records-{node}.csv"),
            "data.test": str(tmp_path / "test.csv"),
            "data.records": counts,
        }
        execute(assemble(Plan.of(resolve(recipe(SITES, ROUNDS), {**data, **own}))), out=tmp_path / "alone")
        alone = gossamer.load(tmp_path / "alone").models
        for node, name in enumerate(peers.names):
            (file,) = (tmp_path / name / "simulated" / "run").glob("models.*.safetensors")
            values, expected = load_file(file), alone.weights(node)
            assert values.keys() == expected.keys()
            assert all(torch.equal(values[key][0], expected[key]) for key in values)
