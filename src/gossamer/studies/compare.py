"""`gossamer compare`: a table and a plot of recipes × settings × seeds, as files, as text and in a notebook."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.options.sentences import as_mapping, as_path, whole_number
from gossamer.results.certificate import OBSERVER, UNIT, account, epsilon_text
from gossamer.results.charts import COLOURS, DASH, Axis, Plot, Series
from gossamer.results.headline import headline, in_per_cent, measured, no_epsilon_covers, title, unit, worst
from gossamer.results.notebook import Shown
from gossamer.results.pages import render
from gossamer.results.rundir import write_atomically
from gossamer.results.terminal import Table, as_csv
from gossamer.studies.cells import EPSILON, METHOD, Recipe, Row, lay_out, plain, run_rows, short

Column = tuple[str, Callable[[dict[str, Any]], str]]  # its title, and the text of a row in it
Spread = tuple[float | None, float | None]  # mean and standard deviation
_SIZE = (640, 380)


@dataclass(frozen=True)
class Page:
    """A plot with its caption."""

    title: str
    plot: Plot
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Rows of figures. In a notebook it shows its table, and a plot over ε or over rounds."""

    result: dict[str, Any]  # what `--json` prints
    table: Table
    page: Page

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each row: settings, means and deviations over seeds, claimed and proven ε."""
        return list(self.result["rows"])

    @property
    def failed(self) -> dict[str, str]:
        """Why, by the label of each run that failed."""
        return dict(self.result["failed"])

    @property
    def directory(self) -> Path:
        return Path(self.result["out"])

    def _parts(self) -> tuple[str, Table, Plot, list[str]]:
        failed = [f"{label} failed: {why}" for label, why in self.failed.items()]
        spent = account(self.result.get("budget"))
        notes = [*self.page.remarks, *failed, *spent, f"in {self.directory}: table.csv, table.md, plot.html"]
        return self.page.title, self.table, self.page.plot, notes


def compare(
    recipes: Recipe | Sequence[Recipe],
    changes: Mapping[str, Any] | None = None,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    seeds: int = 1,
    baselines: bool = False,
    out: Path | str | None = None,
    jobs: int | None = None,
    engine: str = "local",
    data_dir: Path | None = None,
    force: bool = False,
    quiet: bool = True,
) -> Comparison:
    """Runs side by side: every recipe with every value of `over`, `seeds` times each.

    `gossamer.compare("quickstart", {"rounds": 50}, over={"algorithm.kind": ["dyn-d2p", "dp-dsgd"]}, seeds=3)`. Recipes
    are names, TOML files, dictionaries or configurations. What is finished in the folder `out` is not run again; table
    and plot are written there. `engine`: "local" or "dask:ADDRESS" (docs/cluster.md). `quiet`: progress goes to stderr.
    """
    several: list[Any] = list(recipes) if isinstance(recipes, list | tuple | set) else [recipes]
    if not several:
        raise UserError(f"recipes = {recipes!r} is empty; name at least one recipe.")
    seeds = whole_number("seeds", seeds)
    changes, data_dir = as_mapping("changes", changes), as_path("data_dir", data_dir)
    rows = lay_out(several, sets=changes, overs=as_mapping("over", over), seeds=seeds, baselines=baselines)
    out = as_path("out", out) or default_folder([row.recipe for row in rows], rows)
    batch = run_rows(rows, out, jobs=jobs, engine=engine, data_dir=data_dir, force=force, quiet=quiet)
    figures = []
    for row, results in zip(rows, batch.results, strict=True):
        own = {"recipe": row.recipe, "settings": row.settings, "baseline": row.baseline}
        figures.append({**own, **summarise(results), "cells": [r["cell"] for r in results]})
    table = compare_table(figures)
    swept = any(EPSILON in row.settings for row in rows)
    labels = _labels(rows, without_epsilon=swept)
    curves = [curve(results) for results in batch.results]
    page = epsilon_page(figures, labels) if swept else curves_page(curves, figures, labels)
    lines = as_csv([_flat(figure) for figure in figures])
    html = render("compare", page=page, table=table)
    for name, text in {"table.csv": lines, "table.md": table.markdown(), "plot.html": html}.items():
        write_atomically(out / name, text.encode())
    result = {"rows": figures, "caption": list(table.caption), **batch.summary}
    result |= {"table": str(out / "table.csv"), "plot": str(out / "plot.html")}
    return Comparison(result, table, page)


def default_folder(names: Sequence[str], rows: Sequence[Row]) -> Path:
    """The same command finds its own folder again, and so continues where it stopped."""
    digest = hashlib.sha256("".join(cell.name for row in rows for cell in row.cells).encode()).hexdigest()[:8]
    names = list(dict.fromkeys(names))
    stems = (Path(name).stem if name.endswith(".toml") else name.replace("/", "-") for name in names)
    return Path("runs") / f"compare-{'-'.join(stems)[:60]}-{digest}"


def _labels(rows: Sequence[Row], *, without_epsilon: bool) -> list[str]:
    """A row's name in the plot: only what tells it from the others."""
    several = len({row.recipe for row in rows}) > 1
    labels = []
    for row in rows:
        settings = {k: v for k, v in row.settings.items() if not (without_epsilon and k == EPSILON)}
        own = Row("", settings, row.baseline, ()).label.removeprefix(", ")
        own = own.replace(f"{short(METHOD)}=", "")
        labels.append(", ".join(filter(None, [row.recipe if several or not own else "", own])))
    return labels


