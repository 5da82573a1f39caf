"""`gossamer audit` on the terminal."""

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
from gossamer.results.certificate import epsilon_text, three_lines
from gossamer.results.console import coloured
from gossamer.results.terminal import terminal
from gossamer.results.words import STOPS, allowed, trials, verdict


def run_audit(name: str, *, sets: Sequence[str] = (), quiet: bool = False, **options: Any) -> dict[str, Any]:
    """Audit a recipe, a TOML file or a finished run, and print the result; `options` are those of `gossamer.audit`."""
    console = terminal(to_stderr=quiet)

    def show_start(config: RunConfig) -> None:
        line = f"{config.name}: {config.algorithm.kind}, mode {config.mode}, observer {options['observer']}"
        console.print(line, soft_wrap=True)

    columns = (TextColumn("attack"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bars = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
    with bars:
        task = bars.add_task("attack", total=options["runs"])
        result = audit(
            name,
            parse_overrides(sets),
            on_start=show_start,
            on_batch=lambda done, of: bars.update(task, completed=done, total=of),
            **options,
        ).result
    show(result, console)
    if Path(name).is_dir():
        console.print(f"the certificate of {name} has the audited figure now", soft_wrap=True)
    return result


def show(result: dict[str, Any], console: Console) -> None:
    audit = result["audit"]
    if result["stamp"]:
        console.print("SEEDED NOISE: NO PRIVACY. The figures are those of the same run with secret noise.")
    if audit["bounds"]:
        show_bounds(result, console)
    if audit.get("sensitivity"):
        show_search(audit["sensitivity"], console)
    for note in audit["notes"]:
        console.print(f"note: {note}", soft_wrap=True)
    for line in three_lines(result):
        console.print(coloured(line), soft_wrap=True)
    if result["not_proven_because"]:
        console.print(f"not proven: {result['not_proven_because']}", soft_wrap=True)
    console.print(verdict(result), soft_wrap=True)
    console.print(f"in {result['audit_dir']}: certificate.json, report.html", soft_wrap=True)


def show_search(searched: dict[str, Any], console: Console) -> None:
    """The worst movements in bounds, and a line for each record that broke its bound."""
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


def show_bounds(result: dict[str, Any], console: Console) -> None:
    audit = result["audit"]
    console.print(f"observer: {result['observer']}", soft_wrap=True)
    console.print(f"canaries: {audit['canaries']}", soft_wrap=True)
    console.print(f"{audit['coins']:,} coins: {trials(audit)}", soft_wrap=True)
    if audit["curve_tests"]:
        console.print("against the whole proven curve, δ at every ε:")
    for test in audit["curve_tests"]:
        where = "outside" if test["violated"] else "inside"
        terms = f"{test['name']}, {test['confidence']:.4g}; rests on {test['rests_on']}"
        console.print(f"  {where}: {test['says']} ({terms})", soft_wrap=True)
    table = Table(f"at one point, δ = {result['delta']:g}", "ε ≥", "confidence", "rests on", box=None)
    for b in audit["bounds"]:
        table.add_row(b["name"], epsilon_text(b["epsilon"]), f"{b['confidence']:.4g}", b["rests_on"])
    console.print(table)
