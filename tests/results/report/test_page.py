"""The page of a report: what it says, and how it looks in a real browser."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import by_observer

from gossamer.errors import UserError
from gossamer.results.certificate_page import page as certificate_page
from gossamer.results.report.figures import curves, topologies
from gossamer.results.report.page import write_report
from gossamer.results.report.runs import read_runs


def test_page_keeps_stamps_and_labels_and_needs_nothing_else(runs: dict[str, Path], tmp_path: Path) -> None:
    text = write_report([runs["plain"], runs["seeded"]], tmp_path / "r.html")[0].read_text()
    shown = re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert "seeded noise: no privacy (&lt;b&gt;ring&lt;/b&gt; &amp; co)" in shown
    assert "<b>ring</b>" not in shown
    assert "not private" in shown
    assert "Do not pass this report on" in shown
    assert "What this does not cover" in shown  # the certificate
    assert "[privacy.sampling]" in shown  # the configuration
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", shown)
    alone, broken = write_report([runs["plain"]], None)
    assert broken == []
    assert alone == runs["plain"] / "report.html"
    shown = re.sub(r"<script>.*?</script>", "", alone.read_text(), flags=re.S)
    assert "no privacy" not in shown
    assert "Do not pass" not in shown
    alone.unlink()


def test_a_run_that_goes_on_is_reported_as_far_as_it_got(copy: Path) -> None:
    (copy / "certificate.json").unlink()
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_text("".join(lines[:3]) + lines[3][:40])
    (run,) = read_runs([copy])
    assert run.last["round"] == 12
    assert "no certificate yet" in write_report([copy], None)[0].read_text()


def test_what_does_not_verify_is_shown_with_a_sentence_above_it(copy: Path) -> None:
    target, broken = write_report([copy], None)
    assert broken == []
    assert "all chains verify and agree with the certificate; signed by the run" in target.read_text()
    changed = json.loads((copy / "certificate.json").read_text())
    (copy / "certificate.json").write_text(json.dumps({**changed, "epsilon_proven": 0.001}))
    target, broken = write_report([copy], None)
    assert len(broken) == 1
    assert "this does not verify: " in broken[0]
    assert "states epsilon_proven = 0.001" in broken[0]
    assert re.search(
        r'<p class="warn">quickstart: this does not verify: [^<]*epsilon_proven', target.read_text()
    )


def test_who_may_collude_is_drawn_and_told_where_nodes_share_noise(copy: Path) -> None:
    plain = write_report([copy], None)[0].read_text()
    assert "ε by colluding nodes" not in plain
    assert "ε by observer" not in plain
    found = json.loads((copy / "certificate.json").read_text())
    (copy / "certificate.json").write_text(json.dumps({**found, **by_observer()}))
    shown = write_report([copy], None)[0].read_text()
    assert "<h3>ε by colluding nodes</h3>" in shown
    assert "<h2>ε by observer</h2>" in shown


def test_mistakes_are_one_sentence(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"nowhere is not a run directory: it has no config.toml"):
        write_report([tmp_path / "nowhere"], None)
    mine = tmp_path / "thesis.html"
    mine.write_text("precious")
    with pytest.raises(UserError, match=r"thesis.html exists and is no report"):
        write_report([copy], mine)
    assert mine.read_text() == "precious"
    with pytest.raises(UserError, match="is a directory"):
        write_report([copy], tmp_path)
    with pytest.raises(UserError, match="cannot be written"):
        write_report([copy], tmp_path / "no" / "such" / "r.html")
    write_report([copy], None)
    write_report([copy], None)  # its own it writes again
    (copy / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match="no metrics yet"):
        write_report([copy], None)
    (copy / "metrics.jsonl").write_text("not json\n")
    with pytest.raises(UserError, match="damaged"):
        write_report([copy], None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(UserError, match=r"pip install 'gossamer\[report\]'"):
        write_report([copy], None)


def test_command(copy: Path, command: Any) -> None:
    code, out, _ = command("report", str(copy))
    assert code == 0
    assert "report.html" in out
    code, _, errors = command("report", str(copy / "checkpoints"))
    assert code == 2
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=pytest.mark.slow)])
def test_in_a_browser(browser: Any, runs: dict[str, Path], tmp_path: Path, width: int) -> None:
    """Loads without a complaint and without a request, draws every figure, and fits the screen."""
    several = [runs["plain"], runs["seeded"], runs["central"]]
    target, _ = write_report(several, tmp_path / "r.html")
    context = browser.new_context(viewport={"width": width, "height": 844}, is_mobile=width < 800)
    page = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(target.as_uri())
    page.wait_for_selector(".plot .main-svg")
    assert complaints == []
    assert requests == [target.as_uri()]
    read = read_runs(several)
    assert page.locator(".js-plotly-plot").count() == len(curves(read)) + len(topologies(read))
    sizes = page.evaluate(
        "[...document.querySelectorAll('.plot .main-svg')].map(p => p.getBoundingClientRect().width)"
    )
    assert min(sizes) > 250
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # A run unticked at the top is gone from every figure.
    drawn = "document.getElementById('plot-0').querySelectorAll('.scatterlayer .trace').length"
    before = page.evaluate(drawn)
    page.locator(".run input").first.uncheck()
    page.wait_for_function(f"{drawn} < {before}")
    page.locator(".run input").first.check()
    page.wait_for_function(f"{drawn} == {before}")
    context.close()


@pytest.mark.slow
def test_a_phone_shows_one_column_and_a_laptop_two(
    browser: Any, runs: dict[str, Path], tmp_path: Path
) -> None:
    target, _ = write_report([runs["plain"]], tmp_path / "r.html")
    columns = {}
    for width in (1280, 390):
        page = browser.new_page(viewport={"width": width, "height": 844})
        page.goto(target.as_uri())
        page.locator("details").last.locator("summary").click()  # the configuration, whose lines are long
        columns[width] = len(
            page.evaluate("getComputedStyle(document.querySelector('.plots')).gridTemplateColumns").split()
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.close()
    assert columns == {1280: 2, 390: 1}


BAD = "<img src=x onerror=document.title='run'><script>document.title='run'</script>"


@pytest.mark.slow
def test_a_tampered_certificate_runs_nothing_in_a_browser(browser: Any, copy: Path) -> None:
    """Escaped first; and where an escape were missing, the page's own policy stops it."""
    found = json.loads((copy / "certificate.json").read_text())
    found["draws"][0] = found["ledger_heads"][0] = found["unit"] = found["observer"] = BAD
    found["notes"] = found["claim_flags"] = [BAD]
    found["not_proven_because"], found["claim_reference"] = BAD, BAD
    found["versions"] = {BAD: BAD}
    (copy / "certificate.json").write_text(json.dumps(found))
    (copy / "certificate.html").write_text(certificate_page(found, BAD))
    report, _ = write_report([copy], None)
    unescaped = copy / "unescaped.html"
    unescaped.write_text(report.read_text().replace("</main>", BAD + "</main>"))
    bare = copy / "bare.html"
    bare.write_text((copy / "certificate.html").read_text().replace("</html>", BAD + "</html>"))
    for file, clean in ((report, True), (copy / "certificate.html", True), (unescaped, False), (bare, False)):
        page = browser.new_page()
        page.goto(file.as_uri())
        page.wait_for_timeout(100)
        assert page.title() != "run", file
        assert page.locator("img").count() == (0 if clean else 1), file
        page.close()


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("certificate.json", "delta", BAD),
        ("certificate.json", "epsilon_proven", BAD),
        ("certificate.json", "adjacency", BAD),
        ("certificate.json", "public_constants", 3),
        ("topology.json", "nodes", BAD),
    ],
)
def test_what_no_run_writes_is_one_sentence(copy: Path, file: str, key: str, value: Any) -> None:
    found = json.loads((copy / file).read_text())
    (copy / file).write_text(json.dumps({**found, key: value}))
    with pytest.raises(UserError, match="does not hold what `gossamer run` writes"):
        write_report([copy], None)
    assert not (copy / "report.html").exists()
