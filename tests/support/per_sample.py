"""Modules of every kind, and their per-sample gradients spelled out in double precision."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels.oracle import per_sample_gradients
from gossamer.kernels.stack import ParameterStack

CLASSES = 3


WEIGHS: dict[str, Callable[[Tensor], Tensor]] = {
    "constant": lambda norms: (0.5 / norms).clamp(max=1.0),
    "tight": lambda norms: (1e-3 / norms).clamp(max=1.0),
    "loose": lambda norms: (1e3 / norms).clamp(max=1.0),
    "normalised": lambda norms: 1 / (norms + 0.01),
    "none": torch.ones_like,
}


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def net(*modules: nn.Module) -> nn.Module:
    return nn.Sequential(*modules, nn.Flatten(), nn.LazyLinear(CLASSES))


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


class Residual(nn.Module):
    """Two branches into one sum, an in-place ReLU on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(2, 3, 1, bias=False)
        self.norm, self.act = nn.GroupNorm(3, 3), nn.ReLU(inplace=True)
        self.head = nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.norm(self.first(x)) + self.second(x)).mean((2, 3)))


IMAGE = (2, 8, 7)


# name -> (feature shape, number of indices or None for real features, module)
CASES: dict[str, tuple[tuple[int, ...], int | None, Callable[[], nn.Module]]] = {
    "linear": ((6,), None, lambda: nn.Linear(6, CLASSES)),
    "linear without bias": ((6,), None, lambda: nn.Linear(6, CLASSES, bias=False)),
    "mlp": ((6,), None, lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, CLASSES))),
    "linear on short sequences": ((2, 9), None, lambda: net(nn.Linear(9, 12), nn.Tanh(), Mean())),
    "linear on long sequences": ((30, 2), None, lambda: net(nn.Linear(2, 3), nn.Tanh(), Mean())),
    "linear on images": (IMAGE, None, lambda: net(nn.Linear(7, 4, bias=False), nn.Tanh())),
    "conv": (IMAGE, None, lambda: net(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2))),
    "conv strided": (
        IMAGE,
        None,
        lambda: net(nn.Conv2d(2, 4, (3, 2), stride=(2, 3), padding=(1, 2)), nn.Tanh()),
    ),
    "conv dilated": (IMAGE, None, lambda: net(nn.Conv2d(2, 3, 2, dilation=(2, 3), bias=False), nn.Tanh())),
    "conv grouped": (IMAGE, None, lambda: net(nn.Conv2d(2, 6, 3, groups=2, padding=1), nn.Tanh())),
    "conv twice": (IMAGE, None, lambda: net(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3, groups=2))),
    "conv of one channel": ((1, 8, 7), None, lambda: net(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU())),
    "conv wide": (
        (2, 3, 3),
        None,
        lambda: net(nn.Conv2d(2, 40, 3, padding=1), nn.ReLU(), nn.Conv2d(40, 50, 3)),
    ),
    "conv same": (IMAGE, None, lambda: net(nn.Conv2d(2, 3, (3, 5), padding="same"), nn.Tanh())),
    "conv reflected": (
        IMAGE,
        None,
        lambda: net(nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), nn.Tanh()),
    ),
    "conv 1d": ((3, 12), None, lambda: net(nn.Conv1d(3, 4, 3, stride=2, padding=1, dilation=2), nn.Tanh())),
    "conv 1d grouped": ((4, 9), None, lambda: net(nn.Conv1d(4, 4, 3, groups=4), nn.Conv1d(4, 2, 1))),
    "embedding": ((5,), 7, lambda: net(nn.Embedding(7, 4), Mean(), nn.Tanh())),
    "embedding padded": ((5,), 7, lambda: net(nn.Embedding(7, 4, padding_idx=0), nn.Linear(4, 3), nn.Tanh())),
    "group norm": (IMAGE, None, lambda: net(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU())),
    "group norm on features": ((6,), None, lambda: net(nn.GroupNorm(2, 6), nn.Tanh())),
    "layer norm": ((6,), None, lambda: net(nn.LayerNorm(6), nn.Tanh())),
    "layer norm on sequences": (
        (3, 6),
        None,
        lambda: net(nn.LayerNorm((3, 6)), nn.Linear(6, 5), nn.LayerNorm(5)),
    ),
    "layer norm without bias": ((3, 6), None, lambda: net(nn.LayerNorm(6, bias=False), nn.Tanh())),
    "residual": (IMAGE, None, Residual),
}


def problem(case: str, nodes: int, lot: int, seed: int) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """A module, every node's point, x and y; small weights, so that no softmax saturates and loses digits."""
    torch.manual_seed(seed)
    shape, vocabulary, make = CASES[case]
    features = (nodes, lot, *shape)
    x = torch.randn(features) if vocabulary is None else torch.randint(0, vocabulary, features)
    module = make()
    module(torch.zeros(1, *shape, dtype=x.dtype))  # settles the lazy head
    dim = ParameterStack(module).dim
    return module, 0.15 * torch.randn(nodes, dim), x, torch.randint(0, CLASSES, (nodes, lot))


def expected(
    module: nn.Module, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """In double precision."""
    module = module.double()
    x = x.double() if x.is_floating_point() else x
    gradients = per_sample_gradients(module, cross_entropy, points.double(), x, y)
    norms = gradients.norm(dim=2) * mask
    weights = torch.where(mask, weigh(norms), 0.0)
    module.float()
    return torch.einsum("mb,mbd->md", weights, gradients), norms


def assert_close(actual: Tensor, wanted: Tensor) -> None:
    assert actual.dtype == torch.float32
    assert torch.isfinite(actual).all()
    for own, reference in zip(actual.double(), wanted, strict=True):
        assert (own - reference).norm() <= 1e-5 * reference.norm() + 1e-9
