"""The certificate in words fits one printed page and says all that a reader needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import by_observer, dated

from gossamer.results.certificate_page import page
from gossamer.results.certificate_sheet import sheet
from gossamer.training import api

NAMES = [
    {"signer": "Klinikum <Nord>", "key": "ab" * 32, "at": "2026-03-10T08:00:00Z", "signature": "cd" * 64}
]
LONG = "A sentence of the length that a note about a run has, which is a line and a half of small print on paper."


def test_words_come_first_and_the_annex_last() -> None:
    text = sheet(dated(signatures=NAMES, epsilon_audited=0.7))
    order = [
        "What was done",
        "What is promised",
        "What is not promised",
        "Who vouches",
        "Annex",
        "ledger heads",
    ]
    places = [text.index(piece) for piece in order]
    assert places == sorted(places)
    for piece in (
        "0123456789abcdef",
        "9 March 2026",
        "δ = 1e-05",
        "cd" * 32,
        "ef" * 32,
        "ab" * 32,
        "gossamer 1.2.3",
    ):
        assert piece in text
    assert "Klinikum &lt;Nord&gt;" in text
    assert "An attack has shown that ε is at least 0.7" in text
    assert "ε = 1.25 is claimed by a paper &lt;eq. 3&gt;" in text


def test_private_records_have_no_digest_on_it() -> None:
    made = dated(data={"kind": "csv", "own": True})
    made["digests"]["data"] = None
    text = sheet(made)
    assert "none: the records are private" in text
    assert "None" not in text


def test_nodes_with_equal_figures_share_an_entry() -> None:
    each = [{"node": i, "records": 180, "rate": 0.25, "lot": 45.0} for i in range(3)]
    assert "0–2: 180 records, rate 0.25, 7 draws, ε ≤ 2.5" in sheet(dated(nodes=3, public_constants=each))
    assert "and 90 more in certificate.json" in sheet(dated(nodes=100))


def test_old_certificates_are_drawn_as_they_were() -> None:
    old = {k: v for k, v in dated().items() if k != "issued"}
    assert "What is promised" not in page(old, "a run")
    assert "<p>a run</p>" in page(old, "a run")
    assert '<details class="screen"><summary>All figures' in page(dated(), "a run")


SHORT = {"rounds": 6, "evaluation.every": 6}
RUNS: dict[str, dict[str, Any]] = {
    "quickstart": {},
    "20 nodes": {"nodes": 20},
    "pairwise": {"privacy.epsilon": 1.0, "privacy.noise.kind": "pairwise", "algorithm.mixes": "exact"},
}
CASES: dict[str, dict[str, Any]] = {
    "20 nodes, all different": dated(nodes=20, signatures=NAMES),
    "ε by observer": {**dated(nodes=8, notes=[LONG] * 6, signatures=NAMES * 2), **by_observer()},
    "500 nodes": dated(nodes=500, notes=[LONG] * 6),
    "not proven": dated(epsilon_proven=None, not_proven_because=LONG, stamp="seeded noise: no privacy"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_is_printed_on_one_page(tmp_path: Path, name: str) -> None:
    assert pages(tmp_path, page(CASES[name], "")) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_what_runs_write_is_printed_on_one_page(tmp_path: Path, name: str) -> None:
    made = api.run("quickstart", {**SHORT, **RUNS[name]}, out=tmp_path / "run").directory
    text = (made / "certificate.html").read_text(encoding="utf-8")
    assert ("It depends on how many nodes stand together" in text) == (name == "pairwise")
    assert pages(tmp_path, text) == 1


def pages(folder: Path, text: str) -> int:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("chromium is not on this machine, so nothing can be printed")
    (folder / "page.html").write_text(text, encoding="utf-8")
    words = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
        "--no-pdf-header-footer",
    ]
    target = folder / "page.pdf"
    subprocess.run(
        [browser, *words, f"--print-to-pdf={target}", str(folder / "page.html")],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return len(re.findall(rb"/Type\s*/Page\b", target.read_bytes()))
