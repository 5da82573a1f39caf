"""`gossamer certificate key | sign | verify`: whole commands on a small run."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.own_records import on_table, write_table
from tests.support.refusals import assert_names
from tests.support.signed_runs import CHANGES, edit

from gossamer.training import api


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return api.run("quickstart", CHANGES, out=tmp_path_factory.mktemp("made") / "run").directory


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def test_a_certificate_is_signed_handed_over_and_verified(command: Any, run: Path, tmp_path: Path) -> None:
    code, out, _ = command("certificate", "verify", "run")
    assert code == 0
    assert "signed by no organisation" in out
    public = command("certificate", "key", "--out", "key.pem")[1].split()[-1]
    code, out, _ = command("certificate", "sign", "run", "--key", "key.pem", "--name", "Hospital A")
    assert (code, public in out) == (0, True)
    code, out, _ = command("certificate", "verify", "run", "--public-key", public)
    assert code == 0
    assert "all chains verify and agree with the certificate" in out
    assert "in the name of Hospital A, with the key that was asked for" in out
    assert "Hospital A" in (run / "certificate.html").read_text(encoding="utf-8")

    alone = Path(shutil.copy(run / "certificate.json", tmp_path / "handed-over.json"))
    code, out, _ = command("certificate", "verify", alone.name)
    assert code == 0
    assert "the certificate alone was looked at" in out
    code, _, err = command("certificate", "verify", alone.name, "--public-key", "0" * 64)
    assert code == 2
    assert_names(err, alone.name, names="key 0000000000000000000000000000000000000000000000000000000000000000")
    edit(alone, lambda c: c.update(epsilon_proven=0.1))
    code, _, err = command("certificate", "verify", alone.name)
    assert code == 2
    assert_names(err, alone.name, names=["'Hospital A'", "signed"])

    # Nor does the run's own check pass over a signature that does not fit, or a page that shows another name.
    edit(run / "certificate.json", lambda c: c["signatures"][0].update(signer="Hospital B"))
    code, _, err = command("plan", "--ledger", "run")
    assert code == 2
    assert_names(err, "certificate.json", names=["'Hospital B'", "signed"])


def test_the_page_must_show_who_signed(command: Any, run: Path) -> None:
    command("certificate", "key", "--out", "key.pem")
    command("certificate", "sign", "run", "--key", "key.pem", "--name", "Hospital A")
    shown = run / "certificate.html"
    shown.write_text(shown.read_text(encoding="utf-8").replace("Hospital A", "Hospital B"), encoding="utf-8")
    code, _, err = command("certificate", "verify", "run")
    assert code == 2
    assert_names(err, "certificate.html", names="certificate.json", remedy=True)


def test_nobody_signs_what_does_not_verify(command: Any, run: Path) -> None:
    command("certificate", "key", "--out", "key.pem")
    edit(run / "certificate.json", lambda c: c.update(epsilon_proven=0.1))
    before = (run / "certificate.json").read_bytes()
    code, _, err = command("certificate", "sign", "run", "--key", "key.pem", "--name", "Hospital A")
    assert (code, err.count("\n")) == (2, 1)
    assert (run / "certificate.json").read_bytes() == before


def test_a_run_whose_key_is_still_there_counts_as_signed_by_nobody(command: Any, run: Path) -> None:
    (run / "run.key").write_bytes(b"")
    command("certificate", "key", "--out", "key.pem")
    for words in (["verify", "run"], ["sign", "run", "--key", "key.pem", "--name", "Hospital A"]):
        code, out, err = command("certificate", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert_names(err, names="run.key")
    (run / "run.key").unlink()
    assert command("certificate", "verify", "run")[0] == 0


def test_mistakes_are_one_sentence(command: Any, run: Path, tmp_path: Path) -> None:
    made = json.loads((run / "certificate.json").read_text())
    (tmp_path / "unsigned.json").write_text(json.dumps(made))
    (tmp_path / "damaged.json").write_text(json.dumps({**made, "signatures": [1], "delta": "x"}))
    (tmp_path / "twice.json").write_text('{"run": 1, "run": 2}')
    (tmp_path / "empty").mkdir()
    for name, names in {
        "unsigned.json": "directory",
        "damaged.json": "gossamer",
        "twice.json": "twice",
        "empty": "certificate.json",
        "nowhere": "file",
    }.items():
        code, _, err = command("certificate", "verify", name)
        assert (code, err.count("\n")) == (2, 1), err
        assert_names(err, name, names=names)


def test_a_certificate_of_own_records_has_no_digest_of_them(command: Any, tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv")
    out = api.run(on_table(table), out=tmp_path / "own").directory
    text = (out / "certificate.json").read_text()
    made = json.loads(text)
    assert made["data"] == {"kind": "csv", "own": True}
    assert made["digests"]["data"] is None
    rows = table.read_bytes()
    for guess in (rows, rows.partition(b"\n")[2]):
        assert hashlib.sha256(guess).hexdigest() not in text
    assert str(table) not in text
    code, out, _ = command("certificate", "verify", "own")
    assert code == 0, out
    assert "no digest is given" in (tmp_path / "own" / "certificate.html").read_text(encoding="utf-8")
