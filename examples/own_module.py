"""Train your own network on your own table, privately and without a server.

Four clinics hold the rows of one table (here scikit-learn's breast-cancer data, written to CSV files); each is a
node, its rows are protected, and a separate public file measures the result.
"""

import csv
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from torch import nn

import gossamer

NODES, TEST = 4, 119


def write(path: Path, x: np.ndarray, y: np.ndarray, owner: np.ndarray | None) -> None:
    names = [f"f{i}" for i in range(x.shape[1])]
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*names, "label", *(["clinic"] if owner is not None else [])])
        for i in range(len(x)):
            rows.writerow([*x[i], y[i], *([f"clinic-{owner[i]}"] if owner is not None else [])])


def main(folder: Path, rounds: int = 100) -> gossamer.Outcome:
    x, y = load_breast_cancer(return_X_y=True)
    x = x / [40, 40, 250, 2600, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1, 3, 5, 25, 600, 0.04, 0.15, 0.4, 0.06, 0.08, 0.03,
             40, 50, 260, 4300, 0.25, 1.1, 1.3, 0.3, 0.7, 0.25]  # fmt: skip  # public ranges, not read off the records
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[:TEST], order[TEST:]
    write(folder / "clinics.csv", x[train], y[train], np.arange(len(train)) % NODES)
    write(folder / "public.csv", x[test], y[test], None)

    net = nn.Sequential(nn.Linear(30, 16), nn.Tanh(), nn.Linear(16, 2))
    config = {
        "name": "clinics",
        "nodes": NODES,
        "rounds": rounds,
        "data": {
            "kind": "csv",
            "path": str(folder / "clinics.csv"),
            "label": "label",
            "owner": "clinic",
            "test": str(folder / "public.csv"),
            "classes": 2,
            "records": 110,  # declared, hence public: about how many rows a clinic has
        },
        "model": {"kind": "own"},
        "topology": {"kind": "ring"},
        "algorithm": {"kind": "dyn-d2p", "lr": 1.0},
        "privacy": {"epsilon": 4.0, "delta": 1e-3, "sampling": {"kind": "poisson", "rate": 0.5}},
    }
    return gossamer.run(config, module=net, out=folder / "run")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        outcome = main(Path(folder))
        r = outcome.result
        print(f"accuracy {r['accuracy_mean']:.1%}, worst clinic {r['accuracy_min']:.1%}")
        print(f"proven ε = {r['epsilon_proven']:.2f} at δ = {r['delta']:g}, {r['adjacency']}, {r['unit']}")
