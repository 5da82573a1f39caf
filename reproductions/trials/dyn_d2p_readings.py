"""C_0, ρ_c and ρ_μ for Dyn-D²P's Tables 1 and 2, by reading, on training rows held out: what the book takes.

    python reproductions/trials/dyn_d2p_readings.py --data-dir FOLDER     # the table of notes/dyn-d2p-readings.md

Dyn-D²P on 20 nodes, one seed a setting, 5,000 rows held out: on Fashion-MNIST at a claimed ε of 0.3 (or `--epsilon`)
and 1,000 rounds, on CIFAR-10 at 1 and 600. C_0 goes first, by Dyn-D²P's accuracy, then the ratios at the best of them.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gossamer

COMMON: dict[str, Any] = {"mode": "paper", "seed": 100, "data.held_out": 5000}
LOT: dict[str, Any] = {"privacy.sampling.kind": "fixed-size", "privacy.sampling.lot": 16}
POISSON: dict[str, Any] = {"privacy.sampling.kind": "poisson", "privacy.sampling.lot": 16}
MEAN: dict[str, Any] = {**LOT, "privacy.clip.of": "lot", "privacy.claim": "gdp-clt-lot"}
AS_ONE: dict[str, Any] = {**LOT, "privacy.claim": "gdp-clt-lot"}
MOMENTUM: dict[str, Any] = {"algorithm.momentum": 0.9}
NORMALISED: dict[str, Any] = {
    "data.transform": [{"kind": "affine", "mean": 0.286, "deviation": 0.353}]
}  # two public numbers
SMALL: dict[str, Any] = {
    "model.kind": "shallow-cnn",
    "data.transform": [{"kind": "group-norm", "groups": 1}],
    "evaluation.rows": 1000,
}


@dataclass(frozen=True)
class Search:
    changes: dict[str, Any]
    clips: tuple[float, ...]  # C_0
    ratios: tuple[tuple[float, float], ...] = (
        (9.0, 2.0),
        (3.0, 2.0),
        (9.0, 1.3),
    )  # ρ_c, ρ_μ; C_0 by the first
    recipe: str = "dyn-d2p/fashion-mnist"
    rounds: int = 1000
    epsilon: float = 0.3


SEARCHES = {
    "lots clipped, plain": Search(MEAN, (0.3, 1.0, 3.0)),
    "lots clipped, momentum": Search({**MEAN, **MOMENTUM}, (0.3, 1.0)),
    "records clipped, momentum": Search({**POISSON, **MOMENTUM}, (0.3, 1.0, 3.0)),
    "priced as one, momentum": Search({**AS_ONE, **MOMENTUM}, (3.0, 10.0, 30.0)),
    "priced as one, momentum: Const-D²P": Search(
        {**AS_ONE, **MOMENTUM}, (2.0, 4.0, 10.0), ((1.0, 1.0),)
    ),  # Dyn-D²P whose clip and budget do not change
    "one record, plain": Search({**POISSON, "privacy.sampling.lot": 1}, (1.0, 3.0)),
    "one record, momentum": Search({**POISSON, "privacy.sampling.lot": 1, **MOMENTUM}, (0.3, 1.0)),
    "records clipped, plain": Search(POISSON, (1.0, 3.0, 10.0)),
    "lots clipped, scaled": Search({**MEAN, **MOMENTUM, **NORMALISED}, (0.1, 0.3, 1.0)),
    "records clipped, scaled": Search({**POISSON, **MOMENTUM, **NORMALISED}, (0.3, 1.0, 3.0)),
    "priced as one, scaled": Search({**AS_ONE, **MOMENTUM, **NORMALISED}, (3.0, 10.0)),
    "CIFAR-10, priced as one, momentum": Search(
        {**AS_ONE, **MOMENTUM, **SMALL},
        (1.0, 2.0, 5.0, 10.0),
        ((9.0, 1.3), (3.0, 1.3)),
        "dyn-d2p/cifar10",
        600,
        1.0,
    ),
}


def accuracy(search: Search, start: float, ratios: tuple[float, float], asked: argparse.Namespace) -> float:
    outcome = gossamer.run(
        search.recipe,
        {
            **COMMON,
            **search.changes,
            "rounds": search.rounds,
            "evaluation.every": search.rounds,
            "privacy.epsilon": asked.epsilon or search.epsilon,
            "privacy.clip.start": start,
            "privacy.clip.ratio": ratios[0],
            "privacy.noise.schedule.ratio": ratios[1],
        },
        data_dir=asked.data_dir,
        progress=False,
    )
    return 100 * float(outcome.result["not_private"]["accuracy_mean"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--reading", action="append", choices=sorted(SEARCHES))
    parser.add_argument("--epsilon", type=float)
    asked = parser.parse_args()
    print("| reading | C_0 | ρ_c | ρ_μ | held-out accuracy (%) |\n|---|---|---|---|---|", flush=True)
    for reading in asked.reading or SEARCHES:
        search = SEARCHES[reading]

        def found(
            start: float,
            ratios: tuple[float, float],
            search: Search = search,
            reading: str = reading,
        ) -> float:
            per_cent = accuracy(search, start, ratios, asked)
            print(f"| {reading} | {start:g} | {ratios[0]:g} | {ratios[1]:g} | {per_cent:.1f} |", flush=True)
            return per_cent

        first, *others = search.ratios
        best = max((found(start, first), start) for start in search.clips)[1]
        for ratios in others:
            found(best, ratios)


if __name__ == "__main__":
    main()
