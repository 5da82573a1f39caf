"""Heads from one release of second moments, next to gradient steps, on held-out photographs: ε of one record.

    python reproductions/trials/ridge.py --data-dir FOLDER     # the table of notes/ridge-heads.md

Features are those of frontier/cifar10-pretrained; directions, whitening and covariance come from public CIFAR-100's
part. A record of norm 1 with label y releases (cos θ · x xᵀ, sin θ · x ỹᵀ), ỹ = (e_y − 1/10) / ‖e_y − 1/10‖, which has
norm 1; the head is (A + λ I)⁻¹ B. θ = 90° releases x ỹᵀ alone, and A is the public rows' x xᵀ. Gradient steps are those
of the recipe: softmax, 100 full lots, clip 0.1, momentum 0.9, T = 1.4 / ν.

The noise is that of a sum over all nodes where it cancels between 20 of them, each hidden against one other: 1/μ(ε, δ)
times √(20/19). "As for 50,000" divides it by 50,000 over the number of rows there are, so that it has the weight that
it has in all of CIFAR-10; what more rows teach is not in it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting.profiles import gdp_mu
from gossamer.config import recipes
from gossamer.data.load import datasets

NODES, DELTA, CLASSES, HELD_OUT, WHOLE = 20, 1e-5, 10, 1000, 50_000
ROUNDS, CLIP, MOMENTUM, TRAVEL = 100, 0.1, 0.9, 1.4
SEEDS, WEIGHTS = 2, (0.25, 1.0, 4.0)
Heads = Callable[[float, torch.Generator], list[Tensor]]


def features(folder: Path | None) -> tuple[Tensor, Tensor, Tensor]:
    """CIFAR-10's part (x, y) and public rows, standardised and of norm 1, before any projection."""
    steps = recipes.read("frontier/cifar10-pretrained")["data"]["transform"][:3]
    private = datasets.parse({"kind": "cifar10-part", "transform": steps}).load(folder)
    # A step is not fitted on the records themselves, so the public rows are standardised here.
    pictures = datasets.parse({"kind": "cifar100-part", "transform": steps[:1]}).load(folder)
    public = torch.from_numpy(pictures.x_train).double()
    deviation = public.std(0, correction=0)
    public = ((public - public.mean(0)) * torch.where(deviation > 1e-6, 1 / deviation, 0.0)).clamp(-5, 5)
    public = public / public.norm(dim=1, keepdim=True)
    return torch.from_numpy(private.x_train).double(), torch.from_numpy(private.y_train), public


class Directions:
    """Records on the public rows' leading directions, partly whitened, of norm 1 again."""

    def __init__(self, public: Tensor) -> None:
        self.mean = public.mean(0)
        self.values, self.vectors = torch.linalg.eigh(torch.cov((public - self.mean).T, correction=0))

    def of(self, x: Tensor, dimensions: int, whitening: float) -> Tensor:
        values = self.values[-dimensions:].clamp_min(1e-6 * float(self.values[-1]))
        x = (x - self.mean) @ (self.vectors[:, -dimensions:] * values ** (-whitening / 2))
        scaled: Tensor = x / x.norm(dim=1, keepdim=True)
        return scaled


def targets(y: Tensor) -> Tensor:
    out = torch.nn.functional.one_hot(y, CLASSES).double() - 1 / CLASSES
    scaled: Tensor = out / out.norm(dim=1, keepdim=True)
    return scaled


