"""What private preprocessing is worth: writes the tables of docs/preprocessing.md.

    python benchmarks/preprocessing.py

A made-up table of 12,000 rows on 4 nodes, logistic regression, three seeds (of the table, the split and the noise). Its
eight columns are log-normal with medians from 1 to 5,000, declared as [0, 1,000,000]; or normal, declared as four
deviations to each side. "oracle" has the columns standardised by exact quantiles of the training rows, which nothing
pays for: what remains is the price of training. Class weights: normal columns, few records in class 1.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import gossamer

ROWS, TEST, NODES, SEEDS = 12_000, 6_000, 4, 3
COLUMNS = [f"c{i}" for i in range(8)]
MEDIANS = np.array([1, 10, 100, 1000, 5, 50, 500, 5000], dtype=float)
SLOPES = 1.5 * np.array([1, -1, 0.8, -0.6, 0.5, 0.4, -0.3, 0.2])
WIDE, FITTING = [0.0, 1e6], [-4.0, 4.0]
SHARE = 0.2
SETTINGS: dict[str, Any] = {
    "nodes": NODES, "rounds": 60, "topology": {"kind": "complete"}, "model": {"kind": "softmax"},
    "privacy.delta": 1e-5, "privacy.sampling": {"kind": "full"}, "data.scale": "unit-ball", "algorithm.lr": 2.0,
}  # fmt: skip


def table(seed: int, rows: int, *, heavy: bool, offset: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng([seed, rows])
    z = draw.normal(size=(rows, len(COLUMNS)))
    y = (z @ SLOPES + draw.logistic(size=rows) > offset).astype(int)
    return (np.exp(z) * MEDIANS if heavy else z), y


def by_quantiles(x: np.ndarray, of: np.ndarray) -> np.ndarray:
    low, middle, high = np.quantile(of, [0.05, 0.5, 0.95], axis=0)
    return np.asarray(np.clip((x - middle) / ((high - low) / 3.29), -5, 5))


def frame(x: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(x, columns=COLUMNS).assign(y=y)


def figure(seed: int, epsilon: float, how: str, *, heavy: bool, offset: float = 0.0, **more: Any) -> dict[str, float]:
    (x, y), (held, truth) = (table(seed, rows, heavy=heavy, offset=offset) for rows in (ROWS, TEST))
    ranges: Any = dict.fromkeys(COLUMNS, WIDE if heavy else FITTING)
    changes = {**SETTINGS, "seed": seed, "privacy.epsilon": epsilon, **more}
    if how == "oracle":
        x, held, ranges = by_quantiles(x, x), by_quantiles(held, x), None
    elif how != "ranges":
        changes |= {"data.standardise": {"kind": how}, "privacy.preprocessing": SHARE}
    data = gossamer.Data(frame(x, y), label="y", test=frame(held, truth), classes=2, count=ROWS // NODES, ranges=ranges)
    with tempfile.TemporaryDirectory() as folder:
        return dict(gossamer.run("quickstart", changes, data=data, out=Path(folder) / "run").result)


def shown(figures: list[float]) -> str:
    return f"{100 * statistics.mean(figures):.1f} ± {100 * statistics.stdev(figures):.1f}"


def scaling() -> None:
    print("| columns | ε | declared ranges | moments | quantiles | oracle |")
    print("|---|---|---|---|---|---|")
    for heavy, words in ((True, "heavy, range far too wide"), (False, "normal, range about right")):
        for epsilon in (1.0, 3.0):
            cells = [
                shown([figure(seed, epsilon, how, heavy=heavy)["accuracy_mean"] for seed in range(SEEDS)])
                for how in ("ranges", "moments", "quantiles", "oracle")
            ]
            print(f"| {words} | {epsilon:g} | {' | '.join(cells)} |", flush=True)


def class_weights() -> None:
    """Columns by moments in all of them; a bound of 4, for a weighted gradient is longer."""
    offset = 5.2
    share = statistics.mean(float(table(seed, ROWS, heavy=False, offset=offset)[1].mean()) for seed in range(SEEDS))
    exact = [0.5 / (1 - share), 0.5 / share]
    print(f"\n{share:.1%} of the records are in class 1; F1 of that class\n")
    print("| ε | no weights | private weights | exact weights |")
    print("|---|---|---|---|")
    for epsilon in (1.0, 3.0):
        cells = []
        for asked in (
            {},
            {"data.class_weights": "private"},
            {"data.class_weights": [min(10.0, max(0.1, weight)) for weight in exact]},
        ):
            more = {
                **asked,
                "evaluation.measures": ["f1"],
                "privacy.clip": {"kind": "constant", "bound": 4.0},
            }
            cells.append(
                shown(
                    [
                        figure(seed, epsilon, "moments", heavy=False, offset=offset, **more)["f1_mean"]
                        for seed in range(SEEDS)
                    ]
                )
            )
        print(f"| {epsilon:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    scaling()
    class_weights()
