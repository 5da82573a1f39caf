"""How fast is one private step of n nodes? Against a non-private loop and Opacus, in one interleaved run.

    python benchmarks/engine.py                  print
    python benchmarks/engine.py --write          and rewrite the tables in docs/performance.md
    python benchmarks/engine.py --quick          a few small cells, to see that it works

A step is: gradients of every node, noise, one exchange with the neighbours (the non-private loop draws no
noise). All contenders take their steps in turn, so that a busy moment of the machine hits all of them, and
medians are compared. The private ones are first checked to compute the same clipped sums.
"""

from __future__ import annotations

import argparse
import copy
import cProfile
import datetime
import os
import platform
import pstats
import statistics
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.mixing import MixPlan
from gossamer.kernels.noise import RATIO, Stream
from gossamer.kernels.stack import ParameterStack
from gossamer.models.networks import build

CLIP, SIGMA, LR = 1.0, 1.0, 0.01
DOCUMENT = Path(__file__).parent.parent / "docs" / "performance.md"


IMAGE, COLOUR = (1, 28, 28), (3, 32, 32)


def shipped(kind: str, shape: tuple[int, ...]) -> tuple[tuple[int, ...], Callable[[], nn.Module]]:
    """A network of the product, as recipes build it."""
    return shape, partial(build, kind, input_shape=shape, outputs=10)


NETS: dict[str, tuple[tuple[int, ...], Callable[[], nn.Module]]] = {
    "softmax 784-10": shipped("softmax", IMAGE),
    "MLP 784-128-10": shipped("mlp", IMAGE),
    "MNIST CNN (1 conv)": shipped("mnist-cnn", IMAGE),
    "shallow CNN (2 conv)": shipped("shallow-cnn", IMAGE),
    "ResNet-9 (GroupNorm)": shipped("resnet9", COLOUR),
    "ResNet-18 (GroupNorm)": shipped("resnet18", COLOUR),
    "softmax 54-7": ((54,), lambda: nn.Linear(54, 7)),
}
CNN = {1: 1.2, 16: 1.2, 64: 1.2, 256: 1.0}
AIMS = {  # lot -> smallest speed-up over Opacus hooks; lot -> largest cost against the non-private loop
    "softmax 784-10": ({16: 20, 64: 20, 256: 20}, dict.fromkeys(CNN, 1.0)),
    "MLP 784-128-10": ({1: 8, 64: 20, 256: 20}, dict.fromkeys(CNN, 1.0)),
    "MNIST CNN (1 conv)": ({16: 3.5}, CNN),
    "shallow CNN (2 conv)": ({16: 3.5}, CNN),
    "ResNet-9 (GroupNorm)": ({16: 1.6}, {16: 1.15}),
    "ResNet-18 (GroupNorm)": ({16: 1.6}, {16: 1.15}),
}
NOISE_AIM = 0.7  # G samples per second of one core


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


class Problem:
    """n nodes with a lot each, on a directed ring with self-loops."""

    def __init__(self, net: str, nodes: int, lot: int) -> None:
        shape, make = NETS[net]
        torch.manual_seed(0)
        self.module = make()
        self.stack = ParameterStack(self.module)
        self.points = self.stack.flatten(self.module) * (1 + 0.1 * torch.randn(nodes, 1))
        self.x, self.y = torch.randn(nodes, lot, *shape), torch.randint(0, 7, (nodes, lot))
        self.mask = torch.ones(nodes, lot, dtype=torch.bool)
        self.plan = MixPlan(band(nodes, 2))
        self.stream = Stream.seeded(0)
        self.nodes, self.lot, self.steps = nodes, lot, 0

    def modules(self) -> list[nn.Module]:
        """One module per node, its parameters views into that node's row: nothing is copied in or out."""
        modules = [copy.deepcopy(self.module) for _ in range(self.nodes)]
        for name, views in self.stack.views(self.points).items():
            owner, _, own = name.rpartition(".")
            for module, view in zip(modules, views, strict=True):
                setattr(module.get_submodule(owner), own, nn.Parameter(view))
        return modules


Gradient = Callable[[], Tensor]


def plain(problem: Problem) -> Gradient:
    modules, out = problem.modules(), torch.empty_like(problem.points)

    def gradient() -> Tensor:
        for i, module in enumerate(modules):
            loss = F.cross_entropy(module(problem.x[i]), problem.y[i], reduction="sum")
            parts = torch.autograd.grad(loss, list(module.parameters()))
            torch.cat([part.flatten() for part in parts], out=out[i])
        return out

    return gradient


