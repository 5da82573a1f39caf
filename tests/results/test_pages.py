"""Pages: what they say, that nothing of a file becomes markup, and that a new page is one template."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
from tests.support.certificates import audit, by_observer, dated, movement, search

from gossamer.results import pages
from gossamer.results.pages import audit_page, certificate_page, environment, render, roc_plot
from gossamer.training import api

BAD = "<img src=x onerror=alert(1)>"
NAMES = [{"signer": "Klinikum <Nord>", "key": "ab" * 32, "at": "2026-03-10T08:00:00Z", "signature": "cd" * 64}]
LONG = "A sentence of the length that a note about a run has, which is a line and a half of small print on paper."


def test_a_new_page_is_one_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the frame, the style, the policy and the escaping of all pages, and no Python."""
    new = (
        '{% extends "base.html.j2" %}{% block title %}Sums{% endblock %}'
        "{% block body %}<p>{{ words }}: {{ sum|epsilon }}</p>{% endblock %}"
    )
    known = environment()
    loader = jinja2.ChoiceLoader([jinja2.DictLoader({"sums.html.j2": new}), known.loader])
    monkeypatch.setattr(pages, "environment", lambda: known.overlay(loader=loader))
    text = render("sums", words="<b>", sum=float("inf"))
    assert "<p>&lt;b&gt;: ∞</p>" in text
    assert "<title>Sums</title>" in text
    assert "default-src 'none'" in text
    assert 'name="viewport"' in text
    with pytest.raises(LookupError, match="sum"):
        render("sums", words="")


def test_no_template_lifts_the_escaping() -> None:
    for name in environment().list_templates():
        source = environment().loader.get_source(environment(), name)[0]  # type: ignore[union-attr]
        assert not re.search(r"\|\s*safe|autoescape|Markup", source), name


def test_the_certificate_holds_every_figure() -> None:
    text = certificate_page(dated(nodes=2, ledger_heads=["0123456789abcdef", "fedcba9876543210"]))
    for piece in ("ε = 1.25", "ε ≤ 2.5", "no audit was run", "0.25", "0123456789ab…", "1.2.3", "1e-05"):
        assert piece in text
    assert "adding or removing the record" in text
    assert "secret, keyed by the operating system" in text
    assert "Not proven" not in text
    assert "What the attack shows" not in text
    assert "baseline" not in text


