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
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting.profiles import gdp_mu
from gossamer.config import recipes
from gossamer.data.load import datasets

NODES, DELTA, CLASSES, HELD_OUT, WHOLE = 20, 1e-5, 10, 1000, 50_000
ROUNDS, CLIP, MOMENTUM, TRAVEL = 100, 0.1, 0.9, 1.4
SEEDS = 3
Split = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def features(folder: Path | None) -> tuple[Tensor, Tensor, Tensor]:
    """CIFAR-10's part (x, y) and public rows, standardised and of norm 1, before any projection."""
    steps = recipes.read("frontier/cifar10-pretrained")["data"]["transform"][:3]
    private = datasets.parse({"kind": "cifar10-part", "transform": steps}).load(folder)
    # Each part is the other's public set: a step is not fitted on the records themselves. Lite2's averages of both
    # are kept on disk.
    raw = [{**steps[0]}]
    pictures = datasets.parse({"kind": "cifar100-part", "transform": raw}).load(folder)
    public = torch.from_numpy(pictures.x_train).double()
    deviation = public.std(0, correction=0)
    public = ((public - public.mean(0)) * torch.where(deviation > 1e-6, 1 / deviation, 0.0)).clamp(-5, 5)
    public = public / public.norm(dim=1, keepdim=True)
    return torch.from_numpy(private.x_train).double(), torch.from_numpy(private.y_train), public


def projected(x: Tensor, public: Tensor, dimensions: int, whitening: float) -> tuple[Tensor, Tensor]:
    """Both on the public rows' leading directions, partly whitened, of norm 1 again."""
    mean = public.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov((public - mean).T, correction=0))
    matrix = vectors[:, -dimensions:] * values[-dimensions:].clamp_min(1e-6 * float(values[-1])) ** (-whitening / 2)
    x, public = (x - mean) @ matrix, (public - mean) @ matrix
    return x / x.norm(dim=1, keepdim=True), public / public.norm(dim=1, keepdim=True)


def targets(y: Tensor) -> Tensor:
    out = torch.nn.functional.one_hot(y, CLASSES).double() - 1 / CLASSES
    scaled: Tensor = out / out.norm(dim=1, keepdim=True)
    return scaled


def ridge(
    x: Tensor, y: Tensor, public: Tensor, noise: float, theta: float, weight: float, draw: torch.Generator
) -> Tensor:
    """The head from one release; λ is `weight` times what the noise of A, or of B, is as a matrix."""
    size, (cos, sin) = x.shape[1], (np.cos(np.deg2rad(theta)), np.sin(np.deg2rad(theta)))
    b = x.T @ targets(y) + noise / sin * torch.randn(size, CLASSES, generator=draw, dtype=torch.float64)
    if theta == 90:
        a, spread = public.T @ public * (len(x) / len(public)), noise * size**0.5
    else:
        half = torch.randn(size, size, generator=draw, dtype=torch.float64).triu(1) / 2**0.5
        own = torch.randn(size, generator=draw, dtype=torch.float64).diag()
        a, spread = x.T @ x + noise / cos * (half + half.T + own), noise / cos * (2 * size) ** 0.5
    values, vectors = torch.linalg.eigh(a)
    head: Tensor = vectors @ ((vectors.T @ b) / (values.clamp_min(0) + weight * spread)[:, None])
    return head


def steps(x: Tensor, y: Tensor, noise: float, draw: torch.Generator) -> Tensor:
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
    return w


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

    def row(name: str, z: Tensor, head: object) -> None:
        cells = []
        for _, scale, epsilon in columns:
            noise, found = scale * (NODES / (NODES - 1)) ** 0.5 / gdp_mu(epsilon, DELTA), []
            for seed in range(SEEDS):
                w = head(noise, torch.Generator().manual_seed(seed))  # type: ignore[operator]
                found.append(float(((z[out] @ w).argmax(1) == y[out]).double().mean()))
            cells.append(f"{100 * np.mean(found):.1f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)

    z, _ = projected(x, public, 1000, 0.4)
    row("gradient steps, 1,000 directions, whitening 0.4", z, lambda s, g: steps(z[own], y[own], s, g))
    for whitening in (0.0, 0.4, 0.7):
        for size in (100, 200, 400, 800):
            z, p = projected(x, public, size, whitening)
            for theta in (30, 60, 90):
                for weight in (0.5, 2.0):
                    name = f"ridge, {size} directions, whitening {whitening:g}, θ = {theta}°, λ = {weight:g}"
                    row(name, z, lambda s, g, z=z, p=p, t=theta, v=weight: ridge(z[own], y[own], p, s, t, v, g))


if __name__ == "__main__":
    main()
