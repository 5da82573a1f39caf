"""The certificate as a page: every figure is on it, and nothing a user named can become markup."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.certificates import audit, by_observer, certificate, dated, search

from gossamer.results.certificate_page import boxes, page


def test_the_page_holds_every_figure_once_it_is_known() -> None:
    text = page(certificate(), "a run")
    for piece in (
        "ε = 1.25",
        "ε ≤ 2.5",
        "no audit was run",
        "1,200",
        "0.25",
        "0.125",
        "0123456789ab…",
        "1.2.3",
        "1e-05",
    ):
        assert piece in text
    assert "adding or removing the record" in text
    assert "secret, keyed by the operating system" in text
    assert "Not proven" not in text
    assert "What the attack shows" not in text
    assert "baseline" not in text


def test_names_and_reasons_are_text_not_markup() -> None:
    text = page(certificate(not_proven_because="a < b"), "<b>mine</b> & co")
    assert "&lt;b&gt;mine&lt;/b&gt; &amp; co" in text
    assert "<b>mine</b>" not in text
    assert "a paper &lt;eq. 3&gt;" in text
    assert "<b>Not proven:</b> a &lt; b" in text
    assert "<li>a &amp; b</li>" in text


def test_a_stamp_a_baseline_and_an_audit_show() -> None:
    made = certificate(
        stamp="seeded noise: no privacy",
        baseline="central",
        adjacency="replace-one",
        epsilon_audited=0.7,
        audit=audit(),
    )
    text = page(made, "a run")
    assert '<p class="stamp">seeded noise: no privacy: the figures are those' in text
    assert "secret, keyed" not in text
    assert "baseline: central" in text
    assert "replacing the record" in text
    assert "What the attack shows" in text
    assert "an empirical lower bound" in boxes(made)


def test_every_observer_has_a_line_where_nodes_share_noise_and_only_there() -> None:
    text = page(certificate(**by_observer(planned=2)), "a run")
    assert '<tr class=planned><td class="figure">ε ≤ 0.75</td>' in text
    assert "all that any 2 of the 8 nodes together know (planned)" in text
    assert "0.25 for 0, 0.5 for 1, 0.75 for 2" in text
    assert "All of them at δ = 1e-05, add-remove, unit: one record of one node." in text
    for heading in (
        "who the observer is",
        "what it must not have",
        "what else it rests on",
        "if more collude",
    ):
        assert f"<dt>{heading}</dt>" in text
    plain = page(certificate(), "a run")
    assert "ε by observer" not in plain
    assert "planned" not in plain


BAD = "<img src=x onerror=alert(1)>"


def test_whatever_a_certificate_holds_becomes_text() -> None:
    """Every text of it, wherever it is: none comes out as mark-up."""
    base = {
        **dated(audit=audit(sensitivity=search()), epsilon_audited=0.7, signatures=[signature()]),
        **by_observer(),
        "violated": ["proven"],
    }
    places = list(texts(base))
    assert len(places) > 30
    for place in places:
        made = put(base, place, BAD)
        try:
            shown = page(made, BAD)
        except (ValueError, TypeError, KeyError):
            continue  # not what a run writes: the report says so in a sentence
        assert "<img" not in shown, place


def test_draws_and_heads_that_are_texts_are_escaped() -> None:
    """Numbers too may have been replaced."""
    made = certificate(draws=[BAD, 9], ledger_heads=[BAD, BAD], notes=[BAD], versions={BAD: BAD})
    made["public_constants"][0]["node"] = BAD
    assert "<img" not in page(made, "a run")


def test_the_browser_is_told_to_run_nothing() -> None:
    text = page(certificate(), "a run")
    assert text.index("Content-Security-Policy") < text.index("<title>")
    assert "default-src 'none'" in text
    assert "script-src" not in text


def test_a_remote_nodes_figure_says_whose_word_it_is() -> None:
    made = certificate()
    made["epsilon_by_node"][1]["stated_by"] = "rank 1 (nodes 1–1)"
    text = page(made, "a run")
    assert "0.125 <small>as stated by rank 1 (nodes 1–1)</small>" in text
    assert text.count("as stated by") == 1


def signature() -> dict[str, str]:
    return {"signer": "a", "key": "ab", "at": "2026-03-10T08:00:00Z", "signature": "cd"}


def texts(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there are texts and numbers."""
    if isinstance(value, dict | list | tuple):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from texts(value[key], (*place, key))
    else:
        yield place


def put(value: Any, place: tuple[Any, ...], what: str) -> Any:
    if not place:
        return what
    made = dict(value) if isinstance(value, dict) else list(value)
    made[place[0]] = put(value[place[0]], place[1:], what)
    return made
