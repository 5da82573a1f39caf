"""`gossamer reproduce`: a paper's table cell by cell, its number beside ours in paper mode and in sound mode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.results.certificate import OBSERVER, UNIT, epsilon_text
from gossamer.results.headline import UNITS
from gossamer.results.rundir import write_atomically
from gossamer.studies.compare.batch import mark_folder, refuse_foreign, run_rows
from gossamer.studies.compare.grid import Row
from gossamer.studies.compare.progress import show
from gossamer.studies.compare.statistics import summarise
from gossamer.studies.compare.table import Table, as_csv, proven_text, quality_text
from gossamer.studies.reproduce.frontier import is_frontier, reproduce_frontier
from gossamer.studies.reproduce.paper_table import MODES, Definition, PaperCell, Scale, paper_cells, read


def reproduce(
    name: str,
    *,
    scale: str = "small",
    out: Path | None = None,
    jobs: int | None = None,
    data_dir: Path | None = None,
    force: bool = False,
    quiet: bool = False,
    into: Path | None = None,
    as_is: bool = False,
) -> dict[str, Any]:
    """Run what is missing, write table.csv and table.md, and return what `--json` prints."""
    chosen: Scale | None = next((s for s in ("small", "full") if s == scale), None)
    if chosen is None:
        raise UserError(f"--scale {scale} is not known; it can be small or full.")
    if is_frontier(name):
        return reproduce_frontier(
            name,
            scale=chosen,
            out=out,
            jobs=jobs,
            data_dir=data_dir,
            force=force,
            quiet=quiet,
            into=into,
            as_is=as_is,
        )
    if into is not None or as_is:
        option = "--as-is" if into is None else f"--into {into}"
        raise UserError(f"{option} is for frontier/table; leave it out for {name}.")
    definition = read(name)
    all_cells = paper_cells(definition, "full", runs=False)
    kept = paper_cells(definition, chosen, data_dir=data_dir, force=force)
    rows = [
        Row(f"{cell.label}, {mode} mode", {}, None, runs) for cell in kept for mode, runs in cell.runs.items()
    ]
    folder = (
        out or Path("runs") / f"reproduce-{Path(name).with_suffix('').as_posix().replace('/', '-')}-{scale}"
    )
    if definition.audit is not None:
        return _reproduce_audits(
            definition, chosen, kept, all_cells, folder, data_dir, force=force, quiet=quiet
        )
    batch = run_rows(rows, folder, jobs=jobs, data_dir=data_dir, force=force, quiet=quiet)
    summaries = dict(zip((row.recipe for row in rows), map(summarise, batch.results), strict=True))
    figures = [
        {
            "labels": cell.labels,
            "source": cell.source,
            "paper": {"printed": cell.printed, "mean": cell.mean, "std": cell.std},
            **{f"{mode}_mode": summaries.get(f"{cell.label}, {mode} mode") for mode in MODES},
        }
        for cell in kept
    ]
    cuts = said_cuts(definition, chosen, kept, all_cells)
    table = paper_table(definition, figures, cuts)
    write_atomically(folder / "table.csv", as_csv([_flat(figure) for figure in figures]).encode())
    write_atomically(folder / "table.md", f"## {definition.title}\n\n{table.markdown()}".encode())
    show(table, quiet=quiet)
    return {
        "table": name,
        "scale": scale,
        "cut": cuts,
        "rows": figures,
        **batch.summary,
    }


def _reproduce_audits(
    definition: Definition,
    scale: Scale,
    kept: Sequence[PaperCell],
    full: Sequence[PaperCell],
    folder: Path,
    data_dir: Path | None,
    *,
    force: bool,
    quiet: bool,
) -> dict[str, Any]:
    from gossamer.studies.audit.table import audit_cells, write_table

    assert definition.audit is not None
    refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    mark_folder(folder, [])
    rows = audit_cells(kept, definition.audit, scale, folder, data_dir=data_dir, force=force, quiet=quiet)
    cuts = said_cuts(definition, scale, kept, full)
    write_table(definition, rows, cuts, folder, quiet=quiet)
    return {
        "table": definition.title,
        "scale": scale,
        "cut": cuts,
        "rows": rows,
        "out": str(folder),
        "failed": {},
    }


def said_cuts(
    definition: Definition, scale: Scale, kept: Sequence[PaperCell], full: Sequence[PaperCell]
) -> list[str]:
    """What this scale leaves out, beginning with what can be counted."""
    cut, whole = definition.scale[scale], definition.scale["full"]
    lines = []
    if len(kept) < len(full):
        lines.append(f"{len(kept)} of the {len(full)} cells")
    if cut.seeds < whole.seeds:
        lines.append(f"{cut.seeds} of {whole.seeds} seeds")
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
    unit = "%" if metric == "accuracy" else UNITS[metric]
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
                own += ["the same", "", ""]
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
            lines.append(
                f"Claimed and proven ε in {mode} mode: {relation}; unit: {UNIT}; observer: {OBSERVER}."
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
