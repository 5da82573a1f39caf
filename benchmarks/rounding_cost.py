"""What whole numbers cost: a draw and an exchange of 20 nodes, over those of a version without them.

    git worktree add ../before 2b3ef171
    python benchmarks/rounding_cost.py ../before           print
    python benchmarks/rounding_cost.py ../before --write   and rewrite the table in docs/performance.md

2b3ef171 is the last version that added float noise, and that computed a lot in a call as long as the lot. Of given
lots a step is that of `engine.py`: clipped sums, noise, mixing. Of Poisson lots it is a whole draw: coins, records,
clipped sums, the ledger's events (in memory), noise, mixing. Both versions keep a process each and take turns of some
steps one after the other; processor time of one thread, medians.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NODES, RECORDS = 20, 512
MODELS = {
    "softmax 784-10": "softmax",
    "MLP 784-128-10": "mlp",
    "MNIST CNN (1 conv)": "mnist-cnn",
    "shallow CNN (2 conv)": "shallow-cnn",
}
RESNETS = {"ResNet-9 (GroupNorm)": "resnet9", "ResNet-18 (GroupNorm)": "resnet18"}
LOTS = (1, 16, 64, 256)
AIM, TURNS, SECONDS = 1.15, 21, 0.15  # of a turn
Cell = tuple[str, int, int, str]  # network, nodes, lot, sampling


def step_of(network: str, nodes: int, lot: int, sampling: str) -> Callable[[], None]:
    """A step of the version on the path."""
    import numpy as np
    import torch
    from tests.support.mechanism import noise_of, private_mean
    from torch.nn import functional as F  # noqa: N812

    from gossamer.kernels.clipped_sum import ClippedSum
    from gossamer.kernels.mixing import MixPlan
    from gossamer.kernels.stack import ParameterStack
    from gossamer.mechanism.reader import Records
    from gossamer.mechanism.sampling import PoissonSampler
    from gossamer.models.networks import build

    torch.set_num_threads(1)
    torch.manual_seed(0)
    held, shape = (RECORDS, (1, 28, 28)) if network in MODELS.values() else (64, (3, 32, 32))
    module = build(network, input_shape=shape, outputs=10)
    points = ParameterStack(module).flatten(module) * (1 + 0.1 * torch.randn(nodes, 1))
    x, y = torch.randn(nodes, held, *shape), torch.randint(0, 10, (nodes * held,))
    kernel = ClippedSum(module, lambda outputs, y: F.cross_entropy(outputs, y, reduction="none"))
    if sampling == "given":
        grad = of_given_lot(kernel, x[:, :lot].contiguous(), y.view(nodes, held)[:, :lot].contiguous())
    else:
        grad, _ = private_mean(
            x,
            vector=kernel,
            records=Records(x.flatten(0, 1), y, [held] * nodes),
            sampler=PoissonSampler([lot / held] * nodes),
            noise=noise_of(1.0, nodes),
            lots=[float(lot)] * nodes,
            book=Nothing(),
        )
    mix = MixPlan((np.eye(nodes) + np.roll(np.eye(nodes), 1, 1)) / 2)

    def step() -> None:
        mix(torch.add(points, grad(points), alpha=-1e-4), out=points)

    return step


def of_given_lot(kernel: Any, x: Any, y: Any) -> Callable[[Any], Any]:
    """Noisy clipped sums of this lot: as `PrivateGradient` asks for them, in either version."""
    import torch

    from gossamer.kernels import noise

    stream, mask, draws = noise.Stream.seeded(0), torch.ones(y.shape, dtype=torch.bool), itertools.count()
    if hasattr(kernel, "expect"):
        kernel.expect(y.shape[1], varies=False)

    def sums(points: Any) -> Any:
        total = kernel(points, x, y, mask, lambda norms: (1 / (norms + 1e-6)).clamp(max=1.0))[0]
        if hasattr(stream, "whole_rows"):
            stream.whole_rows(0, range(len(y)), next(draws), total, 1 / noise.RATIO)
        else:
            stream.normal_rows(0, range(len(y)), next(draws), total, 1.0, accumulate=True)
        return total

    return sums


class Nothing:
    """A ledger that forgets."""

    def write(self, releases: object) -> None: ...


def serve() -> None:
    """Answer each line, the name of a cell, with the milliseconds of a step."""
    steps: dict[str, tuple[Callable[[], None], int]] = {}
    for line in sys.stdin:
        if line not in steps:
            steps.clear()
            network, nodes, lot, sampling = line.strip().split(",")
            step, start = step_of(network, int(nodes), int(lot), sampling), 0.0
            for _warm in range(3):
                start = time.process_time()
                step()
            steps[line] = step, max(1, round(SECONDS / (time.process_time() - start)))
        step, count = steps[line]
        start = time.process_time()
        for _ in range(count):
            step()
        print(1e3 * (time.process_time() - start) / count, flush=True)


def begin(root: Path) -> subprocess.Popen[str]:
    path = f"{root / 'src'}{os.pathsep}{root}"
    return subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(process: subprocess.Popen[str], cell: Cell) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    print(*cell, sep=",", file=process.stdin, flush=True)
    return float(process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", type=Path, help="a checkout of 2b3ef171")
    parser.add_argument("--write", action="store_true", help="rewrite the table in docs/performance.md")
    parser.add_argument("--only", default="", help="cells whose name has this, as softmax,16,Poisson")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    cells = [(net, NODES, lot, how) for net in MODELS for lot in LOTS for how in ("given", "Poisson")]
    cells += [(net, 2, 16, how) for net in RESNETS for how in ("given", "Poisson")]
    kinds, lines = MODELS | RESNETS, ["| model | n | lot | sampling | before, ms | now, ms | ratio |"]
    lines.append("|---|---|---|---|---|---|---|")
    versions = [begin(options.before), begin(ROOT)]
    for name, nodes, lot, sampling in cells:
        cell = kinds[name], nodes, lot, sampling
        if options.only not in ",".join(map(str, cell)):
            continue
        times: tuple[list[float], list[float]] = [], []
        for turn in range(options.turns):
            for which in (0, 1) if turn % 2 else (1, 0):
                times[which].append(ask(versions[which], cell))
        before, now = (statistics.median(own) for own in times)
        ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
        missed = "" if ratio <= AIM else " (missed)"
        lines.append(f"| {name} | {nodes} | {lot} | {sampling} | {before:.2f} | {now:.2f} | {ratio:.2f}{missed} |")
        print(lines[-1], flush=True)
    for process in versions:
        process.communicate()
    if options.write:
        from engine import write

        write("whole numbers", lines)


if __name__ == "__main__":
    main()
