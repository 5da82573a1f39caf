"""Cells on an engine: processes of this machine beside a Dask scheduler with as many worker threads, in turn.

    python benchmarks/engines.py                    20 cells of the quickstart, 20 rounds each, 3 turns
    python benchmarks/engines.py --cells 8 --turns 1

Start-up: from nothing to the first cell's end, less a cell; of Dask the scheduler and one worker are started as well.
An empty cell is refused at once, for its version, in a process that is warm: what is left is the engine. Times are
medians over the turns, by the clock.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests.support

from tests.support.dask_cluster import Cluster

import gossamer
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.studies.jobs import Engine, train

EMPTY = 100


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def settings(seed: int, rounds: int) -> dict[str, Any]:
    config = resolve(recipes.read("quickstart"), {"rounds": rounds, "seed": seed, "privacy.noise.source": "seeded"})
    return config.model_dump(exclude_none=True)


@contextmanager
def dask(folder: Path) -> Any:
    there = Cluster(folder)
    try:
        there.add_worker(threads=cores())
        yield there.engine
    finally:
        there.close()


def turn(begun: AbstractContextManager[str], cells: int, rounds: int, folder: Path) -> dict[str, float]:
    folder.mkdir(parents=True)
    start = time.perf_counter()

    where = None

    def done(seeds: range, rounds: int = rounds) -> float:
        since = time.perf_counter()
        how = {"force": False, "version": gossamer.__version__ if rounds else "none"}
        places = {seed: folder / f"cell-{seed}" if where.here else None for seed in seeds}
        wait([executor.submit(train, settings(s, rounds or 1), places[s], None, **how) for s in seeds])
        return time.perf_counter() - since

    with begun as name:
        where = Engine(name)
        with where.open() as executor:
            done(range(cores()))  # every process has begun, imported and read
            first = time.perf_counter() - start
            found = {"real": done(range(1000, 1000 + cells)) / cells}
            found["empty"] = done(range(5000, 5000 + EMPTY), rounds=0) / EMPTY
    return {"start-up": first - found["real"], **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    how = parser.parse_args()
    seen: dict[str, list[dict[str, float]]] = {"local": [], "dask": []}
    with tempfile.TemporaryDirectory() as temporary:
        for k in range(how.turns):
            root = Path(temporary) / str(k)
            begin: dict[str, Callable[[], AbstractContextManager[str]]] = {
                "local": lambda: nullcontext("local"),
                "dask": lambda root=root: dask(root / "cluster"),  # type: ignore[misc]
            }
            for name in sorted(begin, reverse=bool(k % 2)):
                seen[name].append(turn(begin[name](), how.cells, how.rounds, root / name))
                print(name, {key: round(value, 4) for key, value in seen[name][-1].items()}, file=sys.stderr)
    middle = {
        name: {key: statistics.median(one[key] for one in turns) for key in turns[0]} for name, turns in seen.items()
    }
    print(f"{how.cells} cells of {how.rounds} rounds, {cores()} at a time, median of {how.turns} turns\n")
    print("| | local | dask | dask / local |\n|---|---|---|---|")
    for key, unit, scale in (
        ("start-up", "s", 1),
        ("empty", "ms a cell", 1000),
        ("real", "s a cell", 1),
    ):
        here, there = middle["local"][key] * scale, middle["dask"][key] * scale
        print(f"| {key} ({unit}) | {here:.3g} | {there:.3g} | {there / here:.2f} |")


if __name__ == "__main__":
    main()
