"""ε by observer of runs with exact means, and how long all pairs take.

    python benchmarks/network_view.py [--large] [--seeds 5]

Full lots whose ε against everyone is 6.57 at δ = 1e-5: the worst pair of nodes (with seed 0, and over all seeds), the
mean pair, the first two nodes together, the first quarter of them, and an outsider who sees the models. `--large` adds
1,024 nodes over 1,000 rounds.
"""

import argparse
import time

import numpy as np

from gossamer.accounting.network import (
    Exchanges,
    epsilon_by_node,
    epsilon_by_pair,
    epsilon_of_coalition,
    squared_outsider,
    views_of_alike_noise,
)
from gossamer.accounting.profiles import gdp_mu
from gossamer.accounting.releases import Gaussian, Release
from gossamer.topology.exact import Windows, orders

LOCAL, DELTA, RELATION = 6.57, 1e-5, "add-remove"


def histories(nodes: int, rounds: int) -> list[list[Release]]:
    sigma = rounds**0.5 / gdp_mu(LOCAL, DELTA)
    one = Gaussian(sigma=sigma, sensitivity=1.0, sampling="full", rate=1.0, adjacency=RELATION)
    return [[one] * rounds] * nodes


def line(nodes: int, rounds: int, seeds: int) -> str:
    released = histories(nodes, rounds)
    worst, usual, seconds = [], [], []
    coalitions: dict[int, list[float]] = {2: [], nodes // 4: []}
    for seed in range(seeds):
        exchanges = Exchanges(nodes, Windows(nodes).steps, orders(nodes, seed, 0, rounds))
        start = time.perf_counter()
        pairs = epsilon_by_pair(exchanges, views_of_alike_noise(exchanges), released, DELTA, RELATION)
        seconds.append(time.perf_counter() - start)
        worst.append(float(np.nanmax(pairs)))
        usual.append(float(np.nanmean(pairs)))
        for size, found in coalitions.items():
            if nodes <= 64:
                members = list(range(size))
                seen = epsilon_of_coalition(exchanges, members, released, DELTA, RELATION)
                found.append(float(np.nanmax(seen)))
    outside = float(epsilon_by_node(squared_outsider(np.ones((rounds, nodes))), released, DELTA, RELATION).max())
    joint = [f"{max(found):.2f}" if found else "" for found in coalitions.values()]
    if nodes // 4 == 2:
        joint = joint * 2
    return (
        f"| {nodes:,} | {rounds:,} | {Windows(nodes).exchanges} | {worst[0]:.2f} | {max(worst):.2f} | {usual[0]:.2f} | "
        f"{joint[0]} | {joint[1]} | {outside:.2f} | {seconds[0]:.1f} |"
    )


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--large", action="store_true")
    asked.add_argument("--seeds", type=int, default=5)
    given = asked.parse_args()
    print("| n | rounds | exchanges | worst pair | over seeds | mean pair | two | n/4 | outsider | seconds |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for nodes, rounds in ((8, 100), (20, 100), (64, 100), (1024, 100)):
        print(line(nodes, rounds, given.seeds if nodes <= 64 else 1), flush=True)
    if given.large:
        print(line(1024, 1000, 1), flush=True)


if __name__ == "__main__":
    main()
