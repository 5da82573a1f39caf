"""The papers' tables run again: definitions, their cells, and the printed number next to ours in both modes.

Every table is a TOML file in papers/ (docs/compare.md has its keys). `[[finding]]` and `[book]` belong to the
reproduction book, reproductions/ in the repository, and are not read here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gossamer.config import recipes
from gossamer.errors import UserError
from gossamer.results.certificate import OBSERVER, UNIT, epsilon_text
from gossamer.results.headline import title
from gossamer.results.rundir import write_atomically
from gossamer.results.terminal import Table, as_csv, terminal
from gossamer.studies import papers
from gossamer.studies.cells import Cell, Row, cells, mark_folder, refuse_foreign, run_rows
from gossamer.studies.compare import figure_text, proven_text, quality_text, summarise, warnings

Mode = Literal["paper", "sound"]
MODES: tuple[Mode, ...] = get_args(Mode)
Scale = Literal["small", "book", "full"]
SCALES: tuple[Scale, ...] = get_args(Scale)
NOT_PRINTED, NO_CELL = "?", "-"
AUDITED = "epsilon_audited"
Where = dict[str, str | list[str]]  # axis → the value or values that match
Place = tuple[str, Mode]  # the label of a cell, and a mode
Results = dict[Place, list[dict[str, Any]]]  # one per seed


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Grid(Strict):
    """A block of the table as it is printed: a head line, then one line per row, parts divided by |."""

    source: str
    at: dict[str, str] = {}  # labels of the whole block
    rows: str
    columns: str
    cells: str


class Rule(Strict):
    """Settings of the cells that match `where`, in one mode, at one scale, or always."""

    where: Where = {}
    mode: Mode | None = None
    scale: Literal["book", "full"] | None = None  # small has the book's
    set: dict[str, Any] = {}
    unset: list[str] = []
    only: Mode | None = None  # the cell is the same in both modes: run it in this one
    seeds: Annotated[int, Field(ge=1)] | None = None  # in place of the scale's, except for small
    leave_out: bool = False  # not a cell of this scale


class Cut(Strict):
    """The size of a scale. Small is a part of the book's cells: its `seeds` and `keep`, everything else the book's."""

    seeds: Annotated[int, Field(ge=1)]
    keep: dict[str, list[str]] = {}
    set: dict[str, Any] = {}
    data: list[str] = []  # the first of these that is available
    cut: list[str] = []  # what the scale leaves out, in words


class AuditSpec(Strict):
    """For a table of lower bounds on ε: the attack, and the number of trainings at each scale."""

    canary: str
    observer: str
    confidence: Annotated[float, Field(ge=0.5, lt=1)]
    runs: dict[Scale, Annotated[int, Field(ge=2)]]

    def at(self, scale: Scale) -> int:
        return self.runs.get(scale) or self.runs["full"]


class Definition(Strict):
    title: str
    paper: str
    recipe: str
    notes: list[str] = []
    set: dict[str, Any] = {}
    grid: list[Grid]
    rule: list[Rule] = []
    scale: dict[Scale, Cut]
    audit: AuditSpec | None = None  # the cells are audits, not accuracies
    finding: Any = None  # of the reproduction book
    book: Any = None

    def cut(self, scale: Scale) -> Cut:
        base = self.scale["full" if scale == "full" or "book" not in self.scale else "book"]
        if scale != "small":
            return base
        part = self.scale["small"]
        return base.model_copy(update={"seeds": part.seeds, "keep": {**base.keep, **part.keep}})

    def rules(self, scale: Scale, labels: Mapping[str, str]) -> list[Rule]:
        at = "full" if scale == "full" or "book" not in self.scale else "book"
        return [r for r in self.rule if matches(r.where, labels) and r.scale in (None, at)]

    def modes(self, scale: Scale, labels: Mapping[str, str]) -> tuple[Mode, ...]:
        only = next((r.only for r in self.rules(scale, labels) if r.only), None)
        return MODES if only is None else (only,)

    def changes(
        self, scale: Scale, labels: Mapping[str, str], mode: Mode, data: Mapping[str, Any] = {}
    ) -> dict[str, Any]:
        """The settings of a cell that differ from its recipe, by dotted keys."""
        changes = {"mode": mode, **flatten(self.set), **flatten(self.cut(scale).set), **data}
        for rule in self.rules(scale, labels):
            if rule.mode in (None, mode):
                changes |= {**flatten(rule.set), **dict.fromkeys(rule.unset)}
        return changes


@dataclass(frozen=True)
class PaperCell:
    labels: dict[str, str]  # axis → value
    source: str
    printed: str | None  # as the paper prints it; None for a curve
    mean: float | None
    std: float | None
    runs: dict[Mode, tuple[Cell, ...]]  # one cell per seed

    @property
    def label(self) -> str:
        return ", ".join(self.labels.values())


D = TypeVar("D", bound=BaseModel)


def validated(model: type[D], table: Mapping[str, Any], name: str) -> D:
    try:
        return model.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(f"{name}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None


def read(name: str) -> Definition:
    table = papers.read(name)
    if table.get("layout") == "no-experiment":
        raise UserError(f"{name} is a table without an experiment; there is nothing to run.")
    return validated(Definition, table, name)


def paper_cells(
    definition: Definition, scale: Scale, *, data_dir: Path | None = None, runs: bool = True
) -> list[PaperCell]:
    """The cells of a scale, in the paper's order."""
    cut, recipe = definition.cut(scale), recipes.read(definition.recipe)
    data = _available(cut.data, data_dir) if runs else {}
    chosen = []
    for grid in definition.grid:
        for row, column, text in parse_grid(grid):
            labels = {**grid.at, grid.rows: row, grid.columns: column}
            included = all(labels[axis] in values for axis, values in cut.keep.items() if axis in labels)
            rules = definition.rules(scale, labels)
            if text == NO_CELL or not included or any(rule.leave_out for rule in rules):
                continue
            own: dict[Mode, tuple[Cell, ...]] = {}
            for mode in definition.modes(scale, labels) if runs else ():
                seeds = [cut.seeds, *(r.seeds for r in rules if r.seeds and r.mode in (None, mode))]
                changes = definition.changes(scale, labels, mode, data)
                label = f"{', '.join(labels.values())}, {mode} mode"
                own[mode] = cells(recipe, changes, label, seeds[0 if scale == "small" else -1])
            printed = None if text == NOT_PRINTED else text
            source = f"{definition.paper}, {grid.source}, row {row}, column {column}"
            chosen.append(PaperCell(labels, source, printed, *parse_number(text), own))
    return chosen


