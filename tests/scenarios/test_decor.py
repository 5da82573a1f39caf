"""DECOR (Allouah et al. 2024) in a page: masks between neighbours of the communication graph only.

The seam for noise with any covariance over nodes: a kind says which nodes share secrets, and everything else follows,
calibration, ledgers, observers, processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.support.configurations import outlined

from gossamer.accounting import secrets as graphs
from gossamer.accounting.observers import colluders
from gossamer.accounting.recompute import recompute
from gossamer.accounting.secrets import Secrets, remember
from gossamer.mechanism.noise import NoiseKind, families
from gossamer.mechanism.noise.pairwise import Pairwise, PairwiseAmong
from gossamer.training.assemble import assemble
from gossamer.training.run import execute


@dataclass(frozen=True, kw_only=True)
class Decor(Pairwise):
    """Masks between neighbours on a ring."""

    kind: ClassVar[str]

    def for_node_count(self, nodes: int) -> NoiseKind:
        ring = Secrets.of(nodes, [(i, (i + 1) % nodes) for i in range(nodes)])
        remember(ring)
        return PairwiseAmong(secrets=ring, colluders=self.colluders, ratio=self.ratio)


@pytest.fixture
def decor() -> Iterator[dict[str, Any]]:
    families.register("decor")(Decor)
    yield {"kind": "decor", "colluders": 1, "ratio": 10.0}
    del families._kinds["decor"]


def brute_force(ratio: float) -> float:
    """σ_eff / s of the worst record on a ring of eight when its worst node colludes: from the masks themselves."""
    worst = 0.0
    for member in range(8):
        honest = [i for i in range(8) if i != member]
        columns = [np.eye(8)[i] for i in honest]
        columns += [
            np.sqrt(ratio) * (np.eye(8)[i] - np.eye(8)[j])
            for i in honest if (j := (i + 1) % 8) in honest
        ]  # fmt: skip
        noise = np.stack(columns, axis=1)[honest]
        worst = max(worst, np.linalg.inv(noise @ noise.T).diagonal().max())
    return float(1 / np.sqrt(worst))


def test_neighbours_masks_are_a_noise_like_any_other(decor: dict[str, Any], tmp_path: Path) -> None:
    o = outlined(
        rounds=10,
        topology__kind="ring",
        algorithm__mixes="exact",
        privacy__noise__family=decor,
        privacy__claim="none",
    )
    assert o.privacy.noise.kept == pytest.approx(brute_force(10.0), rel=1e-6)
    outcome = execute(assemble(o), out=tmp_path / "run")
    assert outcome.certificate["epsilon_proven"] <= 8.0
    graphs._known.clear()
    proofs = recompute(tmp_path / "run")
    assert {proof.observer for proof in proofs} == {colluders(1)}
    assert max(proof.proven.epsilon for proof in proofs) == outcome.certificate["epsilon_proven"]
