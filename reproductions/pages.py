"""The reproduction book: a page for each paper and a front page, written from the result files alone."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from gossamer.config import recipes
from gossamer.errors import UserError
from gossamer.results.certificate import OBSERVER, UNIT, epsilon_text
from gossamer.results.rundir import write_atomically
from gossamer.results.terminal import Table
from gossamer.studies.cells import cells
from gossamer.studies.papers import names
from gossamer.studies.reproduce import MODES, paper_cells
from reproductions.definition import PARTS, Definition, NoExperiment, Part, Verdict, read_item
from reproductions.drawing import drawing
from reproductions.findings import Check, Judged, Outcome, half_width, judge, mean
from reproductions.known import settings_of
from reproductions.record import labels_key, place_of, read_record

RUN: tuple[Verdict, ...] = ("reproduced", "exceeded", "in part", "not", "void")
VERDICTS: tuple[Verdict, ...] = (*RUN, "unfinished", "no experiment")
UNITS = {"accuracy": "%", "truth_rmse": "RMSE", "rmse": "RMSE"}


@dataclass(frozen=True)
class Item:
    """One table or figure, judged. Without a record it has not been run."""

    name: str
    definition: Definition | NoExperiment
    made: dict[str, Any] | None
    judged: tuple[Judged, ...]  # by reading, the one nearest to the paper first

    @property
    def verdict(self) -> Verdict:
        """Of the reading nearest to the paper."""
        if isinstance(self.definition, NoExperiment) or not self.judged:
            return "no experiment"
        return "unfinished" if self.made and lacking(self.definition, self.made) else self.judged[0].verdict

    @property
    def source(self) -> str:
        if isinstance(self.definition, NoExperiment):
            return self.definition.source
        return self.definition.grid[0].source.split(",")[0].split("(")[0].strip()

    @property
    def reason(self) -> str:
        book = self.definition.book
        return book.reason if book else ""


def lacking(definition: Definition, made: Mapping[str, Any]) -> list[str]:
    """Cells of the book that the result file does not have."""
    recorded = {(labels_key(cell["labels"]), mode) for cell in made["cells"] for mode in cell["modes"]}
    return [
        f"{cell.label}, {mode} mode"
        for cell in paper_cells(definition, "book", runs=False)
        for mode in definition.modes("book", cell.labels)
        if (labels_key(cell.labels), mode) not in recorded
    ]


def item(name: str, results: Path) -> Item:
    definition = read_item(name)
    if isinstance(definition, NoExperiment):
        return Item(name, definition, None, ())
    made = read_record(results, name)
    readings = definition.book.readings if definition.book else {}
    return Item(name, definition, made, tuple(judge(definition.finding, made["cells"], readings)))


def items_of(paper: str) -> list[str]:
    """The paper's tables and figures, tables first."""
    return sorted((n for n in names() if n.startswith(f"{paper}/")), key=lambda n: ("figure" in n, n))


def paper_names() -> list[str]:
    return sorted({name.split("/")[0] for name in names()})


def write_book(paper: str, folder: Path, results: Path) -> dict[str, Any]:
    """Write the page of one paper with its drawings, and the front page, into `folder`."""
    if paper not in paper_names():
        raise UserError(f"{paper!r} is not a paper of the book; the papers are {', '.join(paper_names())}.")
    everything = {other: _recorded(other, results) for other in paper_names()}
    missing = [
        name
        for other, found in everything.items()
        for name in items_of(other)
        if name not in {one.name for one in found}
    ]
    found = everything[paper]
    if not found:
        raise UserError(
            f"{results / paper} has no result of {items_of(paper)[0]}; `python -m reproductions run` writes it."
        )
    drawings = {}
    for one in found:
        book = one.definition.book
        drawn = drawing(one.made, book) if one.made and book else None
        if drawn is not None:
            drawings[one.name] = f"{one.name.replace('/', '-')}.svg"
            write_atomically(folder / drawings[one.name], drawn.encode())
    own = [name for name in missing if name in items_of(paper)]
    write_atomically(folder / f"{paper}.md", page(paper, found, drawings, own).encode())
    counted = [one for found in everything.values() for one in found]
    write_atomically(folder / "index.md", front_page(counted, missing).encode())
    write_atomically(folder / "what-we-believe.md", beliefs_page(counted).encode())
    return {
        "paper": paper,
        "page": str(folder / f"{paper}.md"),
        "verdicts": {one.name: one.verdict for one in found},
        "missing": missing,
        "failed": {},
    }