def parse_grid(grid: Grid) -> list[tuple[str, str, str]]:
    """(row, column, text) of every cell."""
    head, *body = [[part.strip() for part in line.split("|")] for line in grid.cells.strip().splitlines()]
    for line in body:
        if len(line) != len(head):
            raise UserError(f"{grid.source}: the line of {line[0]!r} has {len(line)} parts, not {len(head)}.")
    return [(line[0], name, text) for line in body for name, text in zip(head[1:], line[1:], strict=True)]


def parse_number(text: str) -> tuple[float | None, float | None]:
    """`98.22 ± 0.19` → (98.22, 0.19); `71.87` → (71.87, None); `?` → (None, None)."""
    if text == NOT_PRINTED:
        return None, None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?: ± (\d+(?:\.\d+)?))?", text)
    if match is None:
        raise UserError(f"{text!r} is not a number of the form 98.22 or 98.22 ± 0.19.")
    return float(match[1]), None if match[2] is None else float(match[2])


def flatten(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested tables → dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return flat


def matches(where: Where, labels: Mapping[str, str]) -> bool:
    return all(labels.get(axis) in ([one] if isinstance(one, str) else one) for axis, one in where.items())


def _available(kinds: Sequence[str], data_dir: Path | None) -> dict[str, Any]:
    from gossamer.data.load import load

    for kind in kinds[:-1]:
        with suppress(UserError):
            load(kind, data_dir=data_dir)
            return {"data.kind": kind}
    return {"data.kind": kinds[-1]} if kinds else {}


def reproduce(name: str, *, scale: str = "small", out: Path | None = None, **options: Any) -> dict[str, Any]:
    """Run what is missing, write table.csv and table.md, and return the object that `--json` prints.

    `options`: jobs, engine, data_dir, force and quiet, as for a comparison.
    """
    chosen, definition = scale_of(scale), read(name)
    cells = paper_cells(definition, chosen, data_dir=options["data_dir"])
    folder = out or default_folder(name, scale)
    summary, results = run_paper_cells(definition, chosen, cells, folder, **options)
    cut = cuts(definition, chosen, cells)
    rows = write_paper_table(definition, cells, results, cut, folder, options["quiet"])
    return {"table": name, "scale": scale, "cut": cut, "rows": rows, **summary}


def scale_of(scale: str) -> Scale:
    if scale not in SCALES:
        raise UserError(f"--scale {scale} is not known; it can be small, book or full.")
    return scale


def default_folder(name: str, scale: str) -> Path:
    return Path("runs") / f"reproduce-{Path(name).with_suffix('').as_posix().replace('/', '-')}-{scale}"


def run_paper_cells(
    definition: Definition, scale: Scale, cells: Sequence[PaperCell], folder: Path, **options: Any
) -> tuple[dict[str, Any], Results]:
    """Run the cells that are not finished in `folder`."""
    runs = {(cell.label, mode): own for cell in cells for mode, own in cell.runs.items()}
    if definition.audit is None:
        rows = [Row(f"{label}, {mode} mode", {}, None, own) for (label, mode), own in runs.items()]
        batch = run_rows(rows, folder, **options)
        return batch.summary, dict(zip(runs, batch.results, strict=True))
    from gossamer.auditing.api import AuditRequest

    spec, results = definition.audit, Results()
    attack = spec.model_dump() | {key: options[key] for key in ("data_dir", "force", "engine")}
    attack["runs"] = spec.at(scale)
    requests = {place: AuditRequest(config=own[0].config, **attack) for place, own in runs.items()}
    refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    mark_folder(folder, [])
    for place, request in requests.items():
        result = request.run_into(folder / "cells" / runs[place][0].name)
        results[place] = [{**result, "seconds": result["audit"]["training_seconds"]}]
    return {"out": str(folder), "failed": {}}, results


def cuts(definition: Definition, scale: Scale, cells: Sequence[PaperCell]) -> list[str]:
    """Name what the scale leaves out, beginning with what can be counted."""
    cut, whole = definition.cut(scale), definition.cut("full")
    full = paper_cells(definition, "full", runs=False)
    lines = [f"{len(cells)} of the {len(full)} cells"] if len(cells) < len(full) else []
    seeds = sorted({len(runs) for cell in cells for runs in cell.runs.values()}) or [cut.seeds]
    if seeds[0] < whole.seeds:
        lines.append(f"{' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} of {whole.seeds} seeds")
    if definition.audit and (trainings := definition.audit.at(scale)) < definition.audit.runs["full"]:
        lines.append(f"{trainings:,} of {definition.audit.runs['full']:,} trainings")
    used = {run.config.data.kind for cell in cells for runs in cell.runs.values() for run in runs}
    lines += [f"{kind} in place of {cut.data[0]}" for kind in sorted(used - {*cut.data[:1]}) if cut.data]
    return [*lines, *cut.cut]


def write_paper_table(
    definition: Definition,
    cells: Sequence[PaperCell],
    results: Results,
    cut: Sequence[str],
    folder: Path,
    quiet: bool,
) -> list[dict[str, Any]]:
    """One line per cell of the paper, on the terminal and in `folder`; returns the figures."""
    rows: list[dict[str, Any]] = [
        {
            "labels": cell.labels,
            "source": cell.source,
            "paper": {"printed": cell.printed, "mean": cell.mean, "std": cell.std},
            **{f"{m}_mode": _summary(results[cell.label, m]) if m in cell.runs else None for m in MODES},
        }
        for cell in cells
    ]
    axes = list(dict.fromkeys(axis for row in rows for axis in row["labels"]))
    ours = [own for row in rows for m in MODES if (own := row[f"{m}_mode"])]
    metric = next((own["metric"] for own in ours if own["metric"]), "accuracy")
    unit = {"accuracy": "%", AUDITED: "ε ≥"}.get(metric) or title(metric)
    heads = [head for m in MODES for head in (f"{m} mode ({unit})", "claimed", "proven")]
    body = [
        (
            *(row["labels"].get(axis, "") for axis in axes),
            row["paper"]["printed"] or "not printed",
            *(text for m in MODES for text in _texts(row[f"{m}_mode"], row["paper_mode"])),
        )
        for row in rows
    ]
    caption = tuple(_caption(definition, rows, ours, cut))
    table = Table((*axes, f"paper ({unit})", *heads), tuple(body), caption)
    write_atomically(folder / "table.csv", as_csv([flatten(row) for row in rows]).encode())
    write_atomically(folder / "table.md", f"## {definition.title}\n\n{table.markdown()}".encode())
    table.show(terminal(to_stderr=quiet))
    return rows


def _summary(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    row = summarise(results)
    if results and "audit" in results[0]:
        row |= {"metric": AUDITED, f"{AUDITED}_mean": results[0][AUDITED], "audit": results[0]["audit"]}
    return row


def _texts(own: dict[str, Any] | None, in_paper_mode: dict[str, Any] | None) -> tuple[str, str, str]:
    if own is None:  # a run without noise serves both modes
        claims = in_paper_mode and (in_paper_mode["epsilon_claimed"] or in_paper_mode["epsilon_proven"])
        return "not run" if claims or not in_paper_mode else "the same", "", ""
    audited = own["metric"] == AUDITED
    quality = figure_text(own[f"{AUDITED}_mean"], None) if audited else quality_text(own)
    return quality, epsilon_text(own["epsilon_claimed"]), proven_text(own)


def _caption(
    definition: Definition, rows: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]], cut: Sequence[str]
) -> list[str]:
    sources = sorted({row["source"].rsplit(", row ", 1)[0] for row in rows})
    lines = [f"{definition.title}. The paper's numbers: {'; '.join(sources)}."]
    if any(row["paper"]["printed"] is None for row in rows):
        lines.append("not printed: the paper has no number there, only a curve, or the method is ours.")
    lines.append(f"Cut: {'; '.join(cut)}." if cut else "Nothing is cut: the paper's setting.")
    known = [own for own in ours if own["delta"] is not None]
    relations = sorted({f"δ = {own['delta']:g}, {own['adjacency']}" for own in known})
    units = sorted({own["unit"] or UNIT for own in known})
    observer = definition.audit.observer if definition.audit else OBSERVER
    if relations:
        lines.append(f"ε: {' or '.join(relations)}; unit: {' or '.join(units)}; observer: {observer}.")
    if definition.audit:
        lines.append(f"Lower bounds at {definition.audit.confidence:.4g} confidence.")
    return [*lines, *warnings(ours), *definition.notes]
