"""The table of crossings: which values of unit, runtime, noise, sampling, model and action work together.

Every pair of values is either in REFUSED, with what the refusal names, or is covered by a row of `working()`. The page
docs/crossings.md is written from the same table: `python -m tests.support.crossings > docs/crossings.md`.
"""

from __future__ import annotations

import itertools
from dataclasses import astuple, dataclass, fields


@dataclass(frozen=True)
class Crossing:
    """One row: a tiny run, and what is done with it."""

    unit: str = "record"
    runtime: str = "simulator"
    noise: str = "own"
    sampling: str = "full"
    model: str = "built-in"
    action: str = "run"

    def __str__(self) -> str:
        return ", ".join(astuple(self))

    def pairs(self) -> set[Pair]:
        values = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return {frozenset(pair) for pair in itertools.combinations(values, 2)}


Pair = frozenset[tuple[str, str]]

AXES: dict[str, tuple[str, ...]] = {
    "unit": ("record", "person", "node"),
    "runtime": ("simulator", "processes", "sites"),
    "noise": ("own", "cancelling"),
    "sampling": ("poisson", "full", "one-pass"),
    "model": ("built-in", "own module", "frozen part", "adapters", "random layer"),
    "action": ("run", "resume", "predict", "export", "verify", "report", "audit"),
}


@dataclass(frozen=True)
class Refusal:
    """What the sentence names of either side, and the reason for the page."""

    names: tuple[str, ...]
    reason: str


def _pair(**values: str) -> Pair:
    assert len(values) == 2
    assert all(value in AXES[axis] for axis, value in values.items())
    return frozenset(values.items())


_NODE = "a node is one unit and in every draw: use full lots"
_CODE = Refusal(("model.kind = 'own'", "a study carries none"), "a study carries no code")
REFUSED: dict[Pair, Refusal] = {
    _pair(unit="node", sampling="poisson"): Refusal(("privacy.unit = 'node'", "'poisson'"), _NODE),
    _pair(unit="node", sampling="one-pass"): Refusal(("privacy.unit = 'node'", "'one-pass'"), _NODE),
    _pair(runtime="sites", model="own module"): _CODE,
    _pair(runtime="sites", model="frozen part"): _CODE,
    _pair(runtime="sites", model="random layer"): _CODE,
    _pair(runtime="sites", noise="cancelling"): Refusal(
        ("'pairwise'", "peers"), "masks cancel only if every message arrives, and sites may be away"
    ),
    _pair(runtime="sites", sampling="one-pass"): Refusal(
        ("'one-pass'", "crash of one site"), "a site that was stopped would begin its pass again"
    ),
    _pair(runtime="sites", action="audit"): Refusal(
        ("one site's part of a study", "audit the study's recipe"),
        "one site has only its own records: audit the study's recipe",
    ),
    _pair(sampling="one-pass", action="resume"): Refusal(
        ("--resume", "'one-pass'"), "the lots of a pass are secret and stored nowhere: run it again"
    ),
}


def all_pairs() -> set[Pair]:
    return {
        frozenset({(a, x), (b, y)})
        for (a, xs), (b, ys) in itertools.combinations(AXES.items(), 2)
        for x in xs
        for y in ys
    }


def working() -> list[Crossing]:
    """Few rows that cover every pair that is not refused: the row with most uncovered pairs first, ties in order."""
    rows = [Crossing(*values) for values in itertools.product(*AXES.values())]
    rows = [row for row in rows if not row.pairs() & REFUSED.keys()]
    left, chosen = all_pairs() - REFUSED.keys(), []
    while left:
        best = max(rows, key=lambda row: len(row.pairs() & left))
        assert best.pairs() & left, f"no allowed row has {left}"
        chosen.append(best)
        left -= best.pairs()
    return chosen


def refused() -> list[tuple[Crossing, Refusal]]:
    """A row for each refused pair, in which no other pair is refused."""
    rows = [Crossing(*values) for values in itertools.product(*AXES.values())]
    return [(next(r for r in rows if r.pairs() & REFUSED.keys() == {pair}), why) for pair, why in REFUSED.items()]


def page() -> str:
    """docs/crossings.md."""
    pairs, rows = all_pairs(), working()
    lines = [
        "# What works together",
        "",
        f"Every pair of these values is tried on a tiny problem: {len(pairs) - len(REFUSED)} pairs work, in {len(rows)} "
        f"runs that cover them,",
        f"and {len(REFUSED)} are refused by a sentence that names both. `tests/scenarios/test_crossings.py` tries them; "
        "this page is",
        "written from its table.",
        "",
        "| what | values |",
        "|---|---|",
        *(f"| {axis} | {', '.join(values)} |" for axis, values in AXES.items()),
        "",
        "## Refused",
        "",
        "| this | with this | because |",
        "|---|---|---|",
    ]
    for pair, why in REFUSED.items():
        (a, x), (b, y) = sorted(pair, key=lambda part: list(AXES).index(part[0]))
        lines.append(f"| {a}: {x} | {b}: {y} | {why.reason} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
