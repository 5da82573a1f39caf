"""Modules of every kind, and their per-sample gradients spelled out in double precision."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels.stack import ParameterStack

CLASSES = 3


def per_sample_gradients(
    module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], points: Tensor, x: Tensor, y: Tensor
) -> Tensor:
    """The gradient of every record of every node at that node's point, by vmap over the module as it is: (m, B, d)."""
    stack = ParameterStack(module)
    if x.shape[1] == 0:
        return points.new_zeros(len(points), 0, stack.dim)

    def sample_loss(parameters: dict[str, Tensor], one_x: Tensor, one_y: Tensor) -> Tensor:
        output = functional_call(module, parameters, (one_x.unsqueeze(0),))
        return loss(output, one_y.unsqueeze(0)).squeeze(0)

    if any(
        isinstance(layer, nn.RNNBase | nn.MultiheadAttention) for layer in module.modules()
    ):  # torch cannot vmap them
        own = [{name: view[i] for name, view in stack.views(points).items()} for i in range(len(x))]
        rows = [[grad(sample_loss)(own[i], *one) for one in zip(x[i], y[i], strict=True)] for i in range(len(x))]
        flat = [torch.stack([torch.cat([g[name].flatten() for name in stack.names]) for g in row]) for row in rows]
        return torch.stack(flat)
    of_lot = vmap(grad(sample_loss), in_dims=(None, 0, 0), randomness="different")
    gradients = vmap(of_lot, randomness="different")(stack.views(points), x, y)
    return torch.cat([gradients[name].flatten(2) for name in stack.names], dim=2)


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


class Attention(nn.Module):
    """Written by hand, in torch's one function, and torch's layer."""

    def __init__(self) -> None:
        super().__init__()
        self.joined, self.norm = nn.Linear(6, 18), nn.LayerNorm(6)
        self.torchs = nn.MultiheadAttention(6, 3, batch_first=True)
        self.register_buffer("later", torch.ones(4, 4).triu(1).bool())

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, 2, width // 2).transpose(1, 2) for part in self.joined(x).split(width, 2))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        scores = (q @ k.transpose(-2, -1)).masked_fill(self.later, -torch.inf)
        x = self.norm(x + (scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return x + self.torchs(x, x, x)[0]


class Recurrent(nn.Module):
    """Outputs and last states."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out, states = self.layer(x)
        if isinstance(states, tuple):
            return out[:, -1] * states[1][0] + states[0][0].tanh() * states[0][-1]
        return out.mean(1)[:, : states.shape[2]] - 2 * states[-1]


class CalledTwice(nn.Module):
    """Layers and a table that are called twice, an activation and a norm among them."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer, self.norm, self.act = nn.Embedding(7, 4), nn.Linear(4, 4), nn.LayerNorm(4), nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.layer(self.table(x))) + self.table(x.flip(1))
        return self.act(self.norm(self.act(self.layer(h.mean(1)))))


class Padded(nn.Module):
    """torch's encoder, which reads nothing where a record is padded; a record of nothing else is nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.body = nn.Embedding(7, 6), nn.TransformerEncoderLayer(6, 2, 9, 0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.table(x), src_key_padding_mask=x == 0).flatten(1)


class TiedTable(nn.Module):
    """A table, some of whose rows stand for positions, that is the weight of a linear layer as well."""

    def __init__(self, padding: int | None) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(7, 4, padding_idx=padding), nn.Linear(4, 4)
        self.places, self.out = nn.Embedding(5, 4), nn.Linear(4, 7, bias=False)
        self.out.weight = self.table.weight
        self.register_buffer("order", torch.arange(5))

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x) + self.places(self.order)
        return self.out(torch.tanh(self.layer(h))).flatten(1)


class PaddedApart(nn.Module):
    """Two tables of the same weights, of which each leaves out a row of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Embedding(7, 4, padding_idx=5), nn.Embedding(7, 4, padding_idx=6)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return (self.first(x) * self.second(x).tanh()).flatten(1)


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
    "rms norm": ((3, 6), None, lambda: net(nn.RMSNorm(6), nn.Linear(6, 5), nn.RMSNorm((3, 5)), nn.Tanh())),
    "attention": ((4, 6), None, lambda: net(Attention())),
    "encoder layer": ((4, 6), None, lambda: net(nn.TransformerEncoderLayer(6, 2, 9, 0.0, batch_first=True))),
    "encoder layer, padded": ((5,), 7, lambda: net(Padded())),
    "lstm": ((5, 4), None, lambda: net(Recurrent(nn.LSTM(4, 3, 2, batch_first=True)))),
    "gru both ways": (
        (4, 3),
        None,
        lambda: net(Recurrent(nn.GRU(3, 4, batch_first=True, bidirectional=True))),
    ),
    "rnn without bias": ((9, 2), None, lambda: net(Recurrent(nn.RNN(2, 3, bias=False, batch_first=True)))),
    "residual": (IMAGE, None, Residual),
    "called twice": ((5,), 7, lambda: net(CalledTwice())),
    "tied table": ((5,), 7, lambda: net(TiedTable(None))),
    "tied table padded": ((5,), 7, lambda: net(TiedTable(0))),
    "tied tables padded apart": ((5,), 7, lambda: net(PaddedApart())),
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


def assert_sum(
    found: tuple[Tensor, Tensor],
    module: nn.Module,
    points: Tensor,
    x: Tensor,
    y: Tensor,
    mask: Tensor,
    weigh: Callable[[Tensor], Tensor],
) -> None:
    """The norms are those of gradients in double precision and a little more, the sum is the one with their weights."""
    total, norms = found
    module = module.double()
    x = x.double() if x.is_floating_point() else x
    x, y = x.masked_fill(~mask.view(*mask.shape, *[1] * (x.ndim - 2)), 0), y.masked_fill(~mask, 0)
    gradients = per_sample_gradients(module, cross_entropy, points.double(), x, y)
    module.float()
    exact = gradients.norm(dim=2) * mask
    assert (norms.double() >= exact * (1 - 2e-6)).all()  # activations, too, are rounded
    assert (norms.double() <= exact * (1 + 1e-2) + 1e-9).all()
    assert (norms[~mask] == 0).all()
    weights = torch.where(mask, weigh(norms.double()), 0.0)
    assert_close(total, torch.einsum("mb,mbd->md", weights, gradients))


def assert_close(actual: Tensor, wanted: Tensor) -> None:
    assert actual.dtype == torch.float32
    assert torch.isfinite(actual).all()
    for own, reference in zip(actual.double(), wanted, strict=True):
        assert (own - reference).norm() <= 1e-5 * reference.norm() + 1e-9
