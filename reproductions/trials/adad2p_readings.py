"""Which reading of AdaD²P gives its G? The largest norm of a lot's mean gradient in stochastic gradient push, no noise.

    python reproductions/trials/adad2p_readings.py --data-dir FOLDER     # the table of notes/adad2p-one-sample.md

The paper measured G so and prints 3.5 (MNIST) and 8.5 (CIFAR-10). Its learning rates and graph; the networks are ours.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from gossamer.data.load import load
from gossamer.models.networks import ShallowCNN

NODES, HOPS = 20, (1, 2, 4, 8, 16)
MNIST = [(1, 0.0), (16, 0.0), (32, 0.0), (64, 0.0), (16, 0.9), (32, 0.9)]  # lot, momentum
CIFAR = [(16, 0.9)]
COARSE = ["average-pool", {"kind": "group-norm", "groups": 1}]


def push(
    net: nn.Module, x: Tensor, y: Tensor, *, lot: int, lr: float, momentum: float, rounds: int
) -> tuple[Tensor, list[float], float]:
    """(the mean model, the nodes' mean norm of every round, the largest norm of all)."""
    parts = torch.randperm(len(x))[: len(x) // NODES * NODES].view(NODES, -1)
    model = torch.cat([p.detach().flatten() for p in net.parameters()]).repeat(NODES, 1)
    gradients = vmap(grad(lambda w, a, b: nn.functional.cross_entropy(outputs(net, w, a), b)))
    velocity, means, largest = torch.zeros_like(model), [], 0.0
    for k in range(rounds):
        rows = parts.gather(1, torch.randint(parts.shape[1], (NODES, lot)))
        step = gradients(model, x[rows], y[rows])
        norms = step.norm(dim=1)
        means.append(float(norms.mean()))
        largest = max(largest, float(norms.max()))
        velocity = momentum * velocity + step
        model = model - lr * velocity
        model = (model + model.roll(HOPS[k % len(HOPS)], 0)) / 2
    return model.mean(0), means, largest


def outputs(net: nn.Module, weights: Tensor, x: Tensor) -> Tensor:
    named = dict(net.named_parameters())
    pieces = torch.split(weights, [p.numel() for p in named.values()])
    values = {name: piece.view_as(p) for (name, p), piece in zip(named.items(), pieces, strict=True)}
    found: Tensor = functional_call(net, values, x)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    data_dir = parser.parse_args().data_dir
    torch.set_num_threads(1)
    print("| task | lot | momentum | largest norm | mean norm, first and last seventh | accuracy (%) |")
    print("|---|---|---|---|---|---|")
    for kind, lr, rounds, readings in (("mnist", 0.03, 2200, MNIST), ("cifar10", 0.05, 600, CIFAR)):
        data = load(kind, data_dir=data_dir, transform=COARSE if kind == "cifar10" else [])
        x, y, test, wanted = map(torch.from_numpy, (data.x_train, data.y_train, data.x_test, data.y_test))
        if kind == "mnist":
            x, test = x.flatten(1), test.flatten(1)
        for lot, momentum in readings:
            torch.manual_seed(0)
            two_layers = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
            net = two_layers if kind == "mnist" else ShallowCNN().make(tuple(x.shape[1:]), 10)
            model, means, largest = push(net, x, y, lot=lot, lr=lr, momentum=momentum, rounds=rounds)
            part = rounds // 7
            first, last = (sum(some) / part for some in (means[:part], means[-part:]))
            with torch.no_grad():
                right = 100 * float((outputs(net, model, test).argmax(1) == wanted).float().mean())
            print(f"| {kind} | {lot} | {momentum:g} | {largest:.1f} | {first:.2f}, {last:.2f} | {right:.1f} |")


if __name__ == "__main__":
    main()
