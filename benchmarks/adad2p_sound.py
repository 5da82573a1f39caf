"""Learning rates for the sound forms of AdaD²P, ConstD²P and ClipD²P, on training rows held out: what the book takes.

    python benchmarks/adad2p_sound.py --data-dir FOLDER     # prints the table of docs/decisions/0083

The same proven ε, rounds and lots for all three, that ε which the paper's Proposition 2 as printed gives for its σ;
the clips are the paper's G and C, and AdaD²P's follows a private quantile of the norms. One seed a setting.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gossamer

COMMON: dict[str, Any] = {
    "mode": "sound",
    "rounds": 300,
    "seed": 100,
    "data.held_out": 5000,
    "evaluation.every": 300,
    "privacy.sampling.lot": 256,
}
MNIST: dict[str, Any] = {"model.hidden": [32]}
CIFAR: dict[str, Any] = {
    "model.kind": "shallow-cnn",
    "model.hidden": 64,
    "data.transform": [{"kind": "average-pool", "size": 4}, {"kind": "group-norm", "groups": 1}],
}
# recipe, settings, ε, G, C, learning rates
TASKS = {
    "mnist, σ = 0.02": ("adad2p/mnist", MNIST, 2.65, 3.5, 1.0, (0.1, 0.3, 1.0, 3.0)),
    "mnist, σ = 0.05": ("adad2p/mnist", MNIST, 1.06, 3.5, 1.0, (0.1, 0.3, 1.0, 3.0)),
    "cifar10, σ = 0.04": ("adad2p/cifar10", CIFAR, 2.0, 8.5, 3.0, (0.03, 0.1, 0.3, 1.0)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--task", action="append", choices=sorted(TASKS))
    asked = parser.parse_args()
    print(
        "| task | ε | method | learning rate | held-out accuracy (%) |\n|---|---|---|---|---|",
        flush=True,
    )
    for task in asked.task or TASKS:
        recipe, settings, epsilon, largest, clip, rates = TASKS[task]
        for kind, own in (
            ("adad2p", {}),
            ("constd2p", {"privacy.clip.bound": largest}),
            ("clipd2p", {"privacy.clip.bound": clip}),
        ):
            for rate in rates:
                changes = {
                    **COMMON,
                    **settings,
                    "algorithm.kind": kind,
                    **own,
                    "algorithm.lr": rate,
                    "privacy.epsilon": epsilon,
                }
                outcome = gossamer.run(recipe, changes, data_dir=asked.data_dir, progress=False)
                found = 100 * float(outcome.result["not_private"]["accuracy_mean"])
                print(f"| {task} | {epsilon:g} | {kind} | {rate:g} | {found:.1f} |", flush=True)


if __name__ == "__main__":
    main()