def _flat(figure: dict[str, Any]) -> dict[str, Any]:
    """One CSV line: settings as columns of their own, the cells' names joined."""
    flat = {key: value for key, value in figure.items() if key not in ("settings", "cells")}
    return {"recipe": flat.pop("recipe"), **figure["settings"], **flat, "cells": " ".join(figure["cells"])}


# --- the plot -------------------------------------------------------------------------------------------------


def epsilon_page(figures: Sequence[dict[str, Any]], labels: Sequence[str]) -> Page:
    """The metric against proven ε, one curve per method; a method without noise is a level line."""
    axis = _axis(figures)
    curves: dict[str, list[dict[str, Any]]] = {}
    for label, figure in zip(labels, figures, strict=True):
        curves.setdefault(label, []).append(figure)
    ends = [x for x, _, _ in _placed(figures)] or [1.0]
    series, missing = [], []
    for i, (label, rows) in enumerate(curves.items()):
        colour, dash = COLOURS[i % len(COLOURS)], DASH if i >= len(COLOURS) else ""
        points = sorted(_placed(rows))
        level = next((mean for mean, _ in map(_quality, rows) if mean is not None), None)
        if points:
            spread = [(mean - std, mean + std) for _, mean, std in points]
            line = [(x, mean) for x, mean, _ in points]
            series.append(Series(label, line, spread, colour=colour, dash=dash))
        elif level is not None and rows[0]["baseline"] == "non-private":
            line = [(min(ends), level), (max(ends), level)]
            series.append(Series(f"{label} (no noise)", line, colour=colour, dash=DASH, marker="none"))
        else:
            missing.append(label)
    same = one_relation(figures)
    relation = f"δ = {figures[0]['delta']:g}, {figures[0]['adjacency']}" if same else "see table"
    ticks = [(tick, f"{tick:.3g}") for tick in _apart(ends)]
    x = Axis(f"proven ε ({relation})", log=max(ends) > 4 * min(ends), ticks=ticks if len(ticks) <= 8 else ())
    remarks = [f"Not in the plot, since no ε is proven: {label}." for label in missing]
    return Page(_heading(axis, "against proven ε"), Plot(series, x, axis, size=_SIZE), tuple(remarks))


