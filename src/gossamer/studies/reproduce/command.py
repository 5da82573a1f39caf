"""`gossamer reproduce`: a paper's table cell by cell, its number beside ours in paper mode and in sound mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.results.certificate import OBSERVER, UNIT, epsilon_text
from gossamer.results.headline import title
from gossamer.results.rundir import write_atomically
from gossamer.results.terminal import terminal
from gossamer.studies.compare.batch import finished_rows, mark_folder, refuse_foreign, run_rows
from gossamer.studies.compare.grid import Row
from gossamer.studies.compare.progress import show
from gossamer.studies.compare.statistics import summarise
from gossamer.studies.compare.table import Table, as_csv, proven_text, quality_text
from gossamer.studies.reproduce.again import differences
from gossamer.studies.reproduce.book import read_item
from gossamer.studies.reproduce.frontier import is_frontier, reproduce_frontier
from gossamer.studies.reproduce.paper_table import (
    MODES,
    SCALES,
    Definition,
    NoExperiment,
    PaperCell,
    Scale,
    paper_cells,
)
from gossamer.studies.reproduce.record import (
    Figures,
    Place,
    known_figures,
    read_record,
    record,
    write_record,
)

Results = dict[Place, list[dict[str, Any]]]


def reproduce(
    name: str,
    *,
    scale: str = "small",
    out: Path | None = None,
    jobs: int | None = None,
    engine: str = "local",
    data_dir: Path | None = None,
    force: bool = False,
    quiet: bool = False,
    into: Path | None = None,
    as_is: bool = False,
    records: Path | None = None,
    check: Path | None = None,
) -> dict[str, Any]:
    """Run what is missing, write table.csv and table.md, and return what `--json` prints.

    `records` is the folder for the item's result file; `check` one with the book's, to hold this one against.
    """
    chosen: Scale | None = next((s for s in SCALES if s == scale), None)
    if chosen is None:
        raise UserError(f"--scale {scale} is not known; it can be small, book or full.")
    if is_frontier(name):
        if check is not None:
            raise UserError(f"--check is for papers' tables; leave it out for {name}.")
        return reproduce_frontier(
            name,
            scale="small" if chosen == "small" else "full",
            out=out,
            jobs=jobs,
            engine=engine,
            data_dir=data_dir,
            force=force,
            quiet=quiet,
            into=into,
            as_is=as_is,
            records=records,
        )
    if into is not None:
        raise UserError(f"--into {into} is for frontier/table; leave it out for {name}.")
    definition = read_experiment(name)
    if records is not None and chosen == "small":
        raise UserError("--record is for --scale book: the result file holds all of an item's cells.")
    book = None if check is None else read_record(check, name)  # a missing one shows now
    kept = paper_cells(definition, chosen, data_dir=data_dir, force=force)
    known = known_figures(records, name, kept) if records is not None else None
    if known is not None:
        known.announce(as_is=as_is, quiet=quiet)
    before = known.same if known else {}
    folder = (
        out or Path("runs") / f"reproduce-{Path(name).with_suffix('').as_posix().replace('/', '-')}-{scale}"
    )
    cuts = said_cuts(definition, chosen, kept, paper_cells(definition, "full", runs=False))
    how = How(folder, jobs, engine, data_dir, force=force, quiet=quiet, as_is=as_is)
    found, results = _missing(definition, chosen, _without(kept, before), cuts, how)
    summary: dict[str, Any] = {"table": name, "scale": scale, "cut": cuts, **found}
    if known is not None:
        summary |= {"anew": known.anew, "gone": known.gone}
    if records is not None or book is not None:
        made = record(name, definition, kept, results, cuts, before)
        if records is not None and known is not None and not summary["failed"]:
            known.refuse_changed()
            summary["record"] = str(write_record(records, name, made))
        if book is not None:
            checked, wrong = differences(made, book)
            summary |= {"checked": checked, "failed": {**summary["failed"], **wrong}}
            if not quiet:
                terminal().print(f"{checked - len(wrong)} of {checked} figures lie where the book has them")
    return summary


@dataclass(frozen=True)
class How:
    """Where cells are run, and how."""

    folder: Path
    jobs: int | None
    engine: str
    data_dir: Path | None
    force: bool
    quiet: bool
    as_is: bool  # run nothing: what is finished


def _without(cells: Sequence[PaperCell], known: Mapping[Place, Figures]) -> list[PaperCell]:
    left = [
        replace(cell, runs={m: runs for m, runs in cell.runs.items() if (cell.label, m) not in known})
        for cell in cells
    ]
    return [cell for cell in left if cell.runs]


def _missing(
    definition: Definition, scale: Scale, cells: Sequence[PaperCell], cuts: Sequence[str], how: How
) -> tuple[dict[str, Any], Results]:
    if not cells:
        return {"rows": [], "out": str(how.folder), "failed": {}}, {}
    if definition.audit is not None:
        return _audits(definition, scale, cells, cuts, how)
    return _runs(definition, cells, cuts, how)


def _runs(
    definition: Definition, kept: Sequence[PaperCell], cuts: Sequence[str], how: How
) -> tuple[dict[str, Any], Results]:
    folder = how.folder
    places = [(cell.label, mode) for cell in kept for mode in cell.runs]
    rows = [
        Row(f"{cell.label}, {mode} mode", {}, None, runs) for cell in kept for mode, runs in cell.runs.items()
    ]
    batch = (
        finished_rows(rows, folder)
        if how.as_is
        else run_rows(
            rows,
            folder,
            jobs=how.jobs,
            engine=how.engine,
            data_dir=how.data_dir,
            force=how.force,
            quiet=how.quiet,
        )
    )
    results = dict(zip(places, batch.results, strict=True))
    figures = [
        {
            "labels": cell.labels,
            "source": cell.source,
            "paper": {"printed": cell.printed, "mean": cell.mean, "std": cell.std},
            **{
                f"{mode}_mode": summarise(results[cell.label, mode]) if mode in cell.runs else None
                for mode in MODES
            },
        }
        for cell in kept
    ]
    table = paper_table(definition, figures, cuts)
    write_atomically(folder / "table.csv", as_csv([_flat(figure) for figure in figures]).encode())
    write_atomically(folder / "table.md", f"## {definition.title}\n\n{table.markdown()}".encode())
    show(table, quiet=how.quiet)
    return {"rows": figures, **batch.summary}, results


def _audits(
    definition: Definition, scale: Scale, kept: Sequence[PaperCell], cuts: Sequence[str], how: How
) -> tuple[dict[str, Any], Results]:
    from gossamer.studies.audit.table import audit_cells, write_table

    assert definition.audit is not None
    folder = how.folder
    refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    mark_folder(folder, [])
    rows = audit_cells(
        kept,
        definition.audit,
        scale,
        folder,
        data_dir=how.data_dir,
        force=how.force,
        quiet=how.quiet,
        engine=how.engine,
    )
    write_table(definition, rows, cuts, folder, quiet=how.quiet)
    labels = {tuple(cell.labels.items()): cell.label for cell in kept}
    results: Results = {
        (labels[tuple(row["labels"].items())], row["mode"]): [
            {**row, "seconds": row["audit"]["training_seconds"]}
        ]
        for row in rows
    }
    return {"rows": rows, "out": str(folder), "failed": {}}, results


def read_experiment(name: str) -> Definition:
    found = read_item(name)
    if isinstance(found, NoExperiment):
        raise UserError(f"{name} is a table without an experiment; there is nothing to run.")
    return found


def said_cuts(
    definition: Definition, scale: Scale, kept: Sequence[PaperCell], full: Sequence[PaperCell]
) -> list[str]:
    """What this scale leaves out, beginning with what can be counted."""
    cut, whole = definition.cut(scale), definition.cut("full")
    lines = []
    if len(kept) < len(full):
        lines.append(f"{len(kept)} of the {len(full)} cells")
    seeds = sorted({len(runs) for cell in kept for runs in cell.runs.values()}) or [cut.seeds]
    if seeds[0] < whole.seeds:
        lines.append(f"{' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} of {whole.seeds} seeds")
    used = {run.config.data.kind for cell in kept for runs in cell.runs.values() for run in runs}
    lines += [
        f"{kind} in place of {cut.data[0]}" for kind in sorted(used) if cut.data and kind != cut.data[0]
    ]
    return [*lines, *cut.cut]


def paper_table(definition: Definition, figures: Sequence[dict[str, Any]], cuts: Sequence[str]) -> Table:
    """One line per cell of the paper."""
    axes = list(dict.fromkeys(axis for figure in figures for axis in figure["labels"]))
    metric = (
        next((row["metric"] for f in figures for m in MODES if (row := f[f"{m}_mode"])), None) or "accuracy"
    )
    unit = "%" if metric == "accuracy" else title(metric)
    header = [
        *axes,
        f"paper ({unit})",
        *(column for mode in MODES for column in (f"{mode} mode ({unit})", "claimed", "proven")),
    ]
    body = []
    for figure in figures:
        own: list[str] = []
        for mode in MODES:
            row = figure[f"{mode}_mode"]
            if row is None:  # what needs no noise is run once
                there = figure["paper_mode"]
                without = there is not None and there["epsilon_claimed"] is there["epsilon_proven"] is None
                own += ["the same" if without else "not run", "", ""]
            else:
                own += [quality_text(row), epsilon_text(row["epsilon_claimed"]), proven_text(row)]
        printed = figure["paper"]["printed"]
        body.append(
            (
                *(figure["labels"].get(axis, "") for axis in axes),
                "not printed" if printed is None else printed,
                *own,
            )
        )
    return Table(tuple(header), tuple(body), tuple(_caption(definition, figures, cuts)))


def _caption(definition: Definition, figures: Sequence[dict[str, Any]], cuts: Sequence[str]) -> list[str]:
    sources = sorted({figure["source"].rsplit(", row ", 1)[0] for figure in figures})
    lines = [f"{definition.title}. The paper's numbers: {'; '.join(sources)}."]
    if any(figure["paper"]["printed"] is None for figure in figures):
        lines.append("not printed: the paper has no number there, only a curve, or the method is ours.")
    lines.append(f"Cut: {'; '.join(cuts)}." if cuts else "Nothing is cut: the paper's setting.")
    for mode in MODES:
        own = [figure[f"{mode}_mode"] for figure in figures]
        known = [row for row in own if row and row["delta"] is not None]
        relations = sorted({f"δ = {row['delta']:g}, {row['adjacency']}" for row in known})
        if relations:
            relation = " or ".join(relations)
            units = " or ".join(sorted({row["unit"] or UNIT for row in known}))
            lines.append(
                f"Claimed and proven ε in {mode} mode: {relation}; unit: {units}; observer: {OBSERVER}."
            )
    rows = [f[f"{mode}_mode"] for f in figures for mode in MODES if f[f"{mode}_mode"]]
    hidden = {row.get("not_private") for row in rows} - {None}
    lines += [f"† not private, no ε covers it: {because}." for because in sorted(hidden)]
    lines += [f"not proven: {reason}" for reason in sorted({r["not_proven_because"] for r in rows} - {None})]
    lines += [stamp.upper() for stamp in sorted({r["stamp"] for r in rows} - {None})]
    return [*lines, *definition.notes]


def _flat(figure: dict[str, Any]) -> dict[str, Any]:
    """One CSV line."""
    paper = figure["paper"]
    flat = {
        **figure["labels"],
        "paper": paper["printed"],
        "paper_mean": paper["mean"],
        "paper_std": paper["std"],
    }
    for mode in MODES:
        row = figure[f"{mode}_mode"] or {}
        flat |= {f"{mode}_{key}": row.get(key) for key in _SHOWN}
    return {**flat, "source": figure["source"]}


_SHOWN = (
    "seeds", "accuracy_mean", "accuracy_std", "truth_rmse_mean", "truth_rmse_std", "worst_node_mean",
    "worst_node_std", "consensus_distance_mean", "consensus_distance_std", "epsilon_claimed", "epsilon_proven", "delta",
    "adjacency", "seconds_mean",
)  # fmt: skip
