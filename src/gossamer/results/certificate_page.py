"""The certificate as a page for people: one self-contained HTML file."""

from __future__ import annotations

import html
from collections.abc import Iterator
from itertools import groupby, islice
from typing import Any

from gossamer.accounting.units import kind_of
from gossamer.results.certificate import account, before_line, epsilon_text, group_line, of_its_own
from gossamer.results.certificate_sheet import STYLE as SHEET_STYLE
from gossamer.results.certificate_sheet import sheet
from gossamer.results.stated_facts import says_what_it_is
from gossamer.results.words import explained, known, network_lines, nodes_of, shares_noise

_LISTED = 1000  # rows of the table of nodes
STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.5rem;margin-bottom:.2rem} h2{font-size:1.1rem;margin-top:2rem}
.three{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:1rem;margin:1.2rem 0}
.three div{border:1px solid #ddd;border-radius:8px;padding:.8rem 1rem}.three b{display:block;font-size:1.9rem}
.stamp{background:#b03030;color:#fff;padding:.6rem 1rem;border-radius:8px;font-weight:600}
table{border-collapse:collapse;width:100%;font-size:.9rem} td,th{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #eee}
code{font-size:.8rem;white-space:nowrap} .scroll{overflow-x:auto}
"""
# Only on pages that need it, so that those of other runs stay what they were.
OBSERVER_STYLE = """
tr.planned{font-weight:600;background:#eef4fb} td.figure{white-space:nowrap}
dl{max-width:56rem} dt{font-weight:600;margin-top:.7rem} dd{margin:0}
"""
# A page without a script: whatever a file that was tampered with might bring, the browser runs none of it and asks nobody.
POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'\">"
)


def page(certificate: dict[str, Any], name: str) -> str:
    """One printed page in words, and all figures below it on the screen; `name` is of certificates that have none."""
    if says_what_it_is(certificate):
        name, style = certificate["name"], STYLE + SHEET_STYLE
        body = f'{sheet(of_its_own(certificate))}<details class="screen"><summary>All figures</summary>{fragment(certificate)}</details>'
    else:  # as it was drawn when it was made: a page that an audit had drawn again is compared with this
        style, body = STYLE, f"<p>{html.escape(name)}</p>{fragment(certificate)}"
    e = html.escape
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8">{POLICY}<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Privacy certificate: {e(name)}</title><style>{style}</style><h1>Privacy certificate</h1>{body}</html>\n"
    )


def fragment(certificate: dict[str, Any]) -> str:
    """The statement itself, for this page and for the report."""
    c, e, kind = of_its_own(certificate), html.escape, kind_of(certificate["unit"])
    stamp = (
        f'<p class="stamp">{e(c["stamp"])}: the figures are those of the same run with secret noise.</p>'
        if c["stamp"]
        else ""
    )
    facts = _table(
        [
            ("unit protected", c["unit"]),
            (
                "adjacency",
                {"add-remove": f"adding or removing the {kind}", "replace-one": f"replacing the {kind}"}[
                    c["adjacency"]
                ],
            ),
            ("δ", f"{c['delta']:g}"),
            *(("before the first round", said) for said in [before_line(c.get("preprocessing"))] if said),
            *(("several records", said) for said in [group_line(c.get("epsilon_by_group", []))] if said),
            ("observer", c["observer"]),
            (
                "method and mode",
                f"{c['method']}, {c['mode']} mode"
                + (f"; baseline: {c['baseline']}" if c["baseline"] != "none" else ""),
            ),
            ("noise", c["stamp"] or "secret, keyed by the operating system"),
            *network_lines(c.get("network")),
            *(("all runs on these records", line) for line in account(c.get("budget"))),
        ]
    )
    because = f"<p><b>Not proven:</b> {e(c['not_proven_because'])}</p>" if c["not_proven_because"] else ""
    audited = ""
    if c.get("audit"):
        from gossamer.results.audit_page import section

        audited = section(c)
    nodes = "".join(
        f"<tr><td>{e(label)}</td><td>{p['records']:,}</td><td>{p['rate']:.4g}</td><td>{p['lot']:.4g}</td>"
        f"<td>{'—' if draws is None else e(str(draws))}</td><td>{epsilon_text(eps['claimed'])}</td>"
        f"<td>{epsilon_text(eps['proven'])}{_stated(eps)}</td>"
        f"<td>{'—' if head is None else f'<code>{e(str(head)[:12])}…</code>'}</td></tr>"
        for label, (p, draws, eps, head) in _rows(c)
    )
    return (
        f"{stamp}{boxes(c)}{because}{facts}{_observers(c)}{audited}"
        f"{_list('About the claim', c['claim_flags'])}{_list('About this run', c['notes'])}{_list('What this does not cover', c['not_covered'])}"
        f'<h2>Per node</h2><div class="scroll"><table><tr><th>node<th>{kind}s (declared)<th>rate<th>lot<th>draws<th>claimed ε<th>proven ε<th>ledger head</tr>{nodes}</table></div>'
        f"<p>Check it: <code>gossamer plan --ledger RUN_DIRECTORY</code></p>"
        f"<h2>Versions</h2>{_table(list(c['versions'].items()))}"
    )


def _rows(c: dict[str, Any]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """A row per node; of many nodes, neighbours that are alike in all share one, and only the first rows are shown."""
    keys = ("public_constants", "draws", "epsilon_by_node", "ledger_heads")
    entries = list(zip(*(c[key] for key in keys), strict=True))
    if len(entries) <= _LISTED:
        yield from ((str(entry[0]["node"]), entry) for entry in entries)
        return

    def figures(entry: tuple[Any, ...]) -> tuple[Any, ...]:
        return ({key: value for key, value in entry[0].items() if key != "node"}, *entry[1:])

    alike = ((group[0], group[-1]) for _, own in groupby(entries, key=figures) if (group := list(own)))
    for first, last in islice(alike, _LISTED):
        a, b = first[0]["node"], last[0]["node"]
        yield (str(a) if a == b else f"{a}–{b}"), first


def _observers(c: dict[str, Any]) -> str:
    """Who looks on, and what each figure rests on; where all see the same there is nothing to add."""
    if not shares_noise(c):
        return ""
    e, nodes = html.escape, nodes_of(c)
    lines = "".join(
        f'<tr{" class=planned" if row["planned"] else ""}><td class="figure">ε ≤ {epsilon_text(row["epsilon"])}</td>'
        f"<td>{e(known(row['colluders'], nodes))}{' (planned)' if row['planned'] else ''}</td></tr>"
        for row in c["epsilon_by_observer"]
    )
    said = "".join(f"<dt>{e(heading)}</dt><dd>{e(text)}</dd>" for heading, text in explained(c))
    terms = f"δ = {c['delta']:g}, {c['adjacency']}, unit: {c['unit']}"
    curve = ", ".join(
        f"{epsilon_text(point['epsilon'])} for {e(str(point['colluders']))}"
        for point in c["epsilon_by_colluders"]
    )
    return (
        f"<style>{OBSERVER_STYLE}</style><h2>ε by observer</h2>"
        f"<table><tr><th>ε<th>against an observer who sees all messages, the final models, and</tr>{lines}</table>"
        f"<p>All of them at {e(terms)}. By the number of colluding nodes: {curve}.</p><dl>{said}</dl>"
    )


def _stated(entry: dict[str, Any]) -> str:
    """Of a node whose ledger is not on this machine."""
    return (
        f" <small>as stated by {html.escape(str(entry['stated_by']))}</small>" if "stated_by" in entry else ""
    )


def boxes(c: dict[str, Any]) -> str:
    """The three figures side by side."""
    shown = "".join(
        f"<div>{label}<b>{sign} {epsilon_text(c[key])}</b>{note}</div>"
        for label, sign, key, note in (
            ("claimed by the paper", "ε =", "epsilon_claimed", html.escape(c["claim_reference"])),
            (
                "proven here",
                "ε ≤",
                "epsilon_proven",
                html.escape(c["not_proven_because"] or "a numerical upper bound"),
            ),
            (
                "shown by an attack",
                "ε ≥",
                "epsilon_audited",
                "no audit was run" if c["epsilon_audited"] is None else "an empirical lower bound",
            ),
        )
    )
    return f'<div class="three">{shown}</div>'


def _table(rows: list[tuple[str, str]]) -> str:
    return (
        "<table>"
        + "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(str(v))}</td></tr>" for k, v in rows)
        + "</table>"
    )


def _list(title: str, items: list[str]) -> str:
    return (
        f"<h2>{html.escape(title)}</h2><ul>{''.join(f'<li>{html.escape(item)}</li>' for item in items)}</ul>"
        if items
        else ""
    )
