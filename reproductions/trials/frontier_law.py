"""How far a private run should go: held-out accuracy over T ν, for several budgets and two public sets.

    python reproductions/trials/frontier_law.py --data-dir FOLDER        # writes its table into docs/frontier.md

The rule behind "auto" (config/auto.py) rests on this table. A quarter of the training rows is trained on and another
sixth is scored; test rows are not touched. The nodes' means are averaged exactly, so that one (ν, T) is one run.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from torch import Tensor

from gossamer.accounting.profiles import gdp_mu
from gossamer.config import recipes
from gossamer.data.load import load
from gossamer.models.layers import centre_records

DOCUMENT = Path(__file__).parents[2] / "docs" / "frontier.md"
SETS = {"frontier/fashion-mnist": (0.1, 0.3, 1.0, 3.0), "frontier/mnist": (0.1, 0.3, 1.0, 3.0)}
WAYS = (0.5, 0.9, 1.5, 2.5, 4.5)  # T ν
ROUNDS, CLIP, MOMENTUM, CENTRE, SEEDS = 100, 0.1, 0.9, 0.05, 2


def train(x: Tensor, y: Tensor, *, way: float, noise: float, seed: int) -> Tensor:
    """Softmax by full lots with the noise that all nodes together have; `noise` is ν, `way` is T ν."""
    draw = torch.Generator().manual_seed(seed)
    wanted = torch.nn.functional.one_hot(y, 10).float()
    weights, velocity = torch.zeros(x.shape[1], 10), torch.zeros(x.shape[1], 10)
    lr = way / noise * (1 - MOMENTUM) / (ROUNDS * CLIP)
    for _ in range(ROUNDS):
        slope = torch.softmax(x @ weights, 1) - wanted
        slope *= (CLIP / slope.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp_max(1)  # records have unit norm
        gradient = x.T @ slope / len(x)
        # σ = √K / μ on each node's sum: over J records and the mean of n nodes that is C √K ν.
        gradient += CLIP * math.sqrt(ROUNDS) * noise * torch.randn(weights.shape, generator=draw)
        velocity = MOMENTUM * velocity + gradient
        weights = weights - lr * velocity
    return weights


def rows(name: str, epsilons: tuple[float, ...], data_dir: Path | None) -> list[str]:
    recipe = recipes.read(name)
    steps = [step for step in recipe["data"]["transform"] if step != "straighten"]  # found on digits as they are
    data = load(recipe["data"]["kind"], data_dir=data_dir, transform=steps)
    x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
    # At random: neighbouring rows of MNIST were written by the same hand.
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    seen, held_out = order[: len(x) // 4], order[-(len(x) // 6) :]
    records, nodes, lines = len(x) / recipe["nodes"], recipe["nodes"], []
    for epsilon in epsilons:
        noise = 1 / (gdp_mu(epsilon, recipe["privacy"]["delta"]) * records * math.sqrt(nodes))
        draw = torch.Generator().manual_seed(1)
        mean = x[seen].mean(0) + noise / math.sqrt(CENTRE) * torch.randn(x.shape[1], generator=draw)
        inside, outside = centre_records(x[seen], mean), centre_records(x[held_out], mean)
        scores = []
        for way in WAYS:
            models = [train(inside, y[seen], way=way, noise=noise, seed=seed) for seed in range(SEEDS)]
            right = [float(((outside @ model).argmax(1) == y[held_out]).float().mean()) for model in models]
            scores.append(100 * sum(right) / SEEDS)
        shown = [f"**{score:.1f}**" if score == max(scores) else f"{score:.1f}" for score in scores]
        lines.append(f"| {data.name} | {epsilon:g} | {noise:.2g} | {' | '.join(shown)} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    data_dir = parser.parse_args().data_dir
    torch.set_num_threads(1)
    head = f"| held-out accuracy (%) | ε | ν | {' | '.join(f'T ν = {way:g}' for way in WAYS)} |"
    lines = [head, "|" + "---|" * (3 + len(WAYS))]
    for name, epsilons in SETS.items():
        lines += rows(name, epsilons, data_dir)
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition("<!-- law -->\n")
    _, _, after = rest.partition("<!-- end -->")
    text = f"{before}<!-- law -->\n{chr(10).join(lines)}\n<!-- end -->{after}"
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
