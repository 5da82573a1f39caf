"""Checks of the paper's statements on our cells, and the verdict for each reading of the paper."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gossamer.studies.reproduce import matches
from reproductions.definition import PARTS, Finding, Part, Verdict

RecordedCell = Mapping[str, Any]
MORE_IS_BETTER = frozenset({"accuracy", "epsilon_audited"})
READING = "reading"


@dataclass(frozen=True)
class Check:
    """One comparison: did it hold, and beyond the spread of the seeds?"""

    about: str
    holds: bool
    clearly: bool = False
    exceeded: bool = False  # better than printed by more than is allowed: does not hold


@dataclass(frozen=True)
class Outcome:
    finding: Finding
    checks: tuple[Check, ...]

    @property
    def held(self) -> int:
        return sum(check.holds for check in self.checks)

    @property
    def exceeded(self) -> int:
        return sum(check.exceeded for check in self.checks)

    @property
    def word(self) -> str:
        if self.finding.void is not None:
            return "void"
        if not self.checks:
            return "not checked"
        if self.held == len(self.checks):
            return "holds"
        if self.held + self.exceeded == len(self.checks):
            return "exceeded"
        return "in part" if 2 * self.held >= len(self.checks) else "does not hold"


@dataclass(frozen=True)
class Judged:
    """The findings under one reading of the paper; the name is empty where the item has one reading."""

    reading: str
    outcomes: tuple[Outcome, ...]

    @property
    def verdict(self) -> Verdict:
        """From paper mode alone: sound mode is ours, the paper says nothing about it."""
        words = {outcome.word for outcome in self._own if outcome.word != "void"}
        if not words and self._own:
            return "void"
        if words and words <= {"holds", "exceeded"}:
            return "reproduced" if words == {"holds"} else "exceeded"
        most = (2 * sum(o.held for o in own) > sum(len(o.checks) for o in own) for own in map(self.of, PARTS))
        return "in part" if "holds" in words or any(most) else "not"

    def of(self, part: Part) -> list[Outcome]:
        return [o for o in self._own if o.finding.part == part and o.word != "void"]

    @property
    def whole(self) -> list[Part]:
        """The parts of the result of which everything holds."""
        return [part for part in PARTS if (own := self.of(part)) and all(o.word == "holds" for o in own)]

    @property
    def rank(self) -> tuple[float, ...]:
        """Larger for the reading that is nearer to the paper."""
        checks = [check for outcome in self._own for check in outcome.checks]
        share = sum(check.holds for check in checks) / len(checks) if checks else 0.0
        return (-_BEST_FIRST.index(self.verdict), len(self.whole), share)

    @property
    def _own(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.finding.mode == "paper"]


_BEST_FIRST: tuple[Verdict, ...] = ("reproduced", "exceeded", "in part", "not", "void")


def judge(
    findings: Sequence[Finding], cells: Sequence[RecordedCell], readings: Mapping[str, Sequence[str]] = {}
) -> list[Judged]:
    """Every reading by itself, the one nearest to the paper first; a finding may be about some readings alone."""
    judged = []
    for name, values in (readings or {"": ()}).items():
        own = [cell for cell in cells if not readings or cell["labels"].get(READING, name) in (name, *values)]
        asked = [f for f in findings if not readings or _about(f, name, values)]
        judged.append(Judged(name, tuple(Outcome(f, tuple(_checks(f, own))) for f in asked)))
    return sorted(judged, key=lambda one: one.rank, reverse=True)


def _about(finding: Finding, name: str, values: Sequence[str]) -> bool:
    asked = finding.where.get(READING, name)
    return bool({name, *values} & {*([asked] if isinstance(asked, str) else asked)})


def _checks(finding: Finding, cells: Sequence[RecordedCell]) -> Iterator[Check]:
    known = [cell for cell in cells if matches(finding.where, cell["labels"]) and _values(_figures(cell, finding.mode))]
    if finding.void is not None:
        return
    if finding.level is not None:
        yield from _level(finding, known)
    elif finding.lead is not None:
        yield from _lead(finding, known)
    elif finding.lead_order is not None:
        yield from _lead_order(finding, known)
    elif finding.near is not None:
        yield from _near(finding, known)
    else:
        yield from _order(finding, known)


def _near(finding: Finding, cells: Sequence[RecordedCell]) -> Iterator[Check]:
    assert finding.near is not None
    for cell in cells:
        if cell["paper_mean"] is None:
            continue
        figures = _figures(cell, finding.mode)
        gap = mean(_values(figures)) - cell["paper_mean"]
        better = gap if figures["metric"] in MORE_IS_BETTER else -gap
        yield Check(f"{_name(cell)}: {gap:+.2f}", abs(gap) <= finding.near, exceeded=better > finding.near)


def _level(finding: Finding, cells: Sequence[RecordedCell]) -> Iterator[Check]:
    assert finding.level is not None
    assert finding.along is not None
    for name, group in _groups(finding.along, cells).items():
        means = [mean(_values(_figures(cell, finding.mode))) for cell in group.values()]
        if len(means) < 2:
            continue
        spread = max(means) - min(means)
        if _figures(next(iter(group.values())), finding.mode)["metric"] not in MORE_IS_BETTER:
            spread = 100 * spread / (math.fsum(means) / len(means))
        yield Check(f"{name}: {spread:.2f}", spread <= finding.level)


def _order(finding: Finding, cells: Sequence[RecordedCell]) -> Iterator[Check]:
    assert finding.order is not None
    assert finding.along is not None
    for name, group in _groups(finding.along, cells).items():
        there = [value for value in finding.order if value in group]
        for first, second in pairwise(there):
            figures = [_figures(group[value], finding.mode) for value in (first, second)]
            a, b = map(_values, figures)
            lead = mean(a) - mean(b)
            if figures[0]["metric"] not in MORE_IS_BETTER:
                lead = -lead
            about = f"{first} before {second}{', ' + name if name else ''}: {lead:+.3g}"
            yield Check(about, lead > 0, lead > difference_half_width(a, b))


def _lead(finding: Finding, cells: Sequence[RecordedCell]) -> Iterator[Check]:
    assert finding.lead is not None
    assert finding.near is not None
    for labels, lead in _leads(finding, cells):
        over = lead - finding.lead
        yield Check(
            f"{', '.join(labels.values())}: {lead:+.3g}",
            abs(over) <= finding.near,
            exceeded=over > finding.near,
        )


def _lead_order(finding: Finding, cells: Sequence[RecordedCell]) -> Iterator[Check]:
    assert finding.lead_along is not None
    assert finding.lead_order is not None
    leads: dict[str, dict[str, float]] = {}
    for labels, lead in _leads(finding, cells):
        if finding.lead_along in labels:
            value = labels.pop(finding.lead_along)
            leads.setdefault(", ".join(labels.values()), {})[value] = lead
    for name, by_value in leads.items():
        there = [value for value in finding.lead_order if value in by_value]
        for first, second in pairwise(there):
            a, b = by_value[first], by_value[second]
            about = f"{first} against {second}{', ' + name if name else ''}: {a:+.3g} and {b:+.3g}"
            yield Check(about, a > b)


def _leads(finding: Finding, cells: Sequence[RecordedCell]) -> Iterator[tuple[dict[str, str], float]]:
    """How far the first of the order is ahead of the second, for each of the other labels."""
    assert finding.order is not None
    assert finding.along is not None
    first, second = finding.order
    for group in _groups(finding.along, cells).values():
        if first not in group or second not in group:
            continue
        figures = [_figures(group[value], finding.mode) for value in (first, second)]
        a, b = (mean(_values(f)) for f in figures)
        labels = {k: v for k, v in group[first]["labels"].items() if k != finding.along}
        yield labels, a - b if figures[0]["metric"] in MORE_IS_BETTER else 100 * (b - a) / a


def _groups(along: str, cells: Sequence[RecordedCell]) -> dict[str, dict[str, RecordedCell]]:
    """Cells that differ along one axis alone; a cell without that axis (a baseline) is in none."""
    found: dict[str, dict[str, RecordedCell]] = {}
    for cell in cells:
        labels = dict(cell["labels"])
        if along in labels:
            value = labels.pop(along)
            found.setdefault(", ".join(labels.values()), {})[value] = cell
    return found


def _figures(cell: RecordedCell, mode: str) -> Mapping[str, Any]:
    """What has no ε is run once, in one mode, and stands for both; anything else stands for its own mode alone."""
    modes: Mapping[str, Mapping[str, Any]] = cell["modes"]
    alike = (f for f in modes.values() if f.get("epsilon_claimed") is f.get("epsilon_proven") is None)
    return modes.get(mode) or next(alike, {})


def _values(figures: Mapping[str, Any]) -> list[float]:
    values = figures.get("values", [])
    return [] if None in values else list(values)


def _name(cell: RecordedCell) -> str:
    return ", ".join(cell["labels"].values())


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def half_width(values: Sequence[float]) -> float | None:
    """Of the 95% interval for the mean (Student's t); a single value has none."""
    if len(values) < 2:
        return None
    return quantile(len(values) - 1) * math.sqrt(variance(values) / len(values))


def difference_half_width(a: Sequence[float], b: Sequence[float]) -> float:
    """Of the 95% interval for the difference of two means (Welch); ∞ where one of them has a single value."""
    if min(len(a), len(b)) < 2:
        return math.inf
    parts = [variance(values) / len(values) for values in (a, b)]
    total = math.fsum(parts)
    if total == 0:
        return 0.0
    freedom = total**2 / math.fsum(p**2 / (len(v) - 1) for p, v in zip(parts, (a, b), strict=True))
    return quantile(freedom) * math.sqrt(total)


def variance(values: Sequence[float]) -> float:
    centre = mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def quantile(freedom: float, sure: float = 0.95) -> float:
    """Of Student's t: this far on either side."""
    from scipy.stats import t

    return float(t.ppf((1 + sure) / 2, freedom))