def curves_page(
    curves: Sequence[list[tuple[int, Spread]]], figures: Sequence[dict[str, Any]], labels: Sequence[str]
) -> Page:
    """The metric over rounds, one curve per row, with a band of one standard deviation around it."""
    axis, series = _axis(figures), []
    for label, points in zip(labels, curves, strict=True):
        rows = [(at, mean, std or 0.0) for at, (mean, std) in points if mean is not None]
        spread = [(mean - std, mean + std) for _, mean, std in rows if any(std for _, _, std in rows)]
        series.append(Series(label, [(at, mean) for at, mean, _ in rows], spread, band=True))
    plot = Plot(series, Axis("round", low=0, whole=True), axis, size=_SIZE)
    return Page(_heading(axis, "over rounds"), plot)


def _axis(figures: Sequence[dict[str, Any]]) -> Axis:
    metric = next((f["metric"] for f in figures if f["metric"]), "accuracy")
    return Axis(title(metric), percent=in_per_cent(metric))


def _heading(axis: Axis, over: str) -> str:
    return f"{axis.title[:1].upper()}{axis.title[1:]} {over}"  # `capitalize` would write Rmse


def _quality(figure: dict[str, Any]) -> Spread:
    metric = figure["metric"]
    return (figure[f"{metric}_mean"], figure[f"{metric}_std"]) if metric else (None, None)


def _placed(figures: Sequence[dict[str, Any]]) -> list[tuple[float, float, float]]:
    """(proven ε, mean, deviation) of the rows that have them."""
    rows = [(f["epsilon_proven"], *_quality(f)) for f in figures]
    return [(x, mean, std or 0.0) for x, mean, std in rows if x and mean is not None]


def _apart(values: Sequence[float]) -> list[float]:
    """Places for ticks: the values themselves, but none whose label would cover its neighbour's."""
    ticks: list[float] = []
    for value in sorted(values):
        if not ticks or value > 1.15 * ticks[-1]:
            ticks.append(value)
    return ticks


# --- the figures and their table ------------------------------------------------------------------------------


def spread(values: Sequence[float | None]) -> Spread:
    """Mean and sample standard deviation (n − 1); a single value has no deviation.

    None is a figure that was not finite: with one of them there is no mean, and the others must not hide it.
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None


def metric_of(results: Sequence[dict[str, Any]]) -> str | None:
    """Return the metric that runs are compared by; None where nothing was measured."""
    return next((name for name in map(headline, results) if name), None)


def summarise(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and deviation over seeds; of every ε the worst, and none where one of the seeds has none."""
    metric = metric_of(results)
    figures: dict[str, Any] = {"seeds": len(results), "metric": metric}
    names = dict.fromkeys(["accuracy", "rmse", "truth_rmse", *(n for r in results for n in measured(r))])
    keys = {name: f"{name}_mean" for name in names} | {"worst_node": worst(metric) if metric else ""}
    for name, key in {**keys, "consensus_distance": "consensus_distance", "seconds": "seconds"}.items():
        figures[f"{name}_mean"], figures[f"{name}_std"] = spread([r[key] for r in results if key in r])
    for key in ("epsilon_claimed", "epsilon_proven"):
        known = [r[key] for r in results]
        figures[key] = max(known) if known and None not in known else None

    def first(key: str) -> Any:
        return next((r[key] for r in results if r[key]), None)

    figures["not_proven_because"] = first("not_proven_because")
    figures["delta"] = max((r["delta"] for r in results), default=None)
    figures |= {"adjacency": first("adjacency"), "unit": first("unit")}
    figures["not_private"] = next(filter(None, map(no_epsilon_covers, results)), None)
    figures["stamp"] = first("stamp")
    return figures


def curve(results: Sequence[dict[str, Any]]) -> list[tuple[int, Spread]]:
    """The metric over the rounds at which every seed was evaluated."""
    metric = metric_of(results)
    if metric is None:
        return []
    key = f"{metric}_mean"  # on private records only the last line has it
    histories = [{row["round"]: row[key] for row in r["history"] if key in row} for r in results]
    common = sorted(set.intersection(*(set(history) for history in histories)))
    return [(at, spread([history[at] for history in histories])) for at in common]


