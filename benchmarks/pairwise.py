"""What masks cost beside plain noise, and what coalitions of other sizes than planned learn; for docs/pairwise.md.

    python benchmarks/pairwise.py [--into docs/pairwise.md]

Rivals are drawn in turn, in one process, and compared by their medians.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from gossamer.accounting.profiles import gdp_epsilon, gdp_mu
from gossamer.accounting.secrets import Secrets
from gossamer.kernels.noise import Stream
from gossamer.mechanism.clipping import Constant
from gossamer.mechanism.noise import Levels
from gossamer.mechanism.noise.gaussian import GaussianNoise
from gossamer.mechanism.noise.pairwise import PairwiseAmong

NODES, DIMENSION, TIMES = 20, 100_000, 15


def speed() -> str:
    levels = Levels(torch.ones(NODES, dtype=torch.float64), Constant(1.0))
    kind = PairwiseAmong(secrets=Secrets.complete(NODES), colluders=1, ratio=100.0)
    masked = kind.make(levels, np.full(NODES, math.inf), "float")
    system, seeded = Stream.system(), Stream.seeded(0)
    rivals = {
        "own noise alone": (GaussianNoise(levels), system),
        "own noise and the masks of all pairs, at once": (masked, system),
        "the same, pair by pair (seeded; what processes do)": (masked, seeded),
    }
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    sums, ones = torch.zeros(NODES, DIMENSION), torch.ones(NODES, dtype=torch.float64)
    for k in range(TIMES + 2):
        for name, (noise, stream) in rivals.items():
            start = time.perf_counter()
            noise.add(stream, range(NODES), k, sums, multiplier=ones, bound=ones, active=ones > 0)
            if k >= 2:
                seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    plain = next(iter(medians.values()))
    rows = [f"| {name} | {1000 * found:.1f} | {found / plain:.1f} |" for name, found in medians.items()]
    head = f"| {NODES} nodes, {DIMENSION:,} numbers each | ms a draw | ratio |\n|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def colluders() -> str:
    secrets, planned = Secrets.complete(NODES), 1
    mu = gdp_mu(1.0, 1e-5)
    shown = [0, 1, 2, 5, 10, 15, 18, 19]
    found = [
        gdp_epsilon(mu * secrets.effective_noise(planned, 100.0) / secrets.effective_noise(q, 100.0), 1e-5)
        for q in shown
    ]
    return (
        f"| q | {' | '.join(map(str, shown))} |\n|{'---|' * (len(shown) + 1)}\n"
        f"| ε | {' | '.join(f'{epsilon:.2f}' for epsilon in found)} |\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path)
    into = parser.parse_args().into
    tables = {"speed": speed(), "colluders": colluders()}
    for table in tables.values():
        print(table)
    if into is not None:
        text = into.read_text(encoding="utf-8")
        for name, table in tables.items():
            before, _, rest = text.partition(f"<!-- {name} -->\n")
            text = f"{before}<!-- {name} -->\n{table}{rest[rest.index('<!-- end -->') :]}"
        into.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
