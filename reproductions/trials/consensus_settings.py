"""Rates, clips and weights for dp-consensus on MNIST, on training rows held out: what the book's definition takes.

    python reproductions/trials/consensus_settings.py --data-dir FOLDER [--rows 4-9]  # notes/dp-consensus-settings.md

One digit a node, ten nodes, paper mode, one seed a trial, 5,000 rows held out. Rates fall from the first to the last
by the same factor every round. ρ is DiNNO's, whose Adam is started afresh every round, as in the authors' code.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gossamer

NORMALISED = [{"kind": "affine", "mean": 0.1307, "deviation": 0.3081}]  # the authors' two numbers
COMMON: dict[str, Any] = {
    "mode": "paper",
    "seed": 100,
    "data.held_out": 5000,
    "evaluation.every": 100000,
}


@dataclass(frozen=True)
class Trial:
    method: str
    fiedler: float
    epsilon: float | None  # None: not private
    rounds: int
    lot: float
    first: float  # learning rate
    last: float
    clip: float = 10.0
    rho: float = 0.5
    mixing: str = "uniform"
    mixes: int = 1
    clipped: bool = False  # without noise, but clipped all the same

    def changes(self) -> dict[str, Any]:
        changes = {
            **COMMON,
            "rounds": self.rounds,
            "data.transform": NORMALISED,
            "algorithm.kind": self.method,
            "algorithm.lr": {"start": self.first, "decay": self.last / self.first},
            "privacy.sampling": {"kind": "poisson", "lot": self.lot},
            "privacy.clip": {"kind": "constant", "bound": self.clip},
        }
        if self.method == N:
            changes |= {"algorithm.optimiser": "adam", "algorithm.rho": self.rho}
        else:
            changes |= {"topology.mixing": self.mixing, "algorithm.mixes": self.mixes}
        changes |= {"topology.kind": "complete"} if self.fiedler == 1 else {"topology.value": self.fiedler}
        if self.clipped:
            changes |= {"privacy.noise.schedule": {"kind": "none"}, "privacy.epsilon": None}
        elif self.epsilon is None:
            changes["baseline"] = "non-private"
        else:
            changes["privacy.epsilon"] = self.epsilon
        return changes

    def row(self) -> str:
        how = [f"ρ = {self.rho:g}"] if self.method == N else []
        how += [self.mixing] if self.mixing != "uniform" else []
        how += [f"{self.mixes} exchanges"] if self.mixes > 1 else []
        budget = "∞" if self.epsilon is None else f"{self.epsilon:g}"
        clip = "—" if self.epsilon is None and not self.clipped else f"{self.clip:g}"
        return (
            f"| {self.method} | {self.fiedler:g} | {budget} | {self.rounds} | {self.lot:g} | {clip} "
            f"| {self.first:g} → {self.last:g} | {', '.join(how)} |"
        )


D, T, N = "dp-dsgd", "dp-dsgt", "dp-dinno"
TRIALS = (
    Trial(N, 1, None, 800, 64, 0.005, 0.0005),
    Trial(T, 1, None, 800, 64, 0.16, 0.01),
    Trial(D, 0.06, None, 800, 64, 0.1, 0.0005, mixing="metropolis"),
    Trial(N, 0.06, None, 800, 64, 0.005, 0.0005),
    Trial(T, 1, 1.0, 1000, 64, 0.12, 0.01),
    Trial(D, 1, 1.0, 2000, 32, 0.0365, 0.005),
    Trial(D, 0.06, None, 2000, 32, 0.1, 0.0005),
    Trial(N, 1, 1.0, 2000, 32, 0.01, 0.0005),
    Trial(D, 0.06, 1.0, 2000, 32, 0.0365, 0.005),
    Trial(T, 0.06, 1.0, 1000, 64, 0.12, 0.01),
    Trial(N, 0.06, 1.0, 2000, 32, 0.01, 0.0005),
    Trial(N, 0.06, 1.0, 1000, 64, 0.015, 0.0005, clip=2.0),
    Trial(D, 0.06, 1.0, 1000, 64, 0.15, 0.003, clip=3.0, mixing="metropolis", mixes=3),
    Trial(N, 0.06, None, 1000, 64, 0.0075, 0.0005, rho=2.0),
    Trial(D, 0.06, None, 1000, 64, 0.2, 0.001, mixing="metropolis", mixes=3),
    Trial(D, 0.06, None, 1000, 32, 0.1, 0.001, mixing="metropolis", mixes=3),
    Trial(D, 0.06, None, 1000, 32, 0.2, 0.001, clip=3.0, mixing="metropolis", mixes=3, clipped=True),
    # Without privacy on the sparse graph, where one of three runs was thrown off.
    Trial(D, 0.06, None, 2000, 64, 0.1, 0.0005, mixing="metropolis", mixes=3),
    Trial(D, 0.06, None, 2000, 64, 0.1, 0.0005, mixing="metropolis", mixes=5),
    # ε = 10 and 0.5.
    Trial(T, 0.06, 10.0, 1000, 64, 0.348, 0.01),
    Trial(T, 0.06, 10.0, 1000, 64, 0.348, 0.01, clip=3.0),
    Trial(D, 1, 10.0, 1000, 64, 0.15, 0.003, clip=3.0),
    Trial(D, 0.06, 10.0, 1000, 64, 0.15, 0.003, clip=3.0, mixing="metropolis", mixes=3),
    Trial(N, 1, 10.0, 1000, 64, 0.015, 0.0005, clip=2.0),
    Trial(N, 0.06, 10.0, 1000, 64, 0.015, 0.0005, clip=2.0),
    Trial(T, 0.06, 10.0, 2000, 256, 0.174, 0.005),
    Trial(T, 1, 0.5, 1000, 64, 0.06, 0.01),
    Trial(D, 1, 0.5, 1000, 64, 0.15, 0.003, clip=3.0),
    Trial(D, 0.06, 0.5, 1000, 64, 0.15, 0.003, clip=3.0, mixing="metropolis", mixes=3),
    Trial(N, 1, 0.5, 1000, 64, 0.015, 0.0005, clip=2.0),
    Trial(N, 0.06, 0.5, 1000, 64, 0.015, 0.0005, clip=2.0),
    # ε = 10 with larger lots and longer steps.
    Trial(T, 0.06, 10.0, 1000, 128, 0.7, 0.02),
    Trial(T, 0.06, 10.0, 1000, 128, 0.348, 0.05),
    Trial(D, 1, 10.0, 1000, 128, 0.3, 0.006, clip=3.0),
    Trial(D, 1, 10.0, 1000, 128, 0.3, 0.03, clip=3.0),
    Trial(N, 1, 10.0, 1000, 128, 0.0075, 0.0005, clip=2.0),
    Trial(N, 1, 10.0, 1000, 128, 0.0075, 0.0005, rho=2.0, clip=2.0),
    Trial(T, 0.06, 10.0, 2000, 128, 0.5, 0.01),
    Trial(N, 1, 10.0, 1000, 128, 0.015, 0.0005, clip=1.0),
    Trial(N, 1, 10.0, 1000, 256, 0.0075, 0.0005, clip=2.0),
    Trial(T, 0.06, 10.0, 1000, 128, 1.0, 0.02),
    Trial(D, 0.06, 10.0, 1000, 128, 0.15, 0.003, clip=3.0, mixing="metropolis", mixes=3),
    Trial(N, 1, 10.0, 2000, 128, 0.0075, 0.0005, clip=1.0),
    Trial(N, 1, 10.0, 1000, 128, 0.0075, 0.0005, clip=5.0),
    Trial(N, 1, 10.0, 1000, 128, 0.005, 0.00025, clip=5.0),
    Trial(N, 0.06, 10.0, 1000, 128, 0.0075, 0.0005, clip=2.0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--rows", help="first-last, from 1; all of them without it")
    asked = parser.parse_args()
    first, last = map(int, asked.rows.split("-")) if asked.rows else (1, len(TRIALS))
    head = (
        "method", "Fiedler", "ε", "rounds", "lot", "clip", "lr, first → last", "else",
        "held out (%)", "worst node", "s",
    )  # fmt: skip
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    for trial in TRIALS[first - 1 : last]:
        began = time.process_time()
        outcome = gossamer.run("dp-consensus/mnist", trial.changes(), data_dir=asked.data_dir, progress=False)
        found = outcome.result["not_private"]
        mean, worst = (100 * float(found[key]) for key in ("accuracy_mean", "accuracy_min"))
        print(f"{trial.row()} {mean:.1f} | {worst:.1f} | {time.process_time() - began:.0f} |", flush=True)


if __name__ == "__main__":
    main()
