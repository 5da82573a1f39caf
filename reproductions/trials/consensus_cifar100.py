"""Lots and rates for dp-consensus on the part of CIFAR-100, on training rows held out: what the book's Table 4 takes.

    python reproductions/trials/consensus_cifar100.py --data-dir FOLDER     # notes/dp-consensus-settings.md

Ten nodes, ten classes each (centrally all together), a linear layer on scattering, paper mode, one seed a trial, 1,000
of 6,000 rows held out. At ε = 10 rates fall to a fifth; DP-DSGD and DP-DSGT exchange ten times a round.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gossamer

COMMON: dict[str, Any] = {
    "mode": "paper",
    "seed": 100,
    "data.kind": "cifar100-part",
    "data.held_out": 1000,
    "data.transform": [
        "scattering", {"kind": "group-norm", "groups": 81}, "unit-norm", "random-projection", "unit-norm",
    ],
    "model": {"kind": "softmax", "bias": False},
    "evaluation.every": 100000,
}  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    "central": {
        "algorithm.kind": "dp-dsgd",
        "baseline": "central",
        "topology.kind": "complete",
        "data.partition.t": 0.0,
    },
    "dp-dsgd": {"algorithm.kind": "dp-dsgd", "topology.mixing": "uniform", "algorithm.mixes": 10},
    "dp-dsgt": {"algorithm.kind": "dp-dsgt", "topology.mixing": "uniform", "algorithm.mixes": 10},
    "dp-dinno": {"algorithm.kind": "dp-dinno", "algorithm.optimiser": "plain", "algorithm.steps": 1},
}
# method, ε (None: not private), rounds, lot per node, rate, ρ of DiNNO
TRIALS: tuple[tuple[str, float | None, int, float, float, float], ...] = (
    ("central", None, 100, 12.8, 20.0, 0.0),
    ("central", None, 300, 25.0, 60.0, 0.0),
    ("central", None, 300, 25.0, 100.0, 0.0),
    ("central", None, 300, 25.0, 200.0, 0.0),
    ("central", None, 300, 25.0, 400.0, 0.0),
    ("dp-dsgd", None, 300, 32.0, 20.0, 0.0),
    ("dp-dsgd", None, 300, 32.0, 60.0, 0.0),
    ("dp-dsgt", None, 300, 32.0, 20.0, 0.0),
    ("dp-dsgt", None, 300, 32.0, 60.0, 0.0),
    ("dp-dsgt", None, 300, 32.0, 100.0, 0.0),
    ("dp-dsgt", None, 300, 32.0, 200.0, 0.0),
    ("dp-dinno", None, 300, 32.0, 20.0, 0.004),
    ("dp-dinno", None, 300, 32.0, 60.0, 0.0013),
    ("central", 10.0, 100, 60.0, 8.0, 0.0),
    ("central", 10.0, 100, 60.0, 30.0, 0.0),
    ("dp-dsgd", 10.0, 100, 128.0, 8.0, 0.0),
    ("dp-dsgd", 10.0, 100, 128.0, 16.0, 0.0),
    ("dp-dsgt", 10.0, 100, 128.0, 8.0, 0.0),
    ("dp-dsgt", 10.0, 100, 128.0, 16.0, 0.0),
    ("dp-dinno", 10.0, 100, 128.0, 8.0, 0.01),
    ("dp-dinno", 10.0, 100, 128.0, 16.0, 0.005),
)


def changes(method: str, epsilon: float | None, rounds: int, lot: float, rate: float, rho: float) -> dict[str, Any]:
    found = {**COMMON, **METHODS[method], "rounds": rounds, "privacy.sampling.lot": lot}
    found |= {"algorithm.rho": rho} if rho else {}
    if epsilon is not None:
        clip = {"kind": "constant", "bound": 1.0}
        return {
            **found,
            "privacy.epsilon": epsilon,
            "privacy.clip": clip,
            "algorithm.lr": {"start": rate, "decay": 0.2},
        }
    found |= {"algorithm.lr": rate}
    if method != "central":
        return {**found, "baseline": "non-private"}
    return {
        **found,
        "privacy.clip.kind": "none",
        "privacy.noise.schedule.kind": "none",
        "privacy.epsilon": None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    asked = parser.parse_args()
    print("| method | ε | rounds | lot | rate | ρ | held out (%) |\n|---|---|---|---|---|---|---|", flush=True)
    for trial in TRIALS:
        method, epsilon, rounds, lot, rate, rho = trial
        outcome = gossamer.run("dp-consensus/mnist", changes(*trial), data_dir=asked.data_dir, progress=False)
        per_cent = 100 * float(outcome.result["not_private"]["accuracy_mean"])
        budget = "∞" if epsilon is None else f"{epsilon:g}"
        ratio = f"{rho:g}" if rho else ""
        print(f"| {method} | {budget} | {rounds} | {lot:g} | {rate:g} | {ratio} | {per_cent:.1f} |", flush=True)


if __name__ == "__main__":
    main()