def opacus_hooks(problem: Problem) -> Gradient:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    modules = [GradSampleModule(module, loss_reduction="sum") for module in problem.modules()]
    optimizers = [
        DPOptimizer(
            torch.optim.SGD(module.parameters(), lr=LR),
            noise_multiplier=0.0,
            max_grad_norm=CLIP,
            expected_batch_size=problem.lot,
            loss_reduction="sum",
        )
        for module in modules
    ]
    out = torch.empty_like(problem.points)

    def gradient() -> Tensor:
        for i, (module, optimizer) in enumerate(zip(modules, optimizers, strict=True)):
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(module(problem.x[i]), problem.y[i], reduction="sum").backward()
            optimizer.clip_and_accumulate()
            torch.cat([p.summed_grad.flatten() for p in module.parameters()], out=out[i])
            optimizer.zero_grad(set_to_none=True)
        return out

    return gradient


def opacus_ghost(problem: Problem) -> Gradient:
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

    modules = [
        GradSampleModuleFastGradientClipping(module, loss_reduction="sum", max_grad_norm=CLIP)
        for module in problem.modules()
    ]
    optimizers = [
        DPOptimizerFastGradientClipping(
            torch.optim.SGD(module.parameters(), lr=LR),
            noise_multiplier=0.0,
            max_grad_norm=CLIP,
            expected_batch_size=problem.lot,
            loss_reduction="sum",
        )
        for module in modules
    ]
    out = torch.empty_like(problem.points)

    def gradient() -> Tensor:
        for i, (module, optimizer) in enumerate(zip(modules, optimizers, strict=True)):
            losses = cross_entropy(module(problem.x[i]), problem.y[i])
            DPTensorFastGradientClipping(module, optimizer, losses, loss_reduction="sum").backward()
            torch.cat([p.grad.flatten() for p in module.parameters()], out=out[i])
            optimizer.zero_grad(set_to_none=True)
        return out

    return gradient


def ours(problem: Problem) -> Gradient:
    kernel = ClippedSum(problem.module, cross_entropy)
    kernel.expect(problem.lot, varies=False)

    def gradient() -> Tensor:
        return kernel(problem.points, problem.x, problem.y, problem.mask, weigh)[0]

    return gradient


def weigh(norms: Tensor) -> Tensor:
    return (CLIP / (norms + 1e-6)).clamp(max=1.0)


CONTENDERS = {"plain": plain, "hooks": opacus_hooks, "ghost": opacus_ghost, "ours": ours}


class Timed:
    """One contender's step, and the time of its three parts."""

    def __init__(self, problem: Problem, gradient: Gradient, private: bool) -> None:
        self.problem, self.gradient, self.private = problem, gradient, private
        self.parts: list[tuple[float, float, float]] = []

    def step(self) -> None:
        problem, start = self.problem, time.perf_counter()
        gradients = self.gradient()
        summed = time.perf_counter()
        problem.steps += 1
        if self.private:
            problem.stream.whole_rows(0, range(problem.nodes), problem.steps, gradients, SIGMA * CLIP / RATIO)
        noised = time.perf_counter()
        moved = torch.add(problem.points, gradients, alpha=-LR / problem.lot)
        problem.plan(moved, out=problem.points)
        self.parts.append((summed - start, noised - summed, time.perf_counter() - noised))

    def medians(self) -> tuple[float, float, float]:
        gradient, noise, mixing = (statistics.median(part) for part in zip(*self.parts, strict=True))
        return gradient, noise, mixing

    def total(self) -> float:
        return statistics.median(sum(parts) for parts in self.parts)


def measure(net: str, nodes: int, lot: int, seconds: float) -> dict[str, Timed]:
    timed: dict[str, Timed] = {}
    wanted: Tensor | None = None
    for name, make in CONTENDERS.items():
        problem = Problem(net, nodes, lot)
        contender = Timed(problem, make(problem), private=name != "plain")
        first = contender.gradient().clone()
        if contender.private:
            wanted = first if wanted is None else wanted
            error = float((first - wanted).norm() / wanted.norm())
            # Our norms are upper bounds, half a per cent above those of the longest sums, and so clip a little more.
            assert error < 1e-2, f"{name} computes something else: relative error {error}"
        contender.step()
        contender.parts.clear()
        timed[name] = contender
    rounds, start = 0, time.perf_counter()
    while rounds < 3 or (time.perf_counter() - start < seconds and rounds < 40):
        for contender in timed.values():
            contender.step()
        rounds += 1
    return timed


