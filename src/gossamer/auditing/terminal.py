"""The audit as a command: from a name to a configuration, and what the terminal shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from gossamer.auditing.api import audit
from gossamer.config.layers import parse_overrides
from gossamer.config.schema import RunConfig
from gossamer.results.audit_page import STOPS, allowed, trials, verdict
from gossamer.results.certificate import epsilon_text, three_lines
from gossamer.results.console import coloured
from gossamer.results.terminal import terminal


def run_audit(
    name: str,
    *,
    sets: Sequence[str] = (),
    observer: str = "all",
    canary: str | None = None,
    canary_records: int = 1,
    runs: int | None = None,
    confidence: float = 0.999,
    out: Path | None = None,
    engine: str = "local",
    data_dir: Path | None = None,
    module: str | None = None,
    force: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """`name` is a recipe, a TOML file or a finished run, whose certificate then gets the audited figure.

    `module` is "file.py:name", a network of the user's own in place of the configuration's.
    """
    changes = parse_overrides(sets)
    console = terminal(to_stderr=quiet)

    def begun(config: RunConfig) -> None:
        told = f"{config.name}: {config.algorithm.kind}, mode {config.mode}, observer {observer}"
        console.print(told, soft_wrap=True)

    bars = Progress(
        TextColumn("attack"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    with bars:
        task = bars.add_task("attack", total=runs)
        found = audit(
            name,
            changes,
            observer=observer,
            canary=canary,
            canary_records=canary_records,
            runs=runs,
            confidence=confidence,
            out=out,
            engine=engine,
            data_dir=data_dir,
            module=module,
            force=force,
            on_start=begun,
            on_batch=lambda done, of: bars.update(task, completed=done, total=of),
        ).result
    show(found, console)
    if Path(name).is_dir():
        console.print(f"the certificate of {name} has the audited figure now", soft_wrap=True)
    return found


def show(found: dict[str, Any], console: Console) -> None:
    audit = found["audit"]
    if found["stamp"]:
        console.print("SEEDED NOISE: NO PRIVACY. The figures are those of the same run with secret noise.")
    if audit["bounds"]:
        show_bounds(found, console)
    if audit.get("sensitivity"):
        show_search(audit["sensitivity"], console)
    for note in audit["notes"]:
        console.print(f"note: {note}", soft_wrap=True)
    for line in three_lines(found):
        console.print(coloured(line), soft_wrap=True)
    if found["not_proven_because"]:
        console.print(f"not proven: {found['not_proven_because']}", soft_wrap=True)
    console.print(verdict(found), soft_wrap=True)
    console.print(f"in {found['audit_dir']}: certificate.json, report.html", soft_wrap=True)


def show_search(searched: dict[str, Any], console: Console) -> None:
    """What the worst records moved, in bounds; a line each for what they were, which may be long."""
    cut = "" if searched["in_time"] else ", cut short"
    console.print(f"{searched['tried']:,} records tried in {searched['seconds']:.1f} s{cut}", soft_wrap=True)
    table = Table("one record moved", "bounds", "allowed", box=None)
    for one in searched["movements"]:
        moved = "not finite" if one["moved"] is None else f"{one['moved']:.6g}"
        table.add_row(one["place"], moved, f"{allowed(one)}{' BROKEN' * one['broken']}")
    console.print(table)
    for one in searched["movements"]:
        if one["broken"]:
            console.print(f"{one['place']}: {one['record']} ({one['lot']})", soft_wrap=True)
    if searched["stopped"]:
        console.print(f"note: {STOPS} {searched['stopped']}", soft_wrap=True)


def show_bounds(found: dict[str, Any], console: Console) -> None:
    audit = found["audit"]
    console.print(f"observer: {found['observer']}", soft_wrap=True)
    console.print(f"canaries: {audit['canaries']}", soft_wrap=True)
    console.print(f"{audit['coins']:,} coins: {trials(audit)}", soft_wrap=True)
    if audit["curve_tests"]:
        console.print("against everything that is proven, δ at every ε:")
        for test in audit["curve_tests"]:
            where = "outside" if test["violated"] else "inside"
            console.print(
                f"  {where}: {test['says']} ({test['name']}, {test['confidence']:.4g}; rests on {test['rests_on']})",
                soft_wrap=True,
            )
    table = Table(f"at one point, δ = {found['delta']:g}", "ε ≥", "confidence", "rests on", box=None)
    for bound in audit["bounds"]:
        table.add_row(
            bound["name"], epsilon_text(bound["epsilon"]), f"{bound['confidence']:.4g}", bound["rests_on"]
        )
    console.print(table)
