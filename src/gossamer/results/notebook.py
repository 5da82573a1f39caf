"""Plans, runs and studies in a notebook: tables and charts as self-contained HTML.

No script, no style sheet, no address: a notebook that is opened elsewhere, or exported, looks the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gossamer.errors import UserError
from gossamer.results.certificate import epsilon_text, planned_relation, relation, statement
from gossamer.results.charts import Plot, epsilon_plot, planned_epsilon_plot
from gossamer.results.console import plan_rows
from gossamer.results.headline import headline, judged, no_epsilon_covers, title, written
from gossamer.results.pages import render
from gossamer.results.rundir import read_metrics
from gossamer.results.terminal import Table, terminal

if TYPE_CHECKING:
    from gossamer.training.plan import Plan


class Epsilons:
    """An object with a `result` of figures of ε, with their δ, adjacency, unit and observer."""

    result: Any

    @property
    def epsilon_proven(self) -> float | None:
        """Of the worst node."""
        return cast("float | None", self.result["epsilon_proven"])

    @property
    def epsilon_claimed(self) -> float | None:
        return cast("float | None", self.result["epsilon_claimed"])


class Shown(ABC):
    """A result that shows itself: heading, table, chart and notes; as text without the chart."""

    @abstractmethod
    def _parts(self) -> tuple[str, Table, Any, Sequence[str]]: ...

    def __repr__(self) -> str:
        _, table, _, notes = self._parts()
        return "\n".join([str(table), *notes])

    def _repr_html_(self) -> str:
        heading, table, chart, notes = self._parts()
        return fragment(heading, table, chart, notes=[*table.caption, *notes])

    def show(self, *, quiet: bool = False) -> None:
        """Print it on the terminal; to stderr if `quiet`."""
        console, (_, table, _, notes) = terminal(to_stderr=quiet), self._parts()
        console.print()
        table.show(console)
        console.say(*notes)


def fragment(heading: str, *parts: Any, notes: Sequence[str] = ()) -> str:
    """A heading, tables and charts, and lines of text below them."""
    return render("notebook", heading=heading, parts=[part for part in parts if part], notes=notes)


def three_epsilons(figures: Mapping[str, Any]) -> str:
    keys = ("proven", "claimed", "audited")
    proven, claimed, audited = (epsilon_text(figures.get(f"epsilon_{key}")) for key in keys)
    return f"proven ε = {proven}, claimed ε = {claimed}, audited ε ≥ {audited}"


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
    size = f"{config.nodes} nodes, {config.rounds} rounds, {o.size}"
    proven, claimed = epsilon_text(worst.proven.epsilon), epsilon_text(worst.claim.epsilon)
    figures = f"proven ε = {proven}, claimed ε = {claimed} ({planned_relation(o.privacy)})"
    return f"Plan of {config.name}: {config.algorithm.kind}, mode {config.mode}, {size}; {figures}"


def plan_html(o: Plan) -> str:
    plan, because = o.privacy, o.privacy.worst.proven.because
    unproven = [f"not proven: {because}"] if because else []
    notes = [f"ε at {planned_relation(o.privacy)}", *unproven, *plan.notes]
    heading = plan_text(o).partition(";")[0]
    chart = planned_epsilon_plot(plan, o.config.rounds)
    return fragment(heading, Table(*plan_rows(plan)), chart, notes=notes)


def outcome_text(result: Mapping[str, Any], certificate: Mapping[str, Any]) -> str:
    figures = "; ".join(filter(None, [quality(result), three_epsilons(certificate)]))
    return f"Outcome: {figures} ({relation(certificate)}); in {result['run_dir']}"


def outcome_html(result: Mapping[str, Any], certificate: Mapping[str, Any], directory: Path) -> str:
    """The headline, the statement of the certificate, and how ε grew."""
    names = {"proven ε": "proven", "claimed ε": "claimed", "audited ε ≥": "audited"}
    facts = {name: epsilon_text(certificate[f"epsilon_{key}"]) for name, key in names.items()}
    facts |= {key: f"{result[key]:,}" for key in ("rounds", "nodes")}
    facts["seconds"] = f"{result['seconds']:.1f}"
    cells = Table(list(facts), [list(facts.values())])
    notes = [*statement(certificate), f"run directory: {result['run_dir']}"]
    heading = quality(result) or "no hold-out, so no accuracy"
    return fragment(heading, cells, _spent_plot(directory, certificate), notes=notes)


def _spent_plot(directory: Path, certificate: Mapping[str, Any]) -> Plot | None:
    """ε at every evaluation; None where the run's files are on another machine."""
    rows = []
    with suppress(UserError):
        rows = read_metrics(directory / "metrics.jsonl")
    if not rows:
        return None
    terms = f"δ = {certificate['delta']:g}, {certificate['adjacency']}, {certificate['unit']}"
    curves = {name: [row.get(f"epsilon_{name}") for row in rows] for name in ("proven", "claimed")}
    rounds = [int(row["round"]) for row in rows]
    return epsilon_plot(rounds, curves, None, f"ε over rounds (worst node; {terms})")
