"""What a run looks like: a progress bar and a live table on a terminal, one plain line per evaluation elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from gossamer.results.certificate import account, epsilon_text, part_lines, planned_parts, statement
from gossamer.results.charts import curve_rounds, sparkline
from gossamer.results.headline import (
    headline,
    judged,
    measured,
    no_epsilon_covers,
    nodes_judged,
    over_nodes,
    title,
    worst,
    written,
)
from gossamer.results.terminal import terminal
from gossamer.results.words import explained, known, network_lines, nodes_of, shares_noise

if TYPE_CHECKING:  # they bring torch along, and a list of data sets needs none
    from gossamer.accounting.recompute import NodeProof
    from gossamer.results.verify import Verdict
    from gossamer.training.plan import Plan
    from gossamer.training.privacy import NodePlan


MOST_ROWS = 200  # of a table about nodes
WIDE_TABLE = 110  # columns from which a last, long column has room

ROW_LEGEND = (
    "min / mean / max over {}; consensus: the models' distance from their mean; sent: by all nodes so far"
)
_STYLES = (
    (r"proven ε = (∞|—)", "bold red"),
    (r"proven ε = [^ ∞—]+", "bold green"),
    (r"claimed ε = \S+", "yellow"),
    (r"audited ε ≥ [^ —]+", "bold magenta"),
    (r"audited ε ≥ —", "dim"),
    (r"\(δ = .*\)$", "dim"),
    (r"^proven: .*", "dim"),
)


class RunDisplay:
    def __init__(self, name: str, rounds: int, *, quiet: bool, hidden: bool = False):
        # With --json, stdout belongs to the one object: everything else goes to stderr. Of several processes one shows.
        self.console = terminal(to_stderr=quiet, silent=hidden)
        self._progress = Progress(
            TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=self.console
        )
        self._task = self._progress.add_task(name, total=rounds)
        self._table = Table("round", "accuracy min / mean / max", "consensus", "proven ε", "sent", box=None)
        self._live: Live | None = None
        self._explained = False
        self._terminal = self.console.is_terminal and not hidden

    def __enter__(self) -> RunDisplay:
        return self

    def plan(self, o: Plan, budget: dict[str, Any] | None = None) -> None:
        show_plan(o, self.console, budget)
        self.begin()

    def begin(self) -> None:
        """From here on rounds and figures are shown."""
        if self._terminal:
            from rich.console import Group

            self._live = Live(Group(self._table, self._progress), console=self.console, refresh_per_second=8)
            self._live.__enter__()

    def round(self, done: int) -> None:
        if self._live:
            self._progress.update(self._task, completed=done)

    def metrics(self, row: dict[str, Any]) -> None:
        row = judged(row)
        cells = _cells(row)
        if self._live:
            self._table.add_row(*cells)
        else:
            if not self._explained:
                whose = over_nodes(row, headline(row) or "")
                self.console.print(f"each line: {ROW_LEGEND.format(whose)}", soft_wrap=True)
                self._explained = True
            judged_by = title(name) if (name := headline(row)) else "hold-out"
            names = ("round", judged_by, "consensus", "proven ε", "sent")
            self.console.print(
                "  ".join(f"{n} {c}" for n, c in zip(names, cells, strict=True)), soft_wrap=True
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.__exit__(kind, error, trace)

    def outcome(self, result: dict[str, Any], certificate: dict[str, Any]) -> None:
        show, result = self.console.print, judged(result)
        show()
        if (because := no_epsilon_covers(result)) is not None:
            show(f"NOT PRIVATE: {because}; no ε covers the next line, and it must stay here.", soft_wrap=True)
        name = headline(result)
        if name is not None:
            shown = name == "accuracy" and "hold_out_rows" in result
            rows = f"{result['hold_out_rows']:,} test rows, " if shown else ""
            self._headline(f"{_over_nodes(name, result)}  ({rows}{result['seconds']:.1f} s)")
            for other in measured(result):
                if other != name:
                    show(_over_nodes(other, result), soft_wrap=True)
        for line in statement(certificate):
            show(coloured(line), soft_wrap=True)
        if shares_noise(certificate):
            show(observer_table(certificate))
            for heading, sentences in explained(certificate):
                show(f"{heading}: {sentences}", soft_wrap=True)
        for who, figure in network_lines(certificate.get("network")):
            show(f"{who}: {figure}", soft_wrap=True)
        for note in certificate["notes"]:
            show(f"note: {note}", soft_wrap=True)
        show(f"run directory: {result['run_dir']}", soft_wrap=True)

    def _headline(self, line: str) -> None:
        self.console.print(Text(line, "bold"), soft_wrap=True)


def _over_nodes(name: str, row: dict[str, Any]) -> str:
    mean, low = (written(name, row[key]) for key in (f"{name}_mean", worst(name)))
    if f"{name}_noise" in row:
        noise = written(name, row[f"{name}_noise"])
        return f"{title(name)} {mean} on the kept-out records of all nodes, ± {noise} by noise"
    average = written(name, row[f"{name}_average_model"])
    worst_of = "worst node" if nodes_judged(row, name) is None else "worst of them"
    return (
        f"{title(name)} {mean} mean over {over_nodes(row, name)}, {low} {worst_of}, {average} average model"
    )


def _cells(row: dict[str, Any]) -> list[str]:
    name, quality = headline(row), "none"
    if name is not None:
        values = [row[f"{name}_{key}"] for key in ("min", "mean", "max")]
        quality = " / ".join(written(name, v, 1) for v in values)
        quality += " (not private)" if no_epsilon_covers(row) else ""
    return [
        str(row["round"]), quality, f"{row['consensus_distance']:.3g}", epsilon_text(row["epsilon_proven"]),
        size_text(row["bytes_sent"]),
    ]  # fmt: skip


def size_text(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def summary(o: Plan, budget: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object of `plan`; `budget` is what was spent on the same records, and would be with this run."""
    config, plan = o.config, o.privacy
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
        "noise_multiplier_first": [node.factor * plan.shape(0) for node in plan.nodes],
        "noise_multiplier_last": [node.factor * plan.shape(plan.draws - 1) for node in plan.nodes],
        "rate": [node.rate for node in plan.nodes],
        "lot": [node.lot for node in plan.nodes],
        "records": [node.records for node in plan.nodes],
        "rounds_affordable": [node.allowance // plan.draws_per_round for node in plan.nodes],
        "dimension": o.stack.dim,
        "bytes_per_round": o.bytes_per_round,
        "topology": o.topology.figures(),
        "budget": budget,
        "notes": list(plan.notes),
    }


