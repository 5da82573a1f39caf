"""`gossamer report`: one or several runs side by side on one page, and in a notebook."""

from __future__ import annotations

import os
import statistics
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from gossamer.errors import UserError
from gossamer.results import charts
from gossamer.results.certificate import epsilon_text, of_its_own
from gossamer.results.charts import COLOURS, DASH, Axis, Plot, Series
from gossamer.results.headline import (
    headline,
    in_per_cent,
    judged,
    known,
    measured,
    no_epsilon_covers,
    nodes_judged,
    over_nodes,
    title,
    written,
)
from gossamer.results.notebook import Table, columns, fragment, quality, relation
from gossamer.results.pages import render
from gossamer.results.rundir import read_manifest, read_metrics, read_object, read_text, write_atomically
from gossamer.results.verify import Verdict, look_at
from gossamer.results.words import shares_noise

_MARK = b"<!-- gossamer report -->"
_DOTTED = "2 4"
_HEADER = ("run", "method", "judged by", "proven ε", "claimed ε", "audited ε ≥")


@dataclass(frozen=True)
class Run:
    """The files of a run's directory, finished or still growing."""

    label: str
    path: Path
    config: dict[str, Any]
    config_text: str
    manifest: dict[str, Any]
    topology: dict[str, Any]
    metrics: list[dict[str, Any]]
    certificate: dict[str, Any] | None  # None while the run goes on
    verdict: Verdict

    @property
    def last(self) -> dict[str, Any]:
        return self.metrics[-1]

    @property
    def stated(self) -> dict[str, Any] | None:
        """The certificate; a site's with the ε of its own ledger."""
        return of_its_own(self.certificate) if self.certificate else None

    @property
    def quality(self) -> str | None:
        """The metric that the nodes are judged by; None without a hold-out."""
        name = headline(self.last)
        return name if name is not None and known(name) and f"{name}_mean" in self.last else None

    @property
    def other_figures(self) -> list[str]:
        names = (name for name in measured(self.last) if name != self.quality)
        means = ((name, self.last.get(f"{name}_mean")) for name in names)
        return [f"{title(name)} {written(name, mean, 1)}" for name, mean in means if mean is not None]

    @property
    def budgets(self) -> list[float]:
        """The ε that was asked for; several where nodes differ."""
        if self.config.get("baseline") == "non-private":
            return []
        asked = self.config.get("privacy", {}).get("epsilon")
        return sorted({*asked} if isinstance(asked, list) else {asked} - {None})

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
            reasons.append(
                f"Accuracies, losses and distances are not private, no ε covers them: {self.not_private}."
            )
        if "gradient_norm" in self.last.get("not_private", {}):
            reasons.append(
                "Gradient norms and clipped shares are not private: they come from training records."
            )
        return reasons

    @property
    def unverified(self) -> list[str]:
        return [] if self.verdict.broken is None else self.verdict.sentences()


class HasDirectory(Protocol):
    """An outcome of `gossamer.run`, for one."""

    @property
    def directory(self) -> Path: ...


@dataclass(frozen=True, repr=False)
class Report:
    """Where the page is, the runs it shows, and a sentence about each of them that does not verify."""

    path: Path
    runs: tuple[Run, ...]

    @property
    def unverified(self) -> tuple[str, ...]:
        return tuple(f"{run.path}: {sentence}" for run in self.runs for sentence in run.unverified)

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (run.label, str(run.config["algorithm"]["kind"]), quality(run.last) or "—", *_epsilons(run))
            for run in self.runs
        ]

    def _notes(self) -> list[str]:
        terms = {relation(run.certificate) for run in self.runs if run.certificate}
        stamps = {run.stamp.upper() for run in self.runs if run.stamp}
        return [
            *(f"ε at {each}" for each in sorted(terms)),
            *sorted(stamps),
            *self.unverified,
            f"the page: {self.path}",
        ]

    def __repr__(self) -> str:
        return "\n".join([columns(_HEADER, self._rows()), *self._notes()])

    def _repr_html_(self) -> str:
        name = next((run.quality for run in self.runs if run.quality), None)
        lines = [Series(run.label, _points(run, f"{name}_mean")) for run in self.runs] if name else []
        percent = bool(name) and in_per_cent(str(name))
        plot = Plot(lines, Axis("round", whole=True), Axis(title(name) if name else "", percent=percent))
        heading = f"Report of {len(self.runs)} run{'s' * (len(self.runs) > 1)}"
        return fragment(heading, Table(_HEADER, self._rows()), plot, notes=self._notes())


