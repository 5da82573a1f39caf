"""Parcels between two sites over gRPC with mutual TLS, and rounds of whole studies beside ranks and the simulator.

    python benchmarks/peers.py             on the loopback, two processes, a parcel goes and comes back
    python benchmarks/peers.py --line      and over 80 ms there and back and 20 Mbit/s, against the physical floor
    python benchmarks/peers.py --rounds    and what a round of a study of four sites takes, by who runs it

Times are lower quartiles: what else runs on the machine only adds. Processor time is of both ends together.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests.support

from tests.support.chaos import Chaos
from tests.support.sites import Authority, member, wait_up

from gossamer.config.layers import resolve
from gossamer.consortium.demo import NAMES, prepare, recipe, start
from gossamer.consortium.grpc_links import GrpcLinks, Identity
from gossamer.results.rundir import config_text, read_metrics
from gossamer.runtime.launch import environment

FOREVER = 1e12
DELAY, RATE, SIZE = 0.04, 2.5e6, 400_000  # one way; bytes a second; bytes
NEAR, FAR = "near", "far"


def listen(near: Identity, far: Identity, pipe: Connection) -> None:
    """The far end, in a process of its own: sends back all that comes."""
    links = GrpcLinks(far, [member(near), member(far, "anywhere:1")], "127.0.0.1:0")
    pipe.send(links.port)
    while True:
        arrival = links.receive(time.monotonic() + 0.1)
        if arrival is not None:
            links.send(NEAR, arrival.message, FOREVER)
        if pipe.poll():
            if pipe.recv() == "end":
                links.close()
                return
            pipe.send(cpu())


def cpu() -> float:
    used = os.times()
    return used.user + used.system


def quartile(times: list[float]) -> float:
    return sorted(times)[len(times) // 4]


def exchange(links: GrpcLinks, size: int, count: int) -> list[float]:
    """Seconds there and back, one after the other."""
    parcel, times = os.urandom(size), []
    for _ in range(count):
        began = time.perf_counter()
        links.send(FAR, parcel, FOREVER)
        assert links.receive(FOREVER) is not None
        times.append(time.perf_counter() - began)
    return times


SITES, ROUNDS = 4, 100
MODELS: dict[str, dict[str, Any]] = {
    "softmax, 650 parameters": {},
    "MLP, 100,000 parameters": {"model": {"kind": "mlp", "hidden": [1333]}},
}
CHEAP = {"privacy.noise.schedule": {"kind": "constant"}, "evaluation.every": 5}


def rounds() -> None:
    """The demo's study with the same files: in one process, on a rank a node, and as sites."""
    print("\nmodel | simulator | ranks over gloo | sites    (milliseconds of a round)")
    for label, model in MODELS.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            found = [
                f"{1000 * seconds:.1f}"
                for seconds in (
                    run_alone(folder / "simulator", model, "simulator"),
                    run_alone(folder / "ranks", model, "processes"),
                    run_sites(folder / "sites", model),
                )
            ]
        print(" | ".join([label, *found]), flush=True)


def run_alone(folder: Path, model: dict[str, Any], runtime: str) -> float:
    """`gossamer run`, by the files that `prepare` makes."""
    folder.mkdir()
    prepare(folder, NAMES[:SITES], ROUNDS, changes={**CHEAP, **model})
    tables = recipe(SITES, ROUNDS)
    counts = [len((folder / f"{name}.csv").read_text().splitlines()) - 1 for name in NAMES[:SITES]]
    tables["data"] |= {
        "path": str(folder / "records-{node}.csv"), "test": str(folder / "test.csv"), "records": counts,
    }  # fmt: skip
    config = resolve(tables, {**CHEAP, **model})
    (folder / "recipe.toml").write_text(config_text(config.model_dump()))
    words = ["--runtime", runtime, *(["--set", f"runtime.ranks={SITES}"] if runtime == "processes" else [])]
    command = [sys.executable, "-P", "-m", "gossamer", "run", str(folder / "recipe.toml")]
    subprocess.run(
        [*command, "--out", str(folder / "run"), *words],
        env=environment(1), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return a_round(folder / "run")


def run_sites(folder: Path, model: dict[str, Any]) -> float:
    """`gossamer peer run` at every site, messages without ticks."""
    folder.mkdir()
    names = NAMES[:SITES]
    study = prepare(folder, names, ROUNDS, deadline=30.0, tick=0.0, changes={**CHEAP, **model})
    children = [start(folder, study, name, wait=120) for name in names]
    assert [child.wait(600) for child in children] == [0] * SITES
    return max(a_round(folder / name / "part" / "run") for name in names)


def a_round(run: Path) -> float:
    """Seconds, evaluations included: the lower quartile of the spans between two."""
    rows = read_metrics(run / "metrics.jsonl")[1:]
    return quartile([(b["seconds"] - a["seconds"]) / (b["round"] - a["round"]) for a, b in itertools.pairwise(rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--line", action="store_true", help="also over a long, thin line")
    parser.add_argument("--rounds", action="store_true", help="also rounds of a study")
    how = parser.parse_args()
    parcels(how.line)
    if how.rounds:
        rounds()


def parcels(line: bool) -> None:
    authority = Authority()
    near, far = authority.site(NEAR), authority.site(FAR)
    spawn = multiprocessing.get_context("spawn")
    pipe, theirs = spawn.Pipe()
    process = spawn.Process(target=listen, args=(near, far, theirs))
    process.start()
    port = pipe.recv()

    def both() -> Any:
        pipe.send("cpu")
        return cpu() + pipe.recv()

    links = GrpcLinks(near, [member(near), member(far, f"127.0.0.1:{port}")])
    assert wait_up(links, time.monotonic() + 60)
    print("bytes of a parcel | parcels/s | MB/s | CPU s/GB")
    for size, count in ((100, 1000), (400_000, 100), (40_000_000, 10)):
        exchange(links, size, 3)
        before = both()
        each = quartile(exchange(links, size, count)) / 2
        used = both() - before
        cost = f"{used / (2 * count * size) * 1e9:.1f}" if size > 1000 else "–"
        print(f"{size:>17,} | {1 / each:9.1f} | {size / each / 1e6:6.1f} | {cost}", flush=True)
    links.close()
    if line:
        chaos = Chaos(port, delay=DELAY, rate=RATE)
        links = GrpcLinks(near, [member(near), member(far, f"127.0.0.1:{chaos.port}")])
        assert wait_up(links, time.monotonic() + 60)
        exchange(links, SIZE, 3)
        there_and_back = quartile(exchange(links, SIZE, 12))
        floor = 2 * (DELAY + SIZE / RATE)
        print(f"{SIZE:,} bytes there and back over {2000 * DELAY:.0f} ms and {8e-6 * RATE:.0f} Mbit/s: ", end="")
        print(f"{1000 * there_and_back:.0f} ms, floor {1000 * floor:.0f} ms, ratio {there_and_back / floor:.2f}")
        links.close()
        chaos.close()
    pipe.send("end")
    process.join(20)


if __name__ == "__main__":
    main()