def engine_rows(cells: list[tuple[str, int, int]], seconds: float) -> list[str]:
    rows = [
        "Milliseconds of a step; shares of it in ours: gradient, noise, mixing, in per cent.",
        "",
        "| model | n | lot | plain | hooks | ghost | ours | hooks/ours | ghost/ours | ours/plain | shares | misses |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    profiles = []
    for net, nodes, lot in cells:
        timed = measure(net, nodes, lot, seconds)
        a, b, g, c = (1e3 * timed[name].total() for name in ("plain", "hooks", "ghost", "ours"))
        parts = timed["ours"].medians()
        shares = ", ".join(f"{100 * part / sum(parts):.0f}" for part in parts)
        speed, cost = AIMS[net]
        misses = [f"≥ {speed[lot]:g}× hooks"] if b / c < speed.get(lot, 0) else []
        misses += [f"≤ {cost[lot]:g}× plain"] if c / a > cost[lot] else []
        rows.append(
            f"| {net} | {nodes} | {lot} | {a:.1f} | {b:.1f} | {g:.1f} | {c:.1f} | {b / c:.1f} | {g / c:.1f} "
            f"| {c / a:.2f} | {shares} | {'; '.join(misses) or 'none'} |"
        )
        print(rows[-1], flush=True)
        if misses:
            profiles.append(f"- {net}, lot {lot} ({'; '.join(misses)}): {busiest(timed['ours'])}")
            print(profiles[-1], flush=True)
    if profiles:
        rows += [
            "",
            "Where a step of ours spends one core's time, in the rows that miss an aim:",
            "",
            *(textwrap.fill(line, 118, subsequent_indent="  ") for line in profiles),
        ]
    return rows


def busiest(timed: Timed, steps: int = 10) -> str:
    """The functions of Python, of numba and of torch in which a step spends most of its time, on one core."""
    threads, profile = torch.get_num_threads(), cProfile.Profile()
    torch.set_num_threads(1)
    with torch.profiler.profile() as of_torch:  # one after the other: each slows the other down
        for _ in range(steps):
            timed.step()
    profile.enable()
    for _ in range(steps):
        timed.step()
    profile.disable()
    torch.set_num_threads(threads)
    found = pstats.Stats(profile)
    whole = found.total_tt  # type: ignore[attr-defined]
    own = {
        "AES" if "update_into" in name else f"`{Path(place).stem}.{name}`": times[2]
        for (place, _, name), times in found.stats.items()  # type: ignore[attr-defined]
        if "gossamer" in place or "update_into" in name
    }
    torch_whole = sum(event.self_cpu_time_total for event in of_torch.key_averages())
    share = {name: 100 * spent / whole for name, spent in own.items()}
    # Of torch's operations the shares are of what torch spends: the rest of the step is in the functions above.
    rest = 100 - sum(share.values())
    for event in of_torch.key_averages():
        share[f"`{event.key}`"] = rest * event.self_cpu_time_total / max(torch_whole, 1e-9)
    top = sorted(share.items(), key=lambda item: -item[1])[:4]
    return ", ".join(f"{name} {part:.0f}%" for name, part in top)


def write(section: str, lines: list[str]) -> None:
    """Put lines between <!-- section --> and <!-- end of section --> of docs/performance.md."""
    before, _, rest = DOCUMENT.read_text().partition(f"<!-- {section} -->\n")
    _, _, after = rest.partition(f"<!-- end of {section} -->")
    text = "\n".join(lines)
    DOCUMENT.write_text(f"{before}<!-- {section} -->\n{text}\n<!-- end of {section} -->{after}")


def median_seconds(
    work: Callable[[], object], repeats: int = 15, clock: Callable[[], float] = time.perf_counter
) -> float:
    work()
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return statistics.median(times)


def noise_rows() -> list[str]:
    """Samples per second of one core's time: a large row, and many short ones."""
    stream, rows = (
        Stream.seeded(0),
        ["| noise, n × d | G samples per second of one core's time | misses |", "|---|---|---|"],
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for nodes, dim in ((1, 1 << 22), (20, 101_770), (10_000, 385)):
        out = np.zeros((nodes, dim), np.float32)
        add = partial(stream.whole_rows, 0, range(nodes), 0, out, 1.0 / RATIO)
        rate = out.size / median_seconds(add, clock=time.thread_time) / 1e9
        missed = "none" if rate >= NOISE_AIM else f"≥ {NOISE_AIM:g}"
        rows.append(f"| {nodes:,} × {dim:,} | {rate:.2f} | {missed} |")
    comparison = torch.empty(1 << 22)
    rate = comparison.numel() / median_seconds(comparison.normal_, clock=time.thread_time) / 1e9
    rows.append(f"| torch.normal_, for comparison | {rate:.2f} | – |")
    torch.set_num_threads(threads)
    return rows


def band(nodes: int, degree: int) -> scipy.sparse.csr_array:
    """Every node hears itself and the degree − 1 nodes after it."""
    shifts = [*range(degree), *(k - nodes for k in range(1, degree))]
    weights = [1 / degree] * len(shifts)
    return scipy.sparse.csr_array(scipy.sparse.diags_array(weights, offsets=shifts, shape=(nodes, nodes)))


def mixing_rows() -> list[str]:
    rows = ["| mixing, n × d, neighbours with itself | ms | `y += x` ms | ratio |", "|---|---|---|---|"]
    sizes = [(20, 101_770, 2), (20, 101_770, 5), (20, 101_770, 20), (200, 101_770, 2), (200, 101_770, 5)]
    for nodes, dim, degree in [*sizes, (1000, 26_010, 3), (10_000, 385, 3)]:
        x, y = torch.randn(nodes, dim), torch.randn(nodes, dim)
        mix, add = partial(MixPlan(band(nodes, degree)), x, torch.empty_like(x)), partial(y.add_, x)
        pairs = [(median_seconds(mix, 3), median_seconds(add, 3)) for _ in range(7)]
        mixing, adding = (1e3 * statistics.median(times) for times in zip(*pairs, strict=True))
        rows.append(f"| {nodes:,} × {dim:,}, {degree} | {mixing:.2f} | {adding:.2f} | {mixing / adding:.1f} |")
    return rows


def scale_rows() -> list[str]:
    """Whole private steps of very many nodes; n doubled to see that the cost is linear."""
    rows = ["| many nodes | n | lot | ms per step | µs per node |", "|---|---|---|---|---|"]
    small, large = "softmax 54-7", "MLP 784-128-10"
    for net, nodes in ((small, 5_000), (small, 10_000), (large, 500), (large, 1_000)):
        problem = Problem(net, nodes, 16)
        timed = Timed(problem, ours(problem), private=True)
        for _ in range(5):
            timed.step()
        timed.parts.pop(0)
        seconds = timed.total()
        rows.append(f"| {net} | {nodes:,} | 16 | {1e3 * seconds:.0f} | {1e6 * seconds / nodes:.1f} |")
    return rows


def memory_rows() -> list[str]:
    """Peak memory of data, parameters and three steps, each contender in a process of its own."""
    rows = ["| peak memory, MLP 784-128-10, n = 20, lot 256 | MB | against plain |", "|---|---|---|"]
    peaks = {}
    for name in CONTENDERS:
        command = [sys.executable, __file__, "--peak", name]
        peaks[name] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows.append(f"| {name} | {peaks[name]:.0f} | {peaks[name] / peaks['plain']:.2f} |")
    return rows


def print_peak(name: str) -> None:
    problem = Problem("MLP 784-128-10", 20, 256)
    held = sum(t.numel() * t.element_size() for t in (problem.x, problem.y, problem.points))
    before = resident("VmRSS")
    timed = Timed(problem, CONTENDERS[name](problem), private=name != "plain")
    for _ in range(3):
        timed.step()
    print((resident("VmHWM") - before + held) / 2**20)


def resident(field: str) -> int:
    """Bytes of this process in memory now (VmRSS) or at its peak (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def machine() -> str:
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"Measured {today} on {model}, {os.cpu_count()} cores, torch {torch.__version__},\n"
        f"{torch.get_num_threads()} threads; load before the run (1, 5, 15 minutes): {load}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two models, two lots, a second each")
    parser.add_argument("--write", action="store_true", help="rewrite the tables in docs/performance.md")
    parser.add_argument("--peak", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="Full backward hook")
    warnings.filterwarnings("ignore", module="opacus")
    if options.peak:
        print_peak(options.peak)
        return
    nets = list(NETS)
    cells = [(net, 20, lot) for net in nets[:4] for lot in (1, 16, 64, 256)] + [(net, 2, 16) for net in nets[4:6]]
    if options.quick:
        cells = [(net, 20, lot) for net in (nets[1], nets[3]) for lot in (1, 16)]
    lines = [machine(), ""]
    print(lines[0])
    sections = [noise_rows, mixing_rows, scale_rows, memory_rows]
    lines += engine_rows(cells, 1.0 if options.quick else 5.0)
    for section in sections[:1] if options.quick else sections:
        rows = section()
        print("\n".join(rows), flush=True)
        lines += ["", *rows]
    if options.write:
        write("tables", lines)


if __name__ == "__main__":
    main()