def _recorded(paper: str, results: Path) -> list[Item]:
    """What has been run, and what there is nothing to run of; nothing of a paper that nothing was run of."""
    if not any(place_of(results, name).is_file() for name in items_of(paper)):
        return []
    return [
        item(name, results)
        for name in items_of(paper)
        if place_of(results, name).is_file() or isinstance(read_item(name), NoExperiment)
    ]


def front_page(items: Sequence[Item], missing: Sequence[str]) -> str:
    counts = Counter(one.verdict for one in items)
    run = sum(counts[v] for v in RUN)
    partly = [one.judged[0].whole for one in items if one.verdict == "in part"]
    in_full = [f"{part} in {n}" for part in PARTS if (n := sum(part in whole for whole in partly))]
    in_full += [f"none in {n}"] if (n := partly.count([])) else []
    lines = [
        "# The reproduction book",
        "",
        *_wrapped(
            "Every table and figure of the five papers, run again: the paper's figure, ours in paper mode (as the "
            "paper does it) and in sound mode (where ε is proven), and a verdict. A verdict is computed from checks "
            "on the cells in paper mode (`[[finding]]` in the item's definition). *Order*: which is better. *Size*: "
            "by how much, and what changes nothing. *Level*: the printed figures, within so many points on either "
            "side. What lies above a printed figure by more than that is counted as *above* and does not hold."
        ),
        "",
        "- *Reproduced*: every check holds.",
        "- *Exceeded*: the checks that do not hold are all above the printed figure.",
        "- *In part*: a statement of the paper holds in all its checks, or more than half of a part's checks do; the",
        "  parts that hold in full are named.",
        "- *Not*: none of that.",
        "- *Void*: the paper contradicts itself, and nothing is checked.",
        "",
        *_wrapped(
            "Where the paper's text can be read in several ways each reading has its own verdict; this page has that "
            "of the reading nearest to the paper. An order is *clear* where it is larger than the spread of the seeds "
            "(95%, Welch). Where print and run disagree: [what we believe](what-we-believe.md)."
        ),
        "",
        *_wrapped(
            f"**{run} of {run + len(missing) + counts['unfinished']} items with an experiment are run: "
            + ", ".join(f"{counts[v]} {v}" for v in RUN)
            + f".** Parts that hold in full among the items in part: {', '.join(in_full) or 'none'}."
            if run
            else "Nothing has been run yet."
        ),
        "",
        "## Verdicts",
    ]
    for paper, own in groupby(items, key=_paper):
        lines += ["", f"| {paper} | verdict | order | size | level |", "|---|---|---|---|---|"]
        for one in own:
            best = one.judged[0] if one.judged else None
            parts = " | ".join(_part(best, part) if best else "—" for part in PARTS)
            link = f"[{one.source}]({paper}.md#{one.source.lower().replace(' ', '-')})"
            lines.append(f"| {link} | {_verdict_text(one)} | {parts} |")
    if missing:
        lines += ["", *_wrapped(f"Not run yet: {', '.join(missing)}.")]
    lines += [
        "",
        "## Size and time",
        *_wrapped(
            "What was run of the paper's cells, seeds, rounds and lots, in paper mode: the smallest share of any cell. "
            "What else is cut is on the item's page. Times are by the clock, most of them on a machine with other work."
        ),
        "",
        "| item | of the paper's size | time of the runs |",
        "|---|---|---|",
    ]
    for one in items:
        if one.made:
            lines.append(f"| {_paper(one)}, {one.source} | {_share(one)} | {_duration(one.made['made']['seconds'])} |")
    lines += [
        "",
        "## How it is made",
        "- `python -m reproductions run dyn-d2p/table2` runs the cells that are missing and writes the item's result",
        "  file;",
        "- `python -m reproductions replay ITEM CELL` runs one recorded cell again, from its result file alone;",
        "- `make book` writes the pages from the result files;",
        "- `make reproduce-small` runs a part of every item again and compares it with the book.",
        "",
        *_wrapped(
            "The result files (`reproductions/results`) have every cell with its settings, seeds, times, "
            "claimed and proven ε, and the commit they were made at. `make reproduce-small` runs a few cells of the "
            "book again and compares each with the book: it must lie where 99.9% of such runs would (Student's t, the "
            "deviation that of all cells of the item, or the cell's own where that is larger; at most five of them), "
            "or within two points of accuracy, a quarter of other figures, whichever is more; and ε within 2%."
        ),
        "",
    ]
    return "\n".join(lines)


