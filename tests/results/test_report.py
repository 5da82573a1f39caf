"""The report: what it reads, what it says, and how it looks in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gossamer
from gossamer.cli import main
from gossamer.errors import UserError
from gossamer.results.report.figures import curves, topologies
from gossamer.results.report.page import write_report
from gossamer.results.report.runs import read_runs

CHROMIUM = shutil.which("chromium")
SHORT = {"rounds": 20, "evaluation.every": 4}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """A plain run, a seeded one that shows diagnostics on an undirected graph, and a central baseline."""
    base = tmp_path_factory.mktemp("runs")
    seeded = {"privacy.noise.source": "seeded", "evaluation.diagnostics": True}
    ring = {"algorithm.kind": "dp-dsgt", "topology.kind": "ring"}
    gossamer.run("quickstart", SHORT, out=base / "plain")
    gossamer.run("quickstart", {**SHORT, **seeded, **ring, "name": "<b>ring</b> & co"}, out=base / "seeded")
    gossamer.run("quickstart", {**SHORT, "baseline": "central"}, out=base / "central")
    return {path.name: path for path in base.iterdir()}


@pytest.fixture
def copy(runs: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs["plain"], tmp_path / "copy"))


def test_figures_are_what_the_run_wrote_down(runs: dict[str, Path]) -> None:
    import plotly.graph_objects as go

    read = read_runs([runs["plain"], runs["seeded"], runs["central"]])
    figures = curves(read) + topologies(read)
    for figure in figures:
        go.Figure(data=figure.data, layout=figure.layout)  # plotly refuses what it does not know
    rows = [json.loads(line) for line in (runs["plain"] / "metrics.jsonl").read_text().splitlines()]
    accuracy = figures[0].data[:3]
    assert [trace["y"] for trace in accuracy] == [
        [r[f"accuracy_{k}"] for r in rows] for k in ("max", "min", "mean")
    ]
    by_title = {figure.title: figure for figure in figures}
    assert [len(trace["y"]) for trace in by_title["Accuracy of every node"].data] == [8, 8, 1]
    epsilon = by_title["ε over rounds"]
    assert epsilon.data[0]["y"] == [0.0, *(r["epsilon_proven"] for r in rows)]
    assert epsilon.data[1]["y"] == [0.0, *(r["epsilon_claimed"] for r in rows)]
    assert [shape["y0"] for shape in epsilon.layout["shapes"]] == [8.0]
    assert "δ = 0.0001, add-remove" in epsilon.note
    assert "Gradient norm (not private)" in by_title
    assert {title for title in by_title if title.startswith("Topology")} == {
        "Topology: one-peer-exponential", "Topology: ring",
    }  # fmt: skip


def test_rounds_of_a_changing_graph_can_be_told_apart(runs: dict[str, Path]) -> None:
    changing, ring = topologies(read_runs([runs["plain"], runs["seeded"]]))
    names = [trace.get("name") for trace in changing.data]
    assert names == ["all of 3 rounds", "round 1", "round 2", "round 3", None]
    assert len({trace["line"]["color"] for trace in changing.data[:4]}) == 4
    assert changing.data[1]["marker"]["symbol"] == "arrow"  # directed
    assert "24 directed links" in changing.note
    assert len(ring.data[0]["x"]) == 3 * 8  # each undirected link once
    assert "marker" not in ring.data[0]


def test_page_keeps_stamps_and_labels_and_needs_nothing_else(runs: dict[str, Path], tmp_path: Path) -> None:
    text = write_report([runs["plain"], runs["seeded"]], tmp_path / "r.html").read_text()
    shown = re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert "seeded noise: no privacy (&lt;b&gt;ring&lt;/b&gt; &amp; co)" in shown
    assert "<b>ring</b>" not in shown
    assert "not private" in shown
    assert "Do not pass this report on" in shown
    assert "What this does not cover" in shown  # the certificate
    assert "[privacy.sampling]" in shown  # the configuration
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", shown)
    alone = write_report([runs["plain"]], None)
    assert alone == runs["plain"] / "report.html"
    shown = re.sub(r"<script>.*?</script>", "", alone.read_text(), flags=re.S)
    assert "no privacy" not in shown
    assert "Do not pass" not in shown
    alone.unlink()


def test_equal_names_are_told_apart(runs: dict[str, Path], copy: Path) -> None:
    assert [run.label for run in read_runs([runs["plain"], copy])] == [
        "quickstart (plain)",
        "quickstart (copy)",
    ]


def test_a_run_that_goes_on_is_reported_as_far_as_it_got(copy: Path) -> None:
    (copy / "certificate.json").unlink()
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_text("".join(lines[:3]) + lines[3][:40])
    (run,) = read_runs([copy])
    assert run.last["round"] == 12
    assert "no certificate yet" in write_report([copy], None).read_text()


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


def test_command(copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gossamer", "report", str(copy)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert "report.html" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["gossamer", "report", str(copy / "ledger")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_in_a_browser(browser: Any, runs: dict[str, Path], tmp_path: Path, width: int) -> None:
    """Loads without a complaint and without a request, draws every figure, and fits the screen."""
    several = [runs["plain"], runs["seeded"], runs["central"]]
    target = write_report(several, tmp_path / "r.html")
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


def test_a_phone_shows_one_column_and_a_laptop_two(
    browser: Any, runs: dict[str, Path], tmp_path: Path
) -> None:
    target = write_report([runs["plain"]], tmp_path / "r.html")
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