def show_plan(o: Plan, console: Console | None = None, budget: dict[str, Any] | None = None) -> None:
    console = console or terminal()
    config, plan = o.config, o.privacy
    console.print(
        f"{config.name}: {config.algorithm.kind}, mode {config.mode}, {config.nodes} nodes, {config.rounds} rounds, "
        f"{config.model.kind} with {o.size}, {o.topology.kind}",
        soft_wrap=True,
    )
    table = Table(
        "nodes",
        plan.protects.many,
        "rate",
        "lot",
        "σ/sensitivity",
        "rounds",
        "proven ε",
        "claimed ε",
        box=None,
    )
    last = plan.draws - 1
    groups = _groups(plan.nodes)
    for label, node in groups[:MOST_ROWS]:
        table.add_row(
            label, f"{node.records:,}", f"{node.rate:.4g}", f"{node.lot:.4g}",
            f"{node.factor * plan.shape(0):.3g} → {node.factor * plan.shape(last):.3g}",
            f"{node.allowance // plan.draws_per_round}",
            Text(epsilon_text(node.proven.epsilon), "bold"), epsilon_text(node.claim.epsilon),
        )  # fmt: skip
    console.print(table)
    if (more := len(groups) - MOST_ROWS) > 0:
        console.print(f"and {more:,} rows more: --json has all nodes", soft_wrap=True)
    deltas = sorted({node.delta for node in plan.nodes})
    shown = f"{deltas[0]:g}" if len(deltas) == 1 else f"{deltas[0]:g} … {deltas[-1]:g}"
    observer = plan.observer.description
    console.print(
        f"ε at δ = {shown}, {plan.adjacency}, unit: {plan.unit}; observer: {observer}", soft_wrap=True
    )
    for said in part_lines(o):
        console.print(said, soft_wrap=True)
    show_observers(plan.by_observer(), console)
    for who, figure in network_lines(o.network_figures()):
        console.print(f"{who}: {figure}", soft_wrap=True)
    if plan.worst.proven.because:
        console.print(f"not proven: {plan.worst.proven.because}", soft_wrap=True)
    if flags := sorted({flag for node in plan.nodes for flag in node.claim.flags}):
        # With whose claim it is: an equation's number alone says nothing.
        about = f"about the claim ({plan.nodes[0].claim.reference}): {'; '.join(flags)}"
        console.print(about, soft_wrap=True)
    curves = plan.drawn_after(curve_rounds(config.rounds))
    for name, curve in (("proven ", [p for _, p in curves]), ("claimed", [c for c, _ in curves])):
        if curve[-1] is not None:
            console.print(f"{name} ε over rounds  {sparkline(curve)}  {epsilon_text(curve[-1])}")
    shown = graph_line(o.topology.figures())
    console.print(f"graph: {shown}; {size_text(o.bytes_per_round)} per round in all", soft_wrap=True)
    for line in account(budget):
        console.print(line, soft_wrap=True)


