"""`gossamer report`: one or several runs side by side on one page, and in a notebook."""

from __future__ import annotations

import os
import statistics
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from gossamer.errors import UserError
from gossamer.results import charts
from gossamer.results import headline as metrics
from gossamer.results.certificate import PLAN, epsilon_text, of_its_own, relation
from gossamer.results.charts import COLOURS, DASH, Axis, Plot, Series
from gossamer.results.headline import in_per_cent, judged, no_epsilon_covers, over_nodes, title, written
from gossamer.results.notebook import Shown, quality
from gossamer.results.pages import render
from gossamer.results.rundir import (
    read_bytes,
    read_manifest,
    read_metrics,
    read_object,
    read_text,
    write_atomically,
)
from gossamer.results.terminal import Table
from gossamer.results.verify import Verdict, look_at, malformed_as_user_error
from gossamer.results.words import shares_noise

if TYPE_CHECKING:
    from gossamer.training.run import Outcome

    Source: TypeAlias = Path | str | Outcome

_MARK = b"<!-- gossamer report -->"
_DOTTED = "2 4"
_HEADER = ("run", "method", "judged by", "proven ε", "claimed ε", "audited ε ≥")


@dataclass(frozen=True)
class Run:
    """The files of a run's directory, finished or still growing."""

    label: str
    path: Path
    config: dict[str, Any]
    manifest: dict[str, Any]
    plan: dict[str, Any]
    topology: dict[str, Any]
    metrics: list[dict[str, Any]]
    certificate: dict[str, Any] | None = None  # None while the run continues
    index: int = 0  # among the runs of a page: its colour

    @cached_property
    def verdict(self) -> Verdict:
        return look_at(self.path)

    @property
    def config_text(self) -> str:
        return read_text(self.path / "config.toml")

    @property
    def last(self) -> dict[str, Any]:
        return self.metrics[-1] if self.metrics else {}

    @property
    def stated(self) -> dict[str, Any] | None:
        """The certificate; a site's with the ε of its own ledger."""
        return of_its_own(self.certificate) if self.certificate else None

    @property
    def terms(self) -> str:
        """The terms of ε: δ, adjacency, unit and observer."""
        return relation(self.certificate or self.plan)

    @property
    def method(self) -> str:
        baseline = self.config.get("baseline", "none")
        mode = f"{self.config['algorithm']['kind']}, {self.config['mode']} mode"
        return mode if baseline == "none" else f"{mode}, baseline: {baseline}"

    @property
    def quality(self) -> str | None:
        """The metric that the nodes are judged by; None without a hold-out."""
        name = metrics.headline(self.last)
        return name if name is not None and metrics.known(name) and f"{name}_mean" in self.last else None

    @property
    def other_figures(self) -> list[str]:
        names = (name for name in metrics.measured(self.last) if name != self.quality)
        means = ((name, self.last[f"{name}_mean"]) for name in names)
        return [f"{title(name)} {written(name, mean, 1)}" for name, mean in means if mean is not None]

    @property
    def budgets(self) -> list[float]:
        """The ε that was asked for; several where nodes differ."""
        if self.config.get("baseline") == "non-private":
            return []
        epsilon = self.config.get("privacy", {}).get("epsilon")
        return sorted({*epsilon} if isinstance(epsilon, list) else {epsilon} - {None})

    @property
    def stamp(self) -> str | None:
        noise = str(self.manifest.get("noise", "system"))
        return noise if noise != "system" else None

    @property
    def not_private(self) -> str | None:
        """Why no ε covers the figures on the hold-out; None where one does."""
        if "hold_out" in self.last:
            return f"the hold-out is {self.last['hold_out']}"
        return no_epsilon_covers(self.last)

    @property
    def warnings(self) -> list[str]:
        """Why this run's figures must not be passed on."""
        reasons = []
        if "hold_out" in self.last:
            reasons.append(f"The hold-out is {self.last['hold_out']}.")
        elif self.not_private is not None:
            what = "Accuracies, losses and distances are not private, no ε covers them"
            reasons.append(f"{what}: {self.not_private}.")
        if "gradient_norm" in self.last.get("not_private", {}):
            reasons.append("Gradient norms and clipped shares are not private: they are of training records.")
        return reasons

    @property
    def unverified(self) -> list[str]:
        return [] if self.verdict.broken is None else self.verdict.sentences()

    def points(self, key: str) -> list[tuple[float, float]]:
        return [(row["round"], row[key]) for row in self.metrics if row.get(key) is not None]

    def line(self, points: Sequence[tuple[float, float]], **style: Any) -> Series:
        """Return a line in this run's colour; after the last colour the same again, dashed."""
        style.setdefault("dash", DASH if self.index >= len(COLOURS) else "")
        colour = COLOURS[self.index % len(COLOURS)]
        return Series(self.label, points, colour=colour, group=self.index, **style)


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """The page's path, the runs it shows, and a sentence about each of them that does not verify."""

    path: Path
    runs: tuple[Run, ...]

    @property
    def unverified(self) -> tuple[str, ...]:
        return tuple(f"{run.path}: {sentence}" for run in self.runs for sentence in run.unverified)

    def _parts(self) -> tuple[str, Table, Plot, list[str]]:
        rows = [
            (run.label, str(run.config["algorithm"]["kind"]), quality(run.last) or "—", *_epsilons(run))
            for run in self.runs
        ]
        name = next((run.quality for run in self.runs if run.quality), None)
        lines = [Series(run.label, run.points(f"{name}_mean")) for run in self.runs] if name else []
        plot = Plot(lines, Axis("round", whole=True), _axis(name) if name else Axis())
        terms = sorted({f"ε at {run.terms}" for run in self.runs if run.certificate})
        stamps = sorted({run.stamp.upper() for run in self.runs if run.stamp})
        heading = f"Report of {len(rows)} run{'s' * (len(rows) > 1)}"
        notes = [*terms, *stamps, *self.unverified, f"the page: {self.path}"]
        return heading, Table(_HEADER, rows), plot, notes


