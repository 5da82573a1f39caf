"""What does it cost to clip persons instead of records? The same records, in turn, medians compared.

    python benchmarks/persons.py                 print
    python benchmarks/persons.py --quick         a few small cells, to see that it works

Every node has a lot of the same number of records; they are of persons with one record, with ten, with a hundred, or
with numbers between one and a hundred as they come. Gradients and clipped sums alone are timed: noise and messages are
the same. The target is twice the time of records.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from torch import Tensor, nn

from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.persons import Persons
from gossamer.kernels.stack import ParameterStack
from gossamer.models.networks import build

IMAGE = (1, 28, 28)
NETS = ("softmax", "mlp", "mnist-cnn", "shallow-cnn")
SIZES = ("1", "10", "100", "1 to 100")


def persons_of(size: str, nodes: int, lot: int) -> Persons:
    """Whose the records of the lots are; the last person of a lot has what is left."""
    draw = np.random.default_rng(0)
    each = []
    for _ in range(nodes):
        own: list[int] = []
        while sum(own) < lot:
            count = int(np.exp(draw.uniform(0, np.log(100)))) if size == "1 to 100" else int(size)
            own.append(min(count, lot - sum(own)))
        each.append(own)
    most = max(map(len, each))
    counts = torch.tensor([own + [0] * (most - len(own)) for own in each])
    of = torch.stack([torch.repeat_interleave(torch.arange(most), own) for own in counts])
    return Persons(of, counts)


def clip(norms: Tensor) -> Tensor:
    return (1 / norms.clamp_min(1e-30)).clamp_max(1.0)


def cell(name: str, nodes: int, lot: int, steps: int) -> list[float]:
    """Milliseconds of records, and of persons of each size."""
    torch.manual_seed(0)
    net: nn.Module = build(name, input_shape=IMAGE, outputs=10)
    stack = ParameterStack(net)
    points = stack.flatten(net).repeat(nodes, 1)
    x, y = torch.randn(nodes, lot, *IMAGE), torch.randint(0, 10, (nodes, lot))
    mask = torch.ones(nodes, lot, dtype=torch.bool)
    kernel = ClippedSum(net, nn.CrossEntropyLoss(reduction="none"), method="book-keeping")
    ways: list[Persons | None] = [None, *(persons_of(size, nodes, lot) for size in SIZES)]
    times: list[list[float]] = [[] for _ in ways]
    for step in range(steps + 1):
        for way, taken in zip(ways, times, strict=True):
            start = time.perf_counter()
            kernel(points, x, y, mask, clip, persons=way)
            if step:  # the first makes the kernel ready
                taken.append(time.perf_counter() - start)
    return [1000 * statistics.median(taken) for taken in times]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true")
    quick = options.parse_args().quick
    head = [f"persons of {size}" for size in SIZES]
    print("| network | nodes × lot | records, ms | " + " | ".join(head) + " |")
    print("|---|---|---|" + "---|" * len(head))
    for name in NETS[:2] if quick else NETS:
        nodes, lot, steps = (2, 50, 2) if quick else (10, 200, 9)
        plain, *others = cell(name, nodes, lot, steps)
        shown = " | ".join(f"{ms / plain:.2f}×" for ms in others)
        print(f"| {name} | {nodes} × {lot} | {plain:.1f} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