def show_observers(figures: Mapping[str, Any], console: Console) -> None:
    """ε by observer, where there is more than one to tell apart."""
    if shares_noise(figures):
        console.print(observer_table(figures))
        console.print(curve_line(figures), soft_wrap=True)


def _groups(nodes: Sequence[NodePlan]) -> list[tuple[str, NodePlan]]:
    """Equal neighbours in one row."""
    groups: list[tuple[int, int, NodePlan]] = []
    for i, node in enumerate(nodes):
        if groups and groups[-1][2] == node:
            groups[-1] = (groups[-1][0], i, node)
        else:
            groups.append((i, i, node))
    return [(f"{a}–{b}" if a != b else str(a), node) for a, b, node in groups]


def data_table(rows: list[dict[str, Any]]) -> None:
    console = terminal()
    names = ("data set", "at hand", "training + test", "shape", "classes")
    table = Table(*(Column(name, no_wrap=True) for name in names), box=None)
    if beside := console.width >= WIDE_TABLE:
        table.add_column("comes from")
    for row in rows:
        table.add_row(
            row["name"],
            "yes" if row["available"] else "no",
            " + ".join(f"{count:,}" for count in row["rows"] or ()),
            "×".join(map(str, row["shape"] or ())),
            str(row["classes"] or ""),
            *([", ".join(row["origins"])] if beside else []),
        )
    console.print(table)
    if not beside:
        console.print("where each can come from: in a wider terminal, or with --json", soft_wrap=True)


def show_tuning(found: dict[str, Any]) -> None:
    """The candidates, and what all of them cost together."""
    console = terminal()
    table = Table("settings", "accuracy", "own ε", box=None)
    for candidate in found["candidates"]:
        settings = ", ".join(f"{key} = {value}" for key, value in candidate["settings"].items())
        name = headline(candidate)
        mean = candidate.get(f"{name}_mean")
        shown = "—" if name is None or mean is None else written(name, mean)
        shown = shown if name == "accuracy" or shown == "—" else f"{title(name or '')} {shown}"
        mark = "  ← chosen" if candidate == found["chosen"] else ""
        table.add_row(settings, shown, epsilon_text(candidate["epsilon_proven"]) + mark)
    console.print(table)
    if found["chosen"]:
        console.print(
            f"all runs together: proven ε = {epsilon_text(found['epsilon_proven'])} (δ = {found['delta']:g}, "
            f"{found['adjacency']}, unit: {found['unit']}); observer: {found['observer']}",
            soft_wrap=True,
        )
        console.print(f"the chosen run: {found['run_dir']}", soft_wrap=True)
    for line in account(found.get("budget")):
        console.print(line, soft_wrap=True)


def coloured(line: str) -> Text:
    """A line with the three ε, each in the colour of what it is; a terminal without colours shows the words alone."""
    text = Text(line)
    for pattern, style in _STYLES:
        text.highlight_regex(pattern, style)
    return text