def compare_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The rows of `gossamer compare`; what is the same in all of them goes into the caption."""
    varied = list(rows[0]["settings"]) if rows else []
    compared = {row["metric"] for row in rows if row["metric"]}
    same = one_relation(rows)

    def setting(key: str) -> Column:
        title = "asked ε" if key == EPSILON else short(key)
        return title, lambda row: "any" if row["settings"][key] is None else plain(row["settings"][key])

    columns: list[Column] = []
    if len({row["recipe"] for row in rows}) > 1 or not varied:
        columns += [("recipe", lambda row: row["recipe"])]
    columns += map(setting, varied)
    if any(row["baseline"] for row in rows):
        columns += [("baseline", lambda row: row["baseline"] or "—")]
    columns += [
        (" or ".join(unit(m) for m in sorted(compared)) or "accuracy", quality_text),
        ("worst node", lambda row: quality_text(row, "worst_node")),
        ("consensus distance", lambda row: _spread_text(row, "consensus_distance")),
        ("claimed ε", lambda row: epsilon_text(row["epsilon_claimed"])),
        ("proven ε", proven_text),
    ]
    if not same:
        columns.append(("δ", lambda row: "—" if row["delta"] is None else f"{row['delta']:g}"))
        columns.append(("adjacency", lambda row: row["adjacency"] or "—"))
    columns += [("seconds", lambda row: _spread_text(row, "seconds"))]
    body = tuple(tuple(text(row) for _, text in columns) for row in rows)
    return Table(tuple(title for title, _ in columns), body, tuple(caption(rows, same)))


def caption(rows: Sequence[dict[str, Any]], same: bool) -> list[str]:
    """Return the meaning of the figures; no ε without δ, adjacency, unit and observer."""
    seeds = sorted({row["seeds"] for row in rows})
    count = "–".join(str(n) for n in sorted({seeds[0], seeds[-1]})) if seeds else "0"
    relation = f"δ = {rows[0]['delta']:g}, {rows[0]['adjacency']}; " if same and rows else ""
    units = sorted({row["unit"] for row in rows} - {None})
    plural = "" if count == "1" else "s"
    mean = f"Mean ± standard deviation over {count} seed{plural}; ε is the worst over seeds and nodes."
    terms = f"ε: {relation}unit: {' or '.join(units or [UNIT])}; observer: {OBSERVER}."
    return [mean, terms, *warnings(rows)]


def warnings(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Name what is not proven, not private or seeded among these figures, each reason once."""

    def reasons(key: str) -> list[str]:
        return sorted({str(row[key]) for row in rows if row.get(key)})

    hidden = [f"† not private, no ε covers it, to stay here: {why}." for why in reasons("not_private")]
    stamps = [stamp.upper() for stamp in reasons("stamp")]
    return [*(f"not proven: {why}" for why in reasons("not_proven_because")), *hidden, *stamps]


def one_relation(rows: Sequence[dict[str, Any]]) -> bool:
    """Do all rows mean the same by ε?"""
    known = {(row["delta"], row["adjacency"]) for row in rows}
    return len(known) == 1 and None not in next(iter(known))


def quality_text(row: dict[str, Any], name: str = "") -> str:
    """Accuracy in per cent with two decimals, as the papers print it; RMSE in significant digits."""
    name = name or row["metric"] or "accuracy"
    mean, std = row[f"{name}_mean"], row[f"{name}_std"]
    if mean is None:
        return "—"
    mark = " †" if row.get("not_private") else ""
    if not in_per_cent(row["metric"] or "accuracy"):
        return figure_text(mean, std) + mark
    return f"{100 * mean:.2f}" + (f" ± {100 * std:.2f}" if std is not None else "") + mark


def figure_text(mean: float | None, std: float | None) -> str:
    if mean is None:
        return "—"
    return f"{mean:.3g}" + (f" ± {std:.2g}" if std is not None else "")


def _spread_text(row: dict[str, Any], name: str) -> str:
    return figure_text(row[f"{name}_mean"], row[f"{name}_std"])


def proven_text(row: dict[str, Any]) -> str:
    unproven = row["epsilon_proven"] is None and row["seeds"]
    return "not proven" if unproven else epsilon_text(row["epsilon_proven"])
