"""Round time of two ranks on two cores against the simulator on one: the same runs, one thread in every process.

    python benchmarks/processes.py                 a CNN and an MLP with 10⁶ parameters, interleaved, medians
    python benchmarks/processes.py --write         and put the table into docs/scaling.md

A round is a whole one of `gossamer run`: lots, gradients, clipping, noise, ledger, exchange. On a busy machine look at
the ratios and at the processor time: what else runs adds to the clock, hardly to the processor time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NODES, WARM_UP = 8, 3  # the first rounds compile kernels
TOPOLOGIES = ("one-peer-exponential", "ring")


def cnn() -> Any:
    """1,012,426 parameters, for 8×8 images."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 960), nn.ReLU(), nn.Linear(960, 10),
    )  # fmt: skip


def mlp() -> Any:
    """994,570 parameters."""
    from torch import nn

    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 960), nn.ReLU(), nn.Linear(960, 960), nn.ReLU(), nn.Linear(960, 10)
    )


MODELS = {"CNN": cnn, "MLP": mlp}


class Clock:
    """Wall and processor time at the end of every round."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []

    def on_round(self, done: int) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        self.times.append((time.perf_counter(), used.ru_utime + used.ru_stime))

    def on_evaluation(self, figures: dict[str, Any]) -> None:
        pass


def process_main(model: str, topology: str, runtime: str, rounds: int, out: str) -> None:
    """One process: the simulator or a rank. Prints the times of its rounds."""
    import torch

    import gossamer

    torch.manual_seed(0)  # the same module everywhere
    clock = Clock()
    changes = {
        "nodes": NODES, "rounds": rounds, "topology.kind": topology, "runtime.kind": runtime,
        "privacy.noise.source": "seeded", "privacy.claim": "none", "evaluation.every": rounds,
        "checkpoints.every": rounds, "algorithm.kind": "dyn-d2p",
    }  # fmt: skip
    outcome = gossamer.run("quickstart", changes, module=MODELS[model](), out=out, callbacks=[clock])
    walls, used = zip(*clock.times[WARM_UP:-1], strict=True)  # the last round has the evaluation
    print(
        json.dumps(
            {
                "walls": [b - a for a, b in itertools.pairwise(walls)],
                "cpu": (used[-1] - used[0]) / (len(used) - 1),
                "norms": outcome.points.double().norm(dim=1).tolist(),
            }
        )
    )


def measured(model: str, topology: str, ranks: int, rounds: int) -> list[dict[str, Any]]:
    """What each process printed."""
    from gossamer.runtime.launch import meeting_point, start_rank

    with tempfile.TemporaryDirectory() as folder:
        runtime = "processes" if ranks > 1 else "simulator"
        own = [model, topology, runtime, str(rounds), str(Path(folder) / "run")]
        command = [sys.executable, __file__, "--process", *own]
        os.environ["GOSSAMER_STATE"] = folder
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        if ranks == 1:
            started = [subprocess.Popen(command, env={**os.environ, **threads}, stdout=subprocess.PIPE)]
        else:
            os.environ |= threads
            store = meeting_point(600.0)
            started = [start_rank(command, rank, ranks, store.port, stdout=subprocess.PIPE) for rank in range(ranks)]
        printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"{model} on {ranks} ranks ended with {[process.returncode for process in started]}")
    return [json.loads(text.splitlines()[-1]) for text in printed]


def compare(model: str, topology: str, rounds: int, repeats: int) -> str:
    """A row of the table: medians over rounds and repetitions, the runtimes in turns."""
    walls: dict[int, list[float]] = {1: [], 2: []}
    cpu: dict[int, list[float]] = {1: [], 2: []}
    norms: dict[int, list[float]] = {}
    for _ in range(repeats):
        for ranks in (1, 2):
            answers = measured(model, topology, ranks, rounds)
            walls[ranks] += answers[0]["walls"]
            cpu[ranks].append(max(answer["cpu"] for answer in answers))
            norms[ranks] = [norm for answer in answers for norm in answer["norms"]]
    off = max(abs(b / a - 1) for a, b in zip(norms[1], norms[2], strict=True))
    one, two = (1e3 * statistics.median(walls[ranks]) for ranks in (1, 2))
    one_cpu, two_cpu = (1e3 * statistics.median(cpu[ranks]) for ranks in (1, 2))
    return (
        f"| {model} | {topology} | {one:.0f} | {two:.0f} | **{one / two:.2f}** | {one_cpu:.0f} | {two_cpu:.0f} "
        f"| {one_cpu / two_cpu:.2f} | {off:.0e} |"
    )


def write(lines: list[str]) -> None:
    page = Path(__file__).parents[1] / "docs" / "scaling.md"
    before, rest = page.read_text(encoding="utf-8").split("<!-- tables -->\n", 1)
    _, after = rest.split("<!-- end tables -->", 1)
    page.write_text(before + "<!-- tables -->\n" + "\n".join(lines) + "\n<!-- end tables -->" + after, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--process", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="put the table into docs/scaling.md")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--topologies", nargs="+", default=list(TOPOLOGIES))
    asked = parser.parse_args()
    if asked.process:
        model, topology, runtime, rounds, out = asked.process
        process_main(model, topology, runtime, int(rounds), out)
        return
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    lines = [
        f"Measured on {os.cpu_count()} cores; load before (1, 5, 15 minutes): {load}. {NODES} nodes, a lot of 45 "
        "records each; ms a round.",
        "",
        "| model | graph | simulator | 2 ranks | faster | processor time | of a rank | ratio | models differ by |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for model in asked.models:
        for topology in asked.topologies:
            lines.append(compare(model, topology, asked.rounds, asked.repeats))
            print(lines[-1], flush=True)
    if asked.write:
        write(lines)


if __name__ == "__main__":
    main()
