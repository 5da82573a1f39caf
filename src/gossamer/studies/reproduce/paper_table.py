"""A paper's table: its cells with the printed numbers, and the runs that stand for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gossamer import papers
from gossamer.config import recipes
from gossamer.errors import UserError
from gossamer.studies.compare.grid import Cell, cells

Mode = Literal["paper", "sound"]
MODES: tuple[Mode, ...] = ("paper", "sound")
Scale = Literal["small", "book", "full"]
SCALES: tuple[Scale, ...] = ("small", "book", "full")
NOT_PRINTED, NO_CELL = "?", "-"


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Grid(Strict):
    """A block of the table as it is printed: a head line, then one line per row, parts divided by |."""

    source: str
    at: dict[str, str] = {}  # what holds for the whole block
    rows: str
    columns: str
    cells: str


Where = dict[str, str | list[str]]  # axis → the value or values that match


class Rule(Strict):
    """What the cells that match `where` are set to, in one mode, at one scale, or always."""

    where: Where = {}
    mode: Mode | None = None
    scale: Literal["book", "full"] | None = None  # what holds for the book holds for its small part
    set: dict[str, Any] = {}
    unset: list[str] = []
    only: Mode | None = None  # the cell is the same in both modes: run it in this one
    seeds: Annotated[int, Field(ge=1)] | None = None  # in place of the scale's, but for the small one
    leave_out: bool = False  # the cell is none of this scale's


class Cut(Strict):
    """How large the reproduction is, and what that leaves out.

    The small scale is a part of the book's cells, so that they can be held against it: it keeps fewer of them and
    takes everything else from the book.
    """

    seeds: Annotated[int, Field(ge=1)]
    keep: dict[str, list[str]] = {}
    set: dict[str, Any] = {}
    data: list[str] = []  # the first of these that is at hand
    cut: list[str] = []


class AuditSpec(Strict):
    """The table's numbers are lower bounds on ε: what is tried, and how often at each scale."""

    canary: str
    observer: str
    confidence: Annotated[float, Field(ge=0.5, lt=1)]
    runs: dict[Scale, Annotated[int, Field(ge=2)]]


class Finding(Strict):
    """A statement of the paper as checks on our cells; accuracies in points, other metrics in per cent.

    One of: an order, a size (`lead` of the first over the second of `order`; `lead_order`, where that lead is
    largest), a flat line, the printed numbers, or `void`.
    """

    says: str
    mode: Mode = "paper"
    where: Where = {}
    along: str | None = None  # the axis that `order` and `level` are about
    order: Annotated[list[str], Field(min_length=2)] | None = None  # best first
    lead: Annotated[float, Field(gt=0)] | None = None  # as printed
    lead_along: str | None = None
    lead_order: Annotated[list[str], Field(min_length=2)] | None = (
        None  # values of `lead_along`, largest lead first
    )
    level: Annotated[float, Field(gt=0)] | None = None  # largest difference along the axis
    near: Annotated[float, Field(ge=0)] | None = (
        None  # largest distance from the printed number or lead, either side
    )
    void: str | None = None  # which two statements of the paper contradict each other: nothing is checked

    @model_validator(mode="after")
    def _one_check(self) -> Finding:
        if self.void is not None:
            return self
        printed = self.near is not None and self.lead is None
        if sum((self.order is not None, self.level is not None, printed)) != 1:
            raise ValueError("give one of order, level, near and void")
        if not printed and self.along is None:
            raise ValueError("order and level need along, the axis they are about")
        if (self.lead is not None or self.lead_order is not None) and len(self.order or []) != 2:
            raise ValueError("lead and lead_order need an order of two")
        if (self.lead is None) != (self.near is None) and not printed:
            raise ValueError("lead needs near, how far from it ours may be")
        if (self.lead_order is None) != (self.lead_along is None) or (self.lead and self.lead_order):
            raise ValueError("lead_order needs lead_along, the axis it is about, and no lead")
        return self

    @property
    def part(self) -> Part:
        """The part of a result that this is about."""
        if self.lead is not None or self.lead_order is not None or self.level is not None:
            return "size"
        return "level" if self.near is not None else "order"


Part = Literal["order", "size", "level"]
PARTS: tuple[Part, ...] = ("order", "size", "level")
Verdict = Literal["reproduced", "exceeded", "in part", "not", "void", "unfinished", "no experiment"]


class Book(Strict):
    """How the item appears in the reproduction book."""

    verdict: Verdict  # as seen; computed from the findings, and a test compares the two
    reason: str
    readings: dict[str, list[str]] = {}  # reading → values of the axis *reading* whose cells belong to it
    x: str | None = None  # the axis drawn from left to right
    curve: str | None = None  # the axis whose values are the curves
    history: bool = False  # draw the metric over rounds
    metric: str | None = None  # a key of the evaluations in place of the headline


class NoExperiment(Strict):
    """A table of other people's formulas: nothing to run, but every item of a paper is listed."""

    layout: Literal["no-experiment"]
    title: str
    paper: str
    source: str
    book: Book