def report(
    runs: Path | str | HasDirectory | Sequence[Path | str | HasDirectory], *, out: Path | str | None = None
) -> Report:
    """Write runs side by side as one HTML file; each is a run's directory or its outcome.

    The page goes into the run's own directory, or to `report.html` here where there are several, unless `out` names a
    file. `gossamer.report([first, second], out="both.html").path` is where the page is.
    """
    several: Sequence[Any] = runs if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    paths = [Path(getattr(run, "directory", run)) for run in several]
    read = read_runs(paths)
    target = (
        Path(out) if out is not None else paths[0] / "report.html" if len(paths) == 1 else Path("report.html")
    )
    _check_target(target)
    try:
        text = page(read)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        # The files' texts have been read; what is in them is not what `gossamer run` writes.
        which = ", ".join(str(path) for path in paths)
        raise UserError(
            f"{which}: a file does not hold what `gossamer run` writes and cannot be reported on "
            f"({type(error).__name__})."
        ) from error
    try:
        write_atomically(target, text.encode())
    except OSError as error:
        raise UserError(f"--out {target} cannot be written: {error.strerror}.") from None
    return Report(target, tuple(read))


def page(runs: Sequence[Run]) -> str:
    """The report as HTML."""
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
    """All runs, each with a label of its own."""
    runs = [_read(path) for path in paths]
    names = Counter(run.label for run in runs)
    return [
        replace(run, label=f"{run.label} ({run.path.name})") if names[run.label] > 1 else run for run in runs
    ]


def _read(path: Path) -> Run:
    needed = ("config.toml", "manifest.json", "topology.json")
    missing = next((name for name in needed if not os.path.lexists(path / name)), None)
    if missing is not None:
        raise UserError(
            f"{path} is not a run directory: it has no {missing}; give one that `gossamer run` made."
        )
    text = read_text(path / "config.toml")
    try:
        config = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path / 'config.toml'} is damaged and cannot be reported on: {error}.") from None
    manifest, topology = read_manifest(path), read_object(path / "topology.json")
    metrics = [judged(row) for row in read_metrics(path / "metrics.jsonl")]
    certificate = (
        read_object(path / "certificate.json") if os.path.lexists(path / "certificate.json") else None
    )
    if not metrics:
        raise UserError(f"{path} has no metrics yet; try again after its first evaluation.")
    return Run(manifest["name"], path, config, text, manifest, topology, metrics, certificate, look_at(path))


def _check_target(target: Path) -> None:
    """Refuse a directory, and a file that is no report."""
    if target.is_dir():
        raise UserError(f"--out {target} is a directory; name a file, for example {target / 'report.html'}.")
    if target.is_file():
        with target.open("rb") as file:
            if _MARK not in file.read(200):
                raise UserError(f"--out {target} exists and is no report of ours; name a new file.")


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


_Indexed = Sequence[tuple[int, Run]]


def figures(runs: Sequence[Run]) -> list[Figure]:
    """All figures of a report: over rounds, of the nodes at the end, by observer, and the graphs."""
    everyone = list(enumerate(runs))
    by_metric: list[Figure] = []
    final: list[Figure] = []
    for name in sorted({run.quality for run in runs if run.quality}):
        chosen = [(i, run) for i, run in everyone if run.quality == name]
        by_metric.append(_over_nodes(chosen, name))
        if all("loss_mean" in run.last for _, run in chosen):  # not where a known truth is the only measure
            by_metric.append(_over_nodes(chosen, "loss"))
        if all(f"{name}_by_node" in run.last for _, run in chosen):
            final.append(_by_node(chosen, name))
    apart = [
        (i, run) for i, run in everyone if "consensus_distance" in run.last
    ]  # a site knows its model alone
    return [
        *by_metric,
        _epsilon(everyone),
        *([_consensus(apart)] if apart else []),
        *final,
        *_diagnostics(everyone),
        *_by_colluders(everyone),
        *_by_pair(runs),
        *_topologies(runs),
    ]


def _points(run: Run, key: str) -> list[tuple[float, float]]:
    return [(row["round"], row[key]) for row in run.metrics if row.get(key) is not None]