def report(runs: Source | Sequence[Source], *, out: Path | str | None = None) -> Report:
    """Write runs side by side as one HTML file; each is a run's directory or its outcome.

    The page goes into the run's own directory, or to `report.html` here where there are several, unless `out` names a
    file. `gossamer.report([first, second], out="both.html").path` is where the page is.
    """
    several: Sequence[Any] = runs if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    paths = [Path(getattr(run, "directory", run)) for run in several]
    read = read_runs(paths)
    target = Path(out) if out is not None else Path(paths[0] if len(paths) == 1 else ".") / "report.html"
    _check_target(target)
    with malformed_as_user_error(", ".join(map(str, paths))):
        text = page(read)
    try:
        write_atomically(target, text.encode())
    except OSError as error:
        raise UserError(f"--out {target} cannot be written: {error.strerror}.") from None
    return Report(target, tuple(read))


def page(runs: Sequence[Run]) -> str:
    """Return the report as HTML."""
    stamps = sorted({run.stamp for run in runs if run.stamp})
    return render(
        "report",
        title=runs[0].label if len(runs) == 1 else f"{len(runs)} runs",
        runs=runs,
        stamps=[(stamp, [run.label for run in runs if run.stamp == stamp]) for stamp in stamps],
        figures=figures(runs),
        colour=lambda i: COLOURS[i % len(COLOURS)],
        metric_title=title,
        written=written,
        over_nodes=over_nodes,
    )


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Read all runs, each with a label of its own."""
    runs = [read_run(path) for path in paths]
    names = Counter(run.label for run in runs)
    for run in runs:
        if not run.metrics:
            raise UserError(f"{run.path} has no metrics yet; try again after its first evaluation.")
    return [
        replace(run, index=i, label=f"{run.label} ({run.path.name})" if names[run.label] > 1 else run.label)
        for i, run in enumerate(runs)
    ]


def read_run(path: Path) -> Run:
    for name in ("config.toml", "manifest.json", "topology.json", PLAN):
        if not os.path.lexists(path / name):
            missing = f"it has no {name}" if path.is_dir() else "there is no such directory"
            raise UserError(f"{path} is not a run directory: {missing}; name one that `gossamer run` made.")
    try:
        config = tomllib.loads(read_text(path / "config.toml"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path / 'config.toml'} is damaged: {error}.") from None
    certificate = path / "certificate.json"
    manifest = read_manifest(path)
    return Run(
        label=manifest["name"],
        path=path,
        config=config,
        manifest=manifest,
        plan=read_object(path / PLAN),
        topology=read_object(path / "topology.json"),
        metrics=[judged(row) for row in read_metrics(path / "metrics.jsonl")],
        certificate=read_object(certificate) if os.path.lexists(certificate) else None,
    )


def _check_target(target: Path) -> None:
    """Refuse a directory, and a file that is no report."""
    if target.is_dir():
        raise UserError(f"--out {target} is a directory; name a file, for example {target / 'report.html'}.")
    if target.is_file() and _MARK not in read_bytes(target, 200):
        raise UserError(f"--out {target} exists and is not a report of Gossamer; name a new file.")


def _epsilons(run: Run) -> tuple[str, ...]:
    if run.stated is None:
        return "still running", "—", "—"
    return tuple(epsilon_text(run.stated[f"epsilon_{name}"]) for name in ("proven", "claimed", "audited"))


@dataclass(frozen=True)
class Figure:
    """A chart with its title and a note on how to read it."""

    title: str
    note: str
    chart: Any


def figures(runs: Sequence[Run]) -> list[Figure]:
    """Return all figures of a report: over rounds, of the nodes at the end, by observer, and the graphs."""
    over_rounds: list[Figure] = []
    by_node: list[Figure] = []
    for name in sorted({run.quality for run in runs if run.quality}):
        chosen = [run for run in runs if run.quality == name]
        over_rounds.append(_over_rounds(chosen, name))
        if all("loss_mean" in run.last for run in chosen):  # not where a known truth is the only measure
            over_rounds.append(_over_rounds(chosen, "loss"))
        if all(f"{name}_by_node" in run.last for run in chosen):
            by_node.append(_by_node(chosen, name))
    return [
        *over_rounds,
        _epsilon(runs),
        *_consensus([run for run in runs if "consensus_distance" in run.last]),  # a site has none
        *by_node,
        *_diagnostics([run for run in runs if "gradient_norm" in run.last.get("not_private", {})]),
        *_by_colluders([run for run in runs if run.certificate and shares_noise(run.certificate)]),
        *_by_pair(runs),
        *_topologies(runs),
    ]


def _plot(series: Sequence[Series], y: Axis, x: str = "round", **options: Any) -> Plot:
    return Plot(series, Axis(x, whole=True), y, legend=False, **options)


def _axis(name: str) -> Axis:
    return Axis("loss") if name == "loss" else Axis(title(name), percent=in_per_cent(name))


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]


def _terms(runs: Sequence[Run]) -> str:
    """Return the terms of the ε of these runs; none is printed without them."""
    sources = (run.certificate or run.plan for run in runs)
    terms = sorted({f"δ = {c['delta']:g}, {c['adjacency']}, {c['unit']}" for c in sources})
    return f" {'; '.join(terms)}."


def _sampled(runs: Sequence[Run], name: str, otherwise: str) -> str:
    """Return the nodes that figures are of, in words."""
    return next(iter(sorted({over_nodes(run.last, name) for run in runs} - {"nodes"})), otherwise)


def _over_rounds(runs: Sequence[Run], name: str) -> Figure:
    """The mean over nodes, and a band from the worst to the best of them."""
    series = []
    for run in runs:
        rows = [row for row in run.metrics if f"{name}_mean" in row]
        points = [(row["round"], row[f"{name}_mean"]) for row in rows]
        means = f"{name}_mean"
        low, high = ([row.get(f"{name}_{end}", row[means]) for row in rows] for end in ("min", "max"))
        series.append(run.line(points, spread=list(zip(low, high, strict=True)), band=True))
    note = f"Mean over {_sampled(runs, name, 'nodes')}; the band spans the worst and the best of them."
    if all("links" in run.last for run in runs):
        note = "This site's own model."
    heading, plot = _upper(_axis(name).title), _plot(series, _axis(name))
    if reason := next(filter(None, (run.not_private for run in runs)), None):
        return Figure(f"{heading} (not private)", f"{note} {_upper(reason)}.", plot)
    return Figure(heading, note, plot)


def _epsilon(runs: Sequence[Run]) -> Figure:
    series = []
    for run in runs:
        for key, style in (("proven", {}), ("claimed", {"dash": _DOTTED})):
            if points := run.points(f"epsilon_{key}"):
                line = run.line([(0, 0.0), *points], **style)
                series.append(replace(line, name=f"{run.label}, {key} ε"))
    absent = [run.label for run in runs if run.metrics and run.last.get("epsilon_proven") is None]
    note = f"Worst node. Solid: proven; dotted: claimed by the paper; dashed: asked for.{_terms(runs)}"
    note += f" No proven ε: {', '.join(absent)}." if absent else ""
    budgets = sorted({budget for run in runs for budget in run.budgets})
    levels = [(budget, f"asked for: {budget:g}") for budget in budgets]
    return Figure("ε over rounds", note, _plot(series, Axis("ε", low=0.0), levels=levels))


def _consensus(runs: Sequence[Run]) -> Iterator[Figure]:
    if not runs:
        return
    series = [run.line(run.points("consensus_distance")) for run in runs]
    values = [y for line in series for _, y in line.points]
    axis = Axis("distance", low=0.0)
    if max(values) > 100 * min((y for y in values if y > 0), default=1.0):
        # One node has distance 0, which a logarithmic axis leaves out.
        series = [replace(line, points=[p for p in line.points if p[1] > 0]) for line in series]
        axis = Axis("distance", log=True)
    hidden = any(no_epsilon_covers(run.last) and "hold_out" not in run.last for run in runs)
    note = "Root mean square distance of the nodes' models from their mean."
    yield Figure(f"Consensus distance{' (not private)' * hidden}", note, _plot(series, axis))


def _by_node(runs: Sequence[Run], name: str) -> Figure:
    """Each node's own figure at the end."""
    series, markers = [], ("dot", "ring", "diamond")
    for run in runs:
        values, sample = run.last[f"{name}_by_node"], metrics.nodes_judged(run.last, name)
        points = list(zip(range(len(values)) if sample is None else sample, values, strict=True))
        series.append(run.line(points, joined=False, marker=markers[run.index % len(markers)]))
    every, axis = [value for line in series for _, value in line.points], _axis(name)
    if axis.percent and max(every) - min(every) < 0.01:  # equal nodes: no magnified noise
        axis = replace(axis, low=max(0.0, min(every) - 0.05), high=min(1.0, max(every) + 0.05))
    rounds = sorted({run.last["round"] for run in runs})
    after = f"after {rounds[0]:,} rounds" if len(rounds) == 1 else "at the end"
    heading = f"{_upper(title(name))} of {_sampled(runs, name, 'every node')}"
    return Figure(heading, f"Each node's own model {after}.", _plot(series, axis, "node"))


