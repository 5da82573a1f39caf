"""What a user's own module costs: book-kept where its graph allows it, record by record where not.

    python benchmarks/own_modules.py             print
    python benchmarks/own_modules.py --write     and rewrite the table in docs/performance.md

The same network three times over: as layers, with a forward of its own that is book-kept, and with one operation that
is not on the list (`torch.einsum` in the place of a sum), so that it goes record by record. Beside them a plain step
without privacy, one backward pass per node. Rivals take turns; medians and ratios.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels.bookkeeping import BookKeeping
from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.stack import ParameterStack

DOCUMENT = Path(__file__).parent.parent / "docs" / "performance.md"
NODES = 8


class Network(nn.Module):
    """An MLP, or two convolutions and a linear layer, with a forward of its own."""

    def __init__(self, images: bool, listed: bool) -> None:
        super().__init__()
        self.images, self.listed = images, listed
        if images:
            self.first, self.second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
            self.last = nn.Linear(16 * 49, 10)
        else:
            self.first, self.second, self.last = nn.Linear(784, 128), nn.Linear(128, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        if self.images:
            x = F.max_pool2d(F.relu(self.first(x)), 2)
            x = F.max_pool2d(F.relu(self.second(x)), 2).flatten(1)
        else:
            x = F.relu(self.second(F.relu(self.first(x))))
        if not self.listed:
            x = torch.einsum("ni,ni->ni", x, torch.ones_like(x))
        return self.last(x)


def layers(images: bool) -> nn.Module:
    if not images:
        return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 49, 10),
    )  # fmt: skip


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def contenders(images: bool, lot: int) -> dict[str, Callable[[], object]]:
    torch.manual_seed(0)
    shape = (1, 28, 28) if images else (784,)
    x, y = torch.randn(NODES, lot, *shape), torch.randint(0, 10, (NODES, lot))
    mask = torch.ones(NODES, lot, dtype=torch.bool)
    modules = {
        "layers": layers(images),
        "own forward": Network(images, listed=True),
        "record by record": Network(images, listed=False),
    }
    steps: dict[str, Callable[[], object]] = {}
    for name, module in modules.items():
        stack = ParameterStack(module)
        points = stack.flatten(module).repeat(NODES, 1)
        kernel = ClippedSum(module, loss)
        kernel.try_on(x, y)
        book_kept = isinstance(kernel.method, BookKeeping)  # type: ignore[attr-defined]
        if book_kept != (name != "record by record"):
            raise SystemExit(f"{name} is not computed in the way this benchmark is about")

        def step(kernel: object = kernel, points: Tensor = points) -> object:
            return kernel(points, x, y, mask, lambda norms: (1 / norms).clamp_max(1.0))  # type: ignore[operator]

        steps[name] = step
    module = modules["layers"]
    own = {name: value.detach().requires_grad_() for name, value in module.named_parameters()}

    def plain() -> None:
        for node in range(NODES):
            total = loss(functional_call(module, own, (x[node],)), y[node]).mean()
            torch.autograd.grad(total, list(own.values()))

    return {"plain": plain, **steps}


def rows(seconds: float) -> list[str]:
    lines = [
        f"Milliseconds of a gradient of {NODES} nodes; the ratio is to the same network as layers.",
        "",
        "| model | lot | plain | layers | own forward | record by record | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for images in (False, True):
        for lot in (1, 16, 64):
            steps = contenders(images, lot)
            times: dict[str, list[float]] = {name: [] for name in steps}
            for step in steps.values():
                step()
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                for name, step in steps.items():
                    start = time.perf_counter()
                    step()
                    times[name].append(1e3 * (time.perf_counter() - start))
            a, b, c, d = (median(times[name]) for name in ("plain", "layers", "own forward", "record by record"))
            name = "CNN" if images else "MLP"
            lines.append(f"| {name} | {lot} | {a:.1f} | {b:.1f} | {c:.1f} | {d:.1f} | {d / b:.1f} |")
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="rewrite the table in docs/performance.md")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each line of the table")
    options = parser.parse_args()
    text = "\n".join(rows(options.seconds))
    if options.write:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition("<!-- own modules -->\n")
        _, _, after = rest.partition("<!-- end of own modules -->")
        DOCUMENT.write_text(
            f"{before}<!-- own modules -->\n{text}\n<!-- end of own modules -->{after}", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
