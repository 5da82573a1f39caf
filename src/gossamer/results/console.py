"""Runs, plans and ledgers on the terminal: a progress bar and a live table, or one plain line per evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable
from rich.text import Text

from gossamer.data.arrays import format_bytes
from gossamer.results import headline as metrics
from gossamer.results.certificate import account, by_observer_of, epsilon_text, part_lines, planned_parts, statement
from gossamer.results.charts import curve_rounds, sparkline
from gossamer.results.headline import headline, judged, no_epsilon_covers, over_nodes, title, written
from gossamer.results.terminal import Table, Terminal, terminal
from gossamer.results.words import known, network_lines, nodes_of, shares_noise, spans

if TYPE_CHECKING:  # they bring torch along, and a list of data sets needs none
    from gossamer.accounting.recompute import NodeProof
    from gossamer.results.verify import Verdict
    from gossamer.training.plan import Plan
    from gossamer.training.privacy import PrivacyPlan

MOST_ROWS = 200  # of a table about nodes

ROW_LEGEND = "min / mean / max over {}; consensus: distance from the mean model; sent: by all nodes so far"
PLAN_HEADER = ("rate", "lot", "σ/sensitivity", "rounds", "proven ε", "claimed ε")
_STYLES = (
    (r"proven ε = (∞|—)", "bold red"),
    (r"proven ε = [^ ∞—]+", "bold green"),
    (r"claimed ε = \S+", "yellow"),
    (r"audited ε ≥ [^ —]+", "bold magenta"),
    (r"audited ε ≥ —", "dim"),
    (r"\(δ = .*\)$", "dim"),
    (r"^proven: .*", "dim"),
)


class RunDisplay(ExitStack):
    def __init__(self, name: str, rounds: int, *, quiet: bool, hidden: bool = False):
        super().__init__()
        # With --json, stdout belongs to the one object: everything else goes to stderr. Of several processes one shows.
        self.console = terminal(to_stderr=quiet, silent=hidden)
        columns = TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        self._progress = Progress(*columns, console=self.console)
        self._task = self._progress.add_task(name, total=rounds)
        self._table, self._explained = RichTable(box=None), False
        self._live: Live | None = None
        self._terminal = self.console.is_terminal and not hidden

    def plan(self, o: Plan, budget: dict[str, Any] | None = None) -> None:
        """Show what is about to run; what else it would cost, `gossamer plan` computes."""
        show_terms(o, self.console)
        self.console.say(*account(budget))
        self.begin()

    def begin(self) -> None:
        """Show rounds and figures from here on."""
        if self._terminal:
            shown = Group(self._table, self._progress)
            self._live = self.enter_context(Live(shown, console=self.console, refresh_per_second=8))

    def round(self, done: int) -> None:
        if self._live:
            self._progress.update(self._task, completed=done)

    def metrics(self, row: dict[str, Any]) -> None:
        row = judged(row)
        if self._live:
            cells = _cells(row)
            for name in () if self._table.columns else cells:
                self._table.add_column(name)
            self._table.add_row(*cells.values())
            return
        if not self._explained:
            self.console.say(f"each line: {ROW_LEGEND.format(over_nodes(row, headline(row) or ''))}")
            self._explained = True
        self.console.say(row_text(row))

    def outcome(self, result: dict[str, Any], certificate: dict[str, Any]) -> None:
        result, name = judged(result), headline(judged(result))
        self.console.print()
        say = self.console.say
        if (because := no_epsilon_covers(result)) is not None:
            say(f"NOT PRIVATE: {because}; no ε covers the next line, and it must stay here.")
        if name is not None:
            shown = name == "accuracy" and "hold_out_rows" in result
            rows = f"{result['hold_out_rows']:,} test rows, " if shown else ""
            say(Text(f"{_over_nodes(name, result)}  ({rows}{result['seconds']:.1f} s)", "bold"))
            say(*(_over_nodes(other, result) for other in metrics.measured(result) if other != name))
        say(*map(coloured, statement(certificate)))
        show_observers(certificate, self.console)
        say(*(f"note: {note}" for note in certificate["notes"]), f"run directory: {result['run_dir']}")


def _over_nodes(name: str, row: dict[str, Any]) -> str:
    mean, low = (written(name, row[key]) for key in (f"{name}_mean", metrics.worst(name)))
    if f"{name}_noise" in row:
        noise = written(name, row[f"{name}_noise"])
        return f"{title(name)} {mean} on the kept-out records of all nodes, ± {noise} by noise"
    average = written(name, row[f"{name}_average_model"])
    worst_of = "worst node" if metrics.nodes_judged(row, name) is None else "worst of them"
    nodes = over_nodes(row, name)
    return f"{title(name)} {mean} mean over {nodes}, {low} {worst_of}, {average} average model"


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the names and values of an evaluation's cells; a site has no consensus distance."""
    name, quality = headline(row), "none"
    if name is not None:
        values = [row[key] for key in (f"{name}_{end}" for end in ("min", "mean", "max")) if key in row]
        quality = " / ".join(written(name, value, 1) for value in values)
        quality += " (not private)" if no_epsilon_covers(row) else ""
    distance = row.get("consensus_distance")
    return {
        "round": str(row["round"]),
        title(name) if name else "hold-out": quality,
        "consensus": "—" if distance is None else f"{distance:.3g}",
        "proven ε": epsilon_text(row.get("epsilon_proven")),
        "sent": format_bytes(row.get("bytes_sent", 0)),
    }