def _line(i: int, run: Run, points: Sequence[tuple[float, float]], **style: Any) -> Series:
    """A run's line, in its colour everywhere; after the last colour the same again, dashed."""
    style.setdefault("dash", DASH if i >= len(COLOURS) else "")
    return Series(run.label, points, colour=COLOURS[i % len(COLOURS)], group=i, **style)


def _plot(series: Sequence[Series], y: Axis, x: Axis | None = None, **options: Any) -> Plot:
    return Plot(series, x or Axis("round", whole=True), y, legend=False, **options)


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]


def _terms(runs: Sequence[Run]) -> str:
    """What the ε of these runs are about; none is printed without it."""
    terms = sorted(
        {f"δ = {c['delta']:g}, {c['adjacency']}, {c['unit']}" for run in runs if (c := run.certificate)}
    )
    return f" {'; '.join(terms)}." if terms else ""


def _over_nodes(runs: _Indexed, name: str) -> Figure:
    """The mean over nodes, and a band from the worst to the best of them."""
    percent, words = (False, "loss") if name == "loss" else (in_per_cent(name), title(name))
    series = []
    for i, run in runs:
        rows = [row for row in run.metrics if f"{name}_mean" in row]
        points = [(row["round"], row[f"{name}_mean"]) for row in rows]
        spread = [(row[f"{name}_min"], row[f"{name}_max"]) for row in rows]
        series.append(_line(i, run, points, spread=spread, band=True))
    reason = next(filter(None, (run.not_private for _, run in runs)), None)
    sampled = sorted({over_nodes(run.last, name) for _, run in runs} - {"nodes"})
    note = f"Mean over {sampled[0] if sampled else 'nodes'}; the band spans the worst and the best of them."
    return Figure(
        _upper(words) + (" (not private)" if reason else ""),
        note + (f" {_upper(reason)}." if reason else ""),
        _plot(series, Axis(words, percent=percent)),
    )


def _epsilon(runs: _Indexed) -> Figure:
    series = []
    for i, run in runs:
        for key in ("proven", "claimed"):
            if points := _points(run, f"epsilon_{key}"):
                line = _line(i, run, [(0, 0.0), *points], **({"dash": _DOTTED} if key == "claimed" else {}))
                series.append(replace(line, name=f"{run.label}, {key} ε"))
    absent = [run.label for _, run in runs if run.last.get("epsilon_proven") is None]
    note = f"Worst node. Solid: proven; dotted: claimed by the paper; dashed: asked for.{_terms([r for _, r in runs])}"
    note += f" No proven ε: {', '.join(absent)}." if absent else ""
    levels = [
        (budget, f"asked for: {budget:g}") for budget in sorted({b for _, run in runs for b in run.budgets})
    ]
    return Figure("ε over rounds", note, _plot(series, Axis("ε", low=0.0), levels=levels))


def _consensus(runs: _Indexed) -> Figure:
    series = [_line(i, run, _points(run, "consensus_distance")) for i, run in runs]
    values = [y for line in series for _, y in line.points]
    least, most = min((y for y in values if y > 0), default=1.0), max(values)
    if most > 100 * least:  # one node has distance 0, which a logarithmic axis leaves out
        series = [replace(line, points=[p for p in line.points if p[1] > 0]) for line in series]
        axis = Axis("distance", log=True)
    else:
        axis = Axis("distance", low=0.0)
    private = any(no_epsilon_covers(run.last) and "hold_out" not in run.last for _, run in runs)
    note = "Root mean square distance of the nodes' models from their mean."
    return Figure("Consensus distance" + (" (not private)" if private else ""), note, _plot(series, axis))


def _by_node(runs: _Indexed, name: str) -> Figure:
    """Each node's own figure at the end."""
    series, markers = [], ("dot", "ring", "diamond")
    for i, run in runs:
        values, sample = run.last[f"{name}_by_node"], nodes_judged(run.last, name)
        points = list(zip(range(len(values)) if sample is None else sample, values, strict=True))
        series.append(_line(i, run, points, joined=False, marker=markers[i % len(markers)]))
    every = [value for line in series for _, value in line.points]
    axis = Axis(title(name), percent=in_per_cent(name))
    if axis.percent and max(every) - min(every) < 0.01:  # equal nodes: no magnified noise
        axis = replace(axis, low=max(0.0, min(every) - 0.05), high=min(1.0, max(every) + 0.05))
    rounds = sorted({run.last["round"] for _, run in runs})
    after = f"after {rounds[0]:,} rounds" if len(rounds) == 1 else "at the end"
    sampled = sorted({over_nodes(run.last, name) for _, run in runs} - {"nodes"})
    heading = f"{_upper(title(name))} of {sampled[0] if sampled else 'every node'}"
    return Figure(heading, f"Each node's own model {after}.", _plot(series, axis, Axis("node", whole=True)))


