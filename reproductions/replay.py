"""A cell of a result file run again from that file alone: its settings and seeds, without definition or recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gossamer.auditing.api import AuditRequest
from gossamer.errors import UserError
from gossamer.results.terminal import terminal
from gossamer.studies.cells import Cell, Row, run_rows
from reproductions.again import disagreements, spread_of
from reproductions.known import config_of, parts_of
from reproductions.record import figure, place_of, read_record, worst_epsilon


def replay_cell(
    name: str,
    label: str,
    *,
    mode: str | None,
    seeds: Sequence[int] | None,
    results: Path,
    out: Path | None,
    quiet: bool,
    **how: Any,
) -> dict[str, Any]:
    """Run the recorded seeds, or others, and compare with the file's figures; `how`: as for a comparison."""
    book = read_record(results, name)
    file = place_of(results, name)
    if "settings" not in book:
        raise UserError(f"{file} is a table of the frontier; replay is for the papers' items.")
    with parts_of(file):
        cell_name, figures = _one(file, book, label, mode)
        settings = {**book["settings"], **figures["settings"]}
        all_seeds = figures["seeds"] if seeds is None else seeds
    configs = [config_of({**settings, "seed": seed}) for seed in all_seeds]
    folder = out or Path("runs") / f"replay-{name.replace('/', '-')}"
    cells = [Cell(config, f"{cell_name}, seed {config.seed}") for config in configs]
    failed: dict[str, str] = {}
    if "audit" in book:
        attack = {**book["audit"], **{key: how[key] for key in ("data_dir", "force", "engine")}}
        runs = [AuditRequest(config=c.config, **attack).run_into(folder / "cells" / c.name) for c in cells]
    else:
        batch = run_rows([Row(cell_name, {}, None, tuple(cells))], folder, quiet=quiet, **how)
        runs, failed = batch.results[0], dict(batch.failed)
    values = [figure(result, figures["metric"]) for result in runs]
    epsilons = {key: worst_epsilon(result.get(key) for result in runs) for key in ("epsilon_claimed", "epsilon_proven")}
    problems = [] if failed else disagreements({"values": values, **epsilons}, figures, spread_of(book))
    if problems:
        failed[cell_name] = f"{'; '.join(problems)}."
    recorded = dict(zip(figures["seeds"], figures["values"], strict=True))
    for seed, value in () if quiet else zip(all_seeds, values, strict=False):
        line = f"{cell_name}, seed {seed}: {value} ({figures['metric']}); book: {recorded.get(seed, 'another seed')}"
        terminal().print(line, soft_wrap=True)
    return {
        "item": name,
        "cell": cell_name,
        "seeds": list(all_seeds),
        "values": values,
        **epsilons,
        "recorded": {key: figures[key] for key in ("seeds", "values", *epsilons)},
        "out": str(folder),
        "failed": failed,
    }


def _one(file: Path, book: Mapping[str, Any], label: str, mode: str | None) -> tuple[str, Mapping[str, Any]]:
    """The cell of this label: its values as the pages have them, divided by commas."""
    labels = {", ".join(cell["labels"].values()): cell for cell in book["cells"]}
    if label not in labels:
        raise UserError(f"{file} has no cell {label!r}; it has {'; '.join(labels)}.")
    modes = labels[label]["modes"]
    if mode is None and len(modes) == 1:
        mode = next(iter(modes))
    if mode not in modes:
        raise UserError(f"{label!r} needs --mode, one of {', '.join(modes)}.")
    return f"{label}, {mode} mode", modes[mode]
