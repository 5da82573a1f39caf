"""Six sites of the RAND experiment, ε for a person beside ε for a record: the table of docs/tables.md.

    python benchmarks/hospitals.py            # prints it
    python benchmarks/hospitals.py --write    # and puts it into the page

Every cell is `gossamer run hospitals/persons` or `hospitals/records` with one other budget or baseline, three times, on
the experiment's public hold-out; noise is from the system, so figures differ a little from run to run.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import gossamer

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tables.md"
MARKS = ("<!-- hospitals -->", "<!-- end -->")
REPEATS = 3
BUDGETS = (0.5, 2.0)
UNITS = {"a person": "hospitals/persons", "a record": "hospitals/records"}
ROWS: dict[str, tuple[dict[str, Any], bool]] = {  # changes, and whether each budget makes a figure
    "six sites together": ({}, True),
    "all records in one place": ({"baseline": "central"}, True),
    "each site alone": ({"baseline": "no-communication"}, True),
    "together, own budgets (2, 2, 1, 1, 1, 2)": ({}, False),
    # Nothing is clipped there, and steps of 4 would not end.
    "together, no noise": ({"baseline": "non-private", "algorithm.lr": 0.03, "rounds": 400}, False),
}


def cell(recipe: str, changes: dict[str, Any], data_dir: Path | None) -> str:
    """Mean over runs of the area below the ROC curve, in percent: of the mean over sites, and of the worst site."""
    found = []
    for seed in range(1 if "non-private" in changes.values() else REPEATS):
        with tempfile.TemporaryDirectory() as place:
            changed = {**changes, "seed": seed, "evaluation.every": 1000}
            found.append(gossamer.run(recipe, changed, out=Path(place) / "run", data_dir=data_dir).result)
    mean, worst = (statistics.mean(r[f"auc_{part}"] for r in found) for part in ("mean", "min"))
    said = f"{100 * mean:.1f}" if mean - worst < 5e-4 else f"{100 * mean:.1f} (worst {100 * worst:.1f})"
    print(recipe, changes, said, flush=True)
    return said


def table(data_dir: Path | None) -> list[str]:
    heads = [f"ε = {budget:g} for {unit}" for unit in UNITS for budget in BUDGETS]
    lines = [f"| AUC on 4,017 public rows, % | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for name, (changes, priced) in ROWS.items():
        cells = []
        for recipe in UNITS.values():
            if priced:
                cells += [cell(recipe, {**changes, "privacy.epsilon": budget}, data_dir) for budget in BUDGETS]
            else:
                cells += [cell(recipe, changes, data_dir), ""]
        lines.append(f"| {name} | {' | '.join(cells)} |".replace("|  |", "| |"))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/tables.md")
    parser.add_argument("--data-dir", type=Path, help="where randhie.csv lies, if not in the cache")
    asked = parser.parse_args()
    lines = table(asked.data_dir)
    print("\n".join(lines))
    if asked.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
        _, _, after = rest.partition(MARKS[1])
        text = "\n".join([MARKS[0], *lines, MARKS[1]])
        PAGE.write_text(before + text + after, encoding="utf-8")


if __name__ == "__main__":
    main()
