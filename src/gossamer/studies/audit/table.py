"""A paper's table of audits: its lower bounds and ours, cell by cell, resumable."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from gossamer.results.certificate import epsilon_text
from gossamer.results.rundir import write_atomically
from gossamer.studies.audit.command import audit_into
from gossamer.studies.audit.elsewhere import opened
from gossamer.studies.compare.progress import show
from gossamer.studies.compare.table import Table, as_csv
from gossamer.studies.jobs import Engine
from gossamer.studies.reproduce.paper_table import AuditSpec, Definition, PaperCell, Scale


def audit_cells(
    cells: Sequence[PaperCell],
    spec: AuditSpec,
    scale: Scale,
    folder: Path,
    *,
    data_dir: Path | None,
    force: bool = False,
    quiet: bool,
    engine: str = "local",
) -> list[dict[str, Any]]:
    """One audit per cell and mode; batches that are on disk are not trained again."""
    configs = [made[0].config for cell in cells for made in cell.runs.values()]
    with opened(engine, configs, canary=spec.canary) as executor:
        return _audits(cells, spec, scale, folder, executor, data_dir=data_dir, force=force, quiet=quiet)


def _audits(
    cells: Sequence[PaperCell],
    spec: AuditSpec,
    scale: Scale,
    folder: Path,
    executor: tuple[Engine, Executor] | None,
    *,
    data_dir: Path | None,
    force: bool,
    quiet: bool,
) -> list[dict[str, Any]]:
    from gossamer.results.terminal import terminal

    console = terminal(to_stderr=quiet)
    runs, rows = spec.runs.get(scale) or spec.runs["full"], []
    for cell in cells:
        for mode, made in cell.runs.items():
            start = time.perf_counter()

            def tell(done: int, of: int, label: str = cell.label, start: float = start) -> None:
                if done == of or done % 500 == 0:
                    console.print(
                        f"{label}: {done:,} of {of:,} trainings, {time.perf_counter() - start:.0f} s"
                    )

            found = audit_into(
                folder / "cells" / made[0].name,
                made[0].config,
                observer=spec.observer,
                canary=spec.canary,
                runs=runs,
                confidence=spec.confidence,
                data_dir=data_dir,
                force=force,
                executor=executor,
                on_batch=tell,
            )
            rows.append(
                {"labels": cell.labels, "source": cell.source, "mode": mode, "paper": cell.mean, **found}
            )
    return rows


def write_table(
    definition: Definition, rows: Sequence[dict[str, Any]], cuts: Sequence[str], folder: Path, *, quiet: bool
) -> None:
    spec = definition.audit
    assert spec is not None
    axes = list(dict.fromkeys(axis for row in rows for axis in row["labels"]))
    header = (
        *axes, "mode", "claimed ε", "proven ε", "paper: ε ≥", "ours: ε ≥", "Gaussian-DP estimate", "violation",
        "trainings", "records/s",
    )  # fmt: skip
    body = tuple(
        (
            *(row["labels"].get(axis, "") for axis in axes),
            row["mode"],
            epsilon_text(row["epsilon_claimed"]),
            epsilon_text(row["epsilon_proven"]),
            "—" if row["paper"] is None else f"{row['paper']:.3f}",
            f"{row['epsilon_audited']:.3f}",
            f"{_bound(row, 'Gaussian DP'):.3f}",
            "yes" if row["violation"] else "no",
            f"{row['audit']['runs']:,}",
            f"{row['audit']['samples_per_second']:,.0f}",
        )
        for row in rows
    )
    first = rows[0]
    caption = [
        f"{definition.title}. The paper's numbers: {first['source'].rsplit(', row ', 1)[0]}.",
        f"Cut: {'; '.join(cuts)}." if cuts else "Nothing is cut: the paper's setting.",
        f"ε at δ = {first['delta']:g}, {first['adjacency']}; unit: {first['unit']}; observer: {first['observer']}.",
        f"Bounds at {spec.confidence:.4g} confidence; canary: {first['audit']['canaries']}.",
        *definition.notes,
    ]
    table = Table(header, body, tuple(caption))
    flat = [{**row["labels"], **{key: row[key] for key in _FLAT}, **_counts(row)} for row in rows]
    write_atomically(folder / "table.csv", as_csv(flat).encode())
    write_atomically(folder / "table.md", f"## {definition.title}\n\n{table.markdown()}".encode())
    show(table, quiet=quiet)


_FLAT = (
    "mode", "paper", "epsilon_claimed", "epsilon_proven", "epsilon_audited", "violation", "delta", "adjacency",
    "source",
)  # fmt: skip


def _bound(row: dict[str, Any], name: str) -> float:
    return float(next(b["epsilon"] for b in row["audit"]["bounds"] if b["name"] == name))


def _counts(row: dict[str, Any]) -> dict[str, Any]:
    audit = row["audit"]
    return {
        "gaussian_dp": _bound(row, "Gaussian DP"),
        "trainings": audit["runs"],
        "training_seconds": audit["training_seconds"],
        "records_per_second": audit["samples_per_second"],
    }
