"""A run directory of version 1: the commands open it, and none continues it."""

import json

import pytest
from tests.support.old_runs import certificate_of, copy_of_old_run


@pytest.fixture
def old_run(tmp_path):
    return copy_of_old_run(tmp_path)


@pytest.fixture
def certificate(old_run):
    return certificate_of(old_run)


def test_the_commands_open_an_old_run(command, old_run, certificate):
    code, out, _ = command("plan", "--ledger", str(old_run), "--json")
    found = json.loads(out.splitlines()[-1])
    assert code == 0
    assert found["epsilon_proven"] == pytest.approx(certificate["epsilon_proven"], rel=1e-3)
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