def beliefs_page(items: Sequence[Item]) -> str:
    """Of every item whose statement the runs do not bear out in full: reading, checks, belief, and an open question."""
    lines = [
        "# What we believe",
        "",
        *_wrapped(
            "Where print and run disagree. For each item: the reading of the paper that comes nearest to it, how many "
            "of its checks hold under that reading (*above*: better than printed), what we take to be so, and what the "
            "authors could tell us. No fault of the implementation is known behind any of them. Settings that a paper "
            "does not print are ours, and most runs are smaller than the paper's ([sizes](index.md#size-and-time))."
        ),
        "",
    ]
    for paper, own in groupby(items, key=_paper):
        open_items = [(one, book) for one in own if (book := one.definition.book) and book.believe]
        lines += [f"## {paper}", ""] if open_items else []
        for one, book in open_items:
            best = one.judged[0]
            checks = "; ".join(f"{part} {n}" for part in PARTS if (n := _part(best, part)) != "—")
            link = f"[{one.source}]({paper}.md#{one.source.lower().replace(' ', '-')})"
            lines += [*_wrapped(f"**{link}**, {_verdict_text(one)} ({checks})."), ""]
            reading = [("Reading", f"*{best.reading}*")] if best.reading else []
            for head, words in (*reading, ("Belief", book.believe), ("Question", book.ask)):
                lines += _wrapped(f"- {head}: {(words or 'none').rstrip('.')}.", "  ")
            lines.append("")
    return "\n".join(lines)


def page(paper: str, items: Sequence[Item], drawings: Mapping[str, str], missing: Sequence[str]) -> str:
    counts = Counter(one.verdict for one in items)
    title = items[0].definition.paper
    lines = [
        f"# {paper}: the paper's items, run again",
        "",
        *_wrapped(
            f"{title}. " + ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v]) + ". Written by "
            "`make book` from the [result files](index.md#how-it-is-made)."
        ),
        "",
        *_wrapped(
            "Figures are means over the seeds ± half of the 95% interval (Student's t); the paper's are as it "
            "prints them. *Claimed* and *proven* are ε; δ, relation, unit and observer stand below each table."
        ),
        "",
    ]
    if missing:
        lines += [*_wrapped(f"Not run yet: {', '.join(missing)}."), ""]
    for one in items:
        lines += _section(one, drawings.get(one.name))
    return "\n".join(lines)


def _section(one: Item, drawn: str | None) -> list[str]:
    definition = one.definition
    title = _wrapped(f"{definition.title}.")
    lines = [
        f"## {one.source}",
        "",
        f"**Verdict: {_verdict_text(one)}.**",
        "",
        *title,
        "",
        *_wrapped(one.reason),
        "",
    ]
    if isinstance(definition, NoExperiment) or one.made is None:
        return lines
    if drawn is not None:
        lines += [f"![{one.source}: ours beside the paper's]({drawn})", ""]
    if len(one.judged) > 1:
        lines += [
            "| reading | verdict | order | size | level |",
            "|---|---|---|---|---|",
            *(f"| {j.reading} | {j.verdict} | {' | '.join(_part(j, part) for part in PARTS)} |" for j in one.judged),
            "",
            f"Under the reading *{one.judged[0].reading}*:",
            "",
        ]
    sound = [o for j in one.judged[1:] for o in j.outcomes if o.finding.mode == "sound"]
    if one.judged:
        lines += [*_findings([*one.judged[0].outcomes, *sound]), ""]
    lines += [*_wrapped(f"Of the paper's size: {_share(one)}."), ""]
    table = cells_table(definition, one.made)
    return [*lines, *table.markdown().rstrip("\n").split("\n"), ""]


