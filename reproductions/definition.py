"""The book's part of a definition: the paper's statements as checks, and how the item appears."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gossamer.studies import papers, reproduce
from gossamer.studies.reproduce import Mode, Strict, Where, validated


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
    lead_order: Annotated[list[str], Field(min_length=2)] | None = None  # values of `lead_along`, largest lead first
    level: Annotated[float, Field(gt=0)] | None = None  # largest difference along the axis
    near: Annotated[float, Field(ge=0)] | None = None  # largest distance from the printed number or lead, either side
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
    believe: str | None = None  # where print and run disagree: what we take to be so
    ask: str | None = None  # what the authors could tell us about it
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


class Definition(reproduce.Definition):
    finding: list[Finding] = []
    book: Book | None = None


def read_item(name: str) -> Definition | NoExperiment:
    table = papers.read(name)
    if table.get("layout") == "no-experiment":
        return validated(NoExperiment, table, name)
    return validated(Definition, table, name)


def read(name: str) -> Definition:
    """An item with an experiment."""
    reproduce.read(name)
    return validated(Definition, papers.read(name), name)