class Definition(Strict):
    title: str
    paper: str
    recipe: str
    sound_epsilon: Literal["asked", "claimed"] = "asked"
    notes: list[str] = []
    set: dict[str, Any] = {}
    grid: list[Grid]
    rule: list[Rule] = []
    scale: dict[Scale, Cut]
    audit: AuditSpec | None = None  # the cells are audits, not accuracies
    finding: list[Finding] = []
    book: Book | None = None

    def cut(self, scale: Scale) -> Cut:
        """A book of its own is not needed where the paper's setting is affordable."""
        base = self.scale["full" if scale == "full" or "book" not in self.scale else "book"]
        if scale != "small":
            return base
        part = self.scale["small"]
        return base.model_copy(update={"seeds": part.seeds, "keep": {**base.keep, **part.keep}})

    def applies(self, rule: Rule, scale: Scale) -> bool:
        at = "book" if scale == "small" else scale
        return rule.scale is None or rule.scale == (at if "book" in self.scale else "full")


@dataclass(frozen=True)
class PaperCell:
    labels: dict[str, str]  # axis → value
    source: str
    printed: str | None  # as the paper prints it; None for what is only drawn
    mean: float | None
    std: float | None
    runs: dict[Mode, tuple[Cell, ...]]  # one cell per seed

    @property
    def label(self) -> str:
        return ", ".join(self.labels.values())


def read(name: str) -> Definition:
    try:
        return Definition.model_validate(papers.read(name))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{name}: {where}: {first['msg']}.") from None


def paper_cells(
    definition: Definition,
    scale: Scale,
    *,
    data_dir: Path | None = None,
    runs: bool = True,
    force: bool = False,
) -> list[PaperCell]:
    """The cells that the scale keeps, in the paper's order."""
    cut = definition.cut(scale)
    recipe = recipes.read(definition.recipe)
    data = _data_at_hand(cut.data, data_dir) if runs else {}
    found = []
    for grid in definition.grid:
        for row, column, text in parse_grid(grid):
            labels = {**grid.at, grid.rows: row, grid.columns: column}
            if text == NO_CELL or not _kept(labels, cut.keep):
                continue
            if any(r.leave_out for r in _matching(definition, scale, labels)):
                continue
            mean, std = parse_number(text)
            own = _runs(definition, recipe, scale, labels, data, data_dir, force=force) if runs else {}
            printed = None if text == NOT_PRINTED else text
            source = f"{definition.paper}, {grid.source}, row {row}, column {column}"
            found.append(PaperCell(labels, source, printed, mean, std, own))
    return found


def parse_grid(grid: Grid) -> list[tuple[str, str, str]]:
    """(row, column, text) of every cell."""
    lines = [[part.strip() for part in line.split("|")] for line in grid.cells.strip().splitlines()]
    head, *body = lines
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
    """Nested tables → dotted keys, as `resolve` takes them."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return flat


def _runs(
    definition: Definition,
    recipe: Mapping[str, Any],
    scale: Scale,
    labels: dict[str, str],
    data: dict[str, Any],
    data_dir: Path | None,
    *,
    force: bool,
) -> dict[Mode, tuple[Cell, ...]]:
    label = ", ".join(labels.values())
    runs: dict[Mode, tuple[Cell, ...]] = {}
    for mode in modes_of(definition, scale, labels):
        changes = changes_of(definition, scale, labels, mode, data)
        if mode == "sound" and definition.sound_epsilon == "claimed" and "paper" in runs:
            changes |= _at_the_claim(runs["paper"][0], data_dir, force=force)
        own = [r.seeds for r in _matching(definition, scale, labels) if r.seeds and r.mode in (None, mode)]
        seeds = definition.cut(scale).seeds if scale == "small" or not own else own[-1]
        runs[mode] = cells(recipe, changes, f"{label}, {mode} mode", seeds)
    return runs


def changes_of(
    definition: Definition,
    scale: Scale,
    labels: Mapping[str, str],
    mode: Mode,
    data: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What a cell sets of its recipe, by dotted keys."""
    cut = definition.cut(scale)
    changes = {"mode": mode, **flatten(definition.set), **flatten(cut.set), **(data or {})}
    for rule in _matching(definition, scale, labels):
        if rule.mode in (None, mode):
            changes |= {**flatten(rule.set), **dict.fromkeys(rule.unset)}
    return changes


def modes_of(definition: Definition, scale: Scale, labels: Mapping[str, str]) -> tuple[Mode, ...]:
    """In which modes a cell is run."""
    only = next((r.only for r in _matching(definition, scale, labels) if r.only), None)
    return MODES if only is None else (only,)


def _matching(definition: Definition, scale: Scale, labels: Mapping[str, str]) -> list[Rule]:
    return [r for r in definition.rule if matches(r.where, labels) and definition.applies(r, scale)]


def _at_the_claim(cell: Cell, data_dir: Path | None, *, force: bool) -> dict[str, Any]:
    """A paper that fixes σ says by its own formula which ε that is; the sound run proves that ε."""
    from gossamer.training.outline import outline

    claimed = outline(cell.config, data_dir=data_dir, force=force).plan.figures()["epsilon_claimed"]
    return {"privacy.epsilon": claimed, "privacy.noise.multiplier": None}


def _data_at_hand(kinds: list[str], data_dir: Path | None) -> dict[str, Any]:
    from gossamer.data.load import load

    for kind in kinds:
        try:
            load(kind, data_dir=data_dir)
        except UserError:
            if kind == kinds[-1]:
                raise
        else:
            return {"data.kind": kind}
    return {}


def _kept(labels: Mapping[str, str], keep: Mapping[str, list[str]]) -> bool:
    return all(labels[axis] in values for axis, values in keep.items() if axis in labels)


def matches(where: Where, labels: Mapping[str, str]) -> bool:
    return all(
        labels.get(axis) in (values if isinstance(values, list) else [values])
        for axis, values in where.items()
    )