def _diagnostics(runs: Sequence[Run]) -> Iterator[Figure]:
    """Means over nodes of figures about training records."""
    note = "Mean over nodes, computed from training records: not private, must not be passed on."
    for key, words in (("gradient_norm", "gradient norm"), ("clipped_share", "clipped share")):
        series = []
        for run in runs:
            rows = [row for row in run.metrics if key in row.get("not_private", {})]
            series.append(run.line([(r["round"], statistics.fmean(r["not_private"][key])) for r in rows]))
        if series:
            yield Figure(f"{_upper(words)} (not private)", note, _plot(series, Axis(words)))


def _by_colluders(runs: Sequence[Run]) -> Iterator[Figure]:
    """ε over the number of colluding nodes, of runs whose nodes share noise."""
    series = []
    for run in runs:
        c = run.certificate or {}
        curve = {p["colluders"]: p["epsilon"] for p in c["epsilon_by_colluders"] if p["epsilon"] is not None}
        planned = [row["colluders"] for row in c["epsilon_by_observer"] if row["planned"]]
        circles = [(q, epsilon) for q, epsilon in curve.items() if q in planned]
        labels = [f"planned, ε = {epsilon:.3g}" for _, epsilon in circles]
        series.append(run.line(list(curve.items())))
        series.append(run.line(circles, marker="ring", labels=labels))
    values = [epsilon for line in series for _, epsilon in line.points]
    if not values:
        return
    wide = min(values) > 0 and max(values) > 5 * min(values)
    axis = Axis("ε", log=wide, low=None if wide else 0.0)
    observer = "who sees all messages and the final models and knows all that so many nodes know"
    note = f"Worst node, against an observer {observer}. Circle: as planned.{_terms(runs)}"
    yield Figure("ε by colluding nodes", note, _plot(series, axis, "colluding nodes"))


