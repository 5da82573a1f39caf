"""ε from the ledgers of a run directory."""

import math

import pytest
from tests.support.ledgers import write_histories
from tests.support.releases import gaussian

from gossamer.accounting.observers import colluders
from gossamer.accounting.profiles import gdp_epsilon
from gossamer.accounting.recompute import recompute, shared_noise, worst_epsilon
from gossamer.accounting.releases import Pairwise
from gossamer.accounting.secrets import Secrets
from gossamer.results.certificate import by_observer_of


def full(sigma):
    return gaussian(sigma, sampling="full", rate=1.0)


def test_every_node_is_priced_by_its_own_events(tmp_path):
    write_histories(tmp_path / "one", [[full(20.0)] * 9, [full(10.0)] * 9, [full(10.0)] * 9])
    proofs = recompute(tmp_path / "one")
    expected = [gdp_epsilon(3 / sigma, 1e-5) for sigma in (20, 10, 10)]
    assert [proof.proven.epsilon for proof in proofs] == pytest.approx(expected, rel=1e-6)
    assert shared_noise(proofs) is None
    found = by_observer_of(proofs)
    assert [line["epsilon"] for line in found["epsilon_by_observer"]] == [proofs[1].proven.epsilon]
    assert found["epsilon_by_colluders"] == []


def test_runs_on_the_same_records_are_composed_and_priced_under_either_relation(tmp_path):
    write_histories(tmp_path, [[full(20.0)] * 9, [full(10.0)] * 9])
    assert worst_epsilon([tmp_path]) == pytest.approx(gdp_epsilon(3 / 10, 1e-5), rel=1e-6)
    assert worst_epsilon([tmp_path] * 4) == pytest.approx(gdp_epsilon(6 / 10, 1e-5), rel=1e-6)
    # Exchanging a record moves twice as much as removing it.
    assert worst_epsilon([tmp_path], "replace-one") == pytest.approx(gdp_epsilon(6 / 10, 1e-5), rel=1e-6)


def test_ledgers_with_shared_noise_give_the_whole_curve(tmp_path):
    nodes = 5
    release = Pairwise(
        sigma=4.0, sensitivity=1.0, sampling="full", rate=1.0, adjacency="add-remove", nodes=nodes, colluders=2,
        ratio=50.0, secrets=Secrets.complete(nodes).digest,
    )  # fmt: skip
    write_histories(tmp_path, [[release] * (7 + node) for node in range(nodes)])
    proofs = recompute(tmp_path)
    assert shared_noise(proofs).nodes == nodes
    found = by_observer_of(proofs)
    curve = [point["epsilon"] for point in found["epsilon_by_colluders"]]
    assert curve[2] == max(proof.proven.epsilon for proof in proofs) == proofs[-1].proven.epsilon
    expected = [gdp_epsilon(math.sqrt(11) / release.seen_by(colluders(q)).sigma, 1e-5) for q in range(nodes)]
    assert curve == pytest.approx(expected)
    assert [line["planned"] for line in found["epsilon_by_observer"]] == [False, True, False]
