"""The book's commands.

python -m reproductions run dyn-d2p/table2 --out runs/table2     the item's missing cells, into its result file
python -m reproductions run frontier/table --into docs/frontier.md
python -m reproductions check dyn-d2p/table2                     a few cells again, compared with the result file
python -m reproductions replay dp-dkm/figure3 "truncated Laplace, M = 10" --mode sound    one cell, from its file alone
python -m reproductions pages [dyn-d2p ...]                      the pages and drawings, from the result files
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.results.terminal import terminal
from gossamer.studies.cells import Row
from gossamer.studies.reproduce import (
    MODES,
    PaperCell,
    Place,
    Results,
    cuts,
    default_folder,
    paper_cells,
    run_paper_cells,
    scale_of,
    write_paper_table,
)
from reproductions import frontier, pages
from reproductions.again import differences
from reproductions.definition import read
from reproductions.known import finished_rows
from reproductions.record import Figures, known_figures, read_record, record, write_record
from reproductions.replay import replay_cell

RESULTS = Path(__file__).parent / "results"
PAGES = Path(__file__).parents[1] / "docs" / "reproductions"


def run_item(
    name: str,
    *,
    scale: str = "book",
    out: Path | None = None,
    results: Path = RESULTS,
    as_is: bool = False,
    **how: Any,
) -> dict[str, Any]:
    """Run the cells that the result file lacks and write it; `as_is`: run nothing, take what is finished."""
    chosen = scale_of(scale)
    if chosen == "small":
        raise UserError("--scale small is for check; a result file has all cells of the book.")
    definition = read(name)
    kept = paper_cells(definition, chosen, data_dir=how["data_dir"])
    known = known_figures(results, name, kept)
    known.announce(as_is=as_is, quiet=how["quiet"])
    folder = out or default_folder(name, scale)
    missing = _without(kept, known.same)
    cut = cuts(definition, chosen, kept)
    summary: dict[str, Any] = {"out": str(folder), "failed": {}}
    found: Results = {}
    rows: list[dict[str, Any]] = []
    if missing and as_is:
        summary, found = _finished(missing, folder)
    elif missing:
        summary, found = run_paper_cells(definition, chosen, missing, folder, **how)
        rows = write_paper_table(definition, missing, found, cut, folder, quiet=how["quiet"])
    summary |= {
        "table": name,
        "scale": scale,
        "cut": cut,
        "rows": rows,
        "anew": known.anew,
        "gone": known.gone,
    }
    if not summary["failed"]:
        known.refuse_changed()
        made = record(name, definition, kept, found, cut, known.same)
        summary["record"] = str(write_record(results, name, made))
    return summary


def check_item(name: str, *, out: Path | None = None, results: Path = RESULTS, **how: Any) -> dict[str, Any]:
    """Run the small part of the book's cells and compare every figure with the result file."""
    definition = read(name)
    book = read_record(results, name)
    kept = paper_cells(definition, "small", data_dir=how["data_dir"])
    folder = out or default_folder(name, "small")
    summary, found = run_paper_cells(definition, "small", kept, folder, **how)
    cut = cuts(definition, "small", kept)
    write_paper_table(definition, kept, found, cut, folder, quiet=how["quiet"])
    checked, wrong = differences(record(name, definition, kept, found, cut), book)
    if not how["quiet"]:
        terminal().print(f"{checked - len(wrong)} of {checked} figures agree with the book")
    return {**summary, "table": name, "checked": checked, "failed": {**summary["failed"], **wrong}}


def _without(cells: Sequence[PaperCell], known: Mapping[Place, Figures]) -> list[PaperCell]:
    left = [
        replace(cell, runs={m: runs for m, runs in cell.runs.items() if (cell.label, m) not in known}) for cell in cells
    ]
    return [cell for cell in left if cell.runs]


def _finished(cells: Sequence[PaperCell], folder: Path) -> tuple[dict[str, Any], Results]:
    places = [(cell.label, mode) for cell in cells for mode in cell.runs]
    rows = [Row(f"{c.label}, {m} mode", {}, None, runs) for c in cells for m, runs in c.runs.items()]
    batch = finished_rows(rows, folder)
    return batch.summary, dict(zip(places, batch.results, strict=True))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m reproductions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="Run an item's missing cells and write its result file.")
    check = commands.add_parser("check", help="Run a few cells again and compare them with the result file.")
    again = commands.add_parser("replay", help="Run one recorded cell again from its result file alone.")
    for one in (run, check, again):
        one.add_argument("item")
        one.add_argument("--out", type=Path, help="Folder of the runs; one that exists is continued.")
        one.add_argument("--results", type=Path, default=RESULTS, help="Folder of the result files.")
        one.add_argument("--jobs", type=int)
        one.add_argument("--engine", default="local")
        one.add_argument("--data-dir", type=Path)
        one.add_argument("--force", action="store_true")
        one.add_argument("--json", action="store_true", dest="quiet")
    run.add_argument("--scale", default="book", help="book or full (frontier: small or full)")
    run.add_argument("--as-is", action="store_true", help="Run nothing: record what is finished in --out.")
    run.add_argument("--into", type=Path, help="Write the frontier's table between its marks in this file.")
    again.add_argument("cell", help="Its labels, divided by commas, as the pages have them.")
    again.add_argument("--mode", choices=MODES, help="Where the cell has both.")
    again.add_argument("--seeds", type=int, nargs="+", help="Others than the recorded ones.")
    written = commands.add_parser("pages", help="Write pages and drawings from the result files.")
    written.add_argument("papers", nargs="*", metavar="PAPER")
    written.add_argument("--results", type=Path, default=RESULTS)
    written.add_argument("--folder", type=Path, default=PAGES)
    asked = vars(parser.parse_args(words))
    try:
        return _finish(asked.pop("command"), asked)
    except UserError as error:
        print(f"reproductions: {error}", file=sys.stderr)
        return 2


def _finish(command: str, asked: dict[str, Any]) -> int:
    if command == "pages":
        for paper in asked.pop("papers") or pages.paper_names():
            pages.write_book(paper, **asked)
        return 0
    name, quiet = asked.pop("item"), asked["quiet"]
    if command == "replay":
        summary = replay_cell(name, asked.pop("cell"), **asked)
    elif command == "check":
        summary = check_item(name, **asked)
    elif frontier.is_frontier(name):
        summary = frontier.run_frontier(name, **asked)
    elif asked.pop("into") is not None:
        raise UserError(f"--into is for {' and '.join(frontier.names())}; leave it out for {name}.")
    else:
        summary = run_item(name, **asked)
    if quiet:
        print(json.dumps(summary, ensure_ascii=False))
    for label, reason in summary["failed"].items():
        print(f"reproductions: {label} failed: {reason}", file=sys.stderr)
    return 2 if summary["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