def ridge(x: Tensor, y: Tensor, public: Tensor, noise: float, theta: float, draw: torch.Generator) -> list[Tensor]:
    """The heads of one release for each of WEIGHTS; λ is so many times what the noise of A, or of B, is as a matrix."""
    size, (cos, sin) = x.shape[1], (np.cos(np.deg2rad(theta)), np.sin(np.deg2rad(theta)))
    b = x.T @ targets(y) + noise / sin * torch.randn(size, CLASSES, generator=draw, dtype=torch.float64)
    if theta == 90:
        a, spread = public.T @ public * (len(x) / len(public)), noise * size**0.5
    else:
        half = torch.randn(size, size, generator=draw, dtype=torch.float64).triu(1) / 2**0.5
        own = torch.randn(size, generator=draw, dtype=torch.float64).diag()
        a, spread = x.T @ x + noise / cos * (half + half.T + own), noise / cos * (2 * size) ** 0.5
    values, vectors = torch.linalg.eigh(a)
    return [vectors @ ((vectors.T @ b) / (values.clamp_min(0) + weight * spread)[:, None]) for weight in WEIGHTS]


def gradient_steps(x: Tensor, y: Tensor, noise: float, draw: torch.Generator) -> list[Tensor]:
    """Softmax by the recipe's gradient steps, ‖x‖ = 1: a record's gradient is x (p − y)ᵀ, of norm ‖p − y‖."""
    one_hot = torch.nn.functional.one_hot(y, CLASSES).double()
    w, velocity = torch.zeros(x.shape[1], CLASSES, dtype=torch.float64), 0.0
    # A run of K rounds has σ = √K / μ clips in each; ν = noise / rows.
    lr = TRAVEL / (noise / len(x)) * (1 - MOMENTUM) / (ROUNDS * CLIP)
    for _ in range(ROUNDS):
        error = (x @ w).softmax(1) - one_hot
        error = error * (CLIP / error.norm(dim=1, keepdim=True)).clamp(max=1)
        rough = ROUNDS**0.5 * noise * CLIP * torch.randn(w.shape, generator=draw, dtype=torch.float64)
        velocity = MOMENTUM * velocity + (x.T @ error + rough) / len(x)
        w = w - lr * velocity
    return [w]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    x, y, public = features(parser.parse_args().data_dir)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    out, own = order[:HELD_OUT], order[HELD_OUT:]
    scales = {"5,000 rows": 1.0, "as for 50,000": len(own) / WHOLE}
    columns = [(name, scale, epsilon) for name, scale in scales.items() for epsilon in (1.0, 3.0)]
    print("| held-out rows (%) | " + " | ".join(f"{name}, ε = {e:g}" for name, _, e in columns) + " |")
    print("|---" * (len(columns) + 1) + "|", flush=True)

    def rows(names: Sequence[str], z: Tensor, heads: Heads) -> None:
        """A row for each of the heads that a release gives."""
        right = np.zeros((len(names), len(columns)))
        for place, (_, scale, epsilon) in enumerate(columns):
            noise = scale * (NODES / (NODES - 1)) ** 0.5 / gdp_mu(epsilon, DELTA)
            for seed in range(SEEDS):
                for k, w in enumerate(heads(noise, torch.Generator().manual_seed(seed))):
                    right[k, place] += float(((z[out] @ w).argmax(1) == y[out]).double().mean()) / SEEDS
        for name, cells in zip(names, right, strict=True):
            print(f"| {name} | {' | '.join(f'{100 * cell:.1f}' for cell in cells)} |", flush=True)

    directions = Directions(public)
    z = directions.of(x, 1000, 0.4)
    rows(["gradient steps, 1,000 directions, whitening 0.4"], z, partial(gradient_steps, z[own], y[own]))
    for whitening, sizes in ((0.0, (100, 250, 500)), (0.4, (100, 250, 500, 1000))):
        for size in sizes:
            z, p = (directions.of(each, size, whitening) for each in (x, public))
            for theta in (45.0, 75.0, 90.0):
                kind = f"ridge, {size} directions, whitening {whitening:g}, θ = {theta:g}°"
                names = [f"{kind}, λ = {weight:g}" for weight in WEIGHTS]
                rows(names, z, lambda s, g, z=z, p=p, t=theta: ridge(z[own], y[own], p, s, t, g))  # type: ignore[misc]


if __name__ == "__main__":
    main()
