"""A step of the models people train: a transformer, attention by hand, LSTM, LoRA on MiniLM, a small network.

    python benchmarks/models.py             print
    python benchmarks/models.py --write     and rewrite the table in docs/performance.md

Gradients of every node, clipped, against a loop without privacy and against Opacus' per-sample gradients (on the module
that its `ModuleValidator.fix` makes), both node by node. Rivals take turns; medians of processor time and of wall time.
MiniLM's weights are fetched.
"""

from __future__ import annotations

import argparse
import copy
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import gossamer
from gossamer.kernels.bookkeeping import BookKeeping
from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.stack import ParameterStack
from gossamer.models.networks import build

DOCUMENT = Path(__file__).parent.parent / "docs" / "performance.md"
TOKENS, WIDTH, CLASSES = 64, 128, 10


class Read(nn.Module):
    """Tokens, layers, the mean of all positions, a head."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.table, self.body, self.head = nn.Embedding(1000, WIDTH), body, nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        out = self.body(self.table(tokens))
        found: Tensor = self.head((out[0] if isinstance(out, tuple) else out).mean(1))
        return found


class Attention(nn.Module):
    """As one writes it by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.joined, self.out, self.norm = (
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.LayerNorm(WIDTH),
        )

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, 4, width // 4).transpose(1, 2) for part in self.joined(x).split(width, 2))
        found = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, length, width)
        return self.norm(x + self.out(found))


def minilm() -> nn.Module:
    targets = [f"layers.{k}.{own}" for k in (4, 5) for own in ("query", "value")]
    return gossamer.lora(build("minilm", input_shape=(TOKENS,), outputs=2), rank=4, targets=targets, train=["head"])


def transformer() -> nn.Module:
    return Read(nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, 0.0, batch_first=True), 2))


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, CLASSES))


# Name, module, nodes, lot, aims: largest multiples of plain and of Opacus.
MODELS: list[tuple[str, Callable[[], nn.Module], int, int, float | None, float | None]] = [
    ("transformer, 2 layers", transformer, 2, 16, 1.3, 0.6),
    ("attention by hand", lambda: Read(Attention()), 2, 16, 1.5, None),
    ("LSTM", lambda: Read(nn.LSTM(WIDTH, WIDTH, batch_first=True)), 2, 16, 4.0, None),
    ("MLP of 19,210 parameters", small, 4, 16, None, 1.0),
    ("LoRA on MiniLM", minilm, 1, 32, 1.3, None),
]


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def contenders(make: Callable[[], nn.Module], nodes: int, lot: int) -> dict[str, Callable[[], object]]:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from opacus.validators import ModuleValidator

    torch.manual_seed(0)
    module = make()
    tokens = torch.randint(1, 1000, (nodes, lot, TOKENS))
    x = torch.randn(nodes, lot, 64) if make is small else tokens
    y, mask = torch.randint(0, 2, (nodes, lot)), torch.ones(nodes, lot, dtype=torch.bool)
    points = ParameterStack(module).flatten(module).repeat(nodes, 1)
    kernel = ClippedSum(module, loss)
    kernel.expect(lot, varies=False)
    kernel.try_on(x, y)
    if not isinstance(kernel.method, BookKeeping) and make is not small:
        raise SystemExit(f"{type(module).__name__} is not book-kept")
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    rival = GradSampleModule(ModuleValidator.fix(copy.deepcopy(module)), loss_reduction="sum")
    sgd = torch.optim.SGD([p for p in rival.parameters() if p.requires_grad], lr=0.0)
    clip = DPOptimizer(sgd, noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=lot, loss_reduction="sum")

    def plain() -> None:
        for node in range(nodes):
            torch.autograd.grad(loss(module(x[node]), y[node]).sum(), trained)

    def opacus() -> None:
        for node in range(nodes):
            clip.zero_grad(set_to_none=True)
            loss(rival(x[node]), y[node]).sum().backward()
            clip.clip_and_accumulate()
            clip.zero_grad(set_to_none=True)

    def ours() -> None:
        kernel(points, x, y, mask, lambda norms: (1 / norms).clamp_max(1.0))

    return {"plain": plain, "Opacus": opacus, "ours": ours}


def rows(seconds: float) -> list[str]:
    lines = [
        f"Milliseconds of processor time, {TOKENS} tokens, width {WIDTH}; ratios of processor and wall time.",
        "",
        "| model | nodes × lot | plain | Opacus | ours | ours/plain | ours/Opacus | misses |",
        "|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for name, make, nodes, lot, over_plain, over_opacus in MODELS:
        steps = contenders(make, nodes, lot)
        times: dict[str, list[tuple[float, float]]] = {rival: [] for rival in steps}
        for step in steps.values():
            step()
        end, turns = time.perf_counter() + seconds, 0
        while turns < 5 or time.perf_counter() < end:
            turns += 1
            for rival, step in steps.items():
                wall, used = time.perf_counter(), time.process_time()
                step()
                times[rival].append((time.process_time() - used, time.perf_counter() - wall))
        used, wall = ({rival: median(own[k] for own in times[rival]) for rival in steps} for k in (0, 1))
        words, misses = [], []
        for rival, aim in (("plain", over_plain), ("Opacus", over_opacus)):
            ratio = used["ours"] / used[rival]
            words.append(f"{ratio:.2f}, {wall['ours'] / wall[rival]:.2f}")
            misses += [f"≤ {aim:g}× {rival}"] if aim is not None and ratio > aim else []
        figures = " | ".join(f"{1e3 * used[rival]:.1f}" for rival in steps)
        lines.append(f"| {name} | {nodes} × {lot} | {figures} | {' | '.join(words)} | {', '.join(misses) or 'none'} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="rewrite the table in docs/performance.md")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each line of the table")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="opacus")
    warnings.filterwarnings("ignore", message="Full backward hook")
    text = "\n".join(rows(options.seconds))
    if options.write:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition("<!-- models -->\n")
        _, _, after = rest.partition("<!-- end of models -->")
        DOCUMENT.write_text(f"{before}<!-- models -->\n{text}\n<!-- end of models -->{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
