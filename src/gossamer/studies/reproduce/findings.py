"""What the paper says, held against our cells: orders, level lines, printed numbers, and the verdict they make."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gossamer.studies.reproduce.paper_table import Finding, Verdict, matches

RecordedCell = Mapping[str, Any]
MORE_IS_BETTER = frozenset({"accuracy"})


@dataclass(frozen=True)
class Check:
    """One comparison: did it hold, and beyond the spread of the seeds?"""

    about: str
    holds: bool
    clearly: bool


@dataclass(frozen=True)
class Outcome:
    finding: Finding
    checks: tuple[Check, ...]

    @property
    def held(self) -> int:
        return sum(check.holds for check in self.checks)

    @property
    def word(self) -> str:
        if not self.checks:
            return "not checked"
        if self.held == len(self.checks):
            return "holds"
        return "in part" if 2 * self.held >= len(self.checks) else "does not hold"


def judge(findings: Sequence[Finding], cells: Sequence[RecordedCell]) -> list[Outcome]:
    return [Outcome(finding, tuple(_checks(finding, cells))) for finding in findings]


def verdict(outcomes: Sequence[Outcome]) -> Verdict:
    """Of the findings in paper mode: what sound mode does is ours to say, not the paper's."""
    words = [outcome.word for outcome in outcomes if outcome.finding.mode == "paper"]
    if not {"holds", "in part"} & set(words):
        return "not"
    return "reproduced" if all(word == "holds" for word in words) else "in part"


def _checks(finding: Finding, cells: Sequence[RecordedCell]) -> Iterator[Check]:
    known = [
        cell
        for cell in cells
        if matches(finding.where, cell["labels"]) and _values(_figures(cell, finding.mode))
    ]
    if finding.near is not None:
        yield from _near(finding, known)
    elif finding.level is not None:
        yield from _level(finding, known)
    else:
        yield from _order(finding, known)


def _near(finding: Finding, cells: Sequence[RecordedCell]) -> Iterator[Check]:
    assert finding.near is not None
    for cell in cells:
        printed = cell["paper_mean"]
        if printed is None:
            continue
        figures = _figures(cell, finding.mode)
        gap = mean(_values(figures)) - printed
        better = gap if figures["metric"] in MORE_IS_BETTER else -gap
        holds = better >= -finding.near if finding.side == "above" else abs(gap) <= finding.near
        yield Check(f"{_name(cell)}: {gap:+.2f}", holds, holds)


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
        yield Check(f"{name}: {spread:.2f}", spread <= finding.level, spread <= finding.level)


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
