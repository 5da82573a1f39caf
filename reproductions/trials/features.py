"""The frontier's features on training rows held out: straightened digits, and earlier stages of a public network.

    python reproductions/trials/features.py --data-dir FOLDER     # the table of notes/frontier-features.md

The recipes as they are, but for their features and for rows that are held out; one run a cell. CIFAR-10's small part
stands for all of it here: its features take a minute, not ten.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gossamer
from gossamer.config import recipes

DIGITS = recipes.read("frontier/mnist")["data"]["transform"]
PHOTOGRAPHS = recipes.read("frontier/cifar10-pretrained")["data"]["transform"]
LAST = {key: value for key, value in PHOTOGRAPHS[0].items() if key != "stages"}
Features = dict[str, list[Any]]
MNIST: Features = {
    "scattering, projected with Fashion-MNIST": DIGITS[1:],
    "the same of straightened digits": DIGITS,
}
CIFAR10: Features = {
    "Lite2's last averages": [LAST, "unit-norm"],
    "with the last three stages, columns standardised by CIFAR-100's part": PHOTOGRAPHS[:3],
    "and projected on 1,000 of its directions": PHOTOGRAPHS,
}
SMALL = {"data.kind": "cifar10-part", "nodes": 5, "data.held_out": 1000}


def table(
    recipe: str, features: Features, changes: dict[str, Any], budgets: tuple[float, ...], folder: Path | None
) -> None:
    print(f"\n| {recipe}, held-out rows (%) | " + " | ".join(f"ε = {b:g}" for b in budgets) + " |")
    print("|---" * (len(budgets) + 1) + "|", flush=True)
    for name, transform in features.items():
        found = []
        for epsilon in budgets:
            own = {"data.transform": transform, "privacy.epsilon": epsilon, "seed": 100, **changes}
            outcome = gossamer.run(recipe, own, data_dir=folder, progress=False)
            figures = outcome.result["not_private"] or outcome.result
            found.append(f"{100 * float(figures['accuracy_mean']):.1f}")
        print(f"| {name} | {' | '.join(found)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    folder = parser.parse_args().data_dir
    table("frontier/mnist", MNIST, {"data.held_out": 10000}, (0.5, 1.0), folder)
    table("frontier/cifar10-pretrained", CIFAR10, SMALL, (3.0, 10.0), folder)


if __name__ == "__main__":
    main()