def graph_line(figures: Mapping[str, Any]) -> str:
    """A topology's figures in words; what is not known is left out."""
    said = ["directed" if figures["directed"] else "undirected"]
    if (longest := figures.get("diameter")) is not None:
        said.append(f"diameter {longest}")
    if (rounds := figures.get("rounds until strongly connected")) is not None:
        said.append("connected in every round" if rounds == 1 else f"connected over any {rounds} rounds")
    if (degree := figures.get("mean out-degree")) is not None:
        said.append(f"each node sends to {degree:.3g} other{'s' * (degree != 1)} a round")
    looked, gap = figures.get("rounds looked at") or 1, figures.get("spectral gap")
    if gap is not None:
        each = figures.get("spectral gap per round")  # none where all rounds together are exact
        per_round = "" if each is None else f" ({each:.3g} per round)"
        said.append(f"spectral gap {gap:.3g}" + ("" if looked == 1 else f" over {looked} rounds{per_round}"))
    if (connectivity := figures.get("algebraic connectivity")) is not None:
        said.append(f"algebraic connectivity {connectivity:.3g}")
    return ", ".join(said)


def observer_table(figures: Mapping[str, Any]) -> Table:
    """For a terminal of 80 columns."""
    heading = "by observer, who sees all messages, the final models, and"
    table = Table(Column(""), Column("ε", justify="right"), heading, box=None)
    nodes = nodes_of(figures)
    for row in figures["epsilon_by_observer"]:
        mark, note = ("→", " (planned)") if row["planned"] else ("", "")
        table.add_row(mark, epsilon_text(row["epsilon"]), known(row["colluders"], nodes) + note)
    return table


def curve_line(figures: Mapping[str, Any]) -> str:
    points = figures["epsilon_by_colluders"]
    counts, epsilons = [p["colluders"] for p in points], [p["epsilon"] for p in points]
    if counts != list(range(len(counts))):  # uneven steps would look like a bend
        pairs = (f"{epsilon_text(e)} for {q}" for q, e in zip(counts, epsilons, strict=True))
        return f"ε by the number of colluding nodes: {', '.join(pairs)}"
    ends = f"{epsilon_text(epsilons[0])} … {epsilon_text(epsilons[-1])}"
    return f"ε for 0 … {counts[-1]} colluding nodes  {sparkline(epsilons)}  {ends}"


def ledger_summary(proofs: list[NodeProof], verdict: Verdict) -> dict[str, Any]:
    """The JSON object of `plan --ledger`."""
    from gossamer.accounting.observers import against_all
    from gossamer.accounting.recompute import by_observer_of

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
    from gossamer.accounting.observers import against_all
    from gossamer.accounting.recompute import by_observer_of

    console = terminal()
    table = Table("node", "draws", "proven ε", "at least", "δ", "adjacency", "noise", box=None)
    for label, p in _alike(proofs)[:MOST_ROWS]:
        table.add_row(
            label, str(p.draws), epsilon_text(p.proven.epsilon), epsilon_text(p.proven.lower),
            f"{p.header['delta']:g}", p.header["adjacency"], p.header["noise"],
        )  # fmt: skip
    console.print(table)
    if (more := len(_alike(proofs)) - MOST_ROWS) > 0:
        console.print(f"and {more:,} rows more: --json has all nodes", soft_wrap=True)
    observer = against_all(p.observer for p in proofs).description
    console.print(f"unit: {proofs[0].header['unit']}; observer: {observer}", soft_wrap=True)
    show_observers(by_observer_of(proofs), console)
    for reason in sorted({p.proven.because for p in proofs if p.proven.because}):
        console.print(f"not proven: {reason}", soft_wrap=True)
    for sentence in verdict.sentences():
        console.print(sentence, soft_wrap=True)


def _alike(proofs: Sequence[NodeProof]) -> list[tuple[str, NodeProof]]:
    """A row per node; of many, neighbours with the same draws and the same figures in one."""

    def figures(p: NodeProof) -> tuple[Any, ...]:
        apart = p.node if len(proofs) <= MOST_ROWS else None
        return apart, p.draws, p.proven, p.header["delta"], p.header["adjacency"], p.header["noise"]

    groups = [list(own) for _, own in groupby(proofs, key=figures)]
    return [(f"{own[0].node}–{own[-1].node}" if len(own) > 1 else str(own[0].node), own[0]) for own in groups]
