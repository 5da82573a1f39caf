"""Settings for the sound forms of AdaD²P, ConstD²P and ClipD²P, on training rows held out: what the book takes.

    python reproductions/trials/adad2p_sound.py --data-dir FOLDER     # the table of notes/adad2p-sound-mode.md

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
    "seed": 100,
    "data.held_out": 5000,
    "evaluation.every": 300,
}
MNIST: dict[str, Any] = {"model.hidden": [32], "rounds": 300, "privacy.sampling.lot": 256}
CIFAR: dict[str, Any] = {
    "rounds": 100,
    "privacy.sampling.lot": 128,
    "model.kind": "shallow-cnn",
    "model.hidden": 64,
    "data.transform": [{"kind": "average-pool", "size": 4}, {"kind": "group-norm", "groups": 1}],
}
QUANTILE, BOUND = "privacy.clip.quantile", "privacy.clip.bound"
Rates = tuple[float, ...]
# recipe, settings, ε, and for each method its clip and the learning rates
TASKS: dict[str, tuple[str, dict[str, Any], float, list[tuple[str, str, float, Rates]]]] = {
    "mnist, σ = 0.02": (
        "adad2p/mnist",
        MNIST,
        2.65,
        [
            ("adad2p", QUANTILE, 0.5, (0.3, 1.0, 3.0)),
            ("adad2p", QUANTILE, 0.8, (0.3, 1.0)),
            ("constd2p", BOUND, 3.5, (0.3, 1.0, 3.0)),
            ("clipd2p", BOUND, 1.0, (0.3, 1.0, 3.0)),
        ],
    ),
    "mnist, σ = 0.05": (
        "adad2p/mnist",
        MNIST,
        1.06,
        [
            ("adad2p", QUANTILE, 0.5, (0.1, 0.3, 1.0)),
            ("adad2p", QUANTILE, 0.8, (0.1, 0.3, 1.0)),
            ("constd2p", BOUND, 3.5, (0.1, 0.3, 1.0)),
            ("clipd2p", BOUND, 1.0, (0.1, 0.3, 1.0, 3.0)),
        ],
    ),
    "cifar10, σ = 0.04": (
        "adad2p/cifar10",
        CIFAR,
        2.0,
        [
            ("adad2p", QUANTILE, 0.5, (0.3, 1.0)),
            ("adad2p", QUANTILE, 0.8, (0.1, 0.3, 1.0)),
            ("constd2p", BOUND, 8.5, (0.03, 0.1, 0.3, 1.0)),
            ("clipd2p", BOUND, 3.0, (0.1, 0.3, 1.0)),
        ],
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--task", action="append", choices=sorted(TASKS))
    asked = parser.parse_args()
    print("| task | ε | method | clip | learning rate | held-out accuracy (%) |", flush=True)
    print("|---|---|---|---|---|---|", flush=True)
    for task in asked.task or TASKS:
        recipe, settings, epsilon, methods = TASKS[task]
        for kind, key, clip, rates in methods:
            for rate in rates:
                own = {"algorithm.kind": kind, key: clip, "algorithm.lr": rate, "privacy.epsilon": epsilon}
                outcome = gossamer.run(recipe, {**COMMON, **settings, **own}, data_dir=asked.data_dir, progress=False)
                found = 100 * float(outcome.result["not_private"]["accuracy_mean"])
                what = f"{key.rsplit('.', maxsplit=1)[1]} {clip:g}"
                print(f"| {task} | {epsilon:g} | {kind} | {what} | {rate:g} | {found:.1f} |", flush=True)


if __name__ == "__main__":
    main()
