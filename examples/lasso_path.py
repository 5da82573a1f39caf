"""A private Lasso path: sparse logistic regression on Covertype for a row of penalties, drawn as one SVG.

    python examples/lasso_path.py [OUT.svg] [--nodes 10] [--epsilon 1]

Every point of the path is a run of its own, with its own proven ε; who publishes the whole path has spent all of them
(the title says how much that is). Needs the data set: gossamer data get covertype.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import gossamer
from gossamer.accounting.ledger import read_all
from gossamer.accounting.proven import proven

NUMERIC = (
    "elevation", "aspect", "slope", "to water", "above water", "to road", "shade 9 am", "shade noon", "shade 3 pm",
    "to fire points",
)  # fmt: skip
WEIGHTS = [10 ** (-2 - k / 4) for k in range(9)]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")


Found = tuple[list[list[float]], list[float], str]


def path(recipe: str, weights: Sequence[float], changes: dict[str, object]) -> Found:
    """The average model and the accuracy at every penalty, and what the whole path costs."""
    models, accuracies, events = [], [], []
    for weight in weights:
        with tempfile.TemporaryDirectory() as folder:
            settings = {**changes, "algorithm.penalty": {"kind": "l1", "weight": weight}}
            outcome = gossamer.run(recipe, settings, out=Path(folder) / "run")
            events += read_all(Path(folder) / "run")[0][1]
        models.append(outcome.points.mean(0).tolist())
        accuracies.append(outcome.result["accuracy_average_model"])
        used = sum(abs(value) > 1e-3 for value in models[-1])
        print(f"λ = {weight:.2g}: accuracy {accuracies[-1]:.2%}, {used} of {len(models[-1])} coefficients in use")
    result = outcome.result
    whole = proven(events, result["delta"], result["adjacency"]).epsilon
    one = f"ε = {result['epsilon_proven']:.3g} for each point, {whole:.3g} for the whole path"
    return (
        models,
        accuracies,
        f"{one} (proven; δ = {result['delta']:g}, {result['adjacency']}, one record of one node, seen by everyone)",
    )


def draw(models: Sequence[Sequence[float]], accuracies: Sequence[float], weights: Sequence[float], cost: str) -> str:
    """Coefficients over −log λ; the seven that grow largest have colours and names."""
    width, height, left, right, top, bottom = 860, 460, 72, 150, 52, 44
    largest = max(abs(value) for model in models for value in model) or 1.0

    def x(weight: float) -> float:
        low, high = math.log(max(weights)), math.log(min(weights))
        return left + (width - left - right) * (math.log(weight) - low) / (high - low)

    def y(value: float) -> float:
        return top + (height - top - bottom) * (1 - value / largest) / 2

    order = sorted(range(len(models[0])), key=lambda j: -abs(models[-1][j]))
    lines, labels, taken = [], [], list[float]()
    for rank, j in reversed(list(enumerate(order))):
        points = " ".join(f"{x(w):.1f},{y(m[j]):.1f}" for w, m in zip(weights, models, strict=True))
        named = rank < len(COLOURS)
        colour, stroke = (COLOURS[rank], 2) if named else ("#c8c8c8", 1)
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{stroke}"/>')
        if named:
            at = y(models[-1][j])
            while any(abs(at - other) < 14 for other in taken):
                at += 2
            taken.append(at)
            labels.append(text(width - right + 8, at + 4, name_of(j, len(models[0])), colour=colour))
    ticks = [
        text(x(w), height - bottom + 18, f"{w:.1g}", anchor="middle")
        + text(x(w), top - 6, f"{a:.0%}", anchor="middle", colour="#777")
        for w, a in list(zip(weights, accuracies, strict=True))[::2]
    ]
    marks = [
        f'<line x1="{left}" x2="{width - right}" y1="{y(v):.1f}" y2="{y(v):.1f}" stroke="#e4e4e4"/>'
        + text(left - 8, y(v) + 4, f"{v:.2g}", anchor="end")
        for v in (-largest, -largest / 2, 0.0, largest / 2, largest)
    ]
    titles = [
        text(left, 20, cost),
        text(left - 20, top - 6, "accuracy", anchor="end", colour="#777"),
        text((left + width - right) / 2, height - 8, "penalty λ", anchor="middle"),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
    style = f'font-family="sans-serif" font-size="12"><rect width="{width}" height="{height}" fill="white"/>'
    return head + style + "".join([*titles, *marks, *ticks, *lines, *labels]) + "</svg>\n"


def text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def name_of(column: int, columns: int) -> str:
    if column < len(NUMERIC):
        return NUMERIC[column]
    return "constant" if column == columns - 1 else f"area or soil {column - len(NUMERIC) + 1}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", default="lasso_path.svg", type=Path)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--epsilon", type=float, default=1.0)
    given = parser.parse_args()
    changes = {"nodes": given.nodes, "privacy.epsilon": given.epsilon, "evaluation.every": 10**6}
    models, accuracies, cost = path("dp-dkm/covertype", WEIGHTS, changes)
    given.out.write_text(draw(models, accuracies, WEIGHTS, cost), encoding="utf-8")
    print(f"wrote {given.out}")


if __name__ == "__main__":
    main()