def _by_pair(runs: Sequence[Run]) -> Iterator[Figure]:
    """ε of each node against each other, of the runs whose certificate has it."""
    for run in runs:
        pairs = ((run.certificate or {}).get("network") or {}).get("by_pair")
        if not pairs:
            continue
        epsilons = {(i, j): e for i, row in enumerate(pairs) for j, e in enumerate(row) if e is not None}
        observer, node = max(epsilons, key=lambda pair: epsilons[pair])
        arcs = {(to, sender) for edges in run.topology.get("edges", []) for sender, to in edges}
        worst, median = epsilons[observer, node], statistics.median(epsilons.values())
        pair = f"Worst pair: node {node}'s records against node {observer}, ε = {worst:.3g}; median {median:.3g}."
        note = f"Columns: the protected node; rows: the observing node.{_terms([run])} {pair} Dots: a direct link."
        dots = sorted((i, j) for i, j in arcs if i != j)
        hint = "records of node {1}, seen by node {0}: ε = {2:.3g}".format
        chart = charts.heat_map(pairs, "records of node", "seen by node", hint, dots)
        name = "ε of one node against another"
        yield Figure(f"{name}: {run.label}" if len(runs) > 1 else name, note, chart)


def _topologies(runs: Sequence[Run]) -> Iterator[Figure]:
    """Each different graph once, with the runs that use it."""
    drawn: list[dict[str, Any]] = []
    for run in runs:
        if run.topology in drawn or run.topology["nodes"] == 1:
            continue
        drawn.append(run.topology)
        note, chart = charts.topology(run.topology)
        users = ", ".join(other.label for other in runs if other.topology == run.topology)
        note += f" Used by {users}." * (len(runs) > 1)
        yield Figure(f"Topology: {run.topology['kind']}", note, chart)
