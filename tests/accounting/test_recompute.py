"""ε from the ledgers of a run directory that the program wrote when ledgers had version 1."""

import math

import pytest
from tests.support.old_runs import certificate_of, copy_of_old_run

from gossamer.accounting.gaussian import gdp_epsilon
from gossamer.accounting.ledger import Ledger, LedgerError, node_path
from gossamer.accounting.observers import UNIT, Colluders
from gossamer.accounting.recompute import (
    by_observer_of,
    check_certificate,
    recompute,
    shared_noise,
    worst_epsilon,
)
from gossamer.accounting.releases import Event, Pairwise
from gossamer.accounting.secrets import Secrets


@pytest.fixture
def old_run(tmp_path):
    return copy_of_old_run(tmp_path)


@pytest.fixture
def certificate(old_run):
    return certificate_of(old_run)


def test_an_old_run_costs_what_its_certificate_says(old_run, certificate):
    assert '"mechanism"' in (old_run / "ledger" / "node-000.jsonl").read_text()
    proofs = recompute(old_run / "ledger")
    stated = [entry["proven"] for entry in certificate["epsilon_by_node"]]
    found = [proof.proven.epsilon for proof in proofs]
    # A sharper accountant may find a little less than was certified, never more.
    assert found == pytest.approx(stated, rel=1e-3)
    assert all(now <= then * (1 + 1e-9) for now, then in zip(found, stated, strict=True))
    assert check_certificate(old_run / "ledger", old_run / "certificate.json")
    assert worst_epsilon([old_run / "ledger"]) == pytest.approx(max(found), rel=1e-9)
    twice = worst_epsilon([old_run / "ledger"] * 2)
    assert certificate["epsilon_proven"] < twice < 2 * certificate["epsilon_proven"]


def test_a_cut_tail_of_an_old_ledger_shows(old_run):
    path = old_run / "ledger" / "node-001.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(LedgerError, match="5 events where 6 were certified"):
        check_certificate(old_run / "ledger", old_run / "certificate.json")


def test_an_old_run_has_one_observer(old_run):
    proofs = recompute(old_run / "ledger")
    assert shared_noise(proofs) is None
    found = by_observer_of(proofs)
    assert [line["epsilon"] for line in found["epsilon_by_observer"]] == [
        max(p.proven.epsilon for p in proofs)
    ]
    assert found["epsilon_by_colluders"] == []


def test_ledgers_with_shared_noise_give_the_whole_curve(tmp_path):
    nodes = 5
    release = Pairwise(
        sigma=4.0, sensitivity=1.0, sampling="full", rate=1.0, adjacency="add-remove", nodes=nodes, colluders=2,
        ratio=50.0, secrets=Secrets.complete(nodes).digest,
    )  # fmt: skip
    header = {"delta": 1e-5, "adjacency": "add-remove", "unit": UNIT, "noise": "system"}
    for node in range(nodes):
        with Ledger.create(node_path(tmp_path, node), {**header, "node": node}, sync=False) as ledger:
            for step in range(7 + node):
                ledger.append(Event(step=step, release=release))
    proofs = recompute(tmp_path)
    assert shared_noise(proofs).nodes == nodes
    found = by_observer_of(proofs)
    curve = [point["epsilon"] for point in found["epsilon_by_colluders"]]
    assert curve[2] == max(proof.proven.epsilon for proof in proofs) == proofs[-1].proven.epsilon
    expected = [gdp_epsilon(math.sqrt(11) / release.seen_by(Colluders(q)).sigma, 1e-5) for q in range(nodes)]
    assert curve == pytest.approx(expected)
    assert [line["planned"] for line in found["epsilon_by_observer"]] == [False, True, False]