def _findings(outcomes: Sequence[Outcome]) -> list[str]:
    rows = ["| the paper says | part | here | checks |", "|---|---|---|---|"]
    notes = []
    for outcome in outcomes:
        finding, checks = outcome.finding, outcome.checks
        says = finding.says + ("" if finding.mode == "paper" else " (sound mode)")
        rows.append(f"| {says} | {finding.part} | {outcome.word} | {_count(checks, finding.part)} |")
        if finding.void is not None:
            notes.append(f"“{finding.says}” is void: {finding.void}")
        elif 0 < len(checks) - outcome.held <= 6:
            notes.append(f"“{finding.says}” fails at: {'; '.join(c.about for c in checks if not c.holds)}")
    listed = [line for words in notes for line in _wrapped(f"- {words.rstrip('.')}.", "  ")]
    return [*rows, "", *listed] if listed else rows


def _part(judged: Judged, part: Part) -> str:
    return _count([check for outcome in judged.of(part) for check in outcome.checks], part)


def _count(checks: Sequence[Check], part: Part) -> str:
    """`7 of 8, 2 clear` for orders; above: better than printed."""
    if not checks:
        return "—"
    above, clear = sum(c.exceeded for c in checks), sum(c.clearly for c in checks)
    held = sum(c.holds for c in checks)
    more = f", {clear} clear" if held and part == "order" else f", {above} above" if above else ""
    return f"{held} of {len(checks)}{more}"


def _paper(one: Item) -> str:
    return one.name.split("/")[0]


def _verdict_text(one: Item) -> str:
    if one.verdict != "in part" or not one.judged[0].whole:
        return one.verdict
    return f"in part: {' and '.join(one.judged[0].whole)}"


_SIZES = {"rounds": "rounds", "privacy.sampling.lot": "lots", "nodes": "nodes"}


def _share(one: Item) -> str:
    """The smallest share of any cell in paper mode."""
    definition, made = one.definition, one.made
    if isinstance(definition, NoExperiment) or made is None:
        return "—"
    recipe = recipes.read(definition.recipe)
    run = [(cell["labels"], cell["modes"]["paper"]) for cell in made["cells"] if "paper" in cell["modes"]]
    shares = {
        "cells": len(run) / len(paper_cells(definition, "full", runs=False)),
        "seeds": min(len(figures["values"]) for _, figures in run) / definition.cut("full").seeds,
    }
    if definition.audit:
        shares["trainings"] = definition.audit.runs["book"] / definition.audit.runs["full"]
        del shares["seeds"]
    others = set()
    for labels, figures in run:
        ours = {**made["settings"], **figures["settings"]}
        whole = settings_of(cells(recipe, definition.changes("full", labels, "paper"), "", 1)[0])
        for key, name in _SIZES.items():
            if key in ours and key in whole:
                shares[name] = min(shares.get(name, 1.0), ours[key] / whole[key])
        for key, name in (("model.", "another network"), ("data.kind", "other data")):
            if any(ours.get(k) != v for k, v in whole.items() if k.startswith(key)):
                others.add(name)
    cut = [f"{100 * share:.2g}% of {name}" for name, share in shares.items() if share < 1]
    return ", ".join([*cut, *sorted(others)]) or "all"


