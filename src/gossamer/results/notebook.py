"""What a notebook shows of a plan, a run or a study: tables and pictures as HTML that needs nothing else.

No script, no style sheet, no address: a notebook that is opened elsewhere, or exported, looks the same. Every text is
escaped where it becomes markup.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.errors import UserError
from gossamer.results.certificate import epsilon_text, statement
from gossamer.results.epsilon_plot import draw, epsilon_plot
from gossamer.results.files import read_metrics
from gossamer.results.headline import headline, judged, no_epsilon_covers, title, written

if TYPE_CHECKING:
    from gossamer.training.plan import Plan

_CELL = "padding:.2em .8em;text-align:left;border-bottom:1px solid #ddd"
_LONG = 40  # letters: a cell with more may break its line


def shown(title: str, *parts: str, notes: Sequence[str] = ()) -> str:
    """A heading, parts that are markup already, and lines of text below them."""
    lines = "".join(f'<p style="margin:.2em 0;color:#555">{html.escape(note)}</p>' for note in notes)
    return f'<div style="max-width:60em"><b>{html.escape(title)}</b>{"".join(parts)}{lines}</div>'


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, bold: int | None = None) -> str:
    """`bold`: the row that stands out."""

    def line(cells: Sequence[str], tag: str, weight: str) -> str:
        made = []
        for cell in cells:
            wrap = "normal" if len(cell) > _LONG else "nowrap"
            style = f"{_CELL};font-weight:{weight};white-space:{wrap}"
            made.append(f'<{tag} style="{style}">{html.escape(cell)}</{tag}>')
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(line(row, "td", "bold" if i == bold else "normal") for i, row in enumerate(rows))
    return (
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:.4em 0">'
        f"<thead>{line(header, 'th', 'bold')}</thead><tbody>{body}</tbody></table></div>"
    )


def picture(svg: str) -> str:
    """An SVG in the width that a notebook has."""
    return f'<div style="max-width:40em;margin:.4em 0">{svg}</div>'


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same table as plain text."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [[f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in (header, *rows)]
    return "\n".join("  ".join(line).rstrip() for line in lines)


def relation(figures: Mapping[str, Any]) -> str:
    """What an ε is about; none stands without it."""
    return (
        f"δ = {figures['delta']:g}, {figures['adjacency']}, unit: {figures['unit']}; "
        f"observer: {figures['observer']}"
    )


def three_epsilons(figures: Mapping[str, Any]) -> str:
    return (
        f"proven ε = {epsilon_text(figures['epsilon_proven'])}, claimed ε = "
        f"{epsilon_text(figures['epsilon_claimed'])}, audited ε ≥ {epsilon_text(figures.get('epsilon_audited'))}"
    )


def quality(row: Mapping[str, Any]) -> str:
    """What a run is judged by, in words; "" without a hold-out."""
    known = judged(dict(row))
    name = headline(known)
    if name is None or known.get(f"{name}_mean") is None:
        return ""
    mean = known[f"{name}_mean"]
    said = f"{title(name)} {written(name, mean)}"
    return said + (" (not private)" if no_epsilon_covers(known) else "")


def plan_text(o: Plan) -> str:
    config, worst = o.config, o.privacy.worst
    return (
        f"Plan of {config.name}: {config.algorithm.kind}, mode {config.mode}, {config.nodes} nodes, {config.rounds} "
        f"rounds, {o.size}; proven ε = {epsilon_text(worst.proven.epsilon)}, claimed ε = "
        f"{epsilon_text(worst.claim.epsilon)} ({_planned_relation(o)})"
    )


def plan_html(o: Plan) -> str:
    plan, last = o.privacy, o.privacy.draws - 1
    alike: dict[Any, list[int]] = {}
    for i, node in enumerate(plan.nodes):
        key = (node.records, node.rate, node.factor, node.allowance, node.epsilon, node.delta)
        alike.setdefault(key, []).append(i)
    rows = []
    for members in alike.values():
        node = plan.nodes[members[0]]
        rows.append((
            f"{len(members)} like node {members[0]}" if len(members) > 1 else f"node {members[0]}",
            f"{node.records:,}", f"{node.rate:.4g}",
            f"{node.factor * plan.shape(0):.3g} → {node.factor * plan.shape(last):.3g}",
            f"{node.allowance // plan.draws_per_round:,}", epsilon_text(node.claim.epsilon),
            epsilon_text(node.proven.epsilon),
        ))  # fmt: skip
    header = (
        "nodes",
        "records",
        "sampling rate",
        "noise / bound",
        "rounds paid for",
        "claimed ε",
        "proven ε",
    )
    because = plan.worst.proven.because
    notes = [f"ε at {_planned_relation(o)}", *([f"not proven: {because}"] if because else []), *plan.notes]
    title = plan_text(o).partition(";")[0]
    return shown(title, table(header, rows), picture(epsilon_plot(plan, o.config.rounds)), notes=notes)


def _planned_relation(o: Plan) -> str:
    observer = o.privacy.observer.describe()
    return (
        f"δ = {o.privacy.worst.delta:g}, {o.privacy.adjacency}, unit: {o.privacy.unit}; observer: {observer}"
    )


def outcome_text(result: Mapping[str, Any], certificate: Mapping[str, Any]) -> str:
    said = [quality(result), three_epsilons(certificate)]
    return f"Outcome: {'; '.join(filter(None, said))} ({relation(certificate)}); in {result['run_dir']}"


def outcome_html(result: Mapping[str, Any], certificate: Mapping[str, Any], directory: Path) -> str:
    """The headline, the statement of the certificate, and how ε grew."""
    facts = [
        ("proven ε", epsilon_text(certificate["epsilon_proven"])),
        ("claimed ε", epsilon_text(certificate["epsilon_claimed"])),
        ("audited ε ≥", epsilon_text(certificate["epsilon_audited"])),
        ("rounds", f"{result['rounds']:,}"),
        ("nodes", f"{result['nodes']:,}"),
        ("seconds", f"{result['seconds']:.1f}"),
    ]
    cells = table([name for name, _ in facts], [[value for _, value in facts]])
    notes = [*statement(dict(certificate)), f"run directory: {result['run_dir']}"]
    return shown(
        quality(result) or "no hold-out, so no accuracy", cells, _grown(directory, certificate), notes=notes
    )


def _grown(directory: Path, certificate: Mapping[str, Any]) -> str:
    """ε at every evaluation; nothing where the run's files are on another machine."""
    try:
        rows = read_metrics(directory / "metrics.jsonl")
    except UserError:
        return ""
    if not rows:
        return ""
    terms = f"δ = {certificate['delta']:g}, {certificate['adjacency']}, {certificate['unit']}"
    at = [int(row["round"]) for row in rows]
    claimed, proven = ([row.get(f"epsilon_{name}") for row in rows] for name in ("claimed", "proven"))
    return picture(draw(at, claimed, proven, None, html.escape(f"ε over rounds (worst node; {terms})")))