def row_text(row: Mapping[str, Any]) -> str:
    """Return an evaluation as one line."""
    return "  ".join(f"{name} {value}" for name, value in _cells(row).items())


def summary(o: Plan, budget: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON object of `plan`; `budget` is what the same records have spent, and would with this run."""
    config, plan = o.config, o.privacy
    nodes = plan.nodes
    return {
        **plan.figures(),
        "unit": plan.unit,
        "observer": plan.observer.description,
        **plan.by_observer(),
        **planned_parts(o),
        "network": o.network_figures(),
        "nodes": config.nodes,
        "rounds": config.rounds,
        "mode": config.mode,
        "baseline": config.baseline,
        "draws": plan.draws,
        "noise_multiplier_first": [node.factor * plan.shape(0) for node in nodes],
        "noise_multiplier_last": [node.factor * plan.shape(plan.draws - 1) for node in nodes],
        **{key: [getattr(node, key) for node in nodes] for key in ("rate", "lot", "records")},
        "rounds_affordable": [node.allowance // plan.draws_per_round for node in nodes],
        "dimension": o.stack.dim,
        "bytes_per_round": o.bytes_per_round,
        "topology": o.topology.figures(),
        "budget": budget,
        "notes": list(plan.notes),
    }


def plan_rows(plan: PrivacyPlan) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a plan's nodes; equal neighbours in one row."""
    rows = [
        [
            label, f"{node.records:,}", f"{node.rate:.4g}", f"{node.lot:.4g}",
            f"{node.factor * plan.shape(0):.3g} → {node.factor * plan.shape(plan.draws - 1):.3g}",
            f"{node.allowance // plan.draws_per_round}", epsilon_text(node.proven.epsilon),
            epsilon_text(node.claim.epsilon),
        ]
        for label, node in spans(enumerate(plan.nodes), lambda node: node)
    ]  # fmt: skip
    return ["nodes", f"{plan.protects.kind}s", *PLAN_HEADER], rows


def show_terms(o: Plan, console: Terminal) -> None:
    """Print the nodes with their noise and ε, and what ε is about."""
    config, plan, size = o.config, o.privacy, o.size
    worst, unit = plan.worst.proven, plan.unit
    line = f"{config.name}: {config.algorithm.kind}, mode {config.mode}, {config.nodes} nodes, {config.rounds} rounds, "
    console.say(f"{line}{config.model.kind} with {size}, {o.topology.kind}")
    Table(*plan_rows(plan)).show(console, MOST_ROWS)
    deltas = sorted({f"{node.delta:g}" for node in plan.nodes}, key=float)
    terms = f"{' … '.join(dict.fromkeys((deltas[0], deltas[-1])))}, {plan.adjacency}, unit: {unit}"
    lines = [f"ε at δ = {terms}; observer: {plan.observer.description}"]
    lines += [f"not proven: {worst.because}"] if worst.because else []
    if flags := sorted({flag for node in plan.nodes for flag in node.claim.flags}):
        # With whose claim it is: an equation's number alone says nothing.
        lines.append(f"about the claim ({plan.nodes[0].claim.reference}): {'; '.join(flags)}")
    console.say(*lines)


def show_plan(o: Plan, budget: dict[str, Any] | None = None) -> None:
    """Print all that a run would cost."""
    console, config, plan = terminal(), o.config, o.privacy
    show_terms(o, console)
    console.say(*part_lines(planned_parts(o)))
    show_observers({**plan.by_observer(), "network": o.network_figures()}, console, curve=True)
    lines = []
    claimed, proven = zip(*plan.drawn_after(curve_rounds(config.rounds)), strict=True)
    for name, curve in (("proven ", proven), ("claimed", claimed)):
        if curve[-1] is not None:
            lines.append(f"{name} ε over rounds  {sparkline(curve)}  {epsilon_text(curve[-1])}")
    if (exact := plan.without_rounding()) is not None:
        share, epsilon = exact
        clips = f"noise is for {1 + share:.4f} clips, as sums are floats"
        lines.append(f"rounding: {clips}; exact ones: ε ≈ {epsilon:.4g}")
    graph, size = graph_line(o.topology.figures()), format_bytes(o.bytes_per_round)
    lines.append(f"graph: {graph}; {size} per round in all")
    console.say(*lines, *account(budget))


def show_observers(figures: Mapping[str, Any], console: Terminal, *, curve: bool = False) -> None:
    """Print ε by observer, where there is more than one to tell apart."""
    if shares_noise(figures):
        observer_table(figures).show(console)
        if curve:
            console.say(curve_line(figures))
    console.say(*(f"{who}: {figure}" for who, figure in network_lines(figures.get("network"))))


def data_table(rows: list[dict[str, Any]]) -> None:
    cells = []
    for row in rows:
        counts, shape = (row[key] or () for key in ("rows", "shape"))
        sizes = " + ".join(f"{count:,}" for count in counts), "×".join(map(str, shape))
        cells.append((row["name"], "yes" if row["available"] else "no", *sizes, str(row["classes"] or "")))
    note = "where each can come from: with --json"
    Table(("data set", "at hand", "training + test", "shape", "classes"), cells, [note]).show(terminal())


def coloured(line: str) -> Text:
    """Colour the three ε of a line; a terminal without colours shows the words alone."""
    text = Text(line)
    for pattern, style in _STYLES:
        text.highlight_regex(pattern, style)
    return text


def graph_line(figures: Mapping[str, Any]) -> str:
    """Return a topology's figures in words; what is not known is left out."""
    parts = ["directed" if figures["directed"] else "undirected"]
    if (longest := figures.get("diameter")) is not None:
        parts.append(f"diameter {longest}")
    if (rounds := figures.get("rounds until strongly connected")) is not None:
        parts.append("connected in every round" if rounds == 1 else f"connected over any {rounds} rounds")
    if (degree := figures.get("mean out-degree")) is not None:
        parts.append(f"each node sends to {degree:.3g} other{'s' * (degree != 1)} a round")
    looked, gap = figures.get("rounds looked at") or 1, figures.get("spectral gap")
    if gap is not None:
        each = figures.get("spectral gap per round")  # none where all rounds together are exact
        per_round = "" if each is None else f" ({each:.3g} per round)"
        parts.append(f"spectral gap {gap:.3g}" + ("" if looked == 1 else f" over {looked} rounds{per_round}"))
    if (connectivity := figures.get("algebraic connectivity")) is not None:
        parts.append(f"algebraic connectivity {connectivity:.3g}")
    return ", ".join(parts)


def observer_table(figures: Mapping[str, Any]) -> Table:
    """Return ε by observer, for a terminal of 80 columns."""
    nodes, rows = nodes_of(figures), []
    for one in figures["epsilon_by_observer"]:
        mark, note = ("→", " (planned)") if one["planned"] else ("", "")
        rows.append((mark, epsilon_text(one["epsilon"]), known(one["colluders"], nodes) + note))
    return Table(("", "ε", "by observer, who sees all messages, the final models, and"), rows)


def curve_line(figures: Mapping[str, Any]) -> str:
    points = figures["epsilon_by_colluders"]
    counts, epsilons = [p["colluders"] for p in points], [p["epsilon"] for p in points]
    if counts != list(range(len(counts))):  # uneven steps would look like a bend
        pairs = (f"{epsilon_text(e)} for {q}" for q, e in zip(counts, epsilons, strict=True))
        return f"ε by the number of colluding nodes: {', '.join(pairs)}"
    ends = f"{epsilon_text(epsilons[0])} … {epsilon_text(epsilons[-1])}"
    return f"ε for 0 … {counts[-1]} colluding nodes  {sparkline(epsilons)}  {ends}"


def ledger_summary(proofs: list[NodeProof], verdict: Verdict) -> dict[str, Any]:
    """Return the JSON object of `plan --ledger`."""
    from gossamer.accounting.observers import against_all

    worst = max(proofs, key=lambda p: p.proven.epsilon)
    return {
        "epsilon_claimed": None,
        "epsilon_proven": worst.proven.epsilon,
        "epsilon_proven_lower": worst.proven.lower,
        "epsilon_audited": None,
        "violation": None,
        "epsilon_by_node": [{"proven": p.proven.epsilon, "draws": p.draws} for p in proofs],
        "not_proven_because": worst.proven.because,
        "delta": max(p.header["delta"] for p in proofs),
        "adjacency": worst.header["adjacency"],
        "unit": worst.header["unit"],
        "observer": against_all(p.observer for p in proofs).description,
        **by_observer_of(proofs),
        "nodes": len(proofs),
        "noise": worst.header["noise"],
        "matches_certificate": (verdict.certified and not verdict.elsewhere) or None,
        "as_stated_only": list(verdict.elsewhere),
        "signed": verdict.signed,
        "anchored": verdict.anchored,
    }


def show_ledger(proofs: list[NodeProof], verdict: Verdict) -> None:
    """Print a row per node; of many, neighbours with the same draws and the same figures in one."""
    console, figures = terminal(), ledger_summary(proofs, verdict)

    def row(p: NodeProof) -> list[str]:
        return [
            str(p.draws), epsilon_text(p.proven.epsilon), epsilon_text(p.proven.lower), f"{p.header['delta']:g}",
            p.header["adjacency"], p.header["noise"],
        ]  # fmt: skip

    few = len(proofs) <= MOST_ROWS
    groups = spans(((p.node, p) for p in proofs), lambda p: (p.node if few else None, *row(p)))
    header = ("node", "draws", "proven ε", "at least", "δ", "adjacency", "noise")
    Table(header, [[label, *row(p)] for label, p in groups]).show(console, MOST_ROWS)
    console.say(f"unit: {figures['unit']}; observer: {figures['observer']}")
    show_observers(figures, console, curve=True)
    reasons = sorted({p.proven.because for p in proofs if p.proven.because})
    console.say(*(f"not proven: {reason}" for reason in reasons), *verdict.sentences())
