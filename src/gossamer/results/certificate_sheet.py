"""The certificate for somebody who has to rely on it: words first, the technical annex small, on one printed A4 page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from gossamer.accounting.units import kind_of
from gossamer.results.certificate import SITE, account, epsilon_text, site_of
from gossamer.results.seals import heads_digest
from gossamer.results.words import known, nodes_of, not_promised, promise, shares_noise, what, who

STYLE = """
.sheet h2{font-size:1.05rem;margin:1.1rem 0 .3rem} .sheet p{margin:.35rem 0} .sheet ul{margin:.3rem 0;padding-left:1.2rem}
.lead{font-size:1.1rem;font-weight:600} .annex{font-size:.8rem;color:#444;border-top:1px solid #bbb;margin-top:1.2rem}
.annex table{font-size:.75rem} .annex td{overflow-wrap:anywhere} .annex th{white-space:nowrap;vertical-align:top}
details{margin-top:2rem} summary{cursor:pointer;font-weight:600}
@page{size:A4;margin:12mm 15mm}
@media print{
body{font-size:9.4pt;line-height:1.32;max-width:none;margin:0;padding:0} h1{font-size:15pt;margin:0}
.sheet h2{font-size:10.5pt;margin:2.2mm 0 .6mm} .sheet p{margin:.6mm 0} .sheet ul{margin:.4mm 0}
.sheet .not li{font-size:8.4pt} .lead{font-size:10.5pt}
.annex{font-size:7pt;line-height:1.25;margin-top:2mm} .annex table{font-size:6.8pt} .annex td,.annex th{padding:.2mm 1.5mm .2mm 0}
.stamp{color:#b03030;background:none;border:2px solid #b03030;padding:1mm 2mm} .screen{display:none}}
"""
_NOTES = 4  # on paper; all of them are in the figures on the screen and in certificate.json
_HEADS = 24


def sheet(c: dict[str, Any]) -> str:
    e = html.escape
    stamp = f'<p class="stamp">{e(c["stamp"].upper())}</p>' if c["stamp"] else ""
    first, *rest = promise(c)
    return (
        f'<div class="sheet"><p>{e(_title(c))}</p>{stamp}'
        f"<h2>What was done</h2><p>{e(what(c))}</p>"
        f'<h2>What is promised</h2><p class="lead">{e(first)}</p>{_paragraphs(rest)}{_by_observer(c)}{_paragraphs(_beside(c))}'
        f'<h2>What is not promised</h2><ul class="not">{_items(not_promised(c))}</ul>'
        f"<h2>Who vouches for it</h2>{_paragraphs([*who(c), _sealed(c)])}"
        f"<p>To check all of it: <code>gossamer certificate verify RUN_DIRECTORY</code>; {_alone(c)}</p>"
        f'<div class="annex"><h2>Annex, for technicians</h2>{_annex(c)}</div></div>'
    )


def _title(c: dict[str, Any]) -> str:
    site = site_of(c)
    if site is None:
        return f"Training “{c['name']}”, run {c['run']}"
    return f"Study “{c['name']}” ({str(c[SITE]['study'])[:16]}), site {site}, run {c['run']}"


def _alone(c: dict[str, Any]) -> str:
    if site_of(c) is None:
        return "the signatures alone: <code>gossamer certificate verify certificate.json</code>"
    return "the certificates of all sites: <code>gossamer certificate verify SITE.json … --study STUDY_FILE</code>"


def _beside(c: dict[str, Any]) -> list[str]:
    """The other two kinds of figure, as what they are."""
    claimed, audited = c["epsilon_claimed"], c["epsilon_audited"]
    lines = []
    if claimed is not None:
        lines.append(
            f"Besides, ε = {epsilon_text(claimed)} is claimed by {c['claim_reference']}: a claim, by which nothing is "
            "promised."
        )
    if audited is not None:
        shown = (
            "which contradicts a figure above: do not rely on it"
            if c.get("violation")
            else "as far as it was tried"
        )
        lines.append(f"An attack has shown that ε is at least {epsilon_text(audited)}, {shown}.")
    return lines + account(c.get("budget"))


def _sealed(c: dict[str, Any]) -> str:
    if c["key"] is None:
        return "The run itself was begun before runs signed their files; its figures can still be computed again."
    return (
        "The run sealed its own files with a key that was made for it and destroyed at its end: later changes show. "
        "The figures can be computed again from its ledgers."
    )


def _by_observer(c: dict[str, Any]) -> str:
    if not shares_noise(c):
        return ""
    nodes = nodes_of(c)
    lines = [
        f"ε ≤ {epsilon_text(row['epsilon'])} against whoever sees all messages, the final models, and "
        f"{known(row['colluders'], nodes)}{' (this is the promise above)' if row['planned'] else ''}"
        for row in c["epsilon_by_observer"]
    ]
    return f"<p>It depends on how many nodes stand together:</p><ul>{_items(lines)}</ul>"


def _annex(c: dict[str, Any]) -> str:
    digests = c["digests"]
    rows = [
        ("terms", f"δ = {c['delta']:g}, {c['adjacency']}, unit: {c['unit']}; {c['method']}, {c['mode']} mode"
         + (f"; baseline: {c['baseline']}" if c["baseline"] != "none" else "")),
        ("nodes", "; ".join(_nodes(c))),
        ("sha256 of config.toml", digests["configuration"]),
        ("sha256 of the data", digests["data"] or "none: the records are private"),
        ("sha256 of the models", _digests(digests["models"])),
        ("ledger heads", _digests(c["ledger_heads"])),
        ("run's public key", c["key"] or "none"),
        *[("note", note) for note in (*c["claim_flags"], *c["notes"])[:_NOTES]],
        ("software", ", ".join(f"{name} {version}" for name, version in c["versions"].items())),
    ]  # fmt: skip
    if (more := len(c["claim_flags"]) + len(c["notes"]) - _NOTES) > 0:
        rows.insert(-1, ("", f"and {more} more notes in certificate.json"))
    return "<table>" + "".join(_row(name, text) for name, text in rows) + "</table>"


def _nodes(c: dict[str, Any]) -> Iterable[str]:
    """Neighbours with the same figures in one entry."""
    entries = list(zip(c["public_constants"], c["draws"], c["epsilon_by_node"], strict=True))

    def figures(entry: tuple[Any, ...]) -> tuple[Any, ...]:
        public, draws, eps = entry
        return (
            public["records"],
            public["rate"],
            draws,
            epsilon_text(eps["proven"]),
            eps.get("stated_by", ""),
        )

    site, many, shown = site_of(c), f"{kind_of(c['unit'])}s", []
    for (records, rate, draws, epsilon, by), group in groupby(entries, key=figures):
        names = [public["node"] for public, _, _ in group]
        nodes = f"{names[0]}–{names[-1]}" if len(names) > 1 else f"{names[0]}"
        drawn = "" if draws is None else f" {draws} draws,"
        stated = f", as stated by {by}" if by else f" ({site})" if site else ""
        shown.append(f"{nodes}: {records:,} {many}, rate {rate:.4g},{drawn} ε ≤ {epsilon}{stated}")
    return shown if len(shown) <= 10 else [*shown[:10], f"and {len(shown) - 10} more in certificate.json"]


def _digests(all_of_them: Sequence[str | None]) -> str:
    """One for all, the sha256 of them line by line; each shortened where there are few. A site has its own alone."""
    known = [digest for digest in all_of_them if digest is not None]
    if len(known) == 1 < len(all_of_them):
        return f"{known[0]} of node {all_of_them.index(known[0])}; the others' are with their sites"
    if len(set(map(str, all_of_them))) == 1 < len(all_of_them):
        return f"{all_of_them[0]} of each of the {len(all_of_them)}"
    one = heads_digest([str(digest) for digest in all_of_them])
    each = ", ".join(str(digest)[:12] for digest in all_of_them)
    return f"{one} over all {len(all_of_them)}" + (f" ({each} …)" if len(all_of_them) <= _HEADS else "")


def _row(name: str, text: str) -> str:
    return f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(text))}</td></tr>"


def _items(lines: Iterable[str]) -> str:
    return "".join(f"<li>{html.escape(line)}</li>" for line in lines)


def _paragraphs(lines: Iterable[str]) -> str:
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines)