def cells_table(definition: Definition, made: Mapping[str, Any]) -> Table:
    cells = made["cells"]
    axes = list(dict.fromkeys(axis for cell in cells for axis in cell["labels"]))
    metric = next((f["metric"] for cell in cells for f in cell["modes"].values()), "accuracy")
    unit = UNITS.get(metric, metric.rsplit(".", 1)[-1].replace("_", " "))
    with_paper = any(cell["printed"] for cell in cells)
    modes = [mode for mode in MODES if any(mode in cell["modes"] for cell in cells)]
    header = [*axes, *(["paper"] if with_paper else [])]
    # In sound mode some mechanisms are not the paper's, and it claims nothing of them.
    claims = {mode: mode == "paper" or any(_claimed(cell, mode) is not None for cell in cells) for mode in modes}
    for mode in modes:
        header += [f"{mode} mode ({unit})", *(["claimed"] if claims[mode] else []), "proven"]
    body = []
    for cell in cells:
        if not cell["modes"]:
            continue
        row = [cell["labels"].get(axis, "") for axis in axes]
        row += [cell["printed"] or "not printed"] if with_paper else []
        for mode in modes:
            figures = cell["modes"].get(mode)
            if figures is None:
                row += [_absent(cell["modes"]), *([""] if claims[mode] else []), ""]
            else:
                row += [
                    shown(figures),
                    *([epsilon_text(figures["epsilon_claimed"])] if claims[mode] else []),
                    "not proven" if figures["epsilon_proven"] is None else epsilon_text(figures["epsilon_proven"]),
                ]
        body.append(tuple(row))
    return Table(tuple(header), tuple(body), tuple(_caption(definition, made, modes)))


def _claimed(cell: Mapping[str, Any], mode: str) -> float | None:
    return (cell["modes"].get(mode) or {}).get("epsilon_claimed")


def _absent(modes: Mapping[str, Any]) -> str:
    """What needs no noise is run once; of anything else the book has one mode only."""
    noiseless = all(f["settings"].get("baseline") == "non-private" or f["delta"] is None for f in modes.values())
    silent = all(f["epsilon_claimed"] is None and f["epsilon_proven"] is None for f in modes.values())
    return "the same" if noiseless or silent else "not run"


def _caption(definition: Definition, made: Mapping[str, Any], modes: Sequence[str]) -> list[str]:
    figures = {mode: [c["modes"][mode] for c in made["cells"] if mode in c["modes"]] for mode in modes}
    everything = [f for found in figures.values() for f in found]
    seeds = sorted({len(f["values"]) for f in everything})
    lines = [f"{'–'.join(map(str, sorted({seeds[0], seeds[-1]})))} seeds." if seeds else "No seeds."]
    waiting = lacking(definition, made)
    lines += [f"Not run yet: {'; '.join(waiting)}."] if waiting else []
    lines.append(f"Cut: {'; '.join(made['cut'])}." if made["cut"] else "Nothing is cut: the paper's setting.")
    for mode, found in figures.items():
        relations = sorted({f"δ = {f['delta']:g}, {f['adjacency']}" for f in found if f.get("delta") is not None})
        units = sorted({f["unit"] for f in found if f.get("unit")}) or [UNIT]
        observers = sorted({f["observer"] for f in found if f.get("observer")}) or [OBSERVER]
        if relations:
            lines.append(
                f"ε in {mode} mode: {' or '.join(relations)}; unit: {' or '.join(units)}; "
                f"observer: {' or '.join(observers)}."
            )
    hidden = {f["not_private"] for f in everything} - {None}
    lines += [f"† not private, no ε covers it: {because}." for because in sorted(hidden)]
    lines += [f"not proven: {r}" for r in sorted({f["not_proven_because"] for f in everything} - {None})]
    lines += [stamp.upper() for stamp in sorted({f["stamp"] for f in everything} - {None})]
    m, commits = made["made"], sorted({f["commit"] for f in everything})
    lines.append(
        f"Made at commit {' and '.join(commits)}; {m['date']}, Python {m['python']}, torch {m['torch']}, "
        f"{m['machine']}; {_duration(m['seconds'])} of runs."
    )
    return [*lines, *definition.notes]


def shown(figures: Mapping[str, Any]) -> str:
    values = figures["values"]
    if not values or None in values:
        return "—"
    spread = half_width(values)
    digits = ".2f" if figures["metric"] == "accuracy" else ".3g"
    text = f"{mean(values):{digits}}" + (
        f" ± {spread:{digits if digits == '.2f' else '.2g'}}" if spread is not None else ""
    )
    return text + (" †" if figures.get("not_private") else "")


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _wrapped(words: str, indent: str = "") -> list[str]:
    return textwrap.wrap(words, 118, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)