def _diagnostics(runs: _Indexed) -> Iterator[Figure]:
    """Means over nodes of what training records show."""
    chosen = [(i, run) for i, run in runs if "gradient_norm" in run.last.get("not_private", {})]
    note = "Mean over nodes, computed from training records: not private, must not be passed on."
    for key, words in (("gradient_norm", "gradient norm"), ("clipped_share", "clipped share")):
        series = []
        for i, run in chosen:
            rows = [row for row in run.metrics if "gradient_norm" in row.get("not_private", {})]
            series.append(
                _line(i, run, [(row["round"], statistics.fmean(row["not_private"][key])) for row in rows])
            )
        if series:
            yield Figure(f"{_upper(words)} (not private)", note, _plot(series, Axis(words)))


def _by_colluders(runs: _Indexed) -> Iterator[Figure]:
    """ε over the number of colluding nodes, of the runs whose nodes share noise."""
    series, chosen = [], []
    for i, run in runs:
        c = run.certificate
        if c is None or not shares_noise(c):
            continue
        curve = {p["colluders"]: p["epsilon"] for p in c["epsilon_by_colluders"] if p["epsilon"] is not None}
        planned = [row["colluders"] for row in c["epsilon_by_observer"] if row["planned"]]
        circles = [(q, epsilon) for q, epsilon in curve.items() if q in planned]
        labels = [f"planned, ε = {epsilon:.3g}" for _, epsilon in circles]
        series.append(_line(i, run, list(curve.items())))
        series.append(_line(i, run, circles, marker="ring", labels=labels))
        chosen.append(run)
    values = [epsilon for line in series for _, epsilon in line.points]
    if not values:
        return
    wide = min(values) > 0 and max(values) > 5 * min(values)
    note = (
        "Worst node, against an observer who sees all messages and the final models and knows all that so many nodes "
        f"know. Circle: as planned.{_terms(chosen)}"
    )
    x = Axis("nodes that pool what they know", whole=True)
    yield Figure(
        "ε by colluding nodes", note, _plot(series, Axis("ε", log=wide, low=None if wide else 0.0), x)
    )


def _by_pair(runs: Sequence[Run]) -> Iterator[Figure]:
    """ε of each node against each other, of the runs whose certificate has it."""
    for run in runs:
        pairs = ((run.certificate or {}).get("network") or {}).get("by_pair")
        if not pairs:
            continue
        known = {(i, j): e for i, row in enumerate(pairs) for j, e in enumerate(row) if e is not None}
        observer, node = max(known, key=lambda pair: known[pair])
        links = {(int(to), int(sender)) for arcs in run.topology.get("edges", []) for sender, to in arcs}
        note = (
            f"Each column is the node whose records are protected, each row the observing node.{_terms([run])} "
            f"Worst pair: node {node}'s records against node {observer}, ε = {known[observer, node]:.3g}; median "
            f"{statistics.median(known.values()):.3g}. Dots: it receives from that node directly."
        )
        chart = charts.heat_map(
            pairs,
            "records of node",
            "seen by node",
            lambda i, j, e: f"records of node {j}, seen by node {i}: ε = {e:.3g}",
            sorted((i, j) for i, j in links if i != j),
        )
        yield Figure(
            "ε of one node against another" + (f": {run.label}" if len(runs) > 1 else ""), note, chart
        )


def _topologies(runs: Sequence[Run]) -> Iterator[Figure]:
    """Each different graph once, with the runs that use it."""
    drawn: list[dict[str, Any]] = []
    for run in runs:
        if run.topology in drawn or run.topology["nodes"] == 1:
            continue
        drawn.append(run.topology)
        note, chart = charts.topology(run.topology)
        users = [other.label for other in runs if other.topology == run.topology]
        used = f" Used by {', '.join(users)}." if len(runs) > 1 else ""
        yield Figure(f"Topology: {run.topology['kind']}", note + used, chart)
