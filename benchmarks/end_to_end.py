"""How long does a whole private run take, against what one would write instead: a loop of Opacus engines with gossip?

    python benchmarks/end_to_end.py [--data-dir DIR]     print
    python benchmarks/end_to_end.py --write              and rewrite the table in docs/performance.md

Ours is `gossamer run` as a process, from the command to the end: imports, calibration, ledgers, evaluations and the
certificate included. The loop's time includes importing torch and Opacus; it draws Poisson
lots by Opacus' own loader, clips and adds noise by its optimizer, and averages with one neighbour; nothing is
calibrated, written or scored. Of its rounds only some are run and the rest is
computed from them, which the table says. Both run in turn.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import engine
import numpy as np
import torch
from torch import nn

from gossamer.models.networks import build

MNIST = """
name = "mnist-cnn-10"
mode = "sound"
nodes = 10
rounds = {rounds}
[data]
kind = "mnist"
[model]
kind = "mnist-cnn"
[topology]
kind = "one-peer-exponential"
[algorithm]
kind = "dyn-d2p"
lr = 0.5
[privacy]
epsilon = 8.0
delta = 1e-5
adjacency = "add-remove"
sampling = {{ kind = "poisson", rate = {rate} }}
clip = {{ kind = "constant", bound = 1.0 }}
noise = {{ source = "system" }}
"""


def ours(recipe: str, data: str | None) -> float:
    """Seconds from the command to its end."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gossamer", "run", recipe, "--out", f"{folder}/run"]
        command += ["--data-dir", data] if data else []
        start = time.perf_counter()
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
        return time.perf_counter() - start


class Loop:
    """A node is an Opacus engine with its own loader, optimizer and module; a round is a step of each, then gossip."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, net: str, nodes: int, lot: int, noise: float) -> None:
        from opacus import PrivacyEngine

        first = build(net, input_shape=tuple(x.shape[1:]), outputs=10)
        self.nodes = []
        for own_x, own_y in zip(x.chunk(nodes), y.chunk(nodes), strict=True):
            module = copy.deepcopy(first)
            optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
            loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(own_x, own_y), batch_size=lot)
            made = PrivacyEngine().make_private(
                module=module, optimizer=optimizer, data_loader=loader, noise_multiplier=noise, max_grad_norm=1.0
            )  # fmt: skip
            self.nodes.append([*made, iter(made[2])])

    def round(self, t: int) -> None:
        for own in self.nodes:
            module, optimizer, loader, lots = own
            lot = next(lots, None)
            if lot is None:  # the pass is over
                own[3] = iter(loader)
                lot = next(own[3])
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(lot[0]), lot[1]).backward()
            optimizer.step()
        with torch.no_grad():
            before = [[p.clone() for p in own[0].parameters()] for own in self.nodes]
            hop = 2 ** (t % max(1, (len(self.nodes) - 1).bit_length()))
            for i, own in enumerate(self.nodes):
                for p, q in zip(own[0].parameters(), before[(i + hop) % len(self.nodes)], strict=True):
                    p.add_(q).mul_(0.5)


def loop_seconds(loop: Loop, measured: int, rounds: int) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import torch, opacus"], check=True, capture_output=True)
    imports = time.perf_counter() - start
    loop.round(0)
    start = time.perf_counter()
    for t in range(measured):
        loop.round(t)
    return imports + (time.perf_counter() - start) / measured * rounds


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.tensor(found.data / 16, dtype=torch.float32)[:1400], torch.tensor(found.target)[:1400]


def mnist(data: str) -> tuple[torch.Tensor, torch.Tensor]:
    with np.load(Path(data) / "mnist.npz") as file:
        x, y = (next(file[key] for key in keys if key in file) for keys in (("x_train", "x"), ("y_train", "y")))
    return torch.tensor(x, dtype=torch.float32).view(-1, 1, 28, 28) / 255, torch.tensor(y).long()


def rows(data: str | None, rounds: int) -> list[str]:
    found = [
        "| run | ours, s | a loop of Opacus engines, s | loop/ours | rounds of the loop | aim | missed |",
        "|---|---|---|---|---|---|---|",
    ]
    ours("quickstart", data)  # compiles what is not compiled yet
    x, y = digits()
    loop, pairs = Loop(x, y, "softmax", 8, len(x) // 8 // 4, 1.0), []
    for _ in range(3):
        pairs.append((ours("quickstart", data), loop_seconds(loop, 60, 300)))
    found.append(row("quickstart: 8 nodes, softmax 64-10, 300 rounds", pairs, "60 of 300", None))
    if data is not None:
        x, y = mnist(data)
        loop = Loop(x, y, "mnist-cnn", 10, 256, 1.0)
        with tempfile.TemporaryDirectory() as folder:
            recipe = Path(folder) / "mnist-cnn-10.toml"
            recipe.write_text(MNIST.format(rounds=rounds, rate=256 / 6000))
            pairs = [(ours(str(recipe), data), loop_seconds(loop, 40, rounds))]
        name = f"MNIST CNN: 10 nodes, lots of 256, {rounds:,} rounds"
        found.append(row(name, pairs, f"40 of {rounds:,}", 180 * rounds / 2000))
    return found


def row(name: str, pairs: list[tuple[float, float]], measured: str, aim: float | None) -> str:
    own, loop = (statistics.median(times) for times in zip(*pairs, strict=True))
    wanted, missed = ("none", "–") if aim is None else (f"≤ {aim:.0f} s", "yes" if own > aim else "no")
    made = f"| {name} | {own:.1f} | {loop:.1f} | {loop / own:.1f} | {measured} | {wanted} | {missed} |"
    print(made, flush=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("GOSSAMER_DATA"), help="where mnist.npz is")
    parser.add_argument("--rounds", type=int, default=2000, help="of the MNIST run")
    parser.add_argument("--write", action="store_true", help="rewrite the table in docs/performance.md")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    found = rows(options.data_dir, options.rounds)
    if options.write:
        engine.write("end to end", [engine.machine(), "", *found])


if __name__ == "__main__":
    main()