def test_words_come_first_and_the_annex_last() -> None:
    text = certificate_page(dated(signatures=NAMES, epsilon_audited=0.7))
    order = [
        "What was done",
        "What is promised",
        "What is not promised",
        "Who vouches",
        "Annex",
        "All figures",
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
    private = dated(data={"kind": "csv", "own": True})
    private["digests"]["data"] = None
    text = certificate_page(private)
    assert "none: the records are private" in text
    assert "None" not in text


def test_nodes_with_equal_figures_share_an_entry() -> None:
    each = [{"node": i, "records": 180, "rate": 0.25, "lot": 45.0} for i in range(3)]
    equal = certificate_page(dated(nodes=3, public_constants=each))
    assert "0–2: 180 records, rate 0.25, 7 draws, ε ≤ 2.5" in equal
    assert equal.count("<td>180</td>") == 3  # all figures: a row per node
    assert "and 90 more in certificate.json" in certificate_page(dated(nodes=100))
    many = [{"node": i, "records": 180, "rate": 0.25, "lot": 45.0} for i in range(1001)]
    assert "<td>0–1000</td>" in certificate_page(dated(nodes=1001, public_constants=many))


def test_a_stamp_a_baseline_and_an_audit_show() -> None:
    text = certificate_page(
        dated(
            stamp="seeded noise: no privacy",
            baseline="central",
            adjacency="replace-one",
            epsilon_audited=0.7,
            audit=audit(),
        )
    )
    assert '<p class="stamp">seeded noise: no privacy: the figures are those' in text
    assert "secret, keyed" not in text
    assert "baseline: central" in text
    assert "replacing the record" in text
    assert "What the attack shows" in text
    assert "an empirical lower bound" in text


def test_every_observer_has_a_line_where_nodes_share_noise_and_only_there() -> None:
    text = certificate_page({**dated(), **by_observer(planned=2)})
    assert '<tr class="planned"><td class="figure">ε ≤ 0.75</td>' in text
    assert "all that any 2 of the 8 nodes together know (planned)" in text
    assert "0.25 for 0, 0.5 for 1, 0.75 for 2" in text
    for heading in (
        "Who the observer is",
        "What it must not have",
        "What else it rests on",
        "If more collude",
    ):
        assert f"<dt>{heading}</dt>" in text
    assert "ε by observer" not in certificate_page(dated())


def test_whatever_a_certificate_holds_becomes_text() -> None:
    """Every text of it, wherever it is, and every number that was replaced by one: none becomes markup."""
    base = {
        **dated(audit=audit(sensitivity=search()), epsilon_audited=0.7, signatures=NAMES),
        **by_observer(),
        "violated": ["proven"],
    }
    places = list(leaves(base))
    assert len(places) > 30
    drawn = 0
    for place in places:
        try:
            text = certificate_page(put(base, place, BAD)) + audit_page(put(base, place, BAD), BAD)
        except (ValueError, TypeError, LookupError):
            continue  # not what a run writes: the report says so in a sentence
        drawn += 1
        assert "<img" not in text, place
    assert drawn > 30


def test_the_browser_is_told_to_run_nothing() -> None:
    text = certificate_page(dated())
    assert text.index("Content-Security-Policy") < text.index("<title>")
    assert "default-src 'none'" in text
    assert "script" not in text


def test_a_remote_nodes_figure_says_whose_word_it_is() -> None:
    remote = dated()
    remote["epsilon_by_node"] = [
        {"claimed": 1.25, "proven": 2.5},
        {"claimed": None, "proven": 0.125, "stated_by": "rank 1"},
    ]
    text = certificate_page(remote)
    assert "0.125 <small>as stated by rank 1</small>" in text
    assert text.count("as stated by") == 2  # and in the annex


TEST = {
    "name": "rates, whole curve", "says": "an event in 60% & 40%", "violated": True, "confidence": 0.95, "rests_on": "coins",
}  # fmt: skip


def test_an_audit_shows_the_declared_bound_first_and_two_charts() -> None:
    text = audit_page(dated(epsilon_audited=0.7, audit=audit(curve_tests=[TEST]), violation=False), "<i>run</i>")
    assert "<b>clopper-pearson</b>" in text
    assert "<b>one-run</b>" not in text
    assert "independent &lt;runs&gt;" in text
    assert "<td>an event in 60% &amp; 40%</td>\n<td>outside</td>" in text
    assert "<i>run</i>" not in text
    assert text.count("<svg") == 2


def test_a_limit_that_does_not_exist_is_not_drawn() -> None:
    names = [line.name for line in roc_plot(dated(epsilon_audited=0.7, audit=audit())).series]
    assert names == [
        "limit of claimed ε = 1.25, δ = 1e-05",
        "limit of proven ε = 2.5, δ = 1e-05",
        "the attack",
    ]
    alone = roc_plot(dated(epsilon_audited=0.7, audit=audit(), epsilon_proven=None))
    assert [line.name for line in alone.series] == [names[0], names[2]]


def test_the_limit_is_the_whole_proven_curve_and_that_of_the_audited_observer() -> None:
    point = roc_plot(dated(epsilon_audited=0.7, audit=audit())).series[1]
    curve = roc_plot(dated(epsilon_audited=0.7, audit=audit(proven_curve=[(0.0, 0.3), (2.5, 1e-5)]))).series[1]
    assert curve.points != point.points
    own = {"colluders": 2, "epsilon_proven": 2.0, "colluders_planned": 1, "epsilon_proven_as_planned": 1.25}
    assert "proven ε = 2," in roc_plot(dated(epsilon_audited=1.5, audit=audit(held_against=own))).series[1].name


def test_a_search_alone_has_its_table_and_no_charts() -> None:
    rounded = movement(place="another node's sum", moved=1e-4, rounding=2e-4, broken=False)
    searched = search(rounded, in_time=False, stopped="zeros: ValueError: <no>")
    text = audit_page(dated(audit=audit(bounds=[], sensitivity=searched), violated=["sensitivity"]), "run")
    assert "How far one record moves a sum" in text
    assert "ones &lt;labelled 3&gt;" in text
    assert "<td>0.0001</td>\n<td>0 + 2e-04 rounding</td>" in text
    assert "to a value that is not finite" in text
    assert "ValueError: &lt;no&gt;" in text
    assert "<svg" not in text


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
    assert printed_pages(tmp_path, certificate_page(CASES[name])) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_what_runs_write_is_printed_on_one_page(tmp_path: Path, name: str) -> None:
    run = api.run("quickstart", {**SHORT, **RUNS[name]}, out=tmp_path / "run").directory
    text = (run / "certificate.html").read_text(encoding="utf-8")
    assert ("depends on how many nodes collude" in text) == (name == "pairwise")
    assert printed_pages(tmp_path, text) == 1


def printed_pages(folder: Path, text: str) -> int:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("chromium is not on this machine, so nothing can be printed")
    (folder / "page.html").write_text(text, encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    target = folder / "page.pdf"
    subprocess.run(
        [browser, *flags, f"--user-data-dir={folder / 'profile'}", f"--print-to-pdf={target}", str(folder / "page.html")],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return len(re.findall(rb"/Type\s*/Page\b", target.read_bytes()))


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all texts and numbers."""
    if isinstance(value, dict | list | tuple):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*place, key))
    else:
        yield place


def put(value: Any, place: tuple[Any, ...], text: str) -> Any:
    """A copy with `text` at the place."""
    if not place:
        return text
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = put(value[place[0]], place[1:], text)
    return copy
