"""The certificate as a page: every figure is on it, and nothing a user named can become markup."""

from __future__ import annotations

from tests.support.certificates import audit, certificate

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
