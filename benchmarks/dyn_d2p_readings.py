"""C_0, ρ_c and ρ_μ for Dyn-D²P's Table 2, by reading, on training rows held out: what the book's definition takes.

    python benchmarks/dyn_d2p_readings.py --data-dir FOLDER     # prints the table of docs/decisions/0070

Dyn-D²P at a claimed ε of 0.3 (or `--epsilon`), 1,000 rounds on 20 nodes, one seed a setting, 5,000 rows held out.
C_0 goes first, by Dyn-D²P's accuracy, then the ratios at the best of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gossamer

COMMON: dict[str, Any] = {
    "mode": "paper",
    "rounds": 1000,
    "seed": 100,
    "data.held_out": 5000,
    "evaluation.every": 1000,
}
LOT: dict[str, Any] = {"privacy.sampling.kind": "fixed-size", "privacy.sampling.lot": 16}
MEAN: dict[str, Any] = {**LOT, "privacy.clip.of": "lot", "privacy.claim": "gdp-clt-lot"}
CLIPS = (0.3, 1.0, 3.0)
READINGS: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
    "lots clipped, plain": (MEAN, CLIPS),
    "lots clipped, momentum": ({**MEAN, "algorithm.momentum": 0.9}, (0.3, 1.0)),
    "records clipped, priced as one, momentum": (
        {**LOT, "privacy.claim": "gdp-clt-lot", "algorithm.momentum": 0.9},
        (3.0, 10.0, 30.0),
    ),
    "records clipped, momentum": (
        {
            "privacy.sampling.kind": "poisson",
            "privacy.sampling.lot": 16,
            "algorithm.momentum": 0.9,
        },
        CLIPS,
    ),
    "one record, plain": (
        {"privacy.sampling.kind": "poisson", "privacy.sampling.lot": 1},
        (1.0, 3.0),
    ),
}
RATIOS = ((3.0, 2.0), (9.0, 1.3))  # ρ_c, ρ_μ beside the 9 and 2 that C_0 was chosen with


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--reading", action="append", choices=sorted(READINGS))
    parser.add_argument("--epsilon", type=float, default=0.3)
    asked = parser.parse_args()
    print("| reading | C_0 | ρ_c | ρ_μ | held-out accuracy (%) |\n|---|---|---|---|---|", flush=True)
    for reading in asked.reading or READINGS:
        changes, clips = READINGS[reading]

        def accuracy(
            start: float,
            clip: float,
            budget: float,
            reading: str = reading,
            changes: dict[str, Any] = changes,
        ) -> float:
            own = {
                "privacy.epsilon": asked.epsilon,
                "privacy.clip.start": start,
                "privacy.clip.ratio": clip,
                "privacy.noise.schedule.ratio": budget,
            }
            outcome = gossamer.run(
                "dyn-d2p/fashion-mnist",
                {**COMMON, **changes, **own},
                data_dir=asked.data_dir,
                progress=False,
            )
            found = 100 * float(outcome.result["not_private"]["accuracy_mean"])
            print(f"| {reading} | {start:g} | {clip:g} | {budget:g} | {found:.1f} |", flush=True)
            return found

        found = {start: accuracy(start, 9.0, 2.0) for start in clips}
        best = max(found, key=lambda start: found[start])
        for clip, budget in RATIOS:
            accuracy(best, clip, budget)


if __name__ == "__main__":
    main()
