"""Modules that treat the records of a lot in every way, right and wrong, and records that break what can be broken."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels.noise import Stream

FEATURES, CLASSES = 6, 3


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)


class OwnBatchNorm(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.batch_norm(x, None, None, training=self.training))


class CentredInTraining(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - x.mean(0) if self.training else x)


class Mixup(Base):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = 0.7 * x + 0.3 * x[torch.randperm(x.shape[0])]
        return self.head(x)


class LooksAtTheLot(Base):
    def forward(self, x: Tensor) -> Tensor:
        if x.max() > 1:
            x = x / 255
        return self.head(x)


class SlightlyCentred(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - 0.005 * x.mean(0))


class RemembersTheLot(Base):
    last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x if self.last is None else x + self.last)
        self.last = x.detach().mean(0, keepdim=True)
        return out


class RemembersInABuffer(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(x.detach().mean(0))
        return self.head(x - self.mean)


class RemembersElsewhere(Base):
    kept: list[Tensor] = []  # noqa: RUF012

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x if not self.kept else x + self.kept[-1])
        self.kept.append(x.detach().mean(0, keepdim=True))
        return out


class PythonsRandomNumbers(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x * random.random())


class DividesByTheLot(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x / x.shape[0])


class SortsTheLot(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.sort(0).values)


class TakesTurns(Base):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.roll(1, 0))


class Standardised(Base):
    """Each record by itself, and not a number for a constant one."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True))


MIXING: list[Callable[[], nn.Module]] = [
    OwnBatchNorm,
    CentredInTraining,
    Mixup,
    LooksAtTheLot,
    SlightlyCentred,
    RemembersTheLot,
    RemembersInABuffer,
    RemembersElsewhere,
    PythonsRandomNumbers,
    DividesByTheLot,
    SortsTheLot,
    TakesTurns,
    Standardised,
]

# Steps of a random forward, (module, x (N, F)) → (N, F): some keep records apart, some do not.
APART: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "relu": lambda m, x: F.relu(x),
    "layer": lambda m, x: m.layer(x),
    "norm": lambda m, x: m.norm(x),
    "dropout": lambda m, x: F.dropout(x, 0.5, m.training),
    "softmax": lambda m, x: x.softmax(1),
    "standardise": lambda m, x: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True),
    "unit": lambda m, x: x / x.norm(dim=1, keepdim=True),
    "power": lambda m, x: x**3,
    "exp": lambda m, x: x.exp(),
    "log": lambda m, x: x.log(),
    "root": lambda m, x: x.abs().sqrt(),
    "inverse": lambda m, x: 1 / x,
    "reshape": lambda m, x: x.view(x.size(0), 2, -1).transpose(1, 2).reshape(x.shape[0], -1),
    "in place": lambda m, x: x.clone().mul_(2).add_(1),
    "twice": lambda m, x: m.layer(m.layer(x)),
    "noise": lambda m, x: x + torch.randn_like(x),
    "own parameter": lambda m, x: x * m.scale,
    "where": lambda m, x: torch.where(x > 1, x / 255, x),
    "cumulative": lambda m, x: x.cumsum(1),
    "places by value": lambda m, x: x.gather(1, x.abs().nan_to_num(0, 9, 9).long()),
    "table by value": lambda m, x: x + m.table(x[:, :1].nan_to_num(0, 9, 9).long()).flatten(1),
    "matrix inverse": lambda m, x: torch.cat([x[:, :4].reshape(-1, 2, 2).inverse().flatten(1), x[:, 4:]], 1),
    "cholesky": lambda m, x: x * torch.linalg.cholesky(x[:, :2, None] * x[:, None, :2] + m.eye).sum((1, 2))[:, None],
    "solve": lambda m, x: torch.linalg.solve(x[:, :4].reshape(-1, 2, 2), x[:, 4:, None])[:, :, 0].repeat(1, 3),
    "attention": lambda m, x: (x[:, :, None] @ x[:, None, :]).softmax(2).sum(2),
    "eigenvalues": lambda m, x: x * torch.linalg.eigvalsh(x[:, :, None] * x[:, None, :] + x.diag_embed()),
    "determinant": lambda m, x: x * torch.linalg.slogdet(x[:, :4].reshape(-1, 2, 2))[1][:, None],
    "written by value": lambda m, x: torch.zeros_like(x).scatter(1, x.long(), x),
    "classes by value": lambda m, x: x + F.one_hot(x[:, 0].long(), FEATURES),
    "random signs": lambda m, x: x * (2 * torch.bernoulli(torch.full_like(x, 0.5)) - 1),
    "random scale": lambda m, x: x * torch.rand_like(x[:, :1]),
    "tied": lambda m, x: F.linear(x.tanh() @ m.layer.weight, m.layer.weight),
}
TOGETHER: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "less the mean": lambda m, x: x - x.mean(0),
    "less a little": lambda m, x: x - 1e-3 * x.mean(0, keepdim=True),
    "by the largest": lambda m, x: x / x.abs().max(),
    "by the number": lambda m, x: x * x.shape[0],
    "batch norm": lambda m, x: F.batch_norm(x, None, None, training=m.training),
    "softmax over the lot": lambda m, x: x.softmax(0),
    "first record": lambda m, x: x + x[:1],
    "rolled": lambda m, x: x + x.roll(1, 0),
    "sorted": lambda m, x: x.sort(0).values,
    "decided": lambda m, x: x / 255 if x.max() > 1 else x,
    "item": lambda m, x: x * float(x.sum().item()),
    "memory": lambda m, x: m.remember(x),
    "buffer": lambda m, x: m.average(x),
    "mixup": lambda m, x: x + x[torch.randperm(len(x))],
    "sum of the lot": lambda m, x: x + x.sum(),
    "gram": lambda m, x: (x @ x.T).softmax(1) @ x,
    "cumulative over the lot": lambda m, x: x.cumsum(0),
    "python random": lambda m, x: x * random.random(),
    "taken by value": lambda m, x: x.take(x.long()),
    "selected by value": lambda m, x: x.index_select(1, x[0].long()),
    "chosen by value": lambda m, x: x[:, x[0].abs().argsort()],
    "lot's inverse": lambda m, x: torch.linalg.pinv(x).T,
    "random order": lambda m, x: x[:, torch.randperm(x.shape[1])] + x.amax(0, keepdim=True),
    "against each other": lambda m, x: x - (x[:, 0][None] - x[:, 0][:, None]).mean(1, keepdim=True),
}
STEPS = {**APART, **TOGETHER}


