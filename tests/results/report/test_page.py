"""The page of a report: what it says, and how it looks in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import by_observer
from tests.support.refusals import expect_refusal

from gossamer.results.pages import certificate_page
from gossamer.results.report import figures, read_runs, report


def test_page_keeps_stamps_and_labels_and_needs_nothing_else(runs: dict[str, Path], tmp_path: Path) -> None:
    shown = report([runs["plain"], runs["seeded"]], out=tmp_path / "r.html").path.read_text()
    assert "<script" not in shown
    assert "seeded noise: no privacy (&lt;b&gt;ring&lt;/b&gt; &amp; co)" in shown
    assert "<b>ring</b>" not in shown
    assert "not private" in shown
    assert "Do not pass this report on" in shown
    assert "What this does not cover" in shown  # the certificate
    assert "[privacy.sampling]" in shown  # the configuration
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", shown)
    alone = report(runs["plain"]).path
    assert alone == runs["plain"] / "report.html"
    shown = alone.read_text()
    assert "no privacy" not in shown
    assert "Do not pass" not in shown
    alone.unlink()


def test_a_run_that_goes_on_is_reported_as_far_as_it_got(copy: Path) -> None:
    (copy / "certificate.json").unlink()
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_text("".join(lines[:3]) + lines[3][:40])
    (run,) = read_runs([copy])
    assert run.last["round"] == 12
    assert "no certificate yet" in report(copy).path.read_text()


def test_what_does_not_verify_is_shown_with_a_sentence_above_it(copy: Path) -> None:
    text = report(copy).path.read_text()
    assert "all chains verify and agree with the certificate; signed by the run" in text
    changed = json.loads((copy / "certificate.json").read_text())
    (copy / "certificate.json").write_text(json.dumps({**changed, "epsilon_proven": 0.001}))
    written = report(copy)
    broken = written.unverified
    assert len(broken) == 1
    assert "this does not verify: " in broken[0]
    assert "certificate.json is not what the run signed" in broken[0]
    assert re.search(r'<p class="warn">quickstart: this does not verify: [^<]*signed', written.path.read_text())


def test_who_may_collude_is_drawn_and_told_where_nodes_share_noise(copy: Path) -> None:
    plain = report(copy).path.read_text()
    assert "ε by colluding nodes" not in plain
    assert "ε by observer" not in plain
    found = json.loads((copy / "certificate.json").read_text())
    (copy / "certificate.json").write_text(json.dumps({**found, **by_observer()}))
    shown = report(copy).path.read_text()
    assert "<h3>ε by colluding nodes</h3>" in shown
    assert "<h2>ε by observer</h2>" in shown


def test_mistakes_are_one_sentence(copy: Path, tmp_path: Path) -> None:
    with expect_refusal(key="nowhere", names="directory"):
        report(tmp_path / "nowhere")
    mine = tmp_path / "thesis.html"
    mine.write_text("precious")
    with expect_refusal(key="--out", names="thesis.html"):
        report(copy, out=mine)
    assert mine.read_text() == "precious"
    with expect_refusal(key="--out", names="directory"):
        report(copy, out=tmp_path)
    with expect_refusal(key="--out", names="written"):
        report(copy, out=tmp_path / "no" / "such" / "r.html")
    report(copy)
    report(copy)  # its own it writes again
    (copy / "metrics.jsonl").write_text("")
    with expect_refusal(key="copy", names="metrics"):
        report(copy)
    (copy / "metrics.jsonl").write_text("not json\n")
    with expect_refusal(key="metrics.jsonl", names="damaged"):
        report(copy)


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
    target = report(several, out=tmp_path / "r.html").path
    context = browser.new_context(viewport={"width": width, "height": 844}, is_mobile=width < 800)
    page = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(target.as_uri())
    assert complaints == []
    assert requests == [target.as_uri()]
    assert page.locator(".plot svg").count() == len(figures(read_runs(several)))
    sizes = page.evaluate("[...document.querySelectorAll('.plot svg')].map(p => p.getBoundingClientRect().width)")
    assert min(sizes) > 250
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # A run unticked at the top is gone from every figure.
    lines = page.locator('.plot svg [data-run="0"]')
    assert lines.first.is_visible()
    page.locator(".run input").first.uncheck()
    assert not any(one.is_visible() for one in lines.all())
    page.locator(".run input").first.check()
    assert lines.first.is_visible()
    context.close()


@pytest.mark.slow
def test_a_phone_shows_one_column_and_a_laptop_two(browser: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    target = report(runs["plain"], out=tmp_path / "r.html").path
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
    (copy / "certificate.html").write_text(certificate_page(found))
    written = report(copy).path
    unescaped = copy / "unescaped.html"
    unescaped.write_text(written.read_text().replace("</main>", BAD + "</main>"))
    bare = copy / "bare.html"
    bare.write_text((copy / "certificate.html").read_text().replace("</html>", BAD + "</html>"))
    for file, clean in (
        (written, True),
        (copy / "certificate.html", True),
        (unescaped, False),
        (bare, False),
    ):
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
    with expect_refusal(key="copy"):
        report(copy)
    assert not (copy / "report.html").exists()
