"""ε from the ledgers of a run directory that the program wrote when ledgers had version 1."""

import pytest
from tests.support.old_runs import certificate_of, copy_of_old_run

from gossamer.accounting.ledger import LedgerError
from gossamer.accounting.recompute import check_certificate, recompute, worst_epsilon


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