class RandomModule(nn.Module):
    """Steps of the grammar, one after another, and a linear layer at the end."""

    def __init__(self, steps: list[str], in_evaluation: bool) -> None:
        super().__init__()
        self.steps, self.only_in_training = steps, in_evaluation
        self.layer, self.norm = nn.Linear(FEATURES, FEATURES), nn.LayerNorm(FEATURES)
        self.scale, self.table = nn.Parameter(torch.ones(FEATURES)), nn.Embedding(3, FEATURES)
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("eye", torch.eye(2))
        self.head = nn.Linear(FEATURES, CLASSES)
        self.last: Tensor | None = None
        unused = {
            "layer": {"layer", "twice", "tied"},
            "norm": {"norm"},
            "scale": {"own parameter"},
            "table": {"table by value"},
        }
        for name, users in unused.items():  # so that some of them are book-kept
            if not users & set(steps):
                setattr(self, name, None)

    def freeze(self, *names: str) -> None:
        """Parts that are neither trained nor noised."""
        for name in names:
            part = getattr(self, name)
            if part is not None:
                part.requires_grad_(False)

    def remember(self, x: Tensor) -> Tensor:
        before, self.last = self.last, x.detach()[:1]
        return x if before is None else x + before

    def average(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.5).add_(x.detach().mean(0))
        return x - self.mean

    def forward(self, x: Tensor) -> Tensor:
        for step in self.steps:
            if self.training or not self.only_in_training:
                x = STEPS[step](self, x)
        return self.head(x)


def strange_record(kind: str, size: float, draw: torch.Generator) -> Tensor:
    """A record (FEATURES,) of that kind and magnitude."""
    record = size * torch.randn(FEATURES, generator=draw)
    if kind == "constant":
        record = torch.full((FEATURES,), size)
    elif kind == "spike":
        record = torch.zeros(FEATURES)
        record[2] = size
    elif kind == "nan":
        record[1] = torch.nan
    elif kind == "inf":
        record[3] = -torch.inf
    elif kind == "zero":
        record = torch.zeros(FEATURES)
    elif kind == "uneven":
        record = record * 10.0 ** torch.linspace(-20, 8, FEATURES)
    return record


KINDS = ("normal", "constant", "spike", "nan", "inf", "zero", "uneven")


def worst_move(
    kernel: Any,
    point: Tensor,
    lots: Tensor,
    targets: Tensor,
    record: Tensor,
    label: int,
) -> float:
    """How far a record moves the sums it is added to, and those of the other node and of the next lot, in clips of 1.

    lots (2, B, F) of two nodes; the last place of node 0 is the record's. A sum that is not finite counts as infinite.
    The random numbers of a module that draws are the same with and without it, place by place.
    """
    weigh = lambda norms: (1 / norms.clamp_min(1e-30)).clamp_max(1.0)  # noqa: E731
    x, y = lots.clone(), targets.clone()
    x[0, -1], y[0, -1] = record, label
    everyone = torch.ones(x.shape[:2], dtype=torch.bool)
    without = everyone.clone()
    without[0, -1] = False
    sums, contributes = [], False
    for mask in (everyone, without):
        kernel.draw_from(Stream.seeded(5), 0, np.arange(len(x)), 0)
        first, norms = kernel(point, x, y, mask, weigh)
        kernel.draw_from(Stream.seeded(5), 0, np.arange(len(x)), 1)
        sums.append((first, kernel(point, lots, targets, everyone, weigh)[0]))
        contributes = (mask is everyone and float(norms[0, -1]) > 0) or (mask is without and contributes)
    (with_it, after_it), (without_it, after_none) = sums
    if not contributes:  # what cannot be computed adds exactly nothing, and leaves the others as they were
        assert torch.equal(with_it, without_it), "a record without a gradient has moved a sum"
    moves = [
        (with_it - without_it)[0].double().norm(),
        1e9 * (with_it - without_it)[1].double().norm(),  # another node's sum: not at all
        1e9 * (after_it - after_none).double().norm(),  # nor the next lot's
    ]
    worst = torch.stack(moves).nan_to_num(nan=torch.inf)
    return float(worst.max())


def grammar(seed: int) -> tuple[RandomModule, list[tuple[str, float]]]:
    """Two to five steps, of which none, one or several mix; some parts are frozen; three records."""
    draw = random.Random(seed)
    steps = [draw.choice(sorted(APART)) for _ in range(draw.randint(1, 4))]
    for _ in range(draw.choice([0, 0, 1, 2])):
        steps.insert(draw.randint(0, len(steps)), draw.choice(sorted(TOGETHER)))
    torch.manual_seed(seed)
    module = RandomModule(steps, in_evaluation=draw.random() < 0.5).train(draw.random() < 0.7)
    module.freeze(*(name for name in ("layer", "norm", "table", "scale") if draw.random() < 0.2))
    return module, [(draw.choice(KINDS), 10.0 ** draw.uniform(-30, 30)) for _ in range(3)]
