"""Audit sound runs on fixed seeds and print how far the bounds get: none may exceed what is proven.

    python benchmarks/audit.py [--seeds 20] [--out results.jsonl]

DP-DSGD and Dyn-D2P at ε = 1, 4 and 10, with all records in every draw (q = 1) and with a quarter of them. Lines
that are in the file already are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from gossamer.auditing import verdict as verdicts
from gossamer.auditing.attacks import attack_of
from gossamer.config.layers import resolve
from gossamer.config.recipes import read
from gossamer.training.plan import Plan

METHODS = {"dp-dsgd": {"topology.kind": "ring"}, "dyn-d2p": {}}
SAMPLING = {"full": {"kind": "full"}, "quarter": {"kind": "poisson", "rate": 0.25}}


def one(method: str, epsilon: float, sampling: str, seed: int) -> dict[str, object]:
    changes = {
        "algorithm.kind": method,
        "privacy.epsilon": epsilon,
        "privacy.noise.source": "seeded",
        "privacy.sampling": SAMPLING[sampling],
        "rounds": 100,
        "seed": seed,
        **METHODS[method],
    }
    start = time.perf_counter()
    config = resolve(read("quickstart"), changes)
    o = Plan.of(config)
    attack = attack_of(o, "all", None)
    figures = o.privacy.figures()
    _, verdict = verdicts.try_until_decided(
        attack,
        figures["delta"],
        0.999,
        verdicts.promised(figures, "sound", o.privacy.trade_off()),
        attack.runs,
    )
    return {
        "method": method,
        "epsilon": epsilon,
        "sampling": sampling,
        "seed": seed,
        "proven": figures["epsilon_proven"],
        "bounds": {bound.name: bound.epsilon for bound in verdict.bounds},
        "violated": list(verdict.violated),
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("audit-sound.jsonl"))
    given = parser.parse_args()
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.is_file() else []
    done = {(line["method"], line["epsilon"], line["sampling"], line["seed"]): line for line in lines}
    for sampling in SAMPLING:
        for seed in range(given.seeds):
            for method in METHODS:
                for epsilon in (1.0, 4.0, 10.0):
                    key = (method, epsilon, sampling, seed)
                    if key not in done:
                        done[key] = one(*key)
                        with given.out.open("a") as file:
                            file.write(json.dumps(done[key]) + "\n")
    print("| method | sampling | proven ε | seeds | threshold, largest | Gaussian DP / proven, mean | violations |")
    print("|---|---|---|---|---|---|---|")
    for method in METHODS:
        for sampling in SAMPLING:
            for epsilon in (1.0, 4.0, 10.0):
                cells = [v for k, v in done.items() if k[:3] == (method, epsilon, sampling)]
                largest = max(cell["bounds"]["threshold"] for cell in cells)
                share = sum(cell["bounds"]["Gaussian DP"] / cell["proven"] for cell in cells) / len(cells)
                broken = sum(bool(cell["violated"]) for cell in cells)
                proven = max(cell["proven"] for cell in cells)
                print(
                    f"| {method} | {sampling} | {proven:.3g} | {len(cells)} | {largest:.3g} | {share:.0%} | {broken} |"
                )


if __name__ == "__main__":
    main()
