"""Fine-tune a vision network whose convolutions were trained on public images and stay frozen.

The public images are those of the digits 0 to 4 (scikit-learn's digits); four nodes hold the digits 5 to 9, which are
private. Only a new head is trained, noised and sent. docs/fine-tuning.md is the page about it.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import gossamer

NODES, TEST = 4, 200


def pretrained(images: torch.Tensor, labels: torch.Tensor) -> nn.Sequential:
    """A small convolutional network, trained without privacy on public images."""
    torch.manual_seed(0)
    body = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()]
    net = nn.Sequential(*body, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 5))
    adam = torch.optim.Adam(net.parameters(), lr=0.005)
    for _ in range(150):
        adam.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        adam.step()
    return net


def main(rounds: int = 60) -> gossamer.Outcome:
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32").reshape(-1, 1, 8, 8)
    public = y < 5
    net = pretrained(torch.from_numpy(x[public]), torch.from_numpy(y[public]))
    net.requires_grad_(False)
    net[7] = nn.Linear(128, 5)  # the new head: the only part that is trained

    order = np.random.default_rng(0).permutation(np.flatnonzero(~public))
    test, train = order[:TEST], order[TEST:]
    nodes = [(x[own], y[own] - 5) for own in np.array_split(train, NODES)]
    config = {
        "rounds": rounds,
        "topology": {"kind": "ring"},
        "algorithm": {"kind": "dyn-d2p", "lr": 1.0},
        "privacy": {"epsilon": 4.0, "delta": 1e-3, "sampling": {"kind": "poisson", "rate": 0.3}},
    }
    data = gossamer.Data(nodes, classes=5, count=len(train) // NODES, test=(x[test], y[test] - 5))
    print(gossamer.plan(config, module=net, data=data).size)
    return gossamer.run(config, module=net, data=data)


if __name__ == "__main__":
    r = main().result
    print(f"accuracy {r['accuracy_mean']:.1%}, worst node {r['accuracy_min']:.1%}")
    print(f"proven ε = {r['epsilon_proven']:.2f} at δ = {r['delta']:g}, {r['adjacency']}, {r['unit']}")
