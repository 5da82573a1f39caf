"""Plans, runs and studies in a notebook: tables and charts as self-contained HTML.

No script, no style sheet, no address: a notebook that is opened elsewhere, or exported, looks the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gossamer.errors import UserError
from gossamer.results.certificate import epsilon_text, planned_relation, relation, statement
from gossamer.results.charts import Plot, epsilon_plot, planned_epsilon_plot
from gossamer.results.console import plan_rows
from gossamer.results.headline import headline, judged, no_epsilon_covers, title, written
from gossamer.results.pages import render
from gossamer.results.rundir import read_metrics

if TYPE_CHECKING:
    from gossamer.training.plan import Plan


class Epsilons:
    """What has a `result` with figures of ε, whose δ, adjacency, unit and observer are next to them there."""

    result: Any

    @property
    def epsilon_proven(self) -> float | None:
        """Of the worst node."""
        proven: float | None = self.result["epsilon_proven"]
        return proven

    @property
    def epsilon_claimed(self) -> float | None:
        claimed: float | None = self.result["epsilon_claimed"]
        return claimed


class Table(NamedTuple):
    """A table of texts; the row `bold` stands out."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    bold: int | None = None


def fragment(heading: str, *parts: Any, notes: Sequence[str] = ()) -> str:
    """A heading, tables and charts, and lines of text below them."""
    return render("notebook", heading=heading, parts=[part for part in parts if part], notes=notes)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same table as plain text."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [[f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in (header, *rows)]
    return "\n".join("  ".join(line).rstrip() for line in lines)


def three_epsilons(figures: Mapping[str, Any]) -> str:
    return (
        f"proven ε = {epsilon_text(figures['epsilon_proven'])}, claimed ε = "
        f"{epsilon_text(figures['epsilon_claimed'])}, audited ε ≥ {epsilon_text(figures.get('epsilon_audited'))}"
    )


def quality(row: Mapping[str, Any]) -> str:
    """The figure that a run is judged by, in words; "" without a hold-out."""
    figures = judged(dict(row))
    name = headline(figures)
    if name is None or figures.get(f"{name}_mean") is None:
        return ""
    not_private = " (not private)" if no_epsilon_covers(figures) else ""
    return f"{title(name)} {written(name, figures[f'{name}_mean'])}{not_private}"


def plan_text(o: Plan) -> str:
    config, worst = o.config, o.privacy.worst
    return (
        f"Plan of {config.name}: {config.algorithm.kind}, mode {config.mode}, {config.nodes} nodes, {config.rounds} "
        f"rounds, {o.size}; proven ε = {epsilon_text(worst.proven.epsilon)}, claimed ε = "
        f"{epsilon_text(worst.claim.epsilon)} ({planned_relation(o.privacy)})"
    )


def plan_html(o: Plan) -> str:
    plan, because = o.privacy, o.privacy.worst.proven.because
    notes = [
        f"ε at {planned_relation(o.privacy)}",
        *([f"not proven: {because}"] if because else []),
        *plan.notes,
    ]
    heading = plan_text(o).partition(";")[0]
    chart = planned_epsilon_plot(plan, o.config.rounds)
    return fragment(heading, Table(*plan_rows(plan)), chart, notes=notes)


def outcome_text(result: Mapping[str, Any], certificate: Mapping[str, Any]) -> str:
    figures = "; ".join(filter(None, [quality(result), three_epsilons(certificate)]))
    return f"Outcome: {figures} ({relation(certificate)}); in {result['run_dir']}"


def outcome_html(result: Mapping[str, Any], certificate: Mapping[str, Any], directory: Path) -> str:
    """The headline, the statement of the certificate, and how ε grew."""
    facts = {
        "proven ε": epsilon_text(certificate["epsilon_proven"]),
        "claimed ε": epsilon_text(certificate["epsilon_claimed"]),
        "audited ε ≥": epsilon_text(certificate["epsilon_audited"]),
        "rounds": f"{result['rounds']:,}",
        "nodes": f"{result['nodes']:,}",
        "seconds": f"{result['seconds']:.1f}",
    }
    cells = Table(list(facts), [list(facts.values())])
    notes = [*statement(certificate), f"run directory: {result['run_dir']}"]
    heading = quality(result) or "no hold-out, so no accuracy"
    return fragment(heading, cells, _spent_plot(directory, certificate), notes=notes)


def _spent_plot(directory: Path, certificate: Mapping[str, Any]) -> Plot | None:
    """ε at every evaluation; None where the run's files are on another machine."""
    try:
        rows = read_metrics(directory / "metrics.jsonl")
    except UserError:
        return None
    if not rows:
        return None
    terms = f"δ = {certificate['delta']:g}, {certificate['adjacency']}, {certificate['unit']}"
    claimed, proven = ([row.get(f"epsilon_{name}") for row in rows] for name in ("claimed", "proven"))
    rounds = [int(row["round"]) for row in rows]
    return epsilon_plot(rounds, claimed, proven, None, f"ε over rounds (worst node; {terms})")
