"""ε from the ledgers of a run directory that the program wrote when ledgers had version 1."""

import json
import shutil
from pathlib import Path

import pytest
import tests.support

from gossamer.accounting.ledger import LedgerError
from gossamer.accounting.recompute import check_certificate, recompute, worst_epsilon

OLD_RUN = Path(tests.support.__file__).parent / "old_run"


@pytest.fixture
def old_run(tmp_path):
    return shutil.copytree(OLD_RUN, tmp_path / "old")


@pytest.fixture
def certificate(old_run):
    return json.loads((old_run / "certificate.json").read_text(encoding="utf-8"))


def test_an_old_run_costs_what_its_certificate_says(old_run, certificate):
    assert '"mechanism"' in (old_run / "ledger" / "node-000.jsonl").read_text()
    proofs = recompute(old_run / "ledger")
    assert [proof.proven.epsilon for proof in proofs] == pytest.approx(
        [entry["proven"] for entry in certificate["epsilon_by_node"]], rel=1e-9
    )
    assert check_certificate(old_run / "ledger", old_run / "certificate.json")
    assert worst_epsilon([old_run / "ledger"]) == pytest.approx(certificate["epsilon_proven"], rel=1e-9)
    twice = worst_epsilon([old_run / "ledger"] * 2)
    assert certificate["epsilon_proven"] < twice < 2 * certificate["epsilon_proven"]


def test_a_cut_tail_of_an_old_ledger_shows(old_run):
    path = old_run / "ledger" / "node-001.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(LedgerError, match="5 events where 6 were certified"):
        check_certificate(old_run / "ledger", old_run / "certificate.json")


def test_the_commands_open_an_old_run(command, old_run, certificate):
    code, out, _ = command("plan", "--ledger", str(old_run), "--json")
    found = json.loads(out.splitlines()[-1])
    assert code == 0
    assert found["epsilon_proven"] == pytest.approx(certificate["epsilon_proven"], rel=1e-9)
    assert found["observer"] == certificate["observer"]
    code, out, _ = command("plan", "--ledger", str(old_run))
    assert code == 0
    assert f"{certificate['epsilon_proven']:.3g}" in out
    assert command("report", str(old_run))[0] == 0
    page = (old_run / "report.html").read_text(encoding="utf-8")
    assert f"{certificate['epsilon_proven']:.3g}" in page


def test_an_old_run_is_not_continued_by_mistake(command, old_run):
    """Its manifest's digest is of a configuration as it was written then, so nothing could be compared."""
    (old_run / "certificate.json").unlink()
    before = {path: path.read_bytes() for path in old_run.rglob("*") if path.is_file()}
    code, _, err = command("run", "--resume", str(old_run), "--json")
    assert code == 2
    assert "another version of gossamer" in err
    assert {path: path.read_bytes() for path in old_run.rglob("*") if path.is_file()} == before
